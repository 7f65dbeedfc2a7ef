// The output softmax over packed clusters of the vocabulary; reference.c has it in plain loops.
#include "lm/native/head.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// One call: what is wanted, and work arrays of as many rows. Those but band_log serve one cluster after
// another.
typedef struct head_run {
    const kn_weights *w;
    const float *h;
    size_t rows;
    const int32_t *targets;
    float *logprobs, *entropies, *distribution;
    void *lhs;
    size_t *places;                        // of a further cluster's rows among all rows
    int32_t *classes;                      // of their targets in the cluster, or -1
    float *target_logit, *logsum, *spread; // spread: entropy within the cluster, where entropies are wanted
    float *band_log;                       // (rows, bands): log-probability of each band but the first
    float *logits;                         // (rows, ld): of the cluster, where a distribution is wanted
    size_t ld;
} head_run;

// ---------------------------------------------------------------- one cluster

// A cluster's softmax over some rows, from blocks of 32 columns. Each block leaves its part in its own place,
// and the parts are joined in order: the result does not depend on the threads.
typedef struct cluster {
    const head_run *run;
    size_t rows, parts;            // parts: blocks of columns
    size_t words;                  // columns after these (of the first cluster) stand for bands
    float *largest, *sum, *moment; // (rows, parts): as by block_softmax; moment NULL without entropies
} cluster;

static void keep_bands(const cluster *c, const float *block, size_t row, size_t column, size_t rows,
                       size_t columns) {
    size_t bands = (size_t)c->run->w->config.bands, first = c->words > column ? c->words - column : 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t j = first; j < columns; j++)
            c->run->band_log[(row + r) * bands + 1 + column + j - c->words] = block[r * KN_CELL + j];
}

static void store_block(void *context, const float *block, size_t row, size_t column, size_t rows,
                        size_t columns) {
    const cluster *c = context;
    const head_run *run = c->run;
    size_t at = row * c->parts + column / KN_CELL;
    run->w->k->block_softmax(block, rows, columns, c->largest + at, c->sum + at,
                             c->moment ? c->moment + at : NULL, c->parts);
    for (size_t r = 0; r < rows; r++) {
        int32_t class = run->classes[row + r];
        size_t target = (size_t)(class - (int32_t)column); // -1 and lower wrap to huge
        if (class >= (int32_t)column && target < columns)
            run->target_logit[row + r] = block[r * KN_CELL + target];
        if (run->logits)
            memcpy(run->logits + (row + r) * run->ld + column, block + r * KN_CELL, columns * sizeof *block);
    }
    if (column + columns > c->words) keep_bands(c, block, row, column, rows, columns);
}

// Entropy = log-sum-exp - mean of x. Both are taken less the largest x: two terms that are not negative are
// added then, where the difference of large ones would cost digits.
static void join_parts(const cluster *c, size_t row) {
    const float *largest = c->largest + row * c->parts, *sum = c->sum + row * c->parts,
                *moment = c->moment ? c->moment + row * c->parts : NULL;
    float best = c->run->w->k->max(largest, c->parts);
    double total = 0, weighted = 0;
    kn_softmax_join(largest, sum, moment, c->parts, best, &total, &weighted);
    c->run->logsum[row] = best + (float)log(total);
    if (moment) c->run->spread[row] = (float)(log(total) - weighted / total);
}

static void join_rows(void *context, size_t task, int worker) {
    const cluster *c = context;
    (void)worker;
    for (size_t r = task * KN_CELL; r < kn_min((task + 1) * KN_CELL, c->rows); r++) join_parts(c, r);
}

static knnlm_status cluster_init(cluster *c, const head_run *r, int32_t band, size_t rows) {
    *c = (cluster){.run = r,
                   .rows = rows,
                   .parts = kn_cells(r->w->classes[band].columns),
                   .words = (size_t)kn_band_size(&r->w->config, band)};
    c->largest = kn_alloc_aligned(rows * c->parts, sizeof(float));
    c->sum = kn_alloc_aligned(rows * c->parts, sizeof(float));
    if (r->entropies) c->moment = kn_alloc_aligned(rows * c->parts, sizeof(float));
    return c->largest && c->sum && (c->moment || !r->entropies) ? KNNLM_OK : KNNLM_ENOMEM;
}

static void cluster_free(cluster *c) {
    kn_free_aligned(c->largest);
    kn_free_aligned(c->sum);
    kn_free_aligned(c->moment);
}

// Fills, for `rows` rows, logsum, target_logit where there is a target, and what else is wanted.
static knnlm_status cluster_run(const head_run *r, int32_t band, const void *lhs, size_t rows) {
    cluster c;
    knnlm_status status = cluster_init(&c, r, band, rows);
    if (status == KNNLM_OK) {
        kn_multiply(r->w->k, lhs, rows, &r->w->classes[band], store_block, &c);
        kn_parallel(kn_cells(rows), join_rows, &c);
    }
    cluster_free(&c);
    return status;
}

// ---------------------------------------------------------------- all clusters

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

