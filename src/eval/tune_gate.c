// The gate of a store: fitted on the text, and on a little text of other kinds, so that it has seen what it
// is like when the neighbours know nothing.
#include "eval/tune_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FOREIGN_MIN = 256, // tokens
    FOREIGN_PIECE = 4096,
};
#define CACHE_MAX 0.999 // of its weight: a cache that leaves nothing would teach nothing

extern const unsigned char kn_foreign_text[]; // foreign.txt: pieces with form feeds between them
extern const size_t kn_foreign_text_size;

// ---------------------------------------------------------------- foreign text

// Tokens of each piece that are read: all together no more than half of the text, and fewer by larger models.
static size_t tokens_per_piece(const kn_lm *lm, size_t tokens, size_t pieces) {
    size_t max = kn_max((size_t)kn_lm_afford(lm, FOREIGN_PIECE * pieces), FOREIGN_MIN);
    return kn_max(1, kn_min(max, kn_max(tokens / 2, FOREIGN_MIN)) / pieces);
}

typedef knnlm_status piece_sink(void *context, const int32_t *tokens, size_t count);

static knnlm_status each_piece(kn_lm *lm, size_t max, piece_sink *sink, void *context) {
    const char *at = (const char *)kn_foreign_text, *end = at + kn_foreign_text_size;
    while (at < end) {
        const char *stop = memchr(at, '\f', (size_t)(end - at));
        size_t size = (size_t)((stop ? stop : end) - at);
        kn_tokens tokens = {0};
        knnlm_status status = kn_tokenizer_encode(kn_lm_tokenizer(lm), at, size, &tokens);
        if (status == KNNLM_OK) status = sink(context, tokens.ids, kn_min(tokens.count, max));
        kn_tokens_free(&tokens);
        if (status != KNNLM_OK) return status;
        at += size + 1;
    }
    return KNNLM_OK;
}

static knnlm_status count_piece(void *context, const int32_t *tokens, size_t count) {
    (void)tokens;
    *(size_t *)context += count;
    return KNNLM_OK;
}

typedef struct reading {
    kn_lm *lm;
    kn_tuning *t;
} reading;

static knnlm_status read_piece(void *context, const int32_t *tokens, size_t count) {
    const reading *r = context;
    kn_pass_options pass = {.read = {.context = -1}, .entropies = true, .neighbors_alone = true};
    return kn_pass_tokens(r->lm, r->t->mixture, tokens, count, &pass, kn_tuning_take, r->t);
}

static size_t count_pieces(void) {
    size_t count = 1;
    for (size_t i = 0; i < kn_foreign_text_size; i++) count += kn_foreign_text[i] == '\f';
    return count;
}

knnlm_status kn_tune_foreign(kn_lm *lm, const kn_tuning *home, kn_tuning *out) {
    size_t max = tokens_per_piece(lm, home->n, count_pieces()), tokens = 0;
    *out = (kn_tuning){.mixture = home->mixture, .m = home->m, .progress = home->progress};
    KN_TRY(each_piece(lm, max, count_piece, &tokens));
    out->capacity = tokens;
    KN_TRY(kn_tuning_room(out));
    return each_piece(lm, max, read_piece, &(reading){lm, out});
}

// ---------------------------------------------------------------- rows

static void fill_row(const kn_tuning *t, size_t store, size_t k, size_t i, kn_gate_row *r) {
    const kn_kept *kept = &t->kept[store];
    size_t count = kn_min(k, kept->counts[i]);
    const float *distances = kept->distances + i * kept->k;
    r->lm = (double)t->lm[i];
    r->first = t->first[i];
    if (t->cache && !r->first) { // the first token of a document has nothing before it
        r->cache = (double)kn_tuning_cache(t)[i];
        r->cache_lambda = fmin(t->out->cache_lambda, CACHE_MAX);
    }
    r->found = count > 0;
    if (!count) return;
    r->features.nearest = (double)distances[0];
    r->features.farthest = (double)distances[count - 1];
    r->features.entropy = (double)t->entropies[i];
    r->features.begins = t->beginnings[store][i];
}

