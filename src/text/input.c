// Reads a file or standard input, and lets who waits for it stop.
#include "text/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATIENCE = 200 }; // ms

typedef struct input {
    kn_stream base;
    int fd;
    const kn_progress *progress;
    uint64_t done;
} input;

static knnlm_status report(const input *in) {
    if (kn_progress_report(in->progress, "reading", in->done, 0, "B")) return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "%s: stopped while reading", in->base.name);
}

// Until there is something to read. A read() that waits would go on after a signal (SA_RESTART); poll() never
// does, and its time limit covers a signal that came just before it.
static knnlm_status wait_for_input(const input *in) {
    struct pollfd input = {.fd = in->fd, .events = POLLIN};
    int ready;
    KN_TRY(report(in));
    while (in->progress && ((ready = poll(&input, 1, PATIENCE)) == 0 || (ready < 0 && errno == EINTR)))
        KN_TRY(report(in));
    return KNNLM_OK;
}

static knnlm_status read_some(kn_stream *s, char *data, size_t size, size_t *got) {
    input *in = (input *)s;
    ssize_t n;
    KN_TRY(wait_for_input(in));
    while ((n = read(in->fd, data, size)) < 0 && errno == EINTR) {
    }
    if (n < 0) {
        s->trouble = "cannot be read";
        return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot read", s->name);
    }
    *got = (size_t)n;
    in->done += (size_t)n;
    return KNNLM_OK;
}

// What was looked at is not what comes next any more.
static knnlm_status seek(kn_stream *s, int64_t offset, int whence, int64_t *place) {
    input *in = (input *)s;
    if (whence == SEEK_CUR) offset -= (int64_t)(s->ahead.size - s->taken);
    off_t at = lseek(in->fd, (off_t)offset, whence);
    if (at < 0)
        return kn_fail_errno(KNNLM_EDATA, errno, "%s: cannot go to byte %lld", s->name, (long long)offset);
    s->ahead.size = s->taken = 0;
    s->ended = false;
    in->done = (uint64_t)at;
    *place = at;
    return KNNLM_OK;
}

static void release(kn_stream *s) {
    input *in = (input *)s;
    if (in->fd > STDIN_FILENO) close(in->fd);
}

static knnlm_status open_file(input *in, const char *path, const char **trouble) {
    struct stat st;
    in->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0) {
        *trouble = errno == EACCES || errno == EPERM ? "no permission" : "cannot be read";
        return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    }
    bool known = fstat(in->fd, &st) == 0;
    if (known && S_ISDIR(st.st_mode)) return kn_fail_errno(KNNLM_EIO, EISDIR, "%s", in->base.name);
    if (known && S_ISREG(st.st_mode) && in->fd != STDIN_FILENO) in->base.seek = seek;
    posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return KNNLM_OK;
}

knnlm_status kn_input_open(const char *path, const kn_progress *progress, const char **trouble,
                           kn_stream **out) {
    input *in = (input *)kn_stream_make(sizeof *in, strcmp(path, "-") == 0 ? "<stdin>" : path);
    if (!in) return KNNLM_ENOMEM;
    in->base.read = read_some;
    in->base.release = release;
    in->progress = progress;
    knnlm_status status = open_file(in, path, trouble);
    if (status == KNNLM_OK)
        *out = &in->base;
    else
        kn_stream_close(&in->base);
    return status;
}

uint64_t kn_input_done(const kn_stream *s) {
    return ((const input *)s)->done - (s->ahead.size - s->taken);
}
