// Where k-means starts: centroids on points.
#include "index/kmeans_parts.h"

#include "base/threads.h"
#include "index/quantizer_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

knnlm_status kn_kmeans_draw(kn_random *random, size_t n, size_t count, uint32_t *out) {
    uint32_t *numbers = kn_alloc(n, sizeof *numbers);
    if (!numbers) return KNNLM_ENOMEM;
    for (size_t i = 0; i < n; i++) numbers[i] = (uint32_t)i;
    for (size_t i = 0; i < count; i++) {
        size_t other = i + kn_random_below(random, n - i);
        out[i] = numbers[other];
        numbers[other] = numbers[i];
    }
    free(numbers);
    return KNNLM_OK;
}

typedef struct gathering {
    const float *x;
    const uint32_t *numbers;
    float *out;
    size_t d, count;
} gathering;

enum { GATHER_ROWS = 256 };

static void gather_rows(void *context, size_t task, int worker) {
    const gathering *g = context;
    size_t first = task * GATHER_ROWS, last = kn_min(first + GATHER_ROWS, g->count);
    (void)worker;
    for (size_t r = first; r < last; r++)
        memcpy(g->out + r * g->d, g->x + g->numbers[r] * g->d, g->d * sizeof *g->out);
}

void kn_kmeans_gather(const float *x, size_t d, const uint32_t *numbers, size_t count, float *out) {
    gathering g = {x, numbers, out, d, count};
    kn_parallel((count + GATHER_ROWS - 1) / GATHER_ROWS, gather_rows, &g);
}

// ---------------------------------------------------------------- k-means++

typedef struct sowing {
    kn_clustering *c;
    double *sums;    // running sums of the squared distances to the nearest centroid before this batch
    bool *taken;     // points
    float *batch;    // distances to the nearest of the last batch
    uint32_t *lists; // of no interest
} sowing;

// A point, by its squared distance to the nearest centroid: drawn by the one before the batch, then refused
// with the probability by which centroids [done, next) of the batch have shortened it.
static bool draw(sowing *s, size_t done, size_t next, size_t *point) {
    kn_clustering *c = s->c;
    double total = s->sums[c->n - 1], unit = kn_random_unit(&c->random);
    *point = total > 0 ? kn_kmeans_find(s->sums, c->n, unit * total) : (size_t)(unit * (double)c->n);
    if (s->taken[*point]) return false;
    const float *x = c->x + *point * c->d;
    float nearest = c->distances[*point], before = nearest;
    const kn_kernels *k = kn_math_kernels(KNNLM_PRECISION_F32);
    for (size_t i = done; i < next; i++)
        nearest = fminf(nearest, k->fixed_distance(x, c->centroids + i * c->d, c->d));
    return before == nearest || kn_random_unit(&c->random) * (double)before < (double)nearest;
}

// Where points are few or equal no draw succeeds: then the next one not taken.
static size_t choose(sowing *s, size_t done, size_t next) {
    enum { TRIES = 100 };
    size_t point = 0;
    for (int tries = 0; tries < TRIES; tries++)
        if (draw(s, done, next, &point)) return point;
    while (s->taken[point]) point = point + 1 < s->c->n ? point + 1 : 0;
    return point;
}

// Puts centroids [done, done + count) on points; the distances then count them in.
static knnlm_status sow(sowing *s, size_t done, size_t count) {
    kn_clustering *c = s->c;
    kn_quantizer *q;
    double sum = 0;
    for (size_t i = done; i < done + count; i++) {
        size_t point = choose(s, done, i);
        s->taken[point] = true;
        memcpy(c->centroids + i * c->d, c->x + point * c->d, c->d * sizeof *c->centroids);
    }
    if (done + count == c->clusters) return KNNLM_OK;
    KN_TRY(kn_quantizer_make(c->centroids + done * c->d, count, c->d, KN_QUANTIZER_L2, &q));
    knnlm_status status = kn_quantizer_assign(q, c->x, c->n, s->lists, s->batch);
    kn_quantizer_free(q);
    for (size_t i = 0; i < c->n; i++) {
        if (s->batch[i] < c->distances[i]) c->distances[i] = s->batch[i];
        s->sums[i] = sum += (double)c->distances[i];
    }
    return status;
}

// K-means++ reads all points for each centroid. In batches that is a matrix product, and what a batch costs
// within itself grows with its square: a quarter of the centroids there are keeps both small.
static knnlm_status start_plusplus(kn_clustering *c) {
    sowing s = {c, kn_alloc(c->n, sizeof *s.sums), kn_alloc(c->n, sizeof *s.taken),
                kn_alloc(c->n, sizeof *s.batch), kn_alloc(c->n, sizeof *s.lists)};
    knnlm_status status = s.sums && s.taken && s.batch && s.lists ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; i < c->n && status == KNNLM_OK; i++) {
        c->distances[i] = INFINITY;
        s.sums[i] = 0; // the first is drawn evenly
    }
    for (size_t done = 0, count; status == KNNLM_OK && done < c->clusters; done += count) {
        size_t more = kn_max(done / 4, kn_max(c->clusters / 512, 1));
        count = done ? kn_min(more, c->clusters - done) : 1;
        status = sow(&s, done, count);
    }
    free(s.sums);
    free(s.taken);
    free(s.batch);
    free(s.lists);
    return status;
}

static knnlm_status start_random(kn_clustering *c) {
    uint32_t *numbers = kn_alloc(c->clusters, sizeof *numbers);
    if (!numbers) return KNNLM_ENOMEM;
    knnlm_status status = kn_kmeans_draw(&c->random, c->n, c->clusters, numbers);
    if (status == KNNLM_OK) kn_kmeans_gather(c->x, c->d, numbers, c->clusters, c->centroids);
    free(numbers);
    return status;
}

knnlm_status kn_clustering_start(kn_clustering *c, bool plusplus) {
    return plusplus ? start_plusplus(c) : start_random(c);
}
