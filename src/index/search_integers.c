// Lists of int8 keys against queries of 16 bits: products are sums of integers, and distances exact.
#include "index/search_parts.h"

#include <string.h>

void kn_integer_pack(const kn_search_batch *b, const uint32_t *members, size_t n, int16_t *panel,
                     kn_integer_query *terms) {
    size_t stride = kn_index_stride(b->x);
    for (size_t q = 0; q < n; q++) {
        const int16_t *from = b->whole + members[q] * stride;
        int16_t *to = panel + q * KN_INTEGER_DEPTH;
        terms[q] = b->terms[members[q]];
        for (size_t k = 0; k < stride; k += KN_INTEGER_DEPTH, to += KN_INTEGER_CELL)
            memcpy(to, from + k, KN_INTEGER_DEPTH * sizeof *to);
    }
}

static void load_rows(const kn_index *x, const kn_run *run, size_t place, size_t stride, size_t n,
                      int16_t *panel, kn_integer_terms *terms) {
    const int8_t *rows[KN_CELL];
    float scales[KN_CELL];
    int32_t squares[KN_CELL];
    for (size_t i = 0; i < n; i++, place += stride) {
        rows[i] = (const int8_t *)run->rows + place * x->d;
        scales[i] = run->scales[place];
    }
    x->integers->load_integers(panel, squares, rows, n, x->d);
    x->integers->integer_terms(terms, squares, scales, n, kn_index_integer_form(x));
}

void kn_integer_scan(kn_search_batch *b, kn_gathering *g, const int16_t *lhs, const kn_integer_query *terms,
                     int16_t *panel, size_t place, size_t n) {
    int32_t products[KN_CELL_SIZE] __attribute__((aligned(64)));
    float distances[KN_CELL_SIZE] __attribute__((aligned(64)));
    uint32_t masks[KN_CELL];
    const kn_kernels *k = b->x->integers;
    size_t cells = kn_integer_cells(b->x->d);
    kn_integer_terms rows;
    load_rows(b->x, g->run, place, g->stride, n, panel, &rows);
    for (size_t q = 0; q < g->n; q += KN_CELL) {
        size_t m = kn_min(KN_CELL, g->n - q);
        k->multiply_integers(products, lhs + q * cells * KN_INTEGER_DEPTH, panel, cells, m);
        k->near_integers(distances, products, &rows, terms + q, g->limits + q, m, n, masks);
        for (size_t i = 0; i < m; i++)
            if (masks[i]) kn_gather(b, g, q + i, place, distances + i * KN_CELL, masks[i], 0);
    }
}
