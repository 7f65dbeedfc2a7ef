// Reads a file as one stream of bytes, and unpacks zstd and gzip on the way.
#include "text/unpack.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum {
    INPUT = 1 << 18,
    GZIP_WINDOW = 15 + 16,
    ZSTD_HEADER = 18, // of a frame, at most
    PATIENCE = 200,   // ms
};

typedef knnlm_status unpacker(kn_unpack *u, char *data, size_t size, size_t *got);

struct kn_unpack {
    char *name;
    int fd;
    unpacker *unpack;
    ZSTD_DStream *zstd;
    z_stream gzip;
    bool gzip_open, inside; // inside: a frame has begun and not ended
    bool ended;             // the file has
    uint64_t claimed, made; // bytes of the zstd frame at hand: as it says itself, and so far
    const kn_progress *progress;
    uint64_t done;
    size_t at, filled; // of input
    uint8_t input[INPUT];
};

static knnlm_status report(const kn_unpack *u) {
    if (kn_progress_report(u->progress, "reading", u->done, 0, "B")) return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "%s: stopped while reading", u->name);
}

// Until there is something to read. A read() that waits would go on after a signal (SA_RESTART); poll() never
// does, and its time limit covers a signal that came just before it.
static knnlm_status wait_for_input(const kn_unpack *u) {
    struct pollfd input = {.fd = u->fd, .events = POLLIN};
    int ready;
    KN_TRY(report(u));
    while (u->progress && ((ready = poll(&input, 1, PATIENCE)) == 0 || (ready < 0 && errno == EINTR)))
        KN_TRY(report(u));
    return KNNLM_OK;
}

// One read() after what the input holds already.
static knnlm_status read_more(kn_unpack *u) {
    ssize_t n;
    KN_TRY(wait_for_input(u));
    while ((n = read(u->fd, u->input + u->filled, sizeof u->input - u->filled)) < 0 && errno == EINTR) {
    }
    if (n < 0) return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot read", u->name);
    u->ended = n == 0;
    u->filled += (size_t)n;
    u->done += (size_t)n;
    return KNNLM_OK;
}

// Fills the empty input; at the file's end it stays empty.
static knnlm_status refill(kn_unpack *u) {
    u->at = u->filled = 0;
    return u->ended ? KNNLM_OK : read_more(u);
}

static knnlm_status unpack_plain(kn_unpack *u, char *data, size_t size, size_t *got) {
    if (u->at == u->filled) KN_TRY(refill(u));
    size_t left = u->filled - u->at;
    *got = left < size ? left : size;
    memcpy(data, u->input + u->at, *got);
    u->at += *got;
    return KNNLM_OK;
}

static knnlm_status truncated(const kn_unpack *u, const char *format) {
    return kn_fail(KNNLM_EDATA, "%s: the %s data ends too early: the file is cut off", u->name, format);
}

// All of a frame's header, which may lie across two reads: it says how much the frame holds.
static knnlm_status begin_frame(kn_unpack *u) {
    while (u->filled - u->at < ZSTD_HEADER && !u->ended) {
        memmove(u->input, u->input + u->at, u->filled - u->at);
        u->filled -= u->at;
        u->at = 0;
        KN_TRY(read_more(u));
    }
    u->claimed = ZSTD_getFrameContentSize(u->input + u->at, u->filled - u->at);
    u->made = 0;
    return KNNLM_OK;
}

// Of a frame that ends with an empty block libzstd (1.5) compares this only when it unpacks it at one go.
static knnlm_status end_frame(const kn_unpack *u) {
    bool known = u->claimed != ZSTD_CONTENTSIZE_UNKNOWN && u->claimed != ZSTD_CONTENTSIZE_ERROR;
    if (!known || u->made == u->claimed) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: corrupt zstd data: a frame does not hold what it says", u->name);
}

static knnlm_status unpack_zstd(kn_unpack *u, char *data, size_t size, size_t *got) {
    ZSTD_outBuffer out = {data, size, 0};
    while (out.pos == 0) {
        if (!u->inside) KN_TRY(begin_frame(u));
        if (u->at == u->filled) KN_TRY(refill(u));
        if (u->at == u->filled && !u->inside) break;
        ZSTD_inBuffer in = {u->input, u->filled, u->at};
        size_t hint = ZSTD_decompressStream(u->zstd, &out, &in);
        if (ZSTD_isError(hint))
            return kn_fail(KNNLM_EDATA, "%s: corrupt zstd data: %s", u->name, ZSTD_getErrorName(hint));
        u->at = in.pos;
        u->made += out.pos;
        u->inside = hint != 0;
        if (!u->inside) KN_TRY(end_frame(u));
        if (u->inside && u->ended && out.pos == 0) return truncated(u, "zstd");
    }
    *got = out.pos;
    return KNNLM_OK;
}

