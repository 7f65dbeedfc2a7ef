// The progress line: what is done, its rate, and the time left.
#include "cli/cli.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static double interrupted_at;

// The second one ends the process, unless it comes at once: timeout(1), and a terminal whose Ctrl-C a parent
// passes on, send each signal twice.
static void on_signal(int number) {
    double now = kn_seconds();
    if (interrupted && now - interrupted_at < 0.5) return;
    if (interrupted) {
        signal(number, SIG_DFL);
        raise(number);
    }
    interrupted_at = now;
    interrupted = 1;
}

void cli_catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaddset(&action.sa_mask, SIGINT); // one handler at a time
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cli_interrupted(void) {
    return interrupted != 0;
}

const char *cli_duration(double seconds, char buffer[32]) {
    long s = (long)(seconds + 0.5);
    if (!(seconds >= 0 && seconds < 1e8))
        snprintf(buffer, 32, "?");
    else if (s < 60)
        snprintf(buffer, 32, "%lds", s);
    else if (s < 3600)
        snprintf(buffer, 32, "%ldm%02lds", s / 60, s % 60);
    else
        snprintf(buffer, 32, "%ldh%02ldm", s / 3600, s / 60 % 60);
    return buffer;
}

const char *cli_perplexity(double x, char buffer[32]) {
    if (x >= 1e5 && x < 1e15) return cli_count(x, buffer);
    snprintf(buffer, 32, x < 1000 ? "%.3f" : x < 1e5 ? "%.1f" : "%.3g", x);
    return buffer;
}

const char *cli_count(double n, char buffer[32]) {
    const char *units[] = {"", "K", "M", "G", "T"};
    int unit = 0;
    while (n >= 1000 && unit < 4) {
        n /= 1000;
        unit++;
    }
    snprintf(buffer, 32,
             unit == 0 ? "%.0f%s"
             : n < 10  ? "%.2f%s"
             : n < 100 ? "%.1f%s"
                       : "%.0f%s",
             n, units[unit]);
    return buffer;
}

// ---------------------------------------------------------------- the bar

static struct {
    const char *what;
    uint64_t first; // what was done already when it began
    double started, drawn;
    int width; // of what stands there; 0: nothing
} bar;

enum { BAR_WIDTH = 24 };

bool cli_terminal(int fd) {
    const char *kind = getenv("TERM");
    return isatty(fd) && !(kind && strcmp(kind, "dumb") == 0);
}

bool cli_colors(int fd) {
    const char *no_color = getenv("NO_COLOR");
    return cli_terminal(fd) && !(no_color && *no_color);
}

// Over what stood there, with spaces rather than escape codes.
void cli_progress_line(const char *line) {
    int width = (int)strlen(line);
    fprintf(stderr, "\r%s%*s", line, width < bar.width ? bar.width - width : 0, "");
    bar.width = width;
}

void cli_progress_clear(void) {
    if (!bar.width) return;
    cli_progress_line("");
    fputc('\r', stderr);
}

static void draw(const char *what, uint64_t done, uint64_t total, const char *unit, double now) {
    char rate[32], left[32], cells[BAR_WIDTH + 1], line[256];
    double seconds = now - bar.started, part = total ? (double)done / (double)total : 0;
    double speed = done > bar.first ? (double)(done - bar.first) / seconds : 0;
    cli_count(speed, rate);
    if (!total) {
        char count[32];
        snprintf(line, sizeof line, "%s %s %s, %s %s/s", what, cli_count((double)done, count), unit, rate,
                 unit);
        cli_progress_line(line);
        return;
    }
    memset(cells, '.', BAR_WIDTH);
    memset(cells, '#', (size_t)((part < 1 ? part : 1) * BAR_WIDTH));
    cells[BAR_WIDTH] = 0;
    snprintf(line, sizeof line, "%s [%s] %3.0f%%  %s %s/s  %s left", what, cells, 100 * part, rate, unit,
             cli_duration(speed > 0 ? ((double)total - (double)done) / speed : -1, left));
    cli_progress_line(line);
}

static bool report(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    double now = kn_seconds();
    (void)context;
    if (interrupted) return false;
    if (!cli_terminal(STDERR_FILENO)) return true;
    if (!bar.what || strcmp(bar.what, what) != 0 || done < bar.first) {
        bar.what = what;
        bar.first = done;
        bar.started = now;
        bar.drawn = now; // nothing is drawn for work that is over at once
    }
    if (now - bar.drawn < 0.2) return true;
    bar.drawn = now;
    draw(what, done, total, unit, now);
    return true;
}

const kn_progress cli_progress = {report, NULL};
