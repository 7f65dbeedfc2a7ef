// Tells a shard the numbers of its entries among all.
#include "knn/numbering.h"

#include "store/shards.h"

#include <stdlib.h>

void kn_numbering_put(const kn_store *all, size_t shard, kn_message *out) {
    kn_store_shard about = kn_store_shard_at(all, shard);
    kn_message_put_number(out, about.info->documents);
    for (uint64_t i = 0; i < about.info->documents; i++)
        kn_message_put_number(out, kn_store_shard_start(all, shard, i));
}

void kn_numbering_free(kn_numbering *n) {
    free(n->low);
    free(n->turns);
    *n = (kn_numbering){0};
}

static knnlm_status number_document(kn_numbering *n, const kn_store_document *d, uint64_t start) {
    for (uint64_t i = 0; i < d->count; i++) {
        uint64_t number = start + i;
        for (; n->count < number >> 32; n->count++) {
            KN_TRY(kn_grow(&n->turns, &n->capacity, n->count + 1, sizeof *n->turns));
            n->turns[n->count] = (uint32_t)(d->first + i);
        }
        n->low[d->first + i] = (uint32_t)number;
    }
    return KNNLM_OK;
}

// A document that is damaged has no entries that could be found.
knnlm_status kn_numbering_take(kn_message *in, const kn_store *shard, kn_numbering *out) {
    const kn_store_info *info = kn_store_describe(shard);
    uint64_t documents = kn_message_take_number(in);
    size_t bytes = 0;
    *out = (kn_numbering){0};
    if (!kn_mul((size_t)documents, sizeof(uint64_t), &bytes)) in->failed = true;
    const uint64_t *starts = kn_message_view(in, bytes);
    KN_TRY(kn_message_read(in));
    if (documents != info->documents)
        return kn_fail(KNNLM_EBUSY, "%s: changed while it was opened: try again", info->path);
    out->low = kn_alloc((size_t)info->entries + 1, sizeof *out->low);
    if (!out->low) return KNNLM_ENOMEM;
    for (uint64_t i = 0; i < documents; i++) {
        kn_store_document d;
        if (kn_store_document_at(shard, i, &d) != KNNLM_OK) continue;
        if (d.first > info->entries || d.count > info->entries - d.first) continue;
        KN_TRY(number_document(out, &d, starts[i]));
    }
    return KNNLM_OK;
}