static knnlm_status make_rows(const kn_tuning *t, size_t store, double temperature, size_t k,
                              kn_gate_row *rows) {
    float *p = kn_alloc(t->n, sizeof *p);
    knnlm_status status = p ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; i < t->n; i++) fill_row(t, store, k, i, &rows[i]);
    for (size_t o = 0; o < KN_GATE_EXPERTS && status == KNNLM_OK; o++) {
        double at = kn_gate_temperature(temperature, o);
        status = kn_kept_probabilities(&t->kept[store], &at, 1, &k, 1, p);
        for (size_t i = 0; i < t->n && status == KNNLM_OK; i++) rows[i].knn[o] = (double)p[i];
    }
    if (status == KNNLM_OK)
        status = kn_kept_agreement(&t->kept[store], kn_gate_temperature(temperature, 0), k, p);
    for (size_t i = 0; i < t->n && status == KNNLM_OK; i++) rows[i].features.agreement = (double)p[i];
    free(p);
    return status;
}

// ---------------------------------------------------------------- fitting

// Of one half of the text, on what it was not fitted on: the other half.
static knnlm_status check_half(const kn_gate_row *rows, size_t from, size_t to, size_t n, size_t more,
                               const kn_gate *begin, double *sum) {
    size_t rest = n - (to - from);
    kn_gate_row *others = kn_alloc(rest + more, sizeof *others);
    kn_gate gate = *begin;
    double mean[2];
    if (!others) return KNNLM_ENOMEM;
    memcpy(others, rows, from * sizeof *others);
    memcpy(others + from, rows + to, (n - to + more) * sizeof *others);
    knnlm_status status = kn_gate_fit(others, rest + more, &gate, mean);
    if (status == KNNLM_OK) *sum += kn_gate_score(rows + from, to - from, &gate, true);
    free(others);
    return status;
}

// Rows of the text, then of foreign text, then of the echo.
static knnlm_status fit(const kn_gate_row *rows, size_t n, size_t foreign, size_t echo, kn_gate *gate,
                        kn_tune_result *out) {
    double mean[2], checked = 0;
    KN_TRY(check_half(rows, 0, n / 2, n, foreign + echo, gate, &checked));
    KN_TRY(check_half(rows, n / 2, n, n, foreign + echo, gate, &checked));
    KN_TRY(kn_gate_fit(rows, n + foreign + echo, gate, mean));
    out->ppl_gate = exp(-kn_gate_score(rows, n, gate, true) / (double)n);
    out->ppl_gate_checked = exp(-checked / (double)n);
    out->ppl_foreign = foreign ? exp(-kn_gate_score(rows + n, foreign, gate, true) / (double)foreign) : NAN;
    return KNNLM_OK;
}

static double ppl_alone(const kn_tuning *t) {
    double sum = 0;
    for (size_t i = 0; i < t->n; i++) sum += log((double)t->lm[i]);
    return t->n ? exp(-sum / (double)t->n) : NAN;
}

knnlm_status kn_tune_gate(kn_tuning *t, const kn_tuning *foreign, const kn_tuning *echo, size_t store,
                          const kn_store_seen *seen, kn_store_gate *out) {
    const knnlm_tune_point *best = &t->out->stores[store].best;
    *out = (kn_store_gate){0};
    if (!seen->known) return KNNLM_OK;
    kn_gate gate = kn_gate_make(t->m->stores[store].distance, seen->distance.median,
                                seen->distance.high - seen->distance.median);
    size_t n = t->n + foreign->n;
    kn_gate_row *rows = kn_alloc(n + echo->n, sizeof *rows);
    if (!rows) return KNNLM_ENOMEM;
    knnlm_status status = make_rows(t, store, best->temperature, best->k, rows);
    if (status == KNNLM_OK) status = make_rows(foreign, store, best->temperature, best->k, rows + t->n);
    if (status == KNNLM_OK) status = make_rows(echo, store, best->temperature, best->k, rows + n);
    if (status == KNNLM_OK) status = fit(rows, t->n, foreign->n, echo->n, &gate, t->out);
    free(rows);
    if (status != KNNLM_OK) return status;
    t->out->ppl_foreign_lm = ppl_alone(foreign);
    *out = (kn_store_gate){.known = true, .unit = gate.unit, .centre = gate.centre};
    _Static_assert(sizeof out->weights == sizeof gate.weights, "a store keeps gates of this many weights");
    memcpy(out->weights, gate.weights, sizeof gate.weights);
    return KNNLM_OK;
}
