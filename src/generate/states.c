// Keeps the last states of a text, and measures the next against them.
#include "generate/states.h"

#include <stdlib.h>
#include <string.h>

void kn_states_free(kn_states *s) {
    free(s->keys);
    free(s->values);
    free(s->norms);
    free(s->distances);
    free(s->shares);
    *s = (kn_states){0};
}

// ---------------------------------------------------------------- gathering

// Twice as many as count are kept, so that they are moved once in a while only.
static void drop_oldest(kn_states *s, const kn_mixture_info *m) {
    size_t from = s->count - m->cache.size;
    memmove(s->keys, s->keys + from * m->width, m->cache.size * m->width * sizeof *s->keys);
    memmove(s->values, s->values + from, m->cache.size * sizeof *s->values);
    memmove(s->norms, s->norms + from, m->cache.size * sizeof *s->norms);
    s->count = m->cache.size;
}

knnlm_status kn_states_add(kn_states *s, const kn_mixture_info *m, const float *state, int32_t token) {
    size_t width = m->width, cells;
    if (!m->cache.size) return KNNLM_OK;
    if (s->count >= 2 * m->cache.size) drop_oldest(s, m);
    if (!kn_mul(s->count + 1, width, &cells)) return kn_fail(KNNLM_ENOMEM, "too many states of a text");
    KN_TRY(kn_grow(&s->keys, &s->key_capacity, cells, sizeof *s->keys));
    KN_TRY(kn_grow(&s->values, &s->value_capacity, s->count + 1, sizeof *s->values));
    KN_TRY(kn_grow(&s->norms, &s->norm_capacity, s->count + 1, sizeof *s->norms));
    memcpy(s->keys + s->count * width, state, width * sizeof *state);
    s->values[s->count] = token;
    s->norms[s->count] = (float)kn_math_kernels(KNNLM_PRECISION_F32)->sum_squares(state, width);
    s->count++;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the prompt

typedef struct reading {
    kn_lm *lm;
    const kn_mixture_info *m;
    const int32_t *inputs; // the start token, then the prompt
    size_t count;          // states: one before each token of the prompt
    kn_tap tap;
    kn_past *past;
    float *keys; // of a window
} reading;

// States [from, to), those below `first` as context only.
static knnlm_status read_window(kn_states *s, reading *r, size_t from, size_t to, size_t first) {
    kn_lm_output out = {.keys = r->keys};
    KN_TRY(kn_lm_run(r->lm,
                     &(kn_window){.inputs = r->inputs + from,
                                  .length = (int32_t)(to - from),
                                  .first = (int32_t)(first - from),
                                  .past = r->past},
                     1, r->tap, &out));
    for (size_t i = first; i < to; i++)
        KN_TRY(kn_states_add(s, r->m, r->keys + (i - first) * r->m->width, r->inputs[i + 1]));
    return KNNLM_OK;
}

// One window, of which the last states alone are wanted; or window after window of a stream.
static knnlm_status read_all(kn_states *s, reading *r) {
    size_t stream = (size_t)kn_lm_describe(r->lm)->stream, kept = kn_min(r->count, r->m->cache.size), cells;
    if (!kn_mul(stream ? stream : kept, r->m->width, &cells))
        return kn_fail(KNNLM_ENOMEM, "too many states of a text");
    r->keys = kn_alloc_aligned(cells, sizeof *r->keys);
    if (!r->keys) return KNNLM_ENOMEM;
    if (!stream) return read_window(s, r, 0, r->count, r->count - kept);
    KN_TRY(kn_past_open(r->lm, &r->past));
    for (size_t from = 0; from < r->count; from += stream)
        KN_TRY(read_window(s, r, from, kn_min(from + stream, r->count), from));
    return KNNLM_OK;
}

knnlm_status kn_states_read(kn_states *s, kn_lm *lm, const kn_mixture_info *m, const int32_t *prompt,
                            size_t count, kn_tap tap) {
    if (s->read || !m->cache.size) return KNNLM_OK;
    s->read = true;
    if (!count) return KNNLM_OK;
    int32_t *inputs = kn_alloc(count + 1, sizeof *inputs);
    if (!inputs) return KNNLM_ENOMEM;
    inputs[0] = kn_tokenizer_start(kn_lm_tokenizer(lm));
    memcpy(inputs + 1, prompt, count * sizeof *inputs);
    reading r = {.lm = lm, .m = m, .inputs = inputs, .count = count, .tap = tap};
    knnlm_status status = read_all(s, &r);
    kn_past_close(r.past);
    kn_free_aligned(r.keys);
    free(inputs);
    return status;
}

// ---------------------------------------------------------------- mixing

knnlm_status kn_states_mix(kn_states *s, const kn_mixture_info *m, const float *state, kn_distribution *g) {
    const kn_kernels *k = kn_math_kernels(KNNLM_PRECISION_F32);
    const kn_distance_form *form = kn_distance_form_of(m->count ? m->stores[0].distance : KNNLM_DISTANCE_L2);
    size_t count = kn_min(s->count, m->cache.size), from = s->count - count, nearest = 0;
    if (!count) return KNNLM_OK;
    KN_TRY(kn_grow(&s->distances, &s->distance_capacity, count, sizeof *s->distances));
    KN_TRY(kn_grow(&s->shares, &s->share_capacity, count, sizeof *s->shares));
    float norm = (float)k->sum_squares(state, m->width);
    for (size_t i = 0; i < count; i++) {
        float product = k->dot(state, s->keys + (from + i) * m->width, m->width);
        s->distances[i] = kn_distance_of_product(form, product, norm, s->norms[from + i]);
        if (s->distances[i] < s->distances[nearest]) nearest = i;
    }
    kn_neighborhood_shares(&(kn_neighborhood){s->distances, s->values + from, NULL, count, nearest},
                           m->cache.temperature, s->shares);
    return kn_distribution_join(
        g, &(kn_distribution_part){1, m->cache.lambda, s->values + from, s->shares, count});
}
