#include "lm/native/head.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// One cluster's softmax over some rows: log-sum-exp and the logit of the target, from blocks of 32 columns.
// Each block leaves its part in its own place, and the parts are joined in order: the result does not depend
// on the threads.
typedef struct cluster {
    const kn_kernels *k;
    size_t rows, parts;     // parts: blocks of columns
    const int32_t *targets; // class of each row in this cluster, or -1
    float *largest, *sum;   // (rows, parts)
    float *target_logit;    // (rows)
    float *logits;          // (rows, ld) or NULL
    size_t ld;
} cluster;

static void store_block(void *context, const float *block, size_t row, size_t column, size_t rows,
                        size_t columns) {
    cluster *c = context;
    size_t at = row * c->parts + column / KN_CELL;
    c->k->block_softmax(block, rows, columns, c->largest + at, c->sum + at, NULL, c->parts);
    for (size_t r = 0; r < rows; r++) {
        size_t target = (size_t)(c->targets[row + r] - (int32_t)column); // -1 and lower wrap to huge
        if (c->targets[row + r] >= (int32_t)column && target < columns)
            c->target_logit[row + r] = block[r * KN_CELL + target];
        if (c->logits)
            memcpy(c->logits + (row + r) * c->ld + column, block + r * KN_CELL, columns * sizeof *block);
    }
}

static float join_parts(const cluster *c, size_t row) {
    const float *largest = c->largest + row * c->parts, *sum = c->sum + row * c->parts;
    float best = c->k->max(largest, c->parts);
    double total = 0;
    for (size_t i = 0; i < c->parts; i++) total += (double)sum[i] * (double)expf(largest[i] - best);
    return best + (float)log(total);
}

static knnlm_status cluster_init(cluster *c, const kn_kernels *k, size_t rows, size_t columns) {
    *c = (cluster){.k = k, .rows = rows, .parts = kn_cells(columns)};
    c->largest = kn_alloc_aligned(rows * c->parts, sizeof(float));
    c->sum = kn_alloc_aligned(rows * c->parts, sizeof(float));
    c->target_logit = kn_alloc(rows, sizeof(float));
    return c->largest && c->sum && c->target_logit ? KNNLM_OK : KNNLM_ENOMEM;
}

static void cluster_free(cluster *c) {
    kn_free_aligned(c->largest);
    kn_free_aligned(c->sum);
    free(c->target_logit);
}

// logsum (rows), and target_logit where a row has a target; logits too when wanted.
static knnlm_status cluster_run(const kn_weights *w, int32_t band, const void *lhs, size_t rows,
                                const int32_t *targets, float *logsum, float *target_logit, float *logits,
                                size_t ld) {
    cluster c;
    knnlm_status status = cluster_init(&c, w->k, rows, w->classes[band].columns);
    if (status == KNNLM_OK) {
        c.targets = targets;
        c.logits = logits;
        c.ld = ld;
        kn_multiply(w->k, lhs, rows, &w->classes[band], store_block, &c);
        for (size_t r = 0; r < rows; r++) logsum[r] = join_parts(&c, r);
        memcpy(target_logit, c.target_logit, rows * sizeof *target_logit);
    }
    cluster_free(&c);
    return status;
}

// The class of `token` in cluster 0: itself, or the one that stands for its band.
static int32_t first_class(const kn_config *c, int32_t token) {
    int32_t band = kn_band_of(c, token);
    return band == 0 ? token : c->band_end[0] + band - 1;
}

// The rows of h that further cluster `band` must see, reduced to its width and packed.
static knnlm_status reduce_rows(const kn_weights *w, const float *h, const size_t *places, size_t n,
                                int32_t band, void **lhs) {
    size_t d = (size_t)w->config.width, width = (size_t)kn_band_width(&w->config, band);
    float *gathered = kn_alloc_aligned(n * d, sizeof(float)),
          *reduced = kn_alloc_aligned(n * width, sizeof(float));
    void *packed = kn_alloc_aligned(1, kn_lhs_bytes(w->k, n, d));
    *lhs = kn_alloc_aligned(1, kn_lhs_bytes(w->k, n, width));
    knnlm_status status = gathered && reduced && packed && *lhs ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        kn_emit_matrix store = {w->k, reduced, width, NULL};
        for (size_t i = 0; i < n; i++) memcpy(gathered + i * d, h + places[i] * d, d * sizeof *gathered);
        kn_lhs_pack(w->k, packed, gathered, d, n, d, false);
        kn_multiply(w->k, packed, n, &w->reduce[band], kn_emit_set, &store);
        kn_lhs_pack(w->k, *lhs, reduced, width, n, width, false);
    } else {
        kn_free_aligned(*lhs);
        *lhs = NULL;
    }
    kn_free_aligned(gathered);
    kn_free_aligned(reduced);
    kn_free_aligned(packed);
    return status;
}

// Work arrays of one call.
typedef struct head_run {
    const kn_weights *w;
    const float *h;
    size_t rows;
    const int32_t *targets;
    float *logprobs, *distribution;
    void *lhs;
    int32_t *classes;
    size_t *places;
    float *logsum, *target_logit, *logits; // logits: (rows, largest cluster) when a distribution is wanted
    size_t ld;
} head_run;

