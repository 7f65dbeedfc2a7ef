// Fills the report's page: tokens with their neighbours, figures, curves.
#include "eval/report_maker.h"

#include "eval/report.h"
#include "knn/neighbors.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEIGHBORS = 5, AROUND = 10, LAMBDAS = 51, KS = KN_KEPT_KS, DISTANCES = 20 };

struct kn_report_maker {
    kn_report *page;
    const kn_lm *lm;
    const kn_mixture *mixture;
    const kn_mixture_info *m; // of it
    uint64_t max;
    uint32_t document; // of the last token shown
    // Of every token, for the curves; the first store alone:
    float *lm_p, *knn_p, *nearest, *gain;
    size_t n, lm_capacity, knn_capacity, nearest_capacity, gain_capacity;
    size_t ks[KS], k_count;
    double k_logs[KS]; // sum of log p at each k
};

knnlm_status kn_report_maker_open(const char *path, const kn_lm *lm, const kn_mixture *m, uint64_t max,
                                  kn_report_maker **out) {
    kn_report_maker *r = kn_alloc(1, sizeof *r);
    if (!r) return KNNLM_ENOMEM;
    r->lm = lm;
    r->mixture = m;
    r->m = kn_mixture_describe(m);
    r->max = max;
    r->document = UINT32_MAX;
    if (r->m->count) r->k_count = kn_kept_ks(r->m->stores[0].k, r->ks);
    knnlm_status status = kn_report_open(path, &r->page);
    if (status != KNNLM_OK)
        free(r);
    else
        *out = r;
    return status;
}

// ---------------------------------------------------------------- tokens

static char *copy_text(const char *text, size_t size) {
    return kn_strndup(text ? text : "", size);
}

// What the page is told of a neighbour; its document's name is a copy.
static knnlm_status describe(const kn_neighbor_detail *n, int32_t target, kn_report_neighbor *out) {
    *out = (kn_report_neighbor){.before = n->origin.before,
                                .word = n->origin.word,
                                .after = n->origin.after,
                                .document = copy_text(n->origin.document.name, n->origin.document.name_size),
                                .position = n->origin.entry.position,
                                .share = n->share,
                                .distance = n->distance,
                                .hit = n->value == target};
    return out->document ? KNNLM_OK : KNNLM_ENOMEM;
}

