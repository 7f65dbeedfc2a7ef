// Makes a byte-level BPE tokenizer from its tokens and merges.
#include "text/bpe.h"

#include "text/bpe_alphabet.h"

#include <stdlib.h>
#include <string.h>

// ---- parts

knnlm_status kn_bpe_parts_token(kn_bpe_parts *p, const char *piece, size_t size, int32_t type) {
    KN_TRY(kn_vocab_add(&p->vocab, piece, size));
    KN_TRY(kn_grow(&p->types, &p->type_capacity, p->vocab.strings.count, sizeof *p->types));
    p->types[p->vocab.strings.count - 1] = type;
    return KNNLM_OK;
}

static knnlm_status find_piece(const kn_bpe_parts *p, const char *piece, size_t size, int32_t *id) {
    *id = kn_vocab_find(&p->vocab, piece, size);
    if (*id < 0)
        return kn_fail(KNNLM_EDATA, "merge %zu names \"%.*s\", which is not in the vocabulary",
                       p->merge_count, (int)(size < 64 ? size : 64), piece);
    return KNNLM_OK;
}

knnlm_status kn_bpe_parts_merge(kn_bpe_parts *p, const char *left, size_t left_size, const char *right,
                                size_t right_size) {
    int32_t pair[2];
    KN_TRY(find_piece(p, left, left_size, &pair[0]));
    KN_TRY(find_piece(p, right, right_size, &pair[1]));
    KN_TRY(kn_grow(&p->merges, &p->merge_capacity, p->merge_count + 1, sizeof *p->merges));
    memcpy(p->merges[p->merge_count++], pair, sizeof pair);
    return KNNLM_OK;
}

knnlm_status kn_bpe_parts_merge_line(kn_bpe_parts *p, const char *line, size_t size) {
    const char *space = size ? memchr(line, ' ', size) : NULL;
    if (!space)
        return kn_fail(KNNLM_EDATA, "merge %zu, \"%.*s\", is not two pieces with a space between",
                       p->merge_count, (int)(size < 64 ? size : 64), line);
    size_t left = (size_t)(space - line);
    return kn_bpe_parts_merge(p, line, left, space + 1, size - left - 1);
}

void kn_bpe_parts_free(kn_bpe_parts *p) {
    kn_vocab_free(&p->vocab);
    free(p->types);
    free(p->merges);
    *p = (kn_bpe_parts){0};
}

// ---- making

static knnlm_status add_raw(kn_bpe *b, size_t id, kn_buffer *bytes) {
    const char *piece = kn_strings_at(&b->base.vocab.strings, id);
    size_t size = kn_strings_size(&b->base.vocab.strings, id), raw_size = size;
    KN_TRY(kn_grow(&bytes->data, &bytes->capacity, size, 1));
    if (b->types[id] == KN_TOKEN_NORMAL && kn_alphabet_decode(piece, size, bytes->data, &raw_size))
        return kn_strings_add(&b->raw, bytes->data, raw_size);
    return kn_strings_add(&b->raw, piece, size);
}

static knnlm_status find_bytes(kn_bpe *b) {
    for (int byte = 0; byte < 256; byte++) {
        char piece[4];
        size_t size = kn_alphabet_encode((uint8_t)byte, piece);
        b->byte_ids[byte] = kn_vocab_find(&b->base.vocab, piece, size);
        if (b->byte_ids[byte] < 0)
            return kn_fail(KNNLM_EDATA, "the vocabulary has no token for byte %d: not a byte-level BPE",
                           byte);
        size_t id = (size_t)b->byte_ids[byte];
        if (kn_strings_size(&b->raw, id) != 1 || (uint8_t)*kn_strings_at(&b->raw, id) != byte)
            return kn_fail(KNNLM_EDATA, "token %zu stands for byte %d but is not a normal token", id, byte);
    }
    return KNNLM_OK;
}

static knnlm_status find_result(const kn_bpe *b, size_t rank, kn_buffer *joined, int32_t *id) {
    const kn_strings *pieces = &b->base.vocab.strings;
    joined->size = 0;
    for (int i = 0; i < 2; i++) {
        size_t part = (size_t)b->merges[rank][i];
        KN_TRY(kn_buffer_put(joined, kn_strings_at(pieces, part), kn_strings_size(pieces, part)));
    }
    *id = kn_vocab_find(&b->base.vocab, joined->data, joined->size);
    if (*id < 0)
        return kn_fail(KNNLM_EDATA, "merge %zu makes \"%.*s\", which is not in the vocabulary", rank,
                       (int)(joined->size < 64 ? joined->size : 64), joined->data);
    return KNNLM_OK;
}

