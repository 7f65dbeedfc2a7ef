// Which rows are worth measuring: a lower bound of squared distances that costs a fraction of them.
//
// Vectors are seen in the directions in which keys spread most. A distance there is at most the distance
// itself, so a row that is too far there is too far; and products there may be rough (bf16), as long as the
// bound allows for it. Language models spread their vectors over few directions: of 256, half leave one row
// in a hundred to be measured.
#ifndef KN_INDEX_ROUGH_H
#define KN_INDEX_ROUGH_H

#include "index/search_parts.h"

typedef struct kn_rough {
    const kn_index *x;
    const kn_kernels *k; // of the products; bf16 where the CPU multiplies it natively
    size_t h;            // directions; d: the vectors as they are
    kn_rhs basis;        // (h, d), when h < d
} kn_rough;

// Of 32 vectors: squared norms of what is seen and of all, and the largest of them.
typedef struct kn_rough_norms {
    float seen[KN_CELL], all[KN_CELL], max_seen, max_all;
} kn_rough_norms;

// A worker's memory.
typedef struct kn_rough_scratch {
    float *rows, *lhs, *seen;
} kn_rough_scratch;

// Chooses the number of directions that makes the search of the batch cheapest, by trying some of its queries
// on some rows. Free in any case.
knnlm_status kn_rough_make(const kn_search_batch *b, kn_rough *out);
void kn_rough_free(kn_rough *r);
knnlm_status kn_rough_scratch_make(const kn_rough *r, kn_rough_scratch *out);
void kn_rough_scratch_free(kn_rough_scratch *s);

// Packs n <= 32 queries (n, d) to the left of a product, or stored rows to the right.
void kn_rough_pack_queries(const kn_rough *r, kn_rough_scratch *s, const float *queries, size_t n,
                           void *panel, kn_rough_norms *norms);
void kn_rough_pack_rows(const kn_rough *r, kn_rough_scratch *s, const kn_run *run, size_t place, size_t n,
                        void *panel, kn_rough_norms *norms);

// How far the distances that the product of some queries with some rows gives may be above the true ones: one
// a query.
void kn_rough_doubts(const kn_rough *r, const kn_rough_norms *queries, const kn_rough_norms *rows,
                     float doubts[KN_CELL]);

#endif
