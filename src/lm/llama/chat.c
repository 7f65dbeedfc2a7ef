// Conversations by the template that a model's file has.
//
// llama.cpp knows the templates of some dozen families by their marks, and writes them out. It is given
// placeholders, which contents then take the place of: what somebody writes is text, even where it looks like
// a control token, or he could end his turn and speak as somebody else.
#include "lm/llama/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPENS = 2, CLOSES = 3, PLACEHOLDER = 24 }; // control characters that no template has

const char *kn_llama_chat_template(const kn_lm *lm) {
    const kn_llama *m = (const kn_llama *)lm;
    return m->api->llama_model_chat_template(m->model, NULL);
}

// ---------------------------------------------------------------- the frame

// The conversation with a placeholder for each content; *out is released with free().
static knnlm_status write_frame(const kn_llama *m, const struct llama_chat_message *messages, size_t count,
                                char **out) {
    const char *template = kn_llama_chat_template(&m->lm);
    size_t capacity = 0;
    int32_t size = (int32_t)(count * 64 + 1024), needed;
    *out = NULL;
    for (;;) {
        KN_TRY(kn_grow(out, &capacity, (size_t)size + 1, 1));
        needed = m->api->llama_chat_apply_template(template, messages, count, true, *out, size);
        if (needed <= size) break;
        size = needed;
    }
    if (needed < 0)
        return kn_fail(KNNLM_ENOTSUP, "%s: llama.cpp does not know its template of conversations",
                       m->lm.info.path);
    (*out)[needed] = 0;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- tokens

static bool names_control(const kn_llama *m, const char *text) {
    for (int32_t id = 0; id < m->lm.info.vocabulary; id++) {
        if (!(m->api->llama_vocab_get_attr(m->vocab, id) & LLAMA_TOKEN_ATTR_CONTROL)) continue;
        const char *name = m->api->llama_vocab_get_text(m->vocab, id);
        if (*name && strstr(text, name)) return true;
    }
    return false;
}

// Text that becomes tokens at one go: a border between two of them would cut words otherwise than the model
// has learnt.
typedef struct writing {
    const kn_llama *m;
    char *text;
    size_t size, capacity;
    kn_tokens *out;
} writing;

static knnlm_status add(writing *w, const char *text, size_t size) {
    KN_TRY(kn_grow(&w->text, &w->capacity, w->size + size + 1, 1));
    memcpy(w->text + w->size, text, size);
    w->size += size;
    return KNNLM_OK;
}

static knnlm_status flush(writing *w, bool control) {
    int32_t *ids, start = kn_tokenizer_start(w->m->lm.tokenizer);
    size_t count;
    if (!w->size) return KNNLM_OK;
    KN_TRY(kn_llama_tokenize(w->m->api, w->m->vocab, w->text, w->size, control, &ids, &count));
    knnlm_status status = KNNLM_OK;
    size_t brought = w->out->count == 0 && count && ids[0] == start; // templates may write it themselves
    for (size_t i = brought; i < count && status == KNNLM_OK; i++) status = kn_tokens_push(w->out, ids[i], 0);
    free(ids);
    w->size = 0;
    return status;
}

static knnlm_status add_content(writing *w, const char *content) {
    bool apart = names_control(w->m, content);
    if (apart) KN_TRY(flush(w, true));
    KN_TRY(add(w, content, strlen(content)));
    return apart ? flush(w, false) : KNNLM_OK;
}

static knnlm_status fill_in(writing *w, const char *frame, const kn_chat_message *messages, size_t count) {
    for (const char *at = frame; *at;) {
        size_t plain = strcspn(at, (const char[]){OPENS, 0});
        KN_TRY(add(w, at, plain));
        at += plain;
        if (!*at) break;
        char *end;
        unsigned long number = strtoul(at + 1, &end, 10);
        if (number < count) KN_TRY(add_content(w, messages[number].content));
        at = *end == CLOSES ? end + 1 : end;
    }
    return flush(w, true);
}

// ---------------------------------------------------------------- all of it

static knnlm_status write_all(writing *w, const kn_chat_message *messages, size_t count,
                              struct llama_chat_message *holders, char (*places)[PLACEHOLDER]) {
    char *frame = NULL;
    for (size_t i = 0; i < count; i++) {
        snprintf(places[i], PLACEHOLDER, "%c%zu%c", OPENS, i, CLOSES);
        holders[i] = (struct llama_chat_message){messages[i].role, places[i]};
    }
    knnlm_status status = write_frame(w->m, holders, count, &frame);
    if (status == KNNLM_OK) status = fill_in(w, frame, messages, count);
    free(frame);
    return status;
}

knnlm_status kn_llama_chat(const kn_lm *lm, const kn_chat_message *messages, size_t count, kn_tokens *out) {
    writing w = {.m = (const kn_llama *)lm, .out = out};
    struct llama_chat_message *holders = kn_alloc(count, sizeof *holders);
    char(*places)[PLACEHOLDER] = kn_alloc(count, sizeof *places);
    knnlm_status status = holders && places ? write_all(&w, messages, count, holders, places) : KNNLM_ENOMEM;
    free(holders);
    free(places);
    free(w.text);
    return status;
}
