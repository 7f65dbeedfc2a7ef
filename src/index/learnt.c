// Lists and codes for several stores: learnt once, handed from rank to rank, and used by each.
#include "index/making.h"
#include "index/open.h"

#include <stdlib.h>
#include <string.h>

// Of the making it has the note (without runs), centroids, groups and codes.
struct kn_learnt {
    kn_making m;
};

void kn_learnt_free(kn_learnt *l) {
    if (!l) return;
    kn_making_free(&l->m);
    free(l);
}

static knnlm_status finish(kn_learnt *l, knnlm_status status, kn_learnt **out) {
    l->m.recipe = NULL;
    l->m.store = NULL;
    l->m.progress = NULL;
    l->m.out = NULL;
    if (status == KNNLM_OK)
        *out = l;
    else
        kn_learnt_free(l);
    return status;
}

knnlm_status kn_learnt_make(const kn_store *store, const kn_recipe *recipe, const kn_progress *progress,
                            double *seconds, kn_learnt **out) {
    kn_learnt *l = kn_alloc(1, sizeof *l);
    kn_index_result result = {0};
    if (!l) return KNNLM_ENOMEM;
    l->m = (kn_making){.recipe = recipe, .progress = progress, .out = &result, .store = store};
    l->m.d = (size_t)kn_store_describe(store)->settings.dimension;
    knnlm_status status = kn_making_resolve(&l->m);
    if (status == KNNLM_OK) status = kn_making_learn(&l->m);
    *seconds = result.train_seconds;
    return finish(l, status, out);
}

static knnlm_status take_from(kn_making *m, const kn_store *store) {
    kn_index *x;
    KN_TRY(kn_index_open(store, &x));
    knnlm_status status = kn_making_reuse(m, x);
    m->note.run_count = 0;
    if (status == KNNLM_OK) {
        m->centroids = kn_alloc_aligned(m->note.lists, m->d * sizeof *m->centroids);
        if (m->centroids) memcpy(m->centroids, x->centres, m->note.lists * m->d * sizeof *m->centroids);
        if (!m->centroids) status = KNNLM_ENOMEM;
    }
    kn_index_close(x);
    return status;
}

knnlm_status kn_learnt_of(const kn_store *store, kn_learnt **out) {
    kn_learnt *l = kn_alloc(1, sizeof *l);
    if (!l) return KNNLM_ENOMEM;
    l->m = (kn_making){.store = store, .d = (size_t)kn_store_describe(store)->settings.dimension};
    return finish(l, take_from(&l->m, store), out);
}

// ---------------------------------------------------------------- from rank to rank

void kn_learnt_put(const kn_learnt *l, kn_message *out) {
    const kn_making *m = &l->m;
    kn_index_note note = m->note;
    note.runs = NULL;
    note.run_count = note.run_capacity = 0;
    kn_message_put(out, &note, sizeof note);
    kn_message_put_number(out, m->d);
    kn_message_put_number(out, m->has_pq);
    kn_message_put(out, m->centroids, note.lists * m->d * sizeof *m->centroids);
    if (note.groups) kn_message_put(out, m->group_ends, (note.groups + 1) * sizeof *m->group_ends);
    if (m->has_pq) kn_message_put(out, m->pq.centroids, ((size_t)1 << note.code_bits) * m->d * sizeof(float));
}

static knnlm_status take_codes(kn_making *m, kn_message *in) {
    KN_TRY(kn_pq_init(&m->pq, m->d, m->note.code_parts, m->note.code_bits));
    m->has_pq = true;
    kn_message_take(in, m->pq.centroids, ((size_t)1 << m->note.code_bits) * m->d * sizeof(float));
    kn_pq_prepare(&m->pq);
    return kn_message_read(in);
}

static knnlm_status take_learnt(kn_making *m, kn_message *in) {
    kn_message_take(in, &m->note, sizeof m->note);
    m->d = (size_t)kn_message_take_number(in);
    bool codes = kn_message_take_number(in);
    KN_TRY(kn_message_read(in));
    m->centroids = kn_alloc_aligned(m->note.lists, m->d * sizeof *m->centroids);
    m->group_ends = kn_alloc(m->note.groups + 1, sizeof *m->group_ends);
    if (!m->centroids || !m->group_ends) return KNNLM_ENOMEM;
    kn_message_take(in, m->centroids, m->note.lists * m->d * sizeof *m->centroids);
    if (m->note.groups) kn_message_take(in, m->group_ends, (m->note.groups + 1) * sizeof *m->group_ends);
    KN_TRY(kn_message_read(in));
    KN_TRY(kn_quantizer_make(m->centroids, m->note.lists, m->d, KN_QUANTIZER_L2, &m->quantizer));
    return codes ? take_codes(m, in) : KNNLM_OK;
}

knnlm_status kn_learnt_take(kn_message *in, kn_learnt **out) {
    kn_learnt *l = kn_alloc(1, sizeof *l);
    if (!l) return KNNLM_ENOMEM;
    return finish(l, take_learnt(&l->m, in), out);
}

// ---------------------------------------------------------------- a store

// What was learnt stays its owner's: the making borrows it.
static knnlm_status index_as(kn_making *m, const kn_learnt *l) {
    if (l->m.d != m->d)
        return kn_fail(KNNLM_EINVAL, "%s: its keys have %zu dimensions, those of the lists %zu",
                       kn_store_describe(m->store)->path, m->d, l->m.d);
    m->note = l->m.note;
    m->centroids = l->m.centroids;
    m->group_ends = l->m.group_ends;
    m->quantizer = l->m.quantizer;
    m->pq = l->m.pq;
    m->has_pq = l->m.has_pq;
    KN_TRY(kn_making_check_space(m));
    KN_TRY(kn_store_writer_recover(m->w));
    return kn_making_write(m, 0);
}

knnlm_status kn_index_build_as(const char *path, const kn_learnt *l, const kn_recipe *recipe,
                               const kn_progress *progress, kn_index_result *out) {
    kn_making m;
    knnlm_status status = kn_making_begin(&m, path, recipe, progress, out);
    if (status == KNNLM_OK) status = index_as(&m, l);
    m.centroids = NULL;
    m.group_ends = NULL;
    m.quantizer = NULL;
    m.has_pq = false;
    kn_making_free(&m);
    return status == KNNLM_OK ? kn_making_describe(path, out) : status;
}
