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

// Rows of a run, with what is known of them.
typedef struct some_rows {
    kn_integer_terms terms;
    uint32_t ids[KN_CELL];
} some_rows;

static void load_rows(const kn_index *x, const kn_run *run, size_t place, size_t stride, size_t n,
                      int16_t *panel, some_rows *out) {
    const int8_t *rows[KN_CELL];
    float scales[KN_CELL];
    int32_t squares[KN_CELL];
    for (size_t i = 0; i < n; i++, place += stride) {
        rows[i] = (const int8_t *)run->rows + place * x->d;
        scales[i] = run->scales[place];
        out->ids[i] = kn_run_id(run, place);
    }
    x->integers->load_integers(panel, squares, rows, n, x->d);
    x->integers->integer_terms(&out->terms, squares, scales, n, kn_index_integer_form(x));
}

void kn_integer_scan(kn_search_batch *b, kn_gathering *g, const int16_t *lhs, const kn_integer_query *terms,
                     int16_t *panel, size_t place, size_t n) {
    int32_t products[KN_CELL_SIZE] __attribute__((aligned(64)));
    const kn_kernels *k = b->x->integers;
    size_t cells = kn_integer_cells(b->x->d);
    uint32_t end = (uint32_t)b->x->entries;
    some_rows rows;
    load_rows(b->x, g->run, place, g->stride, n, panel, &rows);
    for (size_t q = 0; q < g->n; q += KN_CELL) {
        size_t m = kn_min(KN_CELL, g->n - q);
        k->multiply_integers(products, lhs + q * cells * KN_INTEGER_DEPTH, panel, cells, m);
        for (size_t i = q; i < q + m; i++) {
            size_t found = k->rank_integers(g->items[i] + g->counts[i], products + (i - q) * KN_CELL,
                                            &rows.terms, &terms[i], g->limits[i], rows.ids, 0, end, n);
            if (found) kn_gather_ranked(b, g, i, found);
        }
    }
}
