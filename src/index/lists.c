// The lists of an open index: its parts, checked against the note and the store.
#include "index/note.h"
#include "index/open.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct opening {
    kn_index *x;
    const kn_index_note *note;
    size_t part; // next
} opening;

static knnlm_status damaged(const kn_index *x, const char *what) {
    return kn_fail(KNNLM_EDATA, "%s: its index is damaged: %s (`knnlm_index` makes it anew)",
                   kn_store_describe(x->store)->path, what);
}

// The next part, which must be of this kind, size and count. Sizes come from the note: 2^24 lists, 2^16
// dimensions and 2^32 entries do not overflow.
static knnlm_status next_part(opening *o, const char *kind, uint64_t count, size_t size,
                              kn_store_annex_part *out) {
    if (o->part >= kn_store_annex_parts(o->x->store)) return damaged(o->x, "a part is missing");
    *out = kn_store_annex_at(o->x->store, o->part++);
    if (strcmp(out->kind, kind) != 0 || out->count != count || out->size != size)
        return damaged(o->x, "a part is of another size than its note says");
    o->x->info.bytes += out->size;
    return kn_store_check_annex(o->x->store, o->part - 1, 0, 0, NULL, NULL); // its seal
}

static knnlm_status open_codes(kn_index *x, const kn_index_note *n, const float *centroids) {
    if (!n->code_parts) return KNNLM_OK;
    KN_TRY(kn_pq_init(&x->pq, x->d, n->code_parts, n->code_bits));
    x->has_pq = true;
    x->plain_codes = n->plain_codes;
    memcpy(x->pq.centroids, centroids, ((size_t)1 << n->code_bits) * x->d * sizeof *centroids);
    kn_pq_prepare(&x->pq);
    x->info.code_bytes = (uint32_t)kn_pq_code_bytes(&x->pq);
    x->info.code_parts = n->code_parts;
    x->info.code_bits = n->code_bits;
    return KNNLM_OK;
}

static const char *check_floats(void *context, size_t from, size_t to) {
    const uint8_t *data = context;
    return kn_key_values_finite(KNNLM_KEYS_F32, data + from, to - from) ? NULL : "a centroid is not finite";
}

static knnlm_status open_groups(kn_index *x, const kn_index_note *n, const uint32_t *ends) {
    bool good = ends[0] == 0 && ends[n->groups] == n->lists;
    for (size_t g = 0; g < n->groups && good; g++) good = ends[g] <= ends[g + 1];
    if (!good) return damaged(x, "the groups of its lists make no sense");
    x->group_ends = ends;
    x->info.groups = n->groups;
    return kn_coarse_make(x->centres, n->lists, x->d, ends, n->groups, x->form, &x->coarse);
}

static knnlm_status open_centroids(opening *o) {
    kn_index *x = o->x;
    const kn_index_note *n = o->note;
    kn_store_annex_part part;
    size_t coarse = kn_annex_padded(n->lists * x->d * sizeof(float));
    size_t fine = n->code_parts ? kn_annex_padded(((size_t)1 << n->code_bits) * x->d * sizeof(float)) : 0;
    size_t groups = n->groups ? kn_annex_padded((n->groups + 1) * sizeof(uint32_t)) : 0;
    KN_TRY(next_part(o, "lists", n->lists, coarse + fine + groups, &part));
    KN_TRY(kn_store_check_annex(x->store, o->part - 1, 0, part.size, check_floats,
                                (void *)(uintptr_t)part.data));
    x->centres = kn_alloc_aligned(n->lists, x->d * sizeof *x->centres);
    if (!x->centres) return KNNLM_ENOMEM;
    memcpy(x->centres, part.data, n->lists * x->d * sizeof *x->centres);
    KN_TRY(n->groups ? open_groups(x, n, (const uint32_t *)(const void *)(part.data + coarse + fine))
                     : kn_quantizer_make(x->centres, n->lists, x->d,
                                         x->form->norms ? KN_QUANTIZER_L2 : KN_QUANTIZER_IP, &x->quantizer));
    return open_codes(x, n, (const float *)(const void *)(part.data + coarse));
}

static knnlm_status check_ends(const kn_index *x, const uint64_t *ends, size_t lists, uint64_t n) {
    if (ends[0] != 0 || ends[lists] != n) return damaged(x, "the ends of its lists make no sense");
    for (size_t l = 0; l < lists; l++)
        if (ends[l] > ends[l + 1]) return damaged(x, "the ends of its lists make no sense");
    return KNNLM_OK;
}

