// The text of a passage, and what is around it, cut between words.
#include "base/words.h"
#include "generate/sequence.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- borders

// Bytes of the first `count` tokens.
static knnlm_status size_of(const kn_tokenizer *t, const int32_t *tokens, size_t count, size_t *size) {
    char *text;
    KN_TRY(kn_tokenizer_decode(t, tokens, count, &text, size));
    free(text);
    return KNNLM_OK;
}

knnlm_status kn_tokens_border(const kn_tokenizer *t, const int32_t *tokens, size_t left, size_t count,
                              bool *border) {
    char *text;
    size_t size, at;
    *border = true;
    if (left == 0 || left == count) return KNNLM_OK;
    KN_TRY(size_of(t, tokens, left, &at));
    KN_TRY(kn_tokenizer_decode(t, tokens, count, &text, &size));
    *border = kn_word_border(text, size, at);
    free(text);
    return KNNLM_OK;
}

knnlm_status kn_document_border(const kn_tokenizer *t, const kn_datastore *store, uint64_t entry,
                                uint64_t count, uint64_t at, bool *border) {
    int32_t tokens[2 * KN_BORDER_CONTEXT];
    size_t left = kn_min((size_t)at, KN_BORDER_CONTEXT),
           right = kn_min((size_t)(count - at), KN_BORDER_CONTEXT);
    KN_TRY(kn_datastore_tokens(store, entry + at - left, left + right, tokens));
    return kn_tokens_border(t, tokens, left, left + right, border);
}

// ---------------------------------------------------------------- texts

// Tokens of a document, decoded, with the bytes at which the parts of an excerpt begin.
typedef struct window {
    int32_t *tokens;
    size_t count;
    char *text;
    size_t size, before, taken, after, end;
} window;

// A token's text depends on the one before it: the first of a document comes after the start token.
static knnlm_status read_window(const kn_tokenizer *t, const kn_datastore *store, const kn_excerpt *x,
                                window *w) {
    size_t around = x->around, start = !kn_tokenizer_joins_with_spaces(t);
    size_t before = kn_min((size_t)x->from, around), after = kn_min((size_t)(x->count - x->to), around);
    size_t left = kn_min((size_t)x->from, around + KN_BORDER_CONTEXT),
           right = kn_min((size_t)(x->count - x->to), around + KN_BORDER_CONTEXT);
    size_t taken = (size_t)(x->to - x->from);
    if (left < x->from) start = 0;
    w->count = start + left + taken + right;
    w->tokens = kn_alloc(w->count, sizeof *w->tokens);
    if (!w->tokens) return KNNLM_ENOMEM;
    if (start) w->tokens[0] = kn_tokenizer_start(t);
    KN_TRY(kn_datastore_tokens(store, x->entry + x->from - left, left + taken + right, w->tokens + start));
    KN_TRY(kn_tokenizer_decode(t, w->tokens, w->count, &w->text, &w->size));
    KN_TRY(size_of(t, w->tokens, start + left - before, &w->before));
    KN_TRY(size_of(t, w->tokens, start + left, &w->taken));
    KN_TRY(size_of(t, w->tokens, start + left + taken, &w->after));
    return size_of(t, w->tokens, start + left + taken + after, &w->end);
}

static knnlm_status cut(const kn_excerpt *x, const window *w, kn_source *out) {
    size_t before = w->before, end = w->end;
    out->begins = x->from <= x->around;
    out->ends = x->count - x->to <= x->around;
    if (!out->begins) before = kn_min(kn_word_border_after(w->text, w->size, before), w->taken);
    if (!out->ends) end = kn_max(kn_word_border_before(w->text, w->size, end), w->after);
    free(out->before);
    free(out->text);
    free(out->after);
    out->before_size = w->taken - before;
    out->text_size = w->after - w->taken;
    out->after_size = end - w->after;
    out->before = kn_strndup(w->text + before, out->before_size);
    out->text = kn_strndup(w->text + w->taken, out->text_size);
    out->after = kn_strndup(w->text + w->after, out->after_size);
    return out->before && out->text && out->after ? KNNLM_OK : KNNLM_ENOMEM;
}

knnlm_status kn_excerpt_read(const kn_tokenizer *t, const kn_datastore *store, const kn_excerpt *x,
                             kn_source *out) {
    window w = {0};
    kn_store_entry entry;
    KN_TRY(kn_datastore_entry(store, x->entry + x->from, &entry));
    knnlm_status status = read_window(t, store, x, &w);
    if (status == KNNLM_OK) status = cut(x, &w, out);
    out->entry = entry.id;
    out->position = entry.position;
    out->offset = entry.offset;
    out->length = x->to - x->from;
    free(w.tokens);
    free(w.text);
    return status;
}
