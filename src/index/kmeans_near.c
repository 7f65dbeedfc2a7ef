// Points to the nearest among the centroids around their present one.
//
// All points of a cluster look at the same NEAR centroids, so that this is one small matrix product a
// cluster. Everything is taken relative to the cluster's centroid a: with r = x - a and e = c - a a point is
// nearer to c by 2 (r . e - |e|^2 / 2). These are short vectors: bf16 decides only what is as good as equal.
#include "index/kmeans_parts.h"

#include "base/threads.h"
#include "index/quantizer.h"
#include "math/math.h"

#include <math.h>
#include <stdlib.h>

enum { NEAR = 64, PANELS = NEAR / KN_CELL };

typedef struct nearing {
    kn_clustering *c;
    const kn_kernels *k;
    size_t near;                // NEAR, or all centroids when they are fewer
    const uint32_t *neighbours; // (clusters, near)
    char *scratch;              // a worker: panels of neighbours, a panel of points, 32 x d floats
    size_t panel, bytes;
} nearing;

// out (rows, d) = the given rows of x - centroid
static void subtract(float *out, const float *x, const uint32_t *numbers, size_t rows, const float *centroid,
                     size_t d) {
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + numbers[r] * d;
        for (size_t i = 0; i < d; i++) out[r * d + i] = row[i] - centroid[i];
    }
}

// The neighbours of a cluster as right panels; bias: -|e|^2 / 2, -infinity in the padding.
static void pack_neighbours(const nearing *n, size_t list, char *rhs, float *moved, float *bias) {
    const kn_clustering *c = n->c;
    for (size_t first = 0; first < NEAR; first += KN_CELL) {
        size_t columns = first < n->near ? kn_min(KN_CELL, n->near - first) : 0;
        subtract(moved, c->centroids, n->neighbours + list * n->near + first, columns,
                 c->centroids + list * c->d, c->d);
        if (columns) n->k->pack_rhs(rhs + first / KN_CELL * n->panel, moved, c->d, columns, c->d);
        for (size_t i = 0; i < KN_CELL; i++)
            bias[first + i] =
                i < columns ? (float)(-n->k->sum_squares(moved + i * c->d, c->d) / 2) : -INFINITY;
    }
}

// Scores of up to 32 points against the neighbours; the best one takes the point.
static size_t settle(const nearing *n, size_t list, const uint32_t *points, size_t rows, const float *moved,
                     float (*scores)[NEAR]) {
    kn_clustering *c = n->c;
    size_t changed = 0;
    for (size_t r = 0; r < rows; r++) {
        float best = 0; // where it is
        size_t to = NEAR;
        for (size_t i = 0; i < n->near; i++)
            if (scores[r][i] > best) best = scores[r][i], to = i;
        if (to < NEAR) {
            c->lists[points[r]] = n->neighbours[list * n->near + to];
            changed += c->lists[points[r]] != list;
        }
        float distance = (float)(n->k->sum_squares(moved + r * c->d, c->d) - 2 * (double)best);
        c->distances[points[r]] = fmaxf(distance, 0);
    }
    return changed;
}

static void assign_list(void *context, size_t list, int worker) {
    const nearing *n = context;
    kn_clustering *c = n->c;
    size_t last = c->starts[list + 1], changed = 0, cells = kn_cells(c->d);
    char *rhs = n->scratch + (size_t)worker * n->bytes, *lhs = rhs + PANELS * n->panel;
    float *moved = (float *)(void *)(lhs + n->panel), bias[NEAR];
    float block[KN_CELL_SIZE] __attribute__((aligned(64))), scores[KN_CELL][NEAR];
    c->tallies[list] = 0;
    if (c->starts[list] == last) return;
    pack_neighbours(n, list, rhs, moved, bias);
    for (size_t p = c->starts[list]; p < last; p += KN_CELL) {
        size_t rows = kn_min(KN_CELL, last - p);
        subtract(moved, c->x, c->order + p, rows, c->centroids + list * c->d, c->d);
        n->k->pack_lhs(lhs, moved, c->d, rows, c->d);
        for (size_t j = 0; j < kn_cells(n->near); j++) {
            n->k->multiply(block, lhs, rhs + j * n->panel, cells, rows, false);
            n->k->store(scores[0] + j * KN_CELL, NEAR, block, bias + j * KN_CELL, rows, KN_CELL, false);
        }
        changed += settle(n, list, c->order + p, rows, moved, scores);
    }
    c->tallies[list] = (double)changed;
}

// The centroids nearest to each, itself first.
static knnlm_status find_neighbours(const kn_clustering *c, size_t near, uint32_t *neighbours) {
    kn_quantizer *q;
    KN_TRY(kn_quantizer_make(c->centroids, c->clusters, c->d, KN_QUANTIZER_L2, &q));
    knnlm_status status = kn_quantizer_probe(q, c->centroids, c->clusters, near, neighbours, NULL);
    kn_quantizer_free(q);
    return status;
}

knnlm_status kn_clustering_assign_near(kn_clustering *c) {
    const kn_kernels *k = kn_math_kernels(KNNLM_PRECISION_BF16);
    size_t near = kn_min(NEAR, c->clusters), panel = kn_panel_bytes(k, c->d);
    size_t bytes = (PANELS + 1) * panel + (KN_CELL * c->d * sizeof(float) + 63) / 64 * 64;
    uint32_t *neighbours = kn_alloc(c->clusters * near, sizeof *neighbours);
    nearing n = {c, k, near, neighbours, kn_alloc_aligned((size_t)kn_threads(), bytes), panel, bytes};
    knnlm_status status = neighbours && n.scratch ? find_neighbours(c, near, neighbours) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        kn_parallel(c->clusters, assign_list, &n);
        c->changed = 0;
        for (size_t l = 0; l < c->clusters; l++) c->changed += (size_t)c->tallies[l];
    }
    kn_free_aligned(n.scratch);
    free(neighbours);
    return status;
}
