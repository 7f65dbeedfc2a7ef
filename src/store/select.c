// Chooses documents by their names, or a part of them by chance.
#include "store/store.h"

#include <inttypes.h>
#include <stdlib.h>

static bool means(const char *const *patterns, size_t count, const kn_store_document *d) {
    for (size_t i = 0; i < count; i++)
        if (kn_store_document_matches(d, patterns[i])) return true;
    return false;
}

// Texts that are equal are chosen together: a copy would be as good as what was left out.
static bool is_drawn(double fraction, const kn_store_document *d) {
    return !(fraction > 0 && fraction < 1) || (double)d->hash[1] < fraction * 0x1p64;
}

static bool is_chosen(const kn_name_filter *f, const kn_store_document *d) {
    if (!is_drawn(f->fraction, d)) return false;
    if (f->only_count && !means(f->only, f->only_count, d)) return false;
    return !means(f->except, f->except_count, d);
}

static void mark(uint64_t *bits, const kn_store_document *d) {
    for (uint64_t id = d->first; id < d->first + d->count; id++) bits[id / 64] |= (uint64_t)1 << id % 64;
}

static knnlm_status mark_chosen(const kn_store *store, const kn_name_filter *f, uint64_t *bits) {
    const kn_store_info *info = kn_store_describe(store);
    bool any = false;
    for (uint64_t i = 0; i < info->documents; i++) {
        kn_store_document d;
        knnlm_status status = kn_store_document_at(store, i, &d);
        if (status == KNNLM_EDATA) continue; // damaged: nobody knows its name
        KN_TRY(status);
        if (d.removed || !is_chosen(f, &d)) continue;
        mark(bits, &d);
        any = true;
    }
    if (any) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: %s none of its %" PRIu64 " documents", info->path,
                   f->fraction ? "`fraction` leaves" : "`only` and `except` leave",
                   info->documents - info->removed_documents);
}

knnlm_status kn_store_select(const kn_store *store, const kn_name_filter *f, uint64_t **bits) {
    *bits = NULL;
    if (!f->only_count && !f->except_count && !f->fraction) return KNNLM_OK;
    *bits = kn_alloc((size_t)(kn_store_describe(store)->entries / 64 + 1), sizeof **bits);
    if (!*bits) return KNNLM_ENOMEM;
    knnlm_status status = mark_chosen(store, f, *bits);
    if (status == KNNLM_OK) return KNNLM_OK;
    free(*bits);
    *bits = NULL;
    return status;
}