// The pieces join, but a token that is not normal is text as it is, and its bytes may be others.
static bool text_joins(const kn_bpe *b, const int32_t parts[2], size_t made) {
    size_t left = kn_strings_size(&b->raw, (size_t)parts[0]),
           right = kn_strings_size(&b->raw, (size_t)parts[1]);
    const char *text = kn_strings_at(&b->raw, made);
    return kn_strings_size(&b->raw, made) == left + right &&
           memcmp(text, kn_strings_at(&b->raw, (size_t)parts[0]), left) == 0 &&
           memcmp(text + left, kn_strings_at(&b->raw, (size_t)parts[1]), right) == 0;
}

static knnlm_status add_merge(kn_bpe *b, size_t rank, kn_buffer *joined) {
    int32_t id;
    KN_TRY(find_result(b, rank, joined, &id));
    uint64_t pair = kn_bpe_pair(b->merges[rank][0], b->merges[rank][1]);
    kn_bpe_merge *slot = (kn_bpe_merge *)(uintptr_t)kn_bpe_find(&b->table, pair);
    if (slot->pair == pair) return kn_fail(KNNLM_EDATA, "merges %u and %zu are the same", slot->rank, rank);
    if (!text_joins(b, b->merges[rank], (size_t)id))
        return kn_fail(KNNLM_EDATA, "merge %zu makes token %d, which is not its parts' text", rank, id);
    *slot = (kn_bpe_merge){.pair = pair, .rank = (uint32_t)rank, .id = id};
    return KNNLM_OK;
}

static knnlm_status fill_table(kn_bpe *b, kn_buffer *joined) {
    size_t slots = 16;
    while (slots < b->merge_count * 2 + 2) slots *= 2;
    b->table.slots = kn_alloc(slots, sizeof *b->table.slots);
    if (!b->table.slots) return KNNLM_ENOMEM;
    b->table.mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        b->table.slots[i] = (kn_bpe_merge){.pair = KN_BPE_NO_PAIR, .rank = KN_BPE_NO_RANK};
    for (size_t rank = 0; rank < b->merge_count; rank++) KN_TRY(add_merge(b, rank, joined));
    return KNNLM_OK;
}

static knnlm_status fill(kn_bpe *b, int32_t start, kn_buffer *bytes) {
    if (start < 0 || start >= kn_tokenizer_size(&b->base))
        return kn_fail(KNNLM_EDATA, "the vocabulary of %d has no start token (%d)",
                       kn_tokenizer_size(&b->base), start);
    if (b->merge_count >= KN_BPE_NO_RANK)
        return kn_fail(KNNLM_ENOTSUP, "%zu merges are too many", b->merge_count);
    b->base.start = start;
    for (size_t id = 0; id < b->base.vocab.strings.count; id++) KN_TRY(add_raw(b, id, bytes));
    KN_TRY(find_bytes(b));
    return fill_table(b, bytes);
}

static knnlm_status decode_token(const kn_tokenizer *t, const int32_t *ids, size_t index, kn_buffer *out) {
    const kn_strings *raw = &((const kn_bpe *)t)->raw;
    size_t id = (size_t)ids[index];
    return kn_buffer_put(out, kn_strings_at(raw, id), kn_strings_size(raw, id));
}

static void release(kn_tokenizer *t) {
    kn_bpe *b = (kn_bpe *)t;
    kn_strings_free(&b->raw);
    free(b->types);
    free(b->merges);
    free(b->table.slots);
    kn_bpe_scratch_free(b->idle);
    pthread_mutex_destroy(&b->lock);
}

static const void *rules(const kn_tokenizer *t, size_t *size) {
    const kn_bpe *bpe = (const kn_bpe *)t;
    *size = bpe->merge_count * sizeof *bpe->merges;
    return bpe->merges;
}

static const kn_tokenizer_class bpe_class = {
    .kind = KNNLM_TOKENIZER_BPE,
    .encode = kn_bpe_encode,
    .decode = decode_token,
    .save = kn_bpe_save,
    .rules = rules,
    .release = release,
};

knnlm_status kn_bpe_make(kn_bpe_parts *parts, kn_tokenizer **out) {
    kn_bpe *b = (kn_bpe *)kn_tokenizer_make(&bpe_class, sizeof *b, &parts->vocab);
    if (!b) {
        kn_bpe_parts_free(parts);
        return KNNLM_ENOMEM;
    }
    pthread_mutex_init(&b->lock, NULL);
    b->types = parts->types;
    b->merges = parts->merges;
    b->merge_count = parts->merge_count;
    int32_t start = parts->start;
    *parts = (kn_bpe_parts){0};
    kn_buffer bytes = {0};
    knnlm_status status = fill(b, start, &bytes);
    free(bytes.data);
    if (status != KNNLM_OK)
        kn_tokenizer_free(&b->base);
    else
        *out = &b->base;
    return status;
}
