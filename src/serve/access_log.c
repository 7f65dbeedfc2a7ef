// The access log: one line per request, as text or as JSON.
#include "serve/access_log.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct kn_access_log {
    pthread_mutex_t lock; // of the descriptor
    char *path;           // NULL: standard error
    bool json;
    int fd;
};

static knnlm_status open_file(const char *path, int *fd) {
    *fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    return *fd >= 0 ? KNNLM_OK : kn_fail_errno(KNNLM_EIO, errno, "%s", path);
}

knnlm_status kn_access_log_open(const char *path, bool json, kn_access_log **out) {
    kn_access_log *log = kn_alloc(1, sizeof *log);
    *out = NULL;
    if (!log) return KNNLM_ENOMEM;
    pthread_mutex_init(&log->lock, NULL);
    log->json = json;
    log->fd = STDERR_FILENO;
    knnlm_status status = KNNLM_OK;
    if (strcmp(path, "-") != 0) {
        log->path = kn_strdup(path);
        status = log->path ? open_file(path, &log->fd) : KNNLM_ENOMEM;
    }
    if (status == KNNLM_OK)
        *out = log;
    else
        kn_access_log_close(log);
    return status;
}

void kn_access_log_close(kn_access_log *log) {
    if (!log) return;
    if (log->path && log->fd >= 0) close(log->fd);
    pthread_mutex_destroy(&log->lock);
    free(log->path);
    free(log);
}

knnlm_status kn_access_log_reopen(kn_access_log *log) {
    int fd;
    if (!log || !log->path) return KNNLM_OK;
    KN_TRY(open_file(log->path, &fd));
    pthread_mutex_lock(&log->lock);
    int old = log->fd;
    log->fd = fd;
    pthread_mutex_unlock(&log->lock);
    close(old);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- a line

enum { LINE = 700, PATH = 200 };

// What a client sent cannot end a line, or a string of JSON.
static void print_safely(const char *text, char *out, size_t size) {
    size_t used = 0;
    for (; *text && used + 1 < size; text++)
        out[used++] = *text > ' ' && *text < 127 && *text != '"' && *text != '\\' ? *text : '?';
    out[used] = 0;
}

static void print_time(char *out, size_t size) {
    struct timespec now;
    struct tm parts;
    char seconds[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out, size, "%s.%03ldZ", seconds, now.tv_nsec / 1000000);
}

// One write per line: lines of several threads, and of several processes, do not mix.
void kn_access_log_write(kn_access_log *log, const kn_access *a) {
    char line[LINE], path[PATH], method[16], when[48];
    if (!log) return;
    print_safely(a->path, path, sizeof path);
    print_safely(a->method, method, sizeof method);
    print_time(when, sizeof when);
    const char *format =
        log->json ? "{\"time\":\"%s\",\"address\":\"%s\",\"method\":\"%s\",\"path\":\"%s\",\"status\":%u,"
                    "\"bytes\":%" PRIu64 ",\"seconds\":%.6f}\n"
                  : "%s %s %s %s %u %" PRIu64 " %.6f\n";
    int n =
        snprintf(line, sizeof line, format, when, a->address, method, path, a->status, a->bytes, a->seconds);
    pthread_mutex_lock(&log->lock);
    ssize_t written = write(log->fd, line, (size_t)n);
    pthread_mutex_unlock(&log->lock);
    (void)written; // a full disk is no reason to stop serving
}