// Tokens stand side by side on the page: words need the space that byte-level tokens bring along.
static knnlm_status text_of(const kn_report_maker *r, const kn_scored_token *t, char **text, size_t *size) {
    const kn_tokenizer *k = kn_lm_tokenizer(r->lm);
    char *piece;
    KN_TRY(kn_tokenizer_decode(k, &t->token, 1, &piece, size));
    bool space = kn_tokenizer_joins_with_spaces(k) && t->position > 0;
    *text = kn_alloc(*size + 2, 1);
    if (*text) memcpy(*text + space, piece, *size);
    if (*text && space) **text = ' ';
    *size += space;
    free(piece);
    return *text ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status add_token(kn_report_maker *r, const kn_scored *b, size_t i, const kn_row_neighbors *found,
                              const kn_report_neighbor *neighbors, size_t count) {
    const kn_prediction *prediction = &b->predictions[i];
    kn_report_token token = {.lm = (double)b->lm[i],
                             .knn = kn_prediction_knn(r->mixture, prediction),
                             .cache = b->cache ? b->cache[i] : NAN,
                             .mixed = prediction->p,
                             .nearest = kn_nearest(r->mixture, found),
                             .entropy = b->entropies ? (double)b->entropies[i] : NAN,
                             .neighbors = neighbors,
                             .neighbor_count = count};
    char *text;
    token.lambda = r->m->count ? kn_prediction_lambda(r->mixture, prediction) : NAN;
    KN_TRY(text_of(r, &b->tokens[i], &text, &token.size));
    token.text = text;
    knnlm_status status = kn_report_add(r->page, &token);
    free(text);
    return status;
}

static knnlm_status show_token(kn_report_maker *r, const kn_scored *b, size_t i) {
    kn_neighbor_detail shown[NEIGHBORS];
    kn_row_neighbors found[KN_STORES_MAX];
    kn_report_neighbor neighbors[NEIGHBORS];
    size_t count, described = 0;
    if (b->tokens[i].document != r->document) {
        r->document = b->tokens[i].document;
        KN_TRY(kn_report_document(r->page, b->names[r->document]));
    }
    kn_predictor_neighbors(b->neighbors, i, found);
    KN_TRY(kn_neighbor_details_find(r->mixture, found, &b->predictions[i], NEIGHBORS, AROUND, shown, &count));
    knnlm_status status = KNNLM_OK;
    while (status == KNNLM_OK && described < count) {
        status = describe(&shown[described], b->tokens[i].token, &neighbors[described]);
        described += status == KNNLM_OK;
    }
    if (status == KNNLM_OK) status = add_token(r, b, i, found, neighbors, count);
    for (size_t j = 0; j < described; j++) free((char *)neighbors[j].document);
    kn_neighbor_details_free(shown, count);
    return status;
}

// ---------------------------------------------------------------- for the curves

// The first store's neighbours at every k: the same as tuning does, a batch at a time.
static knnlm_status add_ks(kn_report_maker *r, const kn_scored *b) {
    kn_kept kept;
    float *p = kn_alloc(b->count * r->k_count, sizeof *p);
    double lambda = r->m->stores[0].lambda;
    knnlm_status status = p ? kn_kept_init(&kept, b->count, r->m->stores[0].k) : KNNLM_ENOMEM;
    if (status != KNNLM_OK) {
        free(p);
        return status;
    }
    for (size_t i = 0; i < b->count && status == KNNLM_OK; i++) {
        kn_row_neighbors found[KN_STORES_MAX];
        kn_predictor_neighbors(b->neighbors, i, found);
        status = kn_kept_add(&kept, &found[0].near, b->tokens[i].token);
    }
    if (status == KNNLM_OK)
        status = kn_kept_probabilities(&kept, &r->m->stores[0].temperature, 1, r->ks, r->k_count, p);
    for (size_t j = 0; status == KNNLM_OK && j < r->k_count; j++)
        for (size_t i = 0; i < b->count; i++) {
            double lm = exp((double)b->lm[i]), knn = kept.counts[i] ? (double)p[j * b->count + i] : lm;
            r->k_logs[j] += log(lambda * knn + (1 - lambda) * lm);
        }
    for (size_t i = 0; i < b->count; i++)
        r->knn_p[r->n + i] =
            kept.counts[i] ? p[(r->k_count - 1) * b->count + i] : (float)exp((double)b->lm[i]);
    kn_kept_free(&kept);
    free(p);
    return status;
}

static knnlm_status collect(kn_report_maker *r, const kn_scored *b) {
    size_t needed = r->n + b->count;
    if (!r->m->count) return KNNLM_OK;
    KN_TRY(kn_grow(&r->lm_p, &r->lm_capacity, needed, sizeof *r->lm_p));
    KN_TRY(kn_grow(&r->knn_p, &r->knn_capacity, needed, sizeof *r->knn_p));
    KN_TRY(kn_grow(&r->nearest, &r->nearest_capacity, needed, sizeof *r->nearest));
    KN_TRY(kn_grow(&r->gain, &r->gain_capacity, needed, sizeof *r->gain));
    for (size_t i = 0; i < b->count; i++) {
        kn_row_neighbors found[KN_STORES_MAX];
        kn_predictor_neighbors(b->neighbors, i, found);
        r->lm_p[r->n + i] = fmaxf(1e-37f, (float)exp((double)b->lm[i]));
        r->nearest[r->n + i] = (float)kn_nearest(r->mixture, found);
        r->gain[r->n + i] = (float)(b->predictions[i].p - (double)b->lm[i]);
    }
    KN_TRY(add_ks(r, b));
    r->n = needed;
    return KNNLM_OK;
}

knnlm_status kn_report_maker_take(kn_report_maker *r, const kn_scored *b) {
    for (size_t i = 0; i < b->count && kn_report_tokens(r->page) < r->max; i++) KN_TRY(show_token(r, b, i));
    return collect(r, b);
}

// ---------------------------------------------------------------- the curves

typedef struct pair {
    float nearest, gain;
} pair;

static int by_nearest(const void *a, const void *b) {
    const pair *x = a, *y = b;
    return (x->nearest > y->nearest) - (x->nearest < y->nearest);
}

// Mean gain by the nearest distance, in groups of equal numbers of tokens; how many groups.
static size_t gain_curve(const kn_report_maker *r, double x[DISTANCES], double y[DISTANCES]) {
    pair *pairs = kn_alloc(r->n, sizeof *pairs);
    size_t n = 0, count = 0;
    if (!pairs) return 0;
    for (size_t i = 0; i < r->n; i++)
        if (isfinite(r->nearest[i]) && isfinite(r->gain[i])) pairs[n++] = (pair){r->nearest[i], r->gain[i]};
    qsort(pairs, n, sizeof *pairs, by_nearest);
    for (size_t g = 0; g < DISTANCES; g++) {
        size_t from = g * n / DISTANCES, to = (g + 1) * n / DISTANCES;
        double distance = 0, gain = 0;
        if (from == to) continue;
        for (size_t i = from; i < to; i++) {
            distance += (double)pairs[i].nearest;
            gain += (double)pairs[i].gain;
        }
        x[count] = distance / (double)(to - from);
        y[count++] = gain / (double)(to - from);
    }
    free(pairs);
    return count;
}

// *count points, up to where it is so bad that the rest of the curve would flatten the part that matters.
static knnlm_status lambda_curve(const kn_report_maker *r, double x[LAMBDAS], double y[LAMBDAS],
                                 size_t *count) {
    const float *parts[2] = {r->lm_p, r->knn_p};
    for (*count = 0; *count < LAMBDAS; ++*count) {
        size_t i = *count;
        double mean;
        x[i] = (double)i / (LAMBDAS - 1);
        KN_TRY(kn_mean_log(parts, 2, r->n, (const double[]){1 - x[i], x[i]}, &mean));
        y[i] = exp(-mean);
        if (!(y[i] <= 1.25 * y[0])) break;
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the figures

enum { ROWS = 16, VALUE = 160 };

typedef struct figures {
    kn_report_row rows[ROWS];
    char labels[ROWS][VALUE], values[ROWS][VALUE];
    size_t count;
} figures;

__attribute__((format(printf, 3, 4))) static void add(figures *f, const char *label, const char *format,
                                                      ...) {
    va_list args;
    if (f->count == ROWS) return;
    va_start(args, format);
    vsnprintf(f->values[f->count], VALUE, format, args);
    va_end(args);
    snprintf(f->labels[f->count], VALUE, "%s", label);
    f->rows[f->count] = (kn_report_row){f->labels[f->count], f->values[f->count]};
    f->count++;
}

static void add_figures(const kn_report_maker *r, const kn_eval_result *x, figures *f) {
    add(f, "model", "%s", kn_lm_describe(r->lm)->path);
    add(f, "tokens", "%" PRIu64 " of %" PRIu64 " documents", x->totals.read.tokens, x->totals.read.documents);
    add(f, "perplexity, model alone", "%.3f", x->lm.ppl);
    add(f, "perplexity, with neighbours", "%.3f (%+.1f%%)", x->mixed.ppl,
        100 * (x->mixed.ppl / x->lm.ppl - 1));
    add(f, "bits per byte", "%.4f to %.4f", x->lm.bits_per_byte, x->mixed.bits_per_byte);
    for (size_t i = 0; i < x->store_count; i++) {
        const knnlm_eval_store *s = &x->stores[i];
        add(f, "store", "%s: %" PRIu64 " entries", s->path, s->entries);
        add(f, "how", "k %zu, lambda %.4g%s, temperature %.4g, %s distances (%s)%s", s->k, s->lambda,
            kn_eval_weighed(s), s->temperature, s->codes ? "codes'" : "exact", kn_distance_names[s->distance],
            s->tuned ? "" : "; not tuned");
        if (s->tuned_here) add(f, "beware", "the store was tuned on (part of) this text");
    }
    if (x->cache)
        add(f, "cache", "%zu states, lambda %.4g, temperature %.4g", x->cache, x->cache_lambda,
            x->cache_temperature);
    add(f, "time", "model %.1f s, neighbours %.1f s", x->seconds_lm, x->seconds_search);
}

typedef struct curves {
    double lambdas[LAMBDAS], by_lambda[LAMBDAS], ks[KS], by_k[KS], distances[DISTANCES], gains[DISTANCES];
    kn_report_curve all[3];
    size_t count;
} curves;

// Of the first store beside the model, one lambda for all tokens.
static knnlm_status draw(const kn_report_maker *r, const kn_eval_result *x, curves *c) {
    size_t lambdas;
    if (!r->n) return KNNLM_OK;
    KN_TRY(lambda_curve(r, c->lambdas, c->by_lambda, &lambdas));
    for (size_t j = 0; j < r->k_count; j++) {
        c->ks[j] = (double)r->ks[j];
        c->by_k[j] = exp(-r->k_logs[j] / (double)r->n);
    }
    c->all[0] = (kn_report_curve){"Perplexity by lambda (first store, one for all tokens)",
                                  "lambda",
                                  "perplexity",
                                  false,
                                  c->lambdas,
                                  c->by_lambda,
                                  lambdas,
                                  x->stores[0].lambda};
    c->all[1] = (kn_report_curve){"Perplexity by k (first store, one lambda)",
                                  "neighbours (k)",
                                  "perplexity",
                                  true,
                                  c->ks,
                                  c->by_k,
                                  r->k_count,
                                  (double)r->m->stores[0].k};
    c->all[2] = (kn_report_curve){"Gain by the nearest distance",
                                  "nearest distance",
                                  "nats a token",
                                  false,
                                  c->distances,
                                  c->gains,
                                  gain_curve(r, c->distances, c->gains),
                                  NAN};
    c->count = 3;
    return KNNLM_OK;
}

static knnlm_status finish(kn_report_maker *r, const kn_eval_result *x) {
    figures *f = kn_alloc(1, sizeof *f);
    curves *c = kn_alloc(1, sizeof *c);
    knnlm_status status = f && c ? draw(r, x, c) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        add_figures(r, x, f);
        status = kn_report_commit(r->page, &(kn_report_summary){.title = "knnlm: a text and its neighbours",
                                                                .rows = f->rows,
                                                                .row_count = f->count,
                                                                .curves = c->all,
                                                                .curve_count = c->count,
                                                                .tokens_scored = x->totals.read.tokens});
    } else {
        kn_report_abort(r->page);
    }
    free(f);
    free(c);
    return status;
}

knnlm_status kn_report_maker_close(kn_report_maker *r, const kn_eval_result *result, knnlm_status status) {
    if (status == KNNLM_OK)
        status = finish(r, result);
    else
        kn_report_abort(r->page);
    free(r->lm_p);
    free(r->knn_p);
    free(r->nearest);
    free(r->gain);
    free(r);
    return status;
}
