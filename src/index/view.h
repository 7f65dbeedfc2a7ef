// What an open index is made of. Not a door: only this room includes it.
#ifndef KN_INDEX_VIEW_H
#define KN_INDEX_VIEW_H

#include "base/distance.h"
#include "index/index.h"
#include "index/pq.h"
#include "index/quantizer.h"
#include "math/math.h"

// Entries that lie together: rows one after another, as the store or the index keeps them.
typedef struct kn_run {
    const uint64_t *ends; // list l is [ends[l], ends[l + 1]); NULL: one list of all
    const uint32_t *ids;  // by place; NULL: first_id, first_id + 1, ...
    uint32_t first_id;
    const uint8_t *rows; // NULL: codes alone
    const float *scales;
    const uint8_t *codes; // in blocks, by place; NULL: none
    size_t count;
    size_t rows_part; // of the store's annex, with ids; else the segment
    size_t order_part, codes_part;
    size_t ids_at; // in the order part
} kn_run;

// Rows that are the index's own, not the store's.
typedef struct kn_index_memory {
    uint64_t *ends;
    uint8_t *rows;
    float *scales;
} kn_index_memory;

struct kn_index {
    const kn_store *store; // NULL: rows are in memory, and trusted
    kn_index_info info;
    const kn_kernels *k;
    const kn_kernels *integers; // for int8 keys, which meet queries of 16 bits; else NULL
    knnlm_distance distance;
    const kn_distance_form *form; // of it
    kn_row_type type;
    size_t d, row_bytes;
    uint64_t entries;           // of the store
    kn_quantizer *quantizer;    // NULL without lists, and where the lists have an index of their own:
    kn_index *coarse;           // of very many lists; else NULL
    const uint32_t *group_ends; // (groups + 1): of lists
    kn_index_memory own;
    float *centres;     // (lists, d)
    float *flat_centre; // (d): what rows outside the lists are measured from
    float *zero;        // (d)
    kn_pq pq;
    bool has_pq, plain_codes; // plain: of keys, not of residuals
    kn_run *listed, *flat;
    size_t listed_count, flat_count;
    uint64_t *removed; // a bit per entry; NULL: none
};

static inline uint32_t kn_run_id(const kn_run *r, size_t place) {
    return r->ids ? r->ids[place] : r->first_id + (uint32_t)place;
}

// Whether entry `id` may be found by query `q`.
static inline bool kn_index_admits(const kn_index *x, const kn_search_options *o, size_t q, uint32_t id) {
    if (x->removed && (x->removed[id / 64] >> id % 64 & 1)) return false;
    if (o->allowed && !(o->allowed[id / 64] >> id % 64 & 1)) return false;
    const kn_entry_range *out = o->exclude;
    size_t n = o->excludes ? o->excludes : 1;
    for (size_t i = q * n; out && i < (q + 1) * n; i++)
        if (id >= out[i].first && id < out[i].end) return false;
    return true;
}

// The vector that rows of a list are measured from: squared distances between residuals lose fewer digits.
static inline const float *kn_index_centre(const kn_index *x, const kn_run *r, size_t list) {
    if (!x->form->norms) return x->zero;
    return r->ends ? x->centres + list * x->d : x->flat_centre;
}

// Rows of a list from their codes, less the centre: what distances are of where there are no keys.
void kn_index_decode(const kn_index *x, const kn_run *r, size_t list, const float *centre, size_t place,
                     size_t n, float *rows);
// Whether places [from, to) of a run, and their rows or codes, are as they were written: KNNLM_EDATA. What
// was looked at before costs next to nothing.
typedef struct kn_run_check {
    const kn_index *x;
    const kn_run *run;
} kn_run_check;
knnlm_status kn_run_check_places(const kn_index *x, const kn_run *r, size_t from, size_t to, bool codes);
// The ids alone, or the rows or codes of places whose ids were checked.
knnlm_status kn_run_check_ids(const kn_index *x, const kn_run *r, size_t from, size_t to);
knnlm_status kn_run_check_codes(const kn_index *x, const kn_run *r, size_t from, size_t to);
knnlm_status kn_run_check_rows(const kn_index *x, const kn_run *r, size_t from, size_t to);
knnlm_status kn_run_check_ends(const kn_index *x, const kn_run *r);
// A query (d) as the index measures it: of length 1 for cosine; where keys are integers it becomes `whole`,
// padded to kn_index_stride, with its `terms`, and `out` what that stands for. Those two are NULL elsewhere.
void kn_index_query(const kn_index *x, const float *query, float *out, int16_t *whole,
                    kn_integer_query *terms);
static inline size_t kn_index_stride(const kn_index *x) {
    return kn_integer_cells(x->d) * KN_INTEGER_DEPTH;
}
static inline kn_integer_form kn_index_integer_form(const kn_index *x) {
    return x->form->norms ? KN_INTEGER_L2 : x->form->unit ? KN_INTEGER_COSINE : KN_INTEGER_PRODUCT;
}
// Groups of lists that a search of the lists' own index looks at, to find so many lists.
uint32_t kn_coarse_groups(const kn_index *coarse, uint32_t probes);
// Distances of a query to n rows of integers as they lie.
void kn_index_measure_integers(const kn_index *x, const int16_t *whole, const kn_integer_query *terms,
                               const uint8_t *rows, const float *scales, size_t n, float *distances);
// k and probes as they will be; KNNLM_EINVAL.
knnlm_status kn_index_resolve(const kn_index *x, const kn_search_options *o, size_t *k, uint32_t *probes);

#endif
