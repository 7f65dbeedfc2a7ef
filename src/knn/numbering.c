// Tells a shard the numbers of its entries among all.
#include "knn/numbering.h"

#include "store/shards.h"

#include <stdlib.h>

enum { BLOCK = 64 };

void kn_numbering_put(const kn_store *all, size_t shard, kn_message *out) {
    kn_store_shard about = kn_store_shard_at(all, shard);
    kn_message_put_number(out, about.info->documents);
    for (uint64_t i = 0; i < about.info->documents; i++)
        kn_message_put_number(out, kn_store_shard_start(all, shard, i));
}

void kn_numbering_free(kn_numbering *n) {
    free(n->firsts);
    free(n->offsets);
    free(n->blocks);
    *n = (kn_numbering){0};
}

// A document that is damaged has no entries that could be found.
static knnlm_status take_documents(const uint64_t *starts, const kn_store *shard, kn_numbering *out) {
    for (uint64_t i = 0; i < kn_store_describe(shard)->documents; i++) {
        kn_store_document d;
        if (kn_store_document_at(shard, i, &d) != KNNLM_OK || !d.count) continue;
        out->firsts[out->count] = d.first;
        out->offsets[out->count++] = starts[i] - d.first;
    }
    return KNNLM_OK;
}

static void fill_blocks(kn_numbering *n) {
    for (size_t b = 0, document = 0; b <= n->entries / BLOCK; b++) {
        while (document + 1 < n->count && n->firsts[document + 1] <= b * BLOCK) document++;
        n->blocks[b] = (uint32_t)document;
    }
}

knnlm_status kn_numbering_take(kn_message *in, const kn_store *shard, kn_numbering *out) {
    const kn_store_info *info = kn_store_describe(shard);
    uint64_t documents = kn_message_take_number(in);
    size_t bytes = 0;
    *out = (kn_numbering){.entries = (size_t)info->entries};
    if (!kn_mul((size_t)documents, sizeof(uint64_t), &bytes)) in->failed = true;
    const uint64_t *starts = kn_message_view(in, bytes);
    KN_TRY(kn_message_read(in));
    if (documents != info->documents)
        return kn_fail(KNNLM_EBUSY, "%s: changed while it was opened: try again", info->path);
    out->firsts = kn_alloc((size_t)documents + 1, sizeof *out->firsts);
    out->offsets = kn_alloc((size_t)documents + 1, sizeof *out->offsets);
    out->blocks = kn_alloc(out->entries / BLOCK + 1, sizeof *out->blocks);
    if (!out->firsts || !out->offsets || !out->blocks) return KNNLM_ENOMEM;
    KN_TRY(take_documents(starts, shard, out));
    fill_blocks(out);
    return KNNLM_OK;
}