static knnlm_status run_first(head_run *r) {
    const kn_config *c = &r->w->config;
    size_t vocabulary = (size_t)c->vocabulary, words = (size_t)kn_band_size(c, 0);
    for (size_t i = 0; i < r->rows; i++) r->classes[i] = r->targets ? first_class(c, r->targets[i]) : -1;
    kn_lhs_pack(r->w->k, r->lhs, r->h, (size_t)c->width, r->rows, (size_t)c->width, false);
    KN_TRY(cluster_run(r->w, 0, r->lhs, r->rows, r->classes, r->logsum, r->target_logit, r->logits, r->ld));
    for (size_t i = 0; i < r->rows; i++) {
        if (r->logprobs) r->logprobs[i] = r->target_logit[i] - r->logsum[i];
        if (!r->distribution) continue;
        float *row = r->distribution + i * vocabulary;
        const float *logits = r->logits + i * r->ld;
        for (size_t j = 0; j < words; j++) row[j] = logits[j] - r->logsum[i];
        for (int32_t b = 1; b < c->bands; b++) // what the band's words share, added to by run_further
            for (int32_t j = kn_band_start(c, b); j < c->band_end[b]; j++)
                row[j] = logits[words + (size_t)b - 1] - r->logsum[i];
    }
    return KNNLM_OK;
}

static knnlm_status run_further(head_run *r, int32_t band) {
    const kn_config *c = &r->w->config;
    int32_t start = kn_band_start(c, band);
    size_t n = 0, size = (size_t)kn_band_size(c, band);
    void *lhs;
    for (size_t i = 0; i < r->rows; i++) {
        bool here = r->targets && kn_band_of(c, r->targets[i]) == band;
        if (!here && !r->distribution) continue;
        r->classes[n] = here ? r->targets[i] - start : -1;
        r->places[n++] = i;
    }
    if (n == 0) return KNNLM_OK;
    KN_TRY(reduce_rows(r->w, r->h, r->places, n, band, &lhs));
    knnlm_status status =
        cluster_run(r->w, band, lhs, n, r->classes, r->logsum, r->target_logit, r->logits, r->ld);
    kn_free_aligned(lhs);
    KN_TRY(status);
    for (size_t i = 0; i < n; i++) {
        if (r->logprobs && r->classes[i] >= 0) r->logprobs[r->places[i]] += r->target_logit[i] - r->logsum[i];
        if (!r->distribution) continue;
        float *row = r->distribution + r->places[i] * (size_t)c->vocabulary + start;
        for (size_t j = 0; j < size; j++) row[j] += r->logits[i * r->ld + j] - r->logsum[i];
    }
    return KNNLM_OK;
}

static knnlm_status run_clusters(head_run *r) {
    const kn_config *c = &r->w->config;
    r->lhs = kn_alloc_aligned(1, kn_lhs_bytes(r->w->k, r->rows, (size_t)c->width));
    r->classes = kn_alloc(r->rows, sizeof *r->classes);
    r->places = kn_alloc(r->rows, sizeof *r->places);
    r->logsum = kn_alloc(r->rows, sizeof *r->logsum);
    r->target_logit = kn_alloc(r->rows, sizeof *r->target_logit);
    if (!r->lhs || !r->classes || !r->places || !r->logsum || !r->target_logit) return KNNLM_ENOMEM;
    if (r->distribution) {
        for (int32_t b = 0; b < c->bands; b++)
            if (kn_cluster_size(c, b) > r->ld) r->ld = kn_cluster_size(c, b);
        r->logits = kn_alloc_aligned(r->rows * r->ld, sizeof(float));
        if (!r->logits) return KNNLM_ENOMEM;
    }
    KN_TRY(run_first(r));
    for (int32_t b = 1; b < c->bands; b++) KN_TRY(run_further(r, b));
    return KNNLM_OK;
}

static float entropy(const float *logprobs, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum -= (double)expf(logprobs[i]) * (double)logprobs[i];
    return (float)sum;
}

// Rows whose whole distribution is held at a time when only their entropies are wanted.
enum { ENTROPY_ROWS = 64 };

static knnlm_status run_rows(const kn_weights *w, const float *h, size_t rows, const int32_t *targets,
                             float *logprobs, float *distribution) {
    head_run r = {
        .w = w, .h = h, .rows = rows, .targets = targets, .logprobs = logprobs, .distribution = distribution};
    knnlm_status status = run_clusters(&r);
    kn_free_aligned(r.lhs);
    kn_free_aligned(r.logits);
    free(r.classes);
    free(r.places);
    free(r.logsum);
    free(r.target_logit);
    return status;
}

knnlm_status kn_head_run(const kn_weights *w, const float *h, size_t rows, const int32_t *targets,
                         float *logprobs, float *entropies, float *distribution) {
    size_t vocabulary = (size_t)w->config.vocabulary, d = (size_t)w->config.width;
    if (rows == 0) return KNNLM_OK;
    if (distribution || !entropies) {
        KN_TRY(run_rows(w, h, rows, targets, logprobs, distribution));
        for (size_t i = 0; entropies && i < rows; i++)
            entropies[i] = entropy(distribution + i * vocabulary, vocabulary);
        return KNNLM_OK;
    }
    float *held = kn_alloc_aligned(ENTROPY_ROWS * vocabulary, sizeof *held);
    knnlm_status status = held ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; status == KNNLM_OK && i < rows; i += ENTROPY_ROWS) {
        size_t n = rows - i < ENTROPY_ROWS ? rows - i : ENTROPY_ROWS;
        status =
            run_rows(w, h + i * d, n, targets ? targets + i : NULL, logprobs ? logprobs + i : NULL, held);
        for (size_t j = 0; status == KNNLM_OK && j < n; j++)
            entropies[i + j] = entropy(held + j * vocabulary, vocabulary);
    }
    kn_free_aligned(held);
    return status;
}
