// Puts values into messages, and takes them out.
#include "ranks/message.h"

#include <stdlib.h>
#include <string.h>

void kn_message_free(kn_message *m) {
    free(m->data);
    *m = (kn_message){0};
}

void kn_message_clear(kn_message *m) {
    m->size = m->taken = 0;
    m->failed = false;
}

void *kn_message_room(kn_message *m, size_t size) {
    size_t needed;
    m->failed = m->failed || !kn_add(m->size, size, &needed) ||
                kn_grow(&m->data, &m->capacity, needed, 1) != KNNLM_OK;
    if (m->failed) return NULL;
    void *room = m->data + m->size;
    m->size = needed;
    return room;
}

void kn_message_put(kn_message *m, const void *data, size_t size) {
    void *room = kn_message_room(m, size);
    if (room && size) memcpy(room, data, size);
}

static size_t padding(size_t size) {
    return (8 - size % 8) % 8;
}

void *kn_message_room_padded(kn_message *m, size_t size) {
    void *room = kn_message_room(m, size), *end = kn_message_room(m, padding(size));
    if (end) memset(end, 0, padding(size));
    return end ? m->data + m->size - padding(size) - size : room;
}

void kn_message_put_padded(kn_message *m, const void *data, size_t size) {
    void *room = kn_message_room_padded(m, size);
    if (room && size) memcpy(room, data, size);
}

const void *kn_message_view(kn_message *m, size_t size) {
    if (m->failed || size > m->size - m->taken) {
        m->failed = true;
        return NULL;
    }
    const void *view = m->data + m->taken;
    m->taken += size;
    return view;
}

const void *kn_message_view_padded(kn_message *m, size_t size) {
    const void *view = kn_message_view(m, size);
    return kn_message_view(m, padding(size)) ? view : NULL;
}

void kn_message_take(kn_message *m, void *out, size_t size) {
    const void *view = kn_message_view(m, size);
    if (view)
        memcpy(out, view, size);
    else
        memset(out, 0, size);
}

knnlm_status kn_message_sent(const kn_message *m) {
    return m->failed ? kn_fail(KNNLM_ENOMEM, "out of memory for a message to another rank") : KNNLM_OK;
}

knnlm_status kn_message_read(const kn_message *m) {
    return m->failed ? kn_fail(KNNLM_EDATA, "a message of another rank is cut short: is it the same knnlm?")
                     : KNNLM_OK;
}

// ---------------------------------------------------------------- texts

// Padded, so that what comes after it lies well.
void kn_message_put_bytes(kn_message *m, const char *text, size_t size) {
    size_t room = (size + 8) / 8 * 8;
    kn_message_put_number(m, size);
    char *out = kn_message_room(m, room);
    if (!out) return;
    if (size) memcpy(out, text, size);
    memset(out + size, 0, room - size);
}

const char *kn_message_take_bytes(kn_message *m, size_t *size) {
    *size = (size_t)kn_message_take_number(m);
    if (*size > m->size) m->failed = true; // before it is rounded up
    const char *text = m->failed ? NULL : kn_message_view(m, (*size + 8) / 8 * 8);
    if (!text) *size = 0;
    return text;
}

void kn_message_put_text(kn_message *m, const char *text) {
    kn_message_put_number(m, text != NULL);
    if (text) kn_message_put_bytes(m, text, strlen(text));
}

const char *kn_message_take_text(kn_message *m) {
    size_t size;
    return kn_message_take_number(m) ? kn_message_take_bytes(m, &size) : NULL;
}

void kn_message_put_texts(kn_message *m, const char *const *texts, size_t count) {
    kn_message_put_number(m, count);
    for (size_t i = 0; i < count; i++) kn_message_put_bytes(m, texts[i], strlen(texts[i]));
}

knnlm_status kn_message_take_texts(kn_message *m, const char ***texts, size_t *count) {
    size_t size;
    *texts = NULL;
    *count = (size_t)kn_message_take_number(m);
    if (*count > m->size) m->failed = true; // each has its size at least
    KN_TRY(kn_message_read(m));
    *texts = kn_alloc(*count + 1, sizeof **texts);
    if (!*texts) return KNNLM_ENOMEM;
    for (size_t i = 0; i < *count; i++) (*texts)[i] = kn_message_take_bytes(m, &size);
    return kn_message_read(m);
}
