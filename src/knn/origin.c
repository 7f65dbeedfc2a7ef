// Reads the tokens around an entry from its store, and decodes them.
#include "knn/origin.h"

#include <stdlib.h>

static knnlm_status decode(const kn_store *store, const kn_tokenizer *t, uint64_t first, size_t count,
                           char **text, size_t *size) {
    int32_t *tokens = kn_alloc(count, sizeof *tokens);
    if (!tokens) return KNNLM_ENOMEM;
    knnlm_status status = kn_store_tokens(store, first, count, tokens);
    if (status == KNNLM_OK) status = kn_tokenizer_decode(t, tokens, count, text, size);
    free(tokens);
    return status;
}

static knnlm_status read_texts(const kn_store *store, const kn_tokenizer *t, size_t count, size_t around,
                               kn_origin *o) {
    uint64_t id = o->entry.id;
    size_t before = kn_min((size_t)o->entry.position, around);
    size_t after = kn_min((size_t)(o->document.count - o->entry.position) - count, around);
    KN_TRY(decode(store, t, id - before, before, &o->before, &o->before_size));
    KN_TRY(decode(store, t, id, count, &o->word, &o->word_size));
    return decode(store, t, id + count, after, &o->after, &o->after_size);
}

knnlm_status kn_origin_read_span(const kn_store *store, const kn_tokenizer *t, uint64_t id, size_t count,
                                 size_t around, kn_origin *out) {
    *out = (kn_origin){0};
    KN_TRY(kn_store_entry_at(store, id, &out->entry));
    KN_TRY(kn_store_document_at(store, out->entry.document, &out->document));
    if (count > out->document.count - out->entry.position)
        return kn_fail(KNNLM_EINVAL, "%zu tokens from entry %llu on: its document has fewer", count,
                       (unsigned long long)id);
    knnlm_status status = t ? read_texts(store, t, count, around, out) : KNNLM_OK;
    if (status != KNNLM_OK) kn_origin_free(out);
    return status;
}

knnlm_status kn_origin_read(const kn_store *store, const kn_tokenizer *t, uint64_t id, size_t around,
                            kn_origin *out) {
    return kn_origin_read_span(store, t, id, 1, around, out);
}

void kn_origin_free(kn_origin *o) {
    free(o->before);
    free(o->word);
    free(o->after);
    *o = (kn_origin){0};
}

knnlm_status kn_origin_open_tokenizer(const kn_store *store, kn_tokenizer **out) {
    char *path;
    KN_TRY(kn_store_attachment(store, "tokenizer.gguf", &path));
    if (!path)
        return kn_fail(KNNLM_ENOTSUP, "%s: keeps no tokenizer: its tokens have no text",
                       kn_store_describe(store)->path);
    knnlm_status status = kn_tokenizer_open(path, out);
    free(path);
    return status;
}
