// Reads the training text as tokens, and shuffles its windows.
#include "train/corpus.h"

#include "base/memory.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static knnlm_status append(kn_corpus *c, const int32_t *tokens, size_t n) {
    KN_TRY(kn_grow(&c->tokens, &c->capacity, c->count + n, sizeof *c->tokens));
    if (n)
        memcpy(c->tokens + c->count, tokens,
               n * sizeof *tokens); // a blank document has no tokens, and no array
    c->count += n;
    return KNNLM_OK;
}

static knnlm_status append_documents(const kn_tokenizer *t, kn_documents *d, const kn_progress *progress,
                                     kn_corpus *c, kn_tokens *tokens) {
    int32_t start = kn_tokenizer_start(t);
    for (;;) {
        kn_document document;
        bool found;
        KN_TRY(kn_documents_next(d, &document, &found));
        if (!found) return append(c, &start, 1);
        tokens->count = 0;
        KN_TRY(kn_tokenizer_encode(t, document.text, document.size, tokens));
        KN_TRY(append(c, &start, 1));
        KN_TRY(append(c, tokens->ids, tokens->count));
        c->documents++;
        c->bytes += document.size;
        if (!kn_progress_report(progress, "reading", kn_documents_done(d), kn_documents_total(d), "B"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while reading the text");
    }
}

knnlm_status kn_corpus_read(const kn_tokenizer *tokenizer, const char *const *paths, size_t count,
                            const kn_text_options *options, const kn_progress *progress, kn_corpus *out) {
    kn_documents *d;
    kn_tokens tokens = {.progress = progress};
    *out = (kn_corpus){0};
    KN_TRY(kn_documents_open(paths, count, options, &d));
    kn_documents_watch(d, progress);
    knnlm_status status = append_documents(tokenizer, d, progress, out, &tokens);
    kn_documents_close(d);
    kn_tokens_free(&tokens);
    if (status != KNNLM_OK) kn_corpus_free(out);
    if (status == KNNLM_OK) out->hash = XXH3_64bits(out->tokens, out->count * sizeof *out->tokens);
    return status;
}

void kn_corpus_free(kn_corpus *c) {
    free(c->tokens);
    *c = (kn_corpus){0};
}

static knnlm_status append_text(kn_documents *d, size_t limit, char **text, size_t *size) {
    size_t capacity = 0;
    while (*size < limit) {
        kn_document document;
        bool found;
        KN_TRY(kn_documents_next(d, &document, &found));
        if (!found) break;
        size_t n = document.size < limit - *size ? document.size : limit - *size;
        while (n < document.size && n > 0 && ((unsigned char)document.text[n] & 0xc0) == 0x80)
            n--; // whole characters
        KN_TRY(kn_grow(text, &capacity, *size + n + 1, 1));
        memcpy(*text + *size, document.text, n);
        *size += n;
        (*text)[*size] = 0;
        if (n < document.size) break;
    }
    return KNNLM_OK;
}

knnlm_status kn_corpus_text(const char *const *paths, size_t count, const kn_text_options *options,
                            size_t limit, const kn_progress *progress, char **text, size_t *size) {
    kn_documents *d;
    kn_text_options silent = *options;
    silent.skipped = NULL;
    *text = NULL;
    *size = 0;
    KN_TRY(kn_documents_open(paths, count, &silent, &d));
    kn_documents_watch(d, progress);
    knnlm_status status = append_text(d, limit, text, size);
    kn_documents_close(d);
    if (status == KNNLM_OK && *size == 0) status = kn_fail(KNNLM_EDATA, "%s: no text to train on", paths[0]);
    if (status != KNNLM_OK) {
        free(*text);
        *text = NULL;
    }
    return status;
}

// ---------------------------------------------------------------- order

size_t kn_order_windows(const kn_order *o) {
    // One window less than fits, so that every epoch can begin up to `length` tokens late; short texts have
    // one.
    size_t fit = (o->tokens - 1) / o->length;
    return fit > 1 ? fit - 1 : 1;
}

knnlm_status kn_order_init(kn_order *o, size_t tokens, size_t length, uint64_t seed) {
    *o = (kn_order){.tokens = tokens, .length = length, .seed = seed, .epoch = -1};
    if (tokens < length + 1)
        return kn_fail(KNNLM_EDATA,
                       "%zu tokens of text: a window of %zu needs %zu; give more text or a smaller `length`",
                       tokens, length, length + 1);
    o->windows = kn_order_windows(o);
    if (o->windows > UINT32_MAX) return kn_fail(KNNLM_EINVAL, "%zu windows of text are too many", o->windows);
    o->places = kn_alloc(o->windows, sizeof *o->places);
    return o->places ? KNNLM_OK : KNNLM_ENOMEM;
}

void kn_order_free(kn_order *o) {
    free(o->places);
    *o = (kn_order){0};
}

static void shuffle(kn_order *o, int64_t epoch) {
    // Mixed, not added: seeds a multiple of the generator's step apart give the same numbers, only shifted.
    kn_random random = {kn_mix64(o->seed ^ 0x6f72646572u ^ kn_mix64((uint64_t)epoch))};
    for (size_t i = 0; i < o->windows; i++) o->places[i] = (uint32_t)i;
    for (size_t i = o->windows; i > 1; i--) {
        size_t j = kn_random_below(&random, i);
        uint32_t swap = o->places[i - 1];
        o->places[i - 1] = o->places[j];
        o->places[j] = swap;
    }
    o->epoch = epoch;
}

knnlm_status kn_order_at(kn_order *o, uint64_t index, size_t *first) {
    int64_t epoch = (int64_t)(index / o->windows);
    if (epoch != o->epoch) shuffle(o, epoch);
    size_t slack = o->tokens - 1 - o->windows * o->length; // tokens that the epoch may skip at its start
    kn_random random = {kn_mix64(o->seed ^ 0x7368696674u) + (uint64_t)epoch};
    size_t shift = slack ? kn_random_below(&random, slack + 1) : 0;
    *first = shift + (size_t)o->places[index % o->windows] * o->length;
    return KNNLM_OK;
}
