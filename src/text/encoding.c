// Decodes texts by iconv, block by block.
#include "text/encoding.h"

#include <errno.h>
#include <iconv.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct decoder {
    kn_stream base;
    kn_stream *source;
    iconv_t iconv;
    char encoding[64];
    uint64_t done; // bytes of the source
    bool flushed;
} decoder;

static const iconv_t none = (iconv_t)-1;

const char *kn_encoding_mark(const char *data, size_t size, size_t *mark) {
    static const struct {
        const char *mark, *encoding;
        size_t size;
    } marks[] = {{"\xEF\xBB\xBF", "UTF-8", 3},
                 {"\xFF\xFE\0\0", "UTF-32LE", 4}, // before UTF-16LE, which it begins with
                 {"\0\0\xFE\xFF", "UTF-32BE", 4},
                 {"\xFF\xFE", "UTF-16LE", 2},
                 {"\xFE\xFF", "UTF-16BE", 2}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        *mark = marks[i].size;
        if (size >= *mark && memcmp(data, marks[i].mark, *mark) == 0) return marks[i].encoding;
    }
    *mark = 0;
    return NULL;
}

bool kn_encoding_known(const char *encoding) {
    iconv_t converter = iconv_open("UTF-8", encoding);
    if (converter == none) return false;
    iconv_close(converter);
    return true;
}

knnlm_status kn_encoding_check(const char *encoding) {
    if (*encoding && kn_encoding_known(encoding)) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "`encoding` %s: not known here (iconv -l lists those that are)", encoding);
}

static knnlm_status refuse(decoder *d, const char *where) {
    d->base.trouble = "wrong encoding";
    return kn_fail(KNNLM_EDATA, "%s: not %s%s at byte %llu (`encoding` names another)", d->base.name,
                   d->encoding, where, (unsigned long long)d->done);
}

// The end: some encodings hold a character back until they know that nothing combines with it.
static knnlm_status flush(decoder *d, char *data, size_t size, size_t *got) {
    char *out = data;
    size_t room = size;
    *got = 0;
    if (d->flushed) return KNNLM_OK;
    d->flushed = true;
    if (iconv(d->iconv, NULL, NULL, &out, &room) == (size_t)-1) return refuse(d, ", cut off");
    *got = size - room;
    return KNNLM_OK;
}

// A character that the block cuts waits for the next block.
static knnlm_status decode(kn_stream *s, char *data, size_t size, size_t *got) {
    decoder *d = (decoder *)s;
    size_t wanted = 1, left;
    const char *next;
    for (;;) {
        KN_TRY(kn_stream_peek_source(s, d->source, wanted, &next, &left));
        if (!left) return flush(d, data, size, got);
        if (left < wanted) return refuse(d, ", cut off");
        char *in = (char *)(uintptr_t)next, *out = data;
        size_t before = left, room = size;
        size_t result = iconv(d->iconv, &in, &left, &out, &room);
        int error = errno;
        kn_stream_take(d->source, before - left);
        d->done += before - left;
        *got = size - room;
        if (*got) return KNNLM_OK;
        if (result == (size_t)-1 && error == EILSEQ) return refuse(d, "");
        wanted = left + 1;
    }
}

static void release(kn_stream *s) {
    decoder *d = (decoder *)s;
    if (d->iconv != none) iconv_close(d->iconv);
    kn_stream_close(d->source);
}

knnlm_status kn_encoding_open(kn_stream *source, const char *encoding, kn_stream **out) {
    if (!encoding || strcasecmp(encoding, "UTF-8") == 0 || strcasecmp(encoding, "UTF8") == 0) {
        *out = source;
        return KNNLM_OK;
    }
    decoder *d = (decoder *)kn_stream_make(sizeof *d, source->name);
    if (!d) {
        kn_stream_close(source);
        return KNNLM_ENOMEM;
    }
    d->base.read = decode;
    d->base.release = release;
    d->source = source;
    snprintf(d->encoding, sizeof d->encoding, "%s", encoding);
    d->iconv = iconv_open("UTF-8", encoding);
    *out = &d->base;
    if (d->iconv != none) return KNNLM_OK;
    knnlm_status status = kn_encoding_check(encoding);
    kn_stream_close(&d->base);
    return status == KNNLM_OK ? kn_fail(KNNLM_ENOMEM, "out of memory") : status;
}