// A gzip file is members one after another; each ends with its checksum.
static knnlm_status inflate_some(kn_unpack *u) {
    u->gzip.next_in = u->input + u->at;
    u->gzip.avail_in = (uInt)(u->filled - u->at);
    int result = inflate(&u->gzip, Z_NO_FLUSH);
    u->inside = result != Z_STREAM_END;
    u->at = u->filled - u->gzip.avail_in;
    if (result == Z_STREAM_END)
        inflateReset(&u->gzip);
    else if (result == Z_MEM_ERROR)
        return kn_fail(KNNLM_ENOMEM, "%s: out of memory", u->name);
    else if (result != Z_OK && result != Z_BUF_ERROR)
        return kn_fail(KNNLM_EDATA, "%s: corrupt gzip data: %s", u->name,
                       u->gzip.msg ? u->gzip.msg : zError(result));
    return KNNLM_OK;
}

static knnlm_status unpack_gzip(kn_unpack *u, char *data, size_t size, size_t *got) {
    uInt room = size < UINT_MAX ? (uInt)size : UINT_MAX;
    u->gzip.next_out = (Bytef *)data;
    u->gzip.avail_out = room;
    while (u->gzip.avail_out == room) {
        if (u->at == u->filled) KN_TRY(refill(u));
        if (u->at == u->filled && !u->inside) break;
        KN_TRY(inflate_some(u));
        if (u->inside && u->ended && u->gzip.avail_out == room) return truncated(u, "gzip");
    }
    *got = room - u->gzip.avail_out;
    return KNNLM_OK;
}

static knnlm_status open_file(kn_unpack *u, const char *path) {
    struct stat st;
    bool standard = strcmp(path, "-") == 0;
    u->name = kn_strdup(standard ? "<stdin>" : path);
    if (!u->name) return KNNLM_ENOMEM;
    u->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (u->fd < 0) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    if (fstat(u->fd, &st) == 0 && S_ISDIR(st.st_mode)) return kn_fail_errno(KNNLM_EIO, EISDIR, "%s", u->name);
    posix_fadvise(u->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return KNNLM_OK;
}

// The first read of a pipe may give a byte or two; the format's mark needs four.
static knnlm_status read_mark(kn_unpack *u) {
    while (u->filled < 4 && !u->ended) KN_TRY(read_more(u));
    return KNNLM_OK;
}

static knnlm_status choose_format(kn_unpack *u) {
    static const uint8_t zstd_mark[] = {0x28, 0xB5, 0x2F, 0xFD}, gzip_mark[] = {0x1F, 0x8B};
    KN_TRY(read_mark(u));
    u->unpack = unpack_plain;
    if (u->filled >= sizeof zstd_mark && memcmp(u->input, zstd_mark, sizeof zstd_mark) == 0) {
        u->unpack = unpack_zstd;
        u->zstd = ZSTD_createDStream();
        if (!u->zstd) return kn_fail(KNNLM_ENOMEM, "%s: out of memory", u->name);
    } else if (u->filled >= sizeof gzip_mark && memcmp(u->input, gzip_mark, sizeof gzip_mark) == 0) {
        u->unpack = unpack_gzip;
        u->gzip_open = inflateInit2(&u->gzip, GZIP_WINDOW) == Z_OK;
        if (!u->gzip_open) return kn_fail(KNNLM_ENOMEM, "%s: out of memory", u->name);
    }
    return KNNLM_OK;
}

knnlm_status kn_unpack_open(const char *path, const kn_progress *progress, kn_unpack **out) {
    kn_unpack *u = kn_alloc(1, sizeof *u);
    if (!u) return KNNLM_ENOMEM;
    u->fd = -1;
    u->progress = progress;
    knnlm_status status = open_file(u, path);
    if (status == KNNLM_OK) status = choose_format(u);
    if (status != KNNLM_OK)
        kn_unpack_close(u);
    else
        *out = u;
    return status;
}

knnlm_status kn_unpack_read(kn_unpack *u, char *data, size_t size, size_t *got) {
    return u->unpack(u, data, size, got);
}

uint64_t kn_unpack_done(const kn_unpack *u) {
    return u->done - (u->filled - u->at);
}

void kn_unpack_close(kn_unpack *u) {
    if (!u) return;
    if (u->gzip_open) inflateEnd(&u->gzip);
    ZSTD_freeDStream(u->zstd);
    if (u->fd > STDIN_FILENO) close(u->fd);
    free(u->name);
    free(u);
}
