// Prompts of requests, texts or ids, to tokens with their offsets.
#include "serve/prompt.h"

#include "serve/server.h"

#include "generate/text.h"

#include <stdlib.h>
#include <string.h>

void kn_read_prompt_free(kn_read_prompt *p) {
    free(p->tokens);
    free(p->text);
    free(p->offsets);
    *p = (kn_read_prompt){0};
}

// Bytes that the ids stand for, at most: pieces are as long as their texts, or longer.
static size_t text_bytes(const kn_tokenizer *t, const int32_t *tokens, size_t count) {
    size_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        const char *piece = kn_tokenizer_piece(t, tokens[i]);
        sum += 1 + (piece ? strlen(piece) : 0);
    }
    return sum;
}

bool kn_ids_check(kn_exchange *x, const kn_prompt *p, const char *param, size_t copies, kn_http_error *err) {
    int32_t vocabulary = kn_lm_describe(x->model->lm)->vocabulary;
    size_t bytes;
    for (size_t i = 0; i < p->count; i++)
        if (p->tokens[i] >= vocabulary)
            return kn_http_error_set(err, 400, NULL, param,
                                     "'%s': token %d is not in the vocabulary of %d: another "
                                     "tokenizer's? Send text, or ids of /tokenize",
                                     param, p->tokens[i], vocabulary);
    if (kn_mul(copies, text_bytes(kn_lm_tokenizer(x->model->lm), p->tokens, p->count), &bytes) &&
        kn_account_take(&x->account, bytes))
        return true;
    return kn_account_error(&x->account, param, err);
}

static bool take_ids(kn_exchange *x, const kn_prompt *p, const char *param, kn_read_prompt *out,
                     kn_http_error *err) {
    const kn_tokenizer *t = kn_lm_tokenizer(x->model->lm);
    if (!kn_ids_check(x, p, param, 2, err)) return false;
    if (!kn_account_take(&x->account, p->count * KN_COST_TOKEN))
        return kn_account_error(&x->account, param, err);
    out->own_start = p->count && p->tokens[0] == kn_tokenizer_start(t);
    out->count = p->count - out->own_start;
    out->tokens = kn_alloc(out->count + 1, sizeof *out->tokens);
    if (!out->tokens) return kn_http_error_memory(err);
    memcpy(out->tokens, p->tokens + out->own_start, out->count * sizeof *out->tokens);
    return true;
}

// jansson has seen to it that the text is UTF-8.
static bool take_text(kn_exchange *x, const kn_prompt *p, const char *param, kn_read_prompt *out,
                      kn_http_error *err) {
    kn_tokens tokens = {.with_offsets = true};
    if (!kn_account_take(&x->account, p->size * (1 + KN_COST_TOKEN)))
        return kn_account_error(&x->account, param, err);
    knnlm_status status = kn_tokenizer_encode(kn_lm_tokenizer(x->model->lm), p->text, p->size, &tokens);
    out->tokens = tokens.ids;
    out->offsets = tokens.offsets;
    out->count = tokens.count;
    return status == KNNLM_OK || kn_http_error_status(err, status, knnlm_message());
}

static knnlm_status find_offsets(const kn_tokenizer *t, kn_read_prompt *p) {
    size_t at = 0, size;
    p->offsets = kn_alloc(p->count + 1, sizeof *p->offsets);
    if (!p->offsets) return KNNLM_ENOMEM;
    for (size_t i = 0; i < p->count; i++) {
        char *piece;
        KN_TRY(kn_piece_after(t, i ? p->tokens[i - 1] : -1, p->tokens[i], &piece, &size));
        free(piece);
        p->offsets[i] = at;
        at += size;
    }
    return KNNLM_OK;
}

// The text after the start token, without what that stands for.
static knnlm_status decode(const kn_tokenizer *t, kn_read_prompt *p) {
    int32_t start = kn_tokenizer_start(t), *all = kn_alloc(p->count + 1, sizeof *all);
    char *whole = NULL, *first = NULL;
    size_t whole_size, first_size;
    if (!all) return KNNLM_ENOMEM;
    all[0] = start;
    memcpy(all + 1, p->tokens, p->count * sizeof *all);
    knnlm_status status = kn_tokenizer_decode(t, all, 1, &first, &first_size);
    if (status == KNNLM_OK) status = kn_tokenizer_decode(t, all, p->count + 1, &whole, &whole_size);
    if (status == KNNLM_OK) {
        size_t skip = kn_min(first_size, whole_size);
        // Tokenizers that join with spaces put one after the start token too.
        if (kn_tokenizer_joins_with_spaces(t) && skip < whole_size && whole[skip] == ' ') skip++;
        p->text = kn_strndup(whole + skip, whole_size - skip);
        p->size = whole_size - skip;
        if (!p->text) status = KNNLM_ENOMEM;
    }
    free(all);
    free(whole);
    free(first);
    return status;
}

bool kn_prompt_check(const kn_exchange *x, size_t tokens, const char *param, kn_http_error *err) {
    size_t max = x->server->o.max_tokens;
    return tokens <= max || kn_http_error_set(err, 400, "context_length_exceeded", param,
                                              "'%s' has %zu tokens: at most %zu here", param, tokens, max);
}

bool kn_prompt_read(kn_exchange *x, const kn_prompt *given, int wanted, const char *param,
                    kn_read_prompt *out, kn_http_error *err) {
    kn_prompt continued = *given, *p = &continued;
    const kn_tokenizer *t = kn_lm_tokenizer(x->model->lm);
    *out = (kn_read_prompt){0};
    out->space = wanted & KN_PROMPT_CONTINUED && p->text && p->size > 1 && p->text[p->size - 1] == ' ';
    p->size -= out->space;
    if (p->text ? !take_text(x, p, param, out, err) : !take_ids(x, p, param, out, err)) return false;
    if (!kn_prompt_check(x, out->count, param, err)) return false;
    if (!(wanted & KN_PROMPT_TEXT)) return true;
    knnlm_status status = KNNLM_OK;
    if (p->text) {
        out->text = kn_strndup(p->text, p->size);
        out->size = p->size;
        if (!out->text) status = KNNLM_ENOMEM;
    } else {
        status = find_offsets(t, out);
        if (status == KNNLM_OK) status = decode(t, out);
    }
    return status == KNNLM_OK || kn_http_error_status(err, KNNLM_ENOMEM, knnlm_message());
}
