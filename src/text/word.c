// Words as WikiText has them: cut at white space, <eos> at the end of each line, <unk> for what is not known.
#include "base/utf8.h"
#include "text/tokenizer_kinds.h"

#include <stdlib.h>
#include <string.h>

#define UNK "<unk>"
#define EOS "<eos>"

enum { REPORT = 1 << 24 };

typedef struct word_tokenizer {
    kn_tokenizer base;
    int32_t unk, eos;
} word_tokenizer;

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// The next word or line end at or after *at; size 0 at the text's end.
static size_t next_word(const char *text, size_t size, size_t *at) {
    while (*at < size && is_space(text[*at]) && text[*at] != '\n') ++*at;
    size_t end = *at;
    if (end < size && text[end] == '\n') return 1;
    while (end < size && !is_space(text[end])) end++;
    return end - *at;
}

// An <eos> written out is ordinary text, and no word of the vocabulary.
static int32_t id_of(const word_tokenizer *t, const char *word, size_t size) {
    if (size == 1 && *word == '\n') return t->eos;
    int32_t id = kn_vocab_find(&t->base.vocab, word, size);
    return id < 0 || id == t->eos ? t->unk : id;
}

static knnlm_status encode(const kn_tokenizer *t, const char *text, size_t size, kn_tokens *out) {
    size_t valid = kn_utf8_valid(text, size);
    if (valid < size) return kn_fail(KNNLM_EDATA, "not UTF-8 at byte %zu", valid);
    for (size_t at = 0, n; (n = next_word(text, size, &at)); at += n)
        KN_TRY(kn_tokens_push(out, id_of((const word_tokenizer *)t, text + at, n), at));
    return KNNLM_OK;
}

static knnlm_status decode_token(const kn_tokenizer *t, const int32_t *ids, size_t index, kn_buffer *out) {
    int32_t eos = ((const word_tokenizer *)t)->eos;
    if (ids[index] == eos) return kn_buffer_put(out, "\n", 1);
    if (index > 0 && ids[index - 1] != eos) KN_TRY(kn_buffer_put(out, " ", 1));
    size_t id = (size_t)ids[index];
    return kn_buffer_put(out, kn_strings_at(&t->vocab.strings, id), kn_strings_size(&t->vocab.strings, id));
}

static const kn_tokenizer_class word_class = {
    .kind = KNNLM_TOKENIZER_WORD, .encode = encode, .decode = decode_token, .save = kn_word_save};

knnlm_status kn_word_make(kn_vocab *vocab, kn_tokenizer **out) {
    int32_t unk = kn_vocab_find(vocab, UNK, strlen(UNK)), eos = kn_vocab_find(vocab, EOS, strlen(EOS));
    if (unk < 0 || eos < 0) {
        kn_vocab_free(vocab);
        return kn_fail(KNNLM_EDATA, "the vocabulary of words has no %s", unk < 0 ? UNK : EOS);
    }
    word_tokenizer *t = (word_tokenizer *)kn_tokenizer_make(&word_class, sizeof *t, vocab);
    if (!t) {
        kn_vocab_free(vocab);
        return KNNLM_ENOMEM;
    }
    t->unk = unk;
    t->base.start = t->eos = eos;
    *out = &t->base;
    return KNNLM_OK;
}

// ---- training

static knnlm_status count_words(const char *text, size_t size, const kn_progress *progress,
                                kn_counts *counts) {
    uint64_t lines = 0;
    KN_TRY(kn_counts_add(counts, UNK, strlen(UNK), 0));
    KN_TRY(kn_counts_add(counts, EOS, strlen(EOS), 0));
    size_t next_report = 0;
    for (size_t at = 0, n; (n = next_word(text, size, &at)); at += n) {
        if (at >= next_report) {
            next_report = at + REPORT;
            if (!kn_progress_report(progress, "counting words", at, size, "bytes"))
                return kn_fail(KNNLM_ESTOPPED, "stopped while counting words");
        }
        bool written_out = n == strlen(EOS) && memcmp(text + at, EOS, n) == 0;
        if (text[at] == '\n')
            lines++;
        else if (written_out)
            KN_TRY(kn_counts_add(counts, UNK, strlen(UNK), 1));
        else
            KN_TRY(kn_counts_add(counts, text + at, n, 1));
    }
    kn_progress_report(progress, "counting words", size, size, "bytes");
    return kn_counts_add(counts, EOS, strlen(EOS), lines);
}

typedef struct ranked {
    const char *word;
    size_t size;
    uint64_t count;
    bool kept; // <unk> and <eos>, whatever their count
} ranked;

static int by_frequency(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    int order = memcmp(x->word, y->word, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

// The first `size` of the sorted words, leaving room for those always kept.
static knnlm_status choose(const ranked *words, size_t count, size_t size, kn_vocab *vocab) {
    size_t kept_left = 2;
    for (size_t i = 0; i < count; i++) {
        bool room = vocab->strings.count + kept_left < size;
        if (words[i].kept) kept_left--;
        if (words[i].kept || room) KN_TRY(kn_vocab_add(vocab, words[i].word, words[i].size));
    }
    return KNNLM_OK;
}

static knnlm_status rank_words(const kn_counts *counts, int32_t size, kn_vocab *vocab) {
    const kn_strings *words = &counts->words.strings;
    ranked *sorted = kn_alloc(words->count, sizeof *sorted);
    if (!sorted) return KNNLM_ENOMEM;
    for (size_t i = 0; i < words->count; i++) // <unk> and <eos> were counted first
        sorted[i] = (ranked){kn_strings_at(words, i), kn_strings_size(words, i), counts->counts[i], i < 2};
    qsort(sorted, words->count, sizeof *sorted, by_frequency);
    knnlm_status status = choose(sorted, words->count, size ? (size_t)size : words->count, vocab);
    free(sorted);
    return status;
}

knnlm_status kn_word_train(int32_t size, const char *text, size_t bytes, const kn_progress *progress,
                           kn_tokenizer **out) {
    if (size < 0 || size == 1 || size == 2)
        return kn_fail(KNNLM_EINVAL, "a vocabulary of words needs at least 3 tokens, not %d", size);
    if (!bytes) return kn_fail(KNNLM_EINVAL, "no text to train a tokenizer on");
    size_t valid = kn_utf8_valid(text, bytes);
    if (valid < bytes) return kn_fail(KNNLM_EDATA, "not UTF-8 at byte %zu", valid);
    kn_counts counts = {0};
    kn_vocab vocab = {0};
    knnlm_status status = count_words(text, bytes, progress, &counts);
    if (status == KNNLM_OK) status = rank_words(&counts, size, &vocab);
    kn_counts_free(&counts);
    if (status == KNNLM_OK) return kn_word_make(&vocab, out);
    kn_vocab_free(&vocab);
    return status;
}