static knnlm_status open_run(opening *o, const kn_run_note *note, kn_run *run) {
    kn_index *x = o->x;
    kn_store_annex_part part;
    size_t n = (size_t)note->entries, ends = kn_annex_padded((o->note->lists + 1) * sizeof(uint64_t));
    KN_TRY(next_part(o, "order", n, ends + kn_annex_padded(n * sizeof(uint32_t)), &part));
    *run = (kn_run){.ends = (const uint64_t *)(const void *)part.data,
                    .ids = (const uint32_t *)(const void *)(part.data + ends),
                    .count = n,
                    .order_part = o->part - 1,
                    .ids_at = ends};
    KN_TRY(kn_run_check_ends(x, run));
    KN_TRY(check_ends(x, run->ends, o->note->lists, n));
    if (x->info.has_keys) {
        size_t rows = kn_annex_padded(n * x->row_bytes),
               scales = x->type == KN_ROWS_INT8 ? kn_annex_padded(n * sizeof(float)) : 0;
        run->rows_part = o->part;
        KN_TRY(next_part(o, "rows", n, rows + scales, &part));
        run->rows = part.data;
        if (scales) run->scales = (const float *)(const void *)(part.data + rows);
    }
    if (x->has_pq) {
        KN_TRY(next_part(o, "codes", n, kn_pq_blocks_bytes(n, x->info.code_bytes), &part));
        run->codes = part.data;
        run->codes_part = o->part - 1;
    }
    if (note->first >= kn_store_describe(x->store)->arranged) return KNNLM_OK;
    return next_part(o, "listed", n, kn_annex_padded(n * kn_annex_list_bytes(o->note->lists)), &part);
}

static void decode_codes(const kn_index *x, const kn_run *r, size_t place, size_t n, float *rows) {
    uint8_t codes[KN_PQ_PARTS_MAX]; // one at least
    size_t bytes = x->info.code_bytes, fits = sizeof codes / bytes;
    for (size_t last = place + n, some; place < last; place += some, rows += some * x->d) {
        some = kn_min(fits, last - place);
        kn_pq_deinterleave(r->codes, place, some, bytes, codes);
        kn_pq_decode(&x->pq, codes, some, rows);
    }
}

void kn_index_decode(const kn_index *x, const kn_run *r, size_t list, const float *centre, size_t place,
                     size_t n, float *rows) {
    const float *home = x->centres + list * x->d;
    decode_codes(x, r, place, n, rows);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < x->d; j++) rows[i * x->d + j] += (x->plain_codes ? 0 : home[j]) - centre[j];
}

static void measure_balance(kn_index *x) {
    double squares = 0, total = 0;
    for (size_t l = 0; l < x->info.lists; l++) {
        double n = 0;
        for (size_t i = 0; i < x->listed_count; i++)
            n += (double)(x->listed[i].ends[l + 1] - x->listed[i].ends[l]);
        squares += n * n;
        total += n;
    }
    x->info.imbalance = total > 0 ? squares * x->info.lists / (total * total) : 1;
}

// How much farther from its centroid is what was added after training?
static void measure_drift(kn_index *x, const kn_index_note *n) {
    double sum = -n->objective * (double)n->learnt, count = -(double)n->learnt;
    for (size_t i = 0; i < n->run_count; i++) {
        sum += n->runs[i].objective * (double)n->runs[i].entries;
        count += (double)n->runs[i].entries;
    }
    if (count > 0 && n->objective > 0) x->info.drift = fmax(sum, 0) / count / n->objective;
}

static knnlm_status open_noted(kn_index *x, const kn_index_note *n) {
    opening o = {.x = x, .note = n};
    x->info.lists = n->lists;
    x->info.probes = n->probes;
    KN_TRY(open_centroids(&o));
    x->listed = kn_alloc(n->run_count, sizeof *x->listed);
    if (!x->listed) return KNNLM_ENOMEM;
    for (size_t i = 0; i < n->run_count; i++) {
        KN_TRY(open_run(&o, &n->runs[i], &x->listed[x->listed_count]));
        x->listed_count++;
        x->info.listed += n->runs[i].entries;
    }
    if (x->info.listed > x->entries) return damaged(x, "it has more entries than the store");
    measure_balance(x);
    measure_drift(x, n);
    return KNNLM_OK;
}

knnlm_status kn_index_add_lists(kn_index *x) {
    const char *text = kn_store_annex_note(x->store);
    kn_index_note note;
    if (!text) return KNNLM_OK;
    if (kn_store_annex_fault(x->store)) return damaged(x, kn_store_annex_fault(x->store));
    KN_TRY(kn_index_note_parse(kn_store_describe(x->store)->path, text, &note));
    knnlm_status status = open_noted(x, &note);
    kn_index_note_free(&note);
    return status;
}
