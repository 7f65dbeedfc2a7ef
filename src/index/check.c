// Whether what a search is about to look at is what was written: checksums on first touch (store.h), and then
// what the numbers mean. A damaged index is an error, not a worse answer.
#include "index/view.h"

#include <stdlib.h>
#include <string.h>

static const char *check_ids(void *context, size_t from, size_t to) {
    const kn_run_check *c = context;
    size_t begin = c->run->ids_at, end = begin + c->run->count * sizeof(uint32_t);
    const uint8_t *data = (const uint8_t *)c->run->ids - begin;
    uint32_t highest = 0;
    from = from > begin ? from : begin;
    to = to < end ? to : end;
    if (from >= to) return NULL; // no id in this part of it
    for (const uint8_t *at = data + from; from < to; from += sizeof highest, at += sizeof highest) {
        uint32_t id;
        memcpy(&id, at, sizeof id);
        highest = id > highest ? id : highest;
    }
    return highest < c->x->entries ? NULL : "it names an entry that the store does not have";
}

static const char *check_rows(void *context, size_t from, size_t to) {
    const kn_run_check *c = context;
    return kn_keys_check(kn_store_describe(c->x->store)->settings.key_type, c->run->rows,
                         kn_annex_padded(c->run->count * c->x->row_bytes), from, to);
}

static knnlm_status check_listed_rows(kn_run_check *c, size_t from, size_t n) {
    const kn_index *x = c->x;
    const kn_run *r = c->run;
    KN_TRY(
        kn_store_check_annex(x->store, r->rows_part, from * x->row_bytes, n * x->row_bytes, check_rows, c));
    if (!r->scales) return KNNLM_OK;
    return kn_store_check_annex(x->store, r->rows_part,
                                kn_annex_padded(r->count * x->row_bytes) + from * sizeof(float),
                                n * sizeof(float), check_rows, c);
}

// Codes of 64 entries lie in one piece.
knnlm_status kn_run_check_codes(const kn_index *x, const kn_run *r, size_t from, size_t to) {
    size_t first = from / KN_PQ_BLOCK * KN_PQ_BLOCK, end = (to + KN_PQ_BLOCK - 1) / KN_PQ_BLOCK * KN_PQ_BLOCK;
    return kn_store_check_annex(x->store, r->codes_part, first * x->info.code_bytes,
                                (end - first) * x->info.code_bytes, NULL, NULL);
}

knnlm_status kn_run_check_ends(const kn_index *x, const kn_run *r) {
    kn_run_check c = {x, r};
    return kn_store_check_annex(x->store, r->order_part, 0, (x->info.lists + 1) * sizeof(uint64_t), check_ids,
                                &c);
}

knnlm_status kn_run_check_ids(const kn_index *x, const kn_run *r, size_t from, size_t to) {
    kn_run_check c = {x, r};
    return kn_store_check_annex(x->store, r->order_part, r->ids_at + from * sizeof(uint32_t),
                                (to - from) * sizeof(uint32_t), check_ids, &c);
}

knnlm_status kn_run_check_places(const kn_index *x, const kn_run *r, size_t from, size_t to, bool codes) {
    kn_run_check c = {x, r};
    if (from >= to || !x->store) return KNNLM_OK;
    if (!r->ids) return kn_store_check_keys(x->store, r->first_id + from, to - from); // a segment's
    KN_TRY(kn_run_check_ids(x, r, from, to));
    return codes ? kn_run_check_codes(x, r, from, to) : check_listed_rows(&c, from, to - from);
}

knnlm_status kn_run_check_rows(const kn_index *x, const kn_run *r, size_t from, size_t to) {
    kn_run_check c = {x, r};
    return check_listed_rows(&c, from, to - from);
}