static knnlm_status run_first(const head_run *r) {
    const kn_config *c = &r->w->config;
    size_t d = (size_t)c->width, vocabulary = (size_t)c->vocabulary, words = (size_t)kn_band_size(c, 0);
    for (size_t i = 0; i < r->rows; i++) r->classes[i] = r->targets ? first_class(c, r->targets[i]) : -1;
    kn_lhs_pack(r->w->k, r->lhs, r->h, d, r->rows, d, false);
    KN_TRY(cluster_run(r, 0, r->lhs, r->rows));
    for (size_t i = 0; i < r->rows; i++) {
        if (r->logprobs) r->logprobs[i] = r->target_logit[i] - r->logsum[i];
        if (r->entropies) r->entropies[i] = r->spread[i];
        for (int32_t b = 1; b < c->bands; b++) r->band_log[i * (size_t)c->bands + (size_t)b] -= r->logsum[i];
        if (!r->distribution) continue;
        for (size_t j = 0; j < words; j++)
            r->distribution[i * vocabulary + j] = r->logits[i * r->ld + j] - r->logsum[i];
    }
    return KNNLM_OK;
}

// The rows that a further cluster must see: those with their target in it, or all where its words matter too.
static size_t choose_rows(const head_run *r, int32_t band) {
    const kn_config *c = &r->w->config;
    size_t n = 0;
    for (size_t i = 0; i < r->rows; i++) {
        bool here = r->targets && kn_band_of(c, r->targets[i]) == band;
        if (!here && !r->entropies && !r->distribution) continue;
        r->classes[n] = here ? r->targets[i] - kn_band_start(c, band) : -1;
        r->places[n++] = i;
    }
    return n;
}

// With the band's probability p and the entropy H within it, a row's entropy grows by p H: choosing the band
// is in the entropy of the first cluster already.
static knnlm_status run_further(const head_run *r, int32_t band) {
    const kn_config *c = &r->w->config;
    size_t start = (size_t)kn_band_start(c, band), size = (size_t)kn_band_size(c, band);
    size_t n = choose_rows(r, band);
    void *lhs;
    if (n == 0) return KNNLM_OK;
    KN_TRY(reduce_rows(r->w, r->h, r->places, n, band, &lhs));
    knnlm_status status = cluster_run(r, band, lhs, n);
    kn_free_aligned(lhs);
    KN_TRY(status);
    for (size_t i = 0; i < n; i++) {
        size_t place = r->places[i];
        float band_log = r->band_log[place * (size_t)c->bands + (size_t)band];
        if (r->logprobs && r->classes[i] >= 0) r->logprobs[place] += r->target_logit[i] - r->logsum[i];
        if (r->entropies) r->entropies[place] += expf(band_log) * r->spread[i];
        if (!r->distribution) continue;
        float *row = r->distribution + place * (size_t)c->vocabulary + start;
        for (size_t j = 0; j < size; j++) row[j] = band_log + (r->logits[i * r->ld + j] - r->logsum[i]);
    }
    return KNNLM_OK;
}

static knnlm_status run_init(head_run *r) {
    const kn_config *c = &r->w->config;
    r->lhs = kn_alloc_aligned(1, kn_lhs_bytes(r->w->k, r->rows, (size_t)c->width));
    r->places = kn_alloc(r->rows, sizeof *r->places);
    r->classes = kn_alloc(r->rows, sizeof *r->classes);
    r->target_logit = kn_alloc(r->rows, sizeof(float));
    r->logsum = kn_alloc(r->rows, sizeof(float));
    r->spread = kn_alloc(r->rows, sizeof(float));
    r->band_log = kn_alloc(r->rows, (size_t)c->bands * sizeof(float));
    if (!r->lhs || !r->places || !r->classes || !r->target_logit || !r->logsum || !r->spread || !r->band_log)
        return KNNLM_ENOMEM;
    if (!r->distribution) return KNNLM_OK;
    for (int32_t b = 0; b < c->bands; b++)
        if (kn_cluster_size(c, b) > r->ld) r->ld = kn_cluster_size(c, b);
    r->logits = kn_alloc_aligned(r->rows * r->ld, sizeof(float));
    return r->logits ? KNNLM_OK : KNNLM_ENOMEM;
}

static void run_free(head_run *r) {
    kn_free_aligned(r->lhs);
    free(r->places);
    free(r->classes);
    free(r->target_logit);
    free(r->logsum);
    free(r->spread);
    free(r->band_log);
    kn_free_aligned(r->logits);
}

knnlm_status kn_head_run(const kn_weights *w, const float *h, size_t rows, const int32_t *targets,
                         float *logprobs, float *entropies, float *distribution) {
    head_run r = {.w = w,
                  .h = h,
                  .rows = rows,
                  .targets = targets,
                  .logprobs = logprobs,
                  .entropies = entropies,
                  .distribution = distribution};
    if (rows == 0) return KNNLM_OK;
    knnlm_status status = run_init(&r);
    if (status == KNNLM_OK) status = run_first(&r);
    for (int32_t b = 1; status == KNNLM_OK && b < w->config.bands; b++) status = run_further(&r, b);
    run_free(&r);
    return status;
}
