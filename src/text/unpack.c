// Unpacks zstd and gzip; xz and bzip2 by libarchive.
#include "text/unpack.h"

#include "text/archive.h"

#include <limits.h>
#define ZLIB_CONST // input is not written to
#include <zlib.h>
#include <zstd.h>

enum {
    GZIP_WINDOW = 15 + 16,
    ZSTD_HEADER = 18, // of a frame, at most
};

typedef struct unpack {
    kn_stream base;
    kn_stream *source;
    ZSTD_DStream *zstd;
    z_stream gzip;
    bool gzip_open, inside; // inside: a frame has begun and not ended
    uint64_t claimed, made; // bytes of the zstd frame at hand: as it says itself, and so far
} unpack;

static knnlm_status truncated(const unpack *u, const char *format) {
    return kn_fail(KNNLM_EDATA, "%s: the %s data ends too early: the file is cut off", u->base.name, format);
}

// All of a frame's header, which says how much the frame holds.
static knnlm_status begin_frame(unpack *u) {
    const char *data;
    size_t size;
    KN_TRY(kn_stream_peek_source(&u->base, u->source, ZSTD_HEADER, &data, &size));
    u->claimed = ZSTD_getFrameContentSize(data, size);
    u->made = 0;
    return KNNLM_OK;
}

// Of a frame that ends with an empty block libzstd (1.5) compares this only when it unpacks it at one go.
static knnlm_status end_frame(const unpack *u) {
    bool known = u->claimed != ZSTD_CONTENTSIZE_UNKNOWN && u->claimed != ZSTD_CONTENTSIZE_ERROR;
    if (!known || u->made == u->claimed) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: corrupt zstd data: a frame does not hold what it says", u->base.name);
}

static knnlm_status unpack_zstd(kn_stream *s, char *data, size_t size, size_t *got) {
    unpack *u = (unpack *)s;
    ZSTD_outBuffer out = {data, size, 0};
    while (out.pos == 0) {
        ZSTD_inBuffer in = {0};
        if (!u->inside) KN_TRY(begin_frame(u));
        KN_TRY(kn_stream_peek_source(&u->base, u->source, 1, (const char **)&in.src, &in.size));
        if (!in.size && !u->inside) break;
        bool ended = !in.size;
        size_t hint = ZSTD_decompressStream(u->zstd, &out, &in);
        if (ZSTD_isError(hint))
            return kn_fail(KNNLM_EDATA, "%s: corrupt zstd data: %s", s->name, ZSTD_getErrorName(hint));
        kn_stream_take(u->source, in.pos);
        u->made += out.pos;
        u->inside = hint != 0;
        if (!u->inside) KN_TRY(end_frame(u));
        if (u->inside && ended && out.pos == 0) return truncated(u, "zstd");
    }
    *got = out.pos;
    return KNNLM_OK;
}

// A gzip file is members one after another; each ends with its checksum.
static knnlm_status inflate_some(unpack *u, const char *data, size_t size) {
    uInt room = size < UINT_MAX ? (uInt)size : UINT_MAX;
    u->gzip.next_in = (const Bytef *)data;
    u->gzip.avail_in = room;
    int result = inflate(&u->gzip, Z_NO_FLUSH);
    u->inside = result != Z_STREAM_END;
    kn_stream_take(u->source, room - u->gzip.avail_in);
    if (result == Z_STREAM_END)
        inflateReset(&u->gzip);
    else if (result == Z_MEM_ERROR)
        return kn_fail(KNNLM_ENOMEM, "%s: out of memory", u->base.name);
    else if (result != Z_OK && result != Z_BUF_ERROR)
        return kn_fail(KNNLM_EDATA, "%s: corrupt gzip data: %s", u->base.name,
                       u->gzip.msg ? u->gzip.msg : zError(result));
    return KNNLM_OK;
}

static knnlm_status unpack_gzip(kn_stream *s, char *data, size_t size, size_t *got) {
    unpack *u = (unpack *)s;
    uInt room = size < UINT_MAX ? (uInt)size : UINT_MAX;
    u->gzip.next_out = (Bytef *)data;
    u->gzip.avail_out = room;
    while (u->gzip.avail_out == room) {
        const char *next;
        size_t left;
        KN_TRY(kn_stream_peek_source(&u->base, u->source, 1, &next, &left));
        if (!left && !u->inside) break;
        KN_TRY(inflate_some(u, next, left));
        if (u->inside && !left && u->gzip.avail_out == room) return truncated(u, "gzip");
    }
    *got = room - u->gzip.avail_out;
    return KNNLM_OK;
}

static void release(kn_stream *s) {
    unpack *u = (unpack *)s;
    if (u->gzip_open) inflateEnd(&u->gzip);
    ZSTD_freeDStream(u->zstd);
    kn_stream_close(u->source);
}

static bool prepare(unpack *u, kn_form form) {
    if (form == KN_FORM_ZSTD) {
        u->base.read = unpack_zstd;
        u->zstd = ZSTD_createDStream();
        return u->zstd;
    }
    u->base.read = unpack_gzip;
    u->gzip_open = inflateInit2(&u->gzip, GZIP_WINDOW) == Z_OK;
    return u->gzip_open;
}

knnlm_status kn_unpack_open(kn_stream *source, kn_form form, kn_stream **out) {
    if (form == KN_FORM_XZ || form == KN_FORM_BZIP2) return kn_archive_unpack(source, form, out);
    unpack *u = (unpack *)kn_stream_make(sizeof *u, source->name);
    if (!u) {
        kn_stream_close(source);
        return KNNLM_ENOMEM;
    }
    u->base.release = release;
    u->source = source;
    *out = &u->base;
    if (prepare(u, form)) return KNNLM_OK;
    kn_fail(KNNLM_ENOMEM, "%s: out of memory", source->name);
    kn_stream_close(&u->base);
    return KNNLM_ENOMEM;
}
