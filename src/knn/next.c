// Contexts to what comes next: the model reads them in one batch, the stores are searched in one.
#include "knn/next.h"

#include "knn/learn.h"

#include <stdlib.h>
#include <string.h>

struct kn_nexts {
    kn_lm *lm;
    const kn_context *contexts;
    size_t count;
    kn_tap tap;
    kn_predictor *predictor;
    kn_next *list;
    const kn_mixture **mixtures;
    kn_window *windows;
    int32_t **inputs;
    kn_past **pasts;
    kn_history *histories;
    float *distributions, *entropies, *states;
};

// ---------------------------------------------------------------- the model

// All but the last window of a text that is read as a stream: of each the last position alone is scored,
// which is the least that can be asked for.
static knnlm_status read_before(kn_nexts *x, const int32_t *read, size_t count, size_t number) {
    const kn_lm_info *info = kn_lm_describe(x->lm);
    size_t stream = (size_t)info->stream;
    // Rows of this context in the results: written over by its own later.
    kn_lm_output out = {.distribution = x->distributions + number * (size_t)info->vocabulary,
                        .entropies = x->entropies + number,
                        .keys = x->states + number * (size_t)info->key_width};
    KN_TRY(kn_past_open(x->lm, &x->pasts[number]));
    for (size_t done = 0; done < count; done += stream)
        KN_TRY(kn_lm_run(x->lm,
                         &(kn_window){.inputs = read + done,
                                      .length = (int32_t)stream,
                                      .first = (int32_t)stream - 1,
                                      .past = x->pasts[number]},
                         1, x->tap, &out));
    return KNNLM_OK;
}

// The start token and the last tokens that the model's own context holds; all of them where it reads streams.
static knnlm_status lay_window(kn_nexts *x, size_t number) {
    const kn_context *c = &x->contexts[number];
    size_t n = kn_min(c->count, kn_session_room(x->lm) - 1);
    size_t stream = (size_t)kn_lm_describe(x->lm)->stream, before = stream ? n / stream * stream : 0;
    int32_t *read = x->inputs[number] = kn_alloc(n + 1, sizeof *read);
    if (!read) return KNNLM_ENOMEM;
    read[0] = kn_tokenizer_start(kn_lm_tokenizer(x->lm));
    if (n) memcpy(read + 1, c->tokens + c->count - n, n * sizeof *read);
    x->list[number].tokens = n;
    x->list[number].cut = n < c->count;
    if (before) KN_TRY(read_before(x, read, before, number));
    if (kn_mixture_describe(c->mixture)->gated)
        KN_TRY(kn_learn_text(x->lm, c->mixture, read, n + 1, x->tap, &x->histories[number]));
    x->windows[number] = (kn_window){.inputs = read + before,
                                     .length = (int32_t)(n + 1 - before),
                                     .first = (int32_t)(n - before),
                                     .past = x->pasts[number]};
    return KNNLM_OK;
}

static knnlm_status run_model(kn_nexts *x) {
    for (size_t i = 0; i < x->count; i++) KN_TRY(lay_window(x, i));
    kn_lm_output out = {.distribution = x->distributions, .entropies = x->entropies, .keys = x->states};
    return kn_lm_run(x->lm, x->windows, x->count, x->tap, &out);
}

// ---------------------------------------------------------------- the stores

static knnlm_status mix(kn_nexts *x) {
    size_t vocabulary = (size_t)kn_lm_describe(x->lm)->vocabulary;
    kn_predict_rows rows = {
        .count = x->count, .mixtures = x->mixtures, .states = x->states, .entropies = x->entropies};
    KN_TRY(kn_predict(x->predictor, &rows, NULL));
    for (size_t i = 0; i < x->count; i++) {
        kn_next *n = &x->list[i];
        n->state = x->states + i * (size_t)kn_lm_describe(x->lm)->key_width;
        kn_predictor_neighbors(x->predictor, i, n->found);
        KN_TRY(kn_distribution_mix(&n->distribution, x->mixtures[i], n->found,
                                   x->distributions + i * vocabulary, (double)x->entropies[i],
                                   &x->histories[i]));
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- all of it

static knnlm_status make_room(kn_nexts *x) {
    const kn_lm_info *info = kn_lm_describe(x->lm);
    size_t numbers, cells;
    if (!kn_mul(x->count, (size_t)info->vocabulary, &numbers) ||
        !kn_mul(x->count, (size_t)info->key_width, &cells))
        return kn_fail(KNNLM_ENOMEM, "too many contexts at a time");
    x->list = kn_alloc(x->count, sizeof *x->list);
    x->mixtures = kn_alloc(x->count, sizeof *x->mixtures);
    x->windows = kn_alloc(x->count, sizeof *x->windows);
    x->inputs = kn_alloc(x->count, sizeof *x->inputs);
    x->pasts = kn_alloc(x->count, sizeof *x->pasts);
    x->histories = kn_alloc(x->count, sizeof *x->histories);
    x->distributions = kn_alloc(numbers, sizeof *x->distributions);
    x->entropies = kn_alloc(x->count, sizeof *x->entropies);
    x->states = kn_alloc(cells, sizeof *x->states);
    bool all = x->list && x->mixtures && x->windows && x->inputs && x->pasts && x->histories &&
               x->distributions && x->entropies && x->states;
    return all ? kn_predictor_open(&x->predictor) : KNNLM_ENOMEM;
}

static knnlm_status prepare(kn_nexts *x) {
    KN_TRY(make_room(x));
    for (size_t i = 0; i < x->count; i++) {
        const kn_mixture_info *m = kn_mixture_describe(x->contexts[i].mixture);
        x->mixtures[i] = x->contexts[i].mixture;
        if (m->count) x->tap = m->tap;
        KN_TRY(kn_distribution_init(&x->list[i].distribution, x->lm));
    }
    return KNNLM_OK;
}

// The model's inputs are not needed after it has read them.
static void free_inputs(kn_nexts *x) {
    for (size_t i = 0; x->inputs && i < x->count; i++) free(x->inputs[i]);
    for (size_t i = 0; x->pasts && i < x->count; i++) kn_past_close(x->pasts[i]);
    free(x->inputs);
    free(x->pasts);
    free(x->windows);
    x->inputs = NULL;
    x->pasts = NULL;
    x->windows = NULL;
    x->contexts = NULL;
}

knnlm_status kn_nexts_open(kn_lm *lm, const kn_context *contexts, size_t count, kn_nexts **out) {
    kn_nexts *x = kn_alloc(1, sizeof *x);
    *out = NULL;
    if (!x) return KNNLM_ENOMEM;
    x->lm = lm;
    x->contexts = contexts;
    x->count = count;
    x->tap = KN_TAP_DEFAULT;
    knnlm_status status = prepare(x);
    if (status == KNNLM_OK) status = run_model(x);
    if (status == KNNLM_OK) status = mix(x);
    free_inputs(x);
    if (status == KNNLM_OK)
        *out = x;
    else
        kn_nexts_close(x);
    return status;
}

void kn_nexts_close(kn_nexts *x) {
    if (!x) return;
    for (size_t i = 0; x->list && i < x->count; i++) kn_distribution_free(&x->list[i].distribution);
    kn_predictor_close(x->predictor);
    free_inputs(x);
    free(x->list);
    free(x->mixtures);
    free(x->histories);
    free(x->distributions);
    free(x->entropies);
    free(x->states);
    free(x);
}

const kn_next *kn_nexts_at(const kn_nexts *x, size_t number) {
    return &x->list[number];
}
