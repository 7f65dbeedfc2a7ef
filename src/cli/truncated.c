// A file that is cut short while it is mapped: reading beyond its new end is SIGBUS, which would end the
// command without a word. Nothing can be saved then, but the file can be named. Only what a signal handler
// may call is called.
#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 4608 }; // a path and what stands before it

static void say(const char *text, size_t size) {
    ssize_t ignored = write(STDERR_FILENO, text, size);
    (void)ignored;
}

static void say_text(const char *text) {
    say(text, strlen(text));
}

static uintptr_t read_hex(const char **at) {
    uintptr_t number = 0;
    for (;; ++*at) {
        char c = **at;
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return number;
        number = number << 4 | (uintptr_t)digit;
    }
}

// The file in a line of /proc/self/maps ("7f00-7f10 r--p 0000 fe:01 123    /path"), if the address is in it.
static char *path_in(char *line, uintptr_t address) {
    const char *at = line;
    uintptr_t from = read_hex(&at);
    if (*at++ != '-' || address < from || address >= read_hex(&at)) return NULL;
    char *path = strchr(line, '/');
    for (char *c = path; c && *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c == 0x7f) *c = '?';
    return path;
}

// Looks through the mappings line by line; the path stays valid until the next call.
static const char *find_file(uintptr_t address) {
    static char line[LINE];
    size_t used = 0;
    char c, *path = NULL;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !path && read(fd, &c, 1) == 1) {
        if (c != '\n') {
            if (used + 1 < sizeof line) line[used++] = c;
            continue;
        }
        line[used] = 0;
        used = 0;
        path = path_in(line, address);
    }
    if (fd >= 0) close(fd);
    return path;
}

// Other threads may meet the same gap while the first tells of it: they wait for its end.
static atomic_flag telling = ATOMIC_FLAG_INIT;

static void on_bus_error(int number, siginfo_t *info, void *context) {
    while (atomic_flag_test_and_set(&telling)) pause();
    const char *path = find_file((uintptr_t)info->si_addr);
    (void)number;
    (void)context;
    say_text("knnlm");
    if (cli_current()) {
        say_text(" ");
        say_text(cli_current()->name);
    }
    say_text(": ");
    say_text(path ? path : "a file");
    say_text(": was cut short, or cannot be read any more, while it was in use: nothing that was finished is "
             "lost (knnlm verify tells of a store)\n");
    _exit(CLI_FAILED);
}

void cli_catch_truncation(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
}
