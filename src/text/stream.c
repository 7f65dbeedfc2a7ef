// Looks ahead in streams, and reads them.
#include "text/stream.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

kn_stream *kn_stream_make(size_t bytes, const char *name) {
    kn_stream *s = kn_alloc(1, bytes);
    if (!s) return NULL;
    s->name = kn_strdup(name);
    if (s->name) return s;
    free(s);
    return NULL;
}

void kn_stream_close(kn_stream *s) {
    if (!s) return;
    if (s->release) s->release(s);
    free(s->ahead.data);
    free(s->name);
    free(s);
}

static knnlm_status read_more(kn_stream *s) {
    kn_buffer *b = &s->ahead;
    size_t got = 0;
    KN_TRY(kn_grow(&b->data, &b->capacity, b->size + CHUNK, 1));
    KN_TRY(s->read(s, b->data + b->size, CHUNK, &got));
    b->size += got;
    s->ended = got == 0;
    return KNNLM_OK;
}

static void drop_taken(kn_stream *s) {
    kn_buffer *b = &s->ahead;
    if (!s->taken) return;
    memmove(b->data, b->data + s->taken, b->size - s->taken);
    b->size -= s->taken;
    s->taken = 0;
}

knnlm_status kn_stream_peek(kn_stream *s, size_t wanted, const char **data, size_t *size) {
    if (s->ahead.size - s->taken < wanted) drop_taken(s);
    while (s->ahead.size - s->taken < wanted && !s->ended) KN_TRY(read_more(s));
    *data = s->ahead.data ? s->ahead.data + s->taken : "";
    *size = s->ahead.size - s->taken;
    return KNNLM_OK;
}

knnlm_status kn_stream_peek_source(kn_stream *s, kn_stream *source, size_t wanted, const char **data,
                                   size_t *size) {
    knnlm_status status = kn_stream_peek(source, wanted, data, size);
    if (status != KNNLM_OK) s->trouble = source->trouble;
    return status;
}

void kn_stream_take(kn_stream *s, size_t size) {
    s->taken += size;
}

// Small reads go by way of what is looked at, so that kinds of streams need not manage with little room.
knnlm_status kn_stream_read(kn_stream *s, char *data, size_t size, size_t *got) {
    const char *next;
    size_t left = s->ahead.size - s->taken;
    *got = 0;
    if (!left && !s->ended && size >= KN_STREAM_ROOM) {
        KN_TRY(s->read(s, data, size, got));
        s->ended = *got == 0;
        return KNNLM_OK;
    }
    KN_TRY(kn_stream_peek(s, 1, &next, &left));
    *got = kn_min(left, size);
    memcpy(data, next, *got);
    kn_stream_take(s, *got);
    return KNNLM_OK;
}

knnlm_status kn_stream_read_all(kn_stream *s, size_t max, kn_buffer *out) {
    for (size_t got = 1; got;) {
        KN_TRY(kn_grow(&out->data, &out->capacity, out->size + CHUNK, 1));
        KN_TRY(kn_stream_read(s, out->data + out->size, CHUNK, &got));
        out->size += got;
        if (out->size > max)
            return kn_fail(KNNLM_ENOTSUP, "%s: more than %zu MiB of a form that is read whole: split it",
                           s->name, max >> 20);
    }
    return KNNLM_OK;
}

knnlm_status kn_stream_of_memory(kn_buffer *text, const char *name, kn_stream **out) {
    kn_stream *s = kn_stream_make(sizeof *s, name);
    if (s) {
        s->ahead = *text;
        s->ended = true;
    } else {
        free(text->data);
    }
    *text = (kn_buffer){0};
    *out = s;
    return s ? KNNLM_OK : KNNLM_ENOMEM;
}
