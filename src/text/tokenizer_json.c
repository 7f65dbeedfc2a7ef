// Hugging Face's tokenizer.json, of which byte-level BPE with GPT-2's pre-tokenizer is read.
#include "text/tokenizer_kinds.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const char *piece; // NULL while no token has this id
    int32_t type;
} entry;

static bool is_string(const json_t *value, const char *text) {
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

// ---- what must be as GPT-2 has it

static knnlm_status check_kind(const json_t *root, const json_t *model) {
    const json_t *pre = json_object_get(root, "pre_tokenizer"),
                 *normalizer = json_object_get(root, "normalizer");
    const json_t *type = json_object_get(model, "type");
    if (!json_is_object(model)) return kn_fail(KNNLM_EDATA, "no \"model\": not a tokenizer.json");
    if (type && !is_string(type, "BPE")) return kn_fail(KNNLM_ENOTSUP, "the model is not BPE");
    if (normalizer && !json_is_null(normalizer))
        return kn_fail(KNNLM_ENOTSUP, "normalizers are not supported");
    if (!is_string(json_object_get(pre, "type"), "ByteLevel") ||
        json_is_false(json_object_get(pre, "use_regex")))
        return kn_fail(KNNLM_ENOTSUP, "the pre-tokenizer is not GPT-2's (ByteLevel with its pattern)");
    if (json_is_true(json_object_get(pre, "add_prefix_space")))
        return kn_fail(KNNLM_ENOTSUP, "add_prefix_space is not supported");
    return KNNLM_OK;
}

// ---- tokens

static knnlm_status place(entry *entries, size_t count, const char *piece, const json_t *id, int32_t type) {
    if (!json_is_integer(id)) return kn_fail(KNNLM_EDATA, "token \"%.64s\" has no id", piece);
    json_int_t n = json_integer_value(id);
    if (n < 0 || (uint64_t)n >= count)
        return kn_fail(KNNLM_EDATA, "token \"%.64s\" has id %lld of %zu tokens", piece, (long long)n, count);
    entry *e = &entries[n];
    if (e->piece && strcmp(e->piece, piece) != 0)
        return kn_fail(KNNLM_EDATA, "\"%.64s\" and \"%.64s\" have the same id %lld", e->piece, piece,
                       (long long)n);
    *e = (entry){piece, type};
    return KNNLM_OK;
}

// Added tokens may repeat tokens of the vocabulary; those that do not come on top.
static size_t count_tokens(json_t *vocab, json_t *added) {
    size_t count = json_object_size(vocab), i;
    json_t *token;
    json_array_foreach (added, i, token) {
        const char *piece = json_string_value(json_object_get(token, "content"));
        if (piece && !json_object_get(vocab, piece)) count++;
    }
    return count;
}

static knnlm_status place_tokens(json_t *vocab, json_t *added, entry *entries, size_t count) {
    const char *piece;
    json_t *value;
    size_t i;
    json_object_foreach (vocab, piece, value) KN_TRY(place(entries, count, piece, value, KN_TOKEN_NORMAL));
    json_array_foreach (added, i, value) {
        bool special = json_is_true(json_object_get(value, "special"));
        piece = json_string_value(json_object_get(value, "content"));
        if (!piece) return kn_fail(KNNLM_EDATA, "added token %zu has no content", i);
        KN_TRY(place(entries, count, piece, json_object_get(value, "id"),
                     special ? KN_TOKEN_CONTROL : KN_TOKEN_USER));
    }
    return KNNLM_OK;
}

static knnlm_status add_tokens(const entry *entries, size_t count, kn_bpe_parts *parts) {
    for (size_t i = 0; i < count; i++) {
        if (!entries[i].piece) return kn_fail(KNNLM_EDATA, "no token has id %zu", i);
        KN_TRY(kn_bpe_parts_token(parts, entries[i].piece, strlen(entries[i].piece), entries[i].type));
    }
    return KNNLM_OK;
}

static knnlm_status read_tokens(json_t *root, json_t *model, kn_bpe_parts *parts) {
    json_t *vocab = json_object_get(model, "vocab"), *added = json_object_get(root, "added_tokens");
    if (!json_is_object(vocab) || !json_object_size(vocab))
        return kn_fail(KNNLM_EDATA, "the vocabulary is empty");
    size_t count = count_tokens(vocab, added);
    if (count > INT32_MAX) return kn_fail(KNNLM_ENOTSUP, "%zu tokens are too many", count);
    entry *entries = kn_alloc(count, sizeof *entries);
    if (!entries) return KNNLM_ENOMEM;
    knnlm_status status = place_tokens(vocab, added, entries, count);
    if (status == KNNLM_OK) status = add_tokens(entries, count, parts);
    free(entries);
    return status;
}

// <|endoftext|>, or the first control token.
static knnlm_status choose_start(kn_bpe_parts *parts) {
    parts->start = kn_vocab_find(&parts->vocab, KN_BPE_END, strlen(KN_BPE_END));
    for (int32_t i = 0; parts->start < 0 && i < kn_vocab_count(&parts->vocab); i++)
        if (parts->types[i] == KN_TOKEN_CONTROL) parts->start = i;
    return parts->start < 0 ? kn_fail(KNNLM_EDATA, "no " KN_BPE_END " and no other special token") : KNNLM_OK;
}

// ---- merges

static knnlm_status read_merge(const json_t *merge, size_t i, kn_bpe_parts *parts) {
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_is_string(merge))
        return kn_bpe_parts_merge_line(parts, json_string_value(merge), json_string_length(merge));
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
        return kn_fail(KNNLM_EDATA, "merge %zu is neither \"a b\" nor [\"a\", \"b\"]", i);
    return kn_bpe_parts_merge(parts, json_string_value(left), json_string_length(left),
                              json_string_value(right), json_string_length(right));
}

static knnlm_status read_merges(const json_t *model, kn_bpe_parts *parts) {
    const json_t *merges = json_object_get(model, "merges");
    if (!json_is_array(merges)) return kn_fail(KNNLM_EDATA, "no merges");
    for (size_t i = 0; i < json_array_size(merges); i++)
        KN_TRY(read_merge(json_array_get(merges, i), i, parts));
    return KNNLM_OK;
}

static knnlm_status read_parts(json_t *root, kn_bpe_parts *parts) {
    json_t *model = json_object_get(root, "model");
    KN_TRY(check_kind(root, model));
    KN_TRY(read_tokens(root, model, parts));
    KN_TRY(choose_start(parts));
    return read_merges(model, parts);
}

knnlm_status kn_bpe_parse_json(const char *data, size_t size, kn_tokenizer **out) {
    json_error_t error;
    kn_bpe_parts parts = {0};
    json_t *root = json_loadb(data, size, JSON_REJECT_DUPLICATES, &error);
    if (!root) return kn_fail(KNNLM_EDATA, "line %d: %s", error.line, error.text);
    knnlm_status status = read_parts(root, &parts);
    json_decref(root);
    if (status == KNNLM_OK) return kn_bpe_make(&parts, out);
    kn_bpe_parts_free(&parts);
    return status;
}
