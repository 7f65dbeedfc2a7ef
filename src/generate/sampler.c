// Draws the next token from a distribution.
#include "generate/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 }; // tokens whose sum and largest weight are noted, so that most are never looked at

// What exp_shift gives for whatever is less likely than that beside the most probable token.
#define NOTHING 2e-38f

// Beyond this the most probable token has it all.
#define SCALE_MAX 1e9

typedef struct ranked {
    float weight;
    int32_t token;
} ranked;

enum { SPECIAL = 1, REPEATED = 2 }; // marks

struct kn_sampler {
    const kn_kernels *k;
    size_t vocabulary, blocks;
    float *weights; // (vocabulary): p^(1/temperature), the largest about 1
    float *sums;    // (blocks)
    float *largest; // (blocks)
    double total;
    // Tokens whose log p is not the model's alone: neighbours have them, or a penalty is on them.
    int32_t *special; // (vocabulary)
    double *logs;     // (vocabulary): log p of each, penalties taken
    size_t special_count;
    uint8_t *marks;   // (vocabulary): 0 between picks
    uint32_t *counts; // (vocabulary): how often it was generated; 0 between picks
    double *rarer;    // (vocabulary): added to log p; 0 between picks
    ranked *ranking;  // (vocabulary): those gathered: a heap of the `unordered`, then the largest, backwards
    size_t gathered, unordered;
};

// ---------------------------------------------------------------- settings

kn_sampling kn_sampling_default(void) {
    return (kn_sampling){.temperature = 0.8,
                         .top_k = 40,
                         .top_p = 0.95,
                         .min_p = 0.05,
                         .repeat_penalty = 1,
                         .repeat_last = 64,
                         .dry_base = 1.75,
                         .dry_allowed_length = 2};
}

static knnlm_status check_range(const char *name, double value, double low, double high) {
    if (value >= low && value <= high) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s is %g: it goes from %g to %g", name, value, low, high);
}

knnlm_status kn_sampling_check(const kn_sampling *s) {
    KN_TRY(check_range("temperature", s->temperature, 0, 1e6));
    KN_TRY(check_range("top_k", s->top_k, 0, INT32_MAX));
    KN_TRY(check_range("top_p", s->top_p, 0, 1));
    KN_TRY(check_range("min_p", s->min_p, 0, 1));
    KN_TRY(check_range("repeat_penalty", s->repeat_penalty, 0.01, 100));
    KN_TRY(check_range("dry_multiplier", s->dry_multiplier, 0, 100));
    if (s->dry_multiplier > 0) {
        KN_TRY(check_range("dry_base", s->dry_base, 1, 100));
        KN_TRY(check_range("dry_allowed_length", (double)s->dry_allowed_length, 1, 1e9));
    }
    KN_TRY(check_range("presence_penalty", s->presence_penalty, -100, 100));
    return check_range("frequency_penalty", s->frequency_penalty, -100, 100);
}

static bool counts_matter(const kn_sampling *s) {
    return s->presence_penalty != 0 || s->frequency_penalty != 0;
}

static bool penalises(const kn_sampling *s, const kn_sampled *before) {
    return counts_matter(s) || (s->repeat_penalty != 1 && s->repeat_last) ||
           (before->rarer && before->rarer->count) || before->bias_count;
}

// ---------------------------------------------------------------- memory

knnlm_status kn_sampler_open(size_t vocabulary, kn_sampler **out) {
    kn_sampler *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->k = kn_math_kernels(KNNLM_PRECISION_F32);
    s->vocabulary = vocabulary;
    s->blocks = (vocabulary + BLOCK - 1) / BLOCK;
    s->weights = kn_alloc_aligned(vocabulary, sizeof *s->weights);
    s->sums = kn_alloc(s->blocks, sizeof *s->sums);
    s->largest = kn_alloc(s->blocks, sizeof *s->largest);
    s->special = kn_alloc(vocabulary, sizeof *s->special);
    s->logs = kn_alloc(vocabulary, sizeof *s->logs);
    s->marks = kn_alloc(vocabulary, sizeof *s->marks);
    s->counts = kn_alloc(vocabulary, sizeof *s->counts);
    s->rarer = kn_alloc(vocabulary, sizeof *s->rarer);
    s->ranking = kn_alloc(vocabulary, sizeof *s->ranking);
    if (s->weights && s->sums && s->largest && s->special && s->logs && s->marks && s->counts && s->rarer &&
        s->ranking) {
        *out = s;
        return KNNLM_OK;
    }
    kn_sampler_close(s);
    return KNNLM_ENOMEM;
}

void kn_sampler_close(kn_sampler *s) {
    if (!s) return;
    kn_free_aligned(s->weights);
    free(s->sums);
    free(s->largest);
    free(s->special);
    free(s->logs);
    free(s->marks);
    free(s->counts);
    free(s->rarer);
    free(s->ranking);
    free(s);
}

// ---------------------------------------------------------------- tokens that are not as the model has them

static void mark(kn_sampler *s, int32_t token, uint8_t as) {
    if (!s->marks[token]) s->special[s->special_count++] = token;
    s->marks[token] |= as;
}

static double penalised(const kn_sampler *s, const kn_sampling *how, int32_t token, double log_p) {
    if (s->marks[token] & REPEATED) log_p *= how->repeat_penalty;
    if (s->counts[token]) log_p -= how->presence_penalty + how->frequency_penalty * s->counts[token];
    return log_p + s->rarer[token];
}

static void gather_special(kn_sampler *s, const kn_distribution *g, const kn_sampling *how,
                           const kn_sampled *before) {
    size_t repeated = how->repeat_penalty != 1 ? kn_min(how->repeat_last, before->count) : 0;
    for (size_t i = 0; i < g->value_count; i++) mark(s, g->values[i], SPECIAL);
    for (size_t i = before->count - repeated; i < before->count; i++) mark(s, before->tokens[i], REPEATED);
    for (size_t i = before->prompt; counts_matter(how) && i < before->count; i++) {
        mark(s, before->tokens[i], SPECIAL);
        s->counts[before->tokens[i]]++;
    }
    for (size_t i = 0; before->rarer && i < before->rarer->count; i++) {
        mark(s, before->rarer->tokens[i], SPECIAL);
        s->rarer[before->rarer->tokens[i]] = before->rarer->logs[i];
    }
    for (size_t i = 0; i < before->bias_count; i++) {
        mark(s, before->biases[i].token, SPECIAL);
        s->rarer[before->biases[i].token] += before->biases[i].bias;
    }
    // Not kn_distribution_logprob: a probability that f64 cannot hold is never drawn, and this is half the
    // work.
    for (size_t i = 0; i < s->special_count; i++)
        s->logs[i] = penalised(s, how, s->special[i], log(kn_distribution_probability(g, s->special[i])));
}

static void forget_special(kn_sampler *s) {
    for (size_t i = 0; i < s->special_count; i++) {
        s->marks[s->special[i]] = 0;
        s->counts[s->special[i]] = 0;
        s->rarer[s->special[i]] = 0;
    }
    s->special_count = 0;
}

// ---------------------------------------------------------------- the most probable one

static int32_t best_of_others(const kn_sampler *s, const kn_distribution *g) {
    int32_t best = -1;
    for (size_t t = 0; t < s->vocabulary; t++)
        if (!s->marks[t] && (best < 0 || g->lm[t] > g->lm[best])) best = (int32_t)t;
    return best;
}

static int32_t pick_best(kn_sampler *s, const kn_distribution *g, const kn_sampling *how,
                         const kn_sampled *before) {
    int32_t best;
    if (!penalises(how, before))
        return kn_distribution_top(g, 1, &best) && !isnan(kn_distribution_logprob(g, best)) ? best : -1;
    gather_special(s, g, how, before);
    best = best_of_others(s, g);
    double max = best < 0 ? -INFINITY : log(kn_distribution_probability(g, best));
    for (size_t i = 0; i < s->special_count; i++) {
        int32_t token = s->special[i];
        if (s->logs[i] < max || (s->logs[i] == max && token > best)) continue;
        best = token;
        max = s->logs[i];
    }
    return isnan(max) ? -1 : best;
}

// ---------------------------------------------------------------- weights

// log of the model's part; nothing is left of it where lambda is 1 but for rounding.
static double log_rest(const kn_distribution *g) {
    return g->lambda > 1 - 1e-12 ? -INFINITY : log1p(-g->lambda);
}

// The model's own tokens, beside the best of all (log p); special ones become 0.
static void weigh_others(kn_sampler *s, double best, double rest, double temperature) {
    float shift = (float)(best - rest), scale = (float)fmin(1 / temperature, SCALE_MAX);
    for (size_t t = 0; t < s->vocabulary; t++) s->weights[t] = (s->weights[t] - shift) * scale;
    for (size_t b = 0; b < s->blocks; b++) {
        float *block = s->weights + b * BLOCK;
        s->sums[b] = s->k->exp_shift(block, kn_min(BLOCK, s->vocabulary - b * BLOCK), 0);
    }
}

static void weigh_special(kn_sampler *s, double best, double temperature) {
    double scale = fmin(1 / temperature, SCALE_MAX);
    for (size_t i = 0; i < s->special_count; i++) {
        size_t t = (size_t)s->special[i];
        s->weights[t] = (float)exp((s->logs[i] - best) * scale);
        s->sums[t / BLOCK] += s->weights[t];
    }
}

// False: there is none above 0, or they are not numbers.
static bool weigh(kn_sampler *s, const kn_distribution *g, double temperature) {
    double rest = log_rest(g), best = -INFINITY;
    memcpy(s->weights, g->lm, s->vocabulary * sizeof *s->weights);
    for (size_t i = 0; i < s->special_count; i++) {
        s->weights[s->special[i]] = -INFINITY;
        best = fmax(best, s->logs[i]);
    }
    best = fmax(best, rest + (double)s->k->max(s->weights, s->vocabulary));
    if (!isfinite(best)) return false;
    if (isinf(rest)) {
        memset(s->weights, 0, s->vocabulary * sizeof *s->weights);
        memset(s->sums, 0, s->blocks * sizeof *s->sums);
    } else
        weigh_others(s, best, rest, temperature);
    weigh_special(s, best, temperature);
    s->total = 0;
    for (size_t b = 0; b < s->blocks; b++) s->total += (double)s->sums[b];
    return s->total > 0 && isfinite(s->total);
}

// ---------------------------------------------------------------- a heap, the largest on top

static bool above(const ranked *a, const ranked *b) {
    return a->weight > b->weight || (a->weight == b->weight && a->token < b->token);
}

static void sink(ranked *heap, size_t count, size_t at) {
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && above(&heap[child + 1], &heap[child])) child++;
        if (!above(&heap[child], &heap[at])) return;
        ranked lower = heap[at];
        heap[at] = heap[child];
        heap[child] = lower;
    }
}

static void heapify(ranked *heap, size_t count) {
    for (size_t i = count / 2; i-- > 0;) sink(heap, count, i);
}

// Moves the top behind the heap's new end.
static void pop(ranked *heap, size_t *count) {
    ranked top = heap[0];
    heap[0] = heap[--*count];
    heap[*count] = top;
    sink(heap, *count, 0);
}

// ---------------------------------------------------------------- fewer tokens

static float note_largest(kn_sampler *s) {
    float max = 0;
    for (size_t b = 0; b < s->blocks; b++) {
        s->largest[b] = s->k->max(s->weights + b * BLOCK, kn_min(BLOCK, s->vocabulary - b * BLOCK));
        if (s->largest[b] > max) max = s->largest[b];
    }
    return max;
}

// The k-th largest weight is no less than the k-th of the blocks' largest.
static float bound_of_top(kn_sampler *s, size_t k) {
    size_t left = s->blocks;
    if (k > s->blocks) return NOTHING;
    for (size_t b = 0; b < s->blocks; b++) s->ranking[b] = (ranked){s->largest[b], (int32_t)b};
    heapify(s->ranking, left);
    for (size_t i = 0; i < k; i++) pop(s->ranking, &left);
    return s->ranking[left].weight;
}

// A weight below which nothing can be kept. Weights below total (1 - top_p) / vocabulary have less than
// 1 - top_p in sum; but what top_p is a part of is known only when top_k has chosen.
static float bound(kn_sampler *s, const kn_sampling *how, float max) {
    float min = fmaxf(NOTHING, (float)how->min_p * max);
    if (how->top_k) return fmaxf(NOTHING, bound_of_top(s, (size_t)how->top_k));
    return fmaxf(min, (float)((1 - how->top_p) * s->total / (double)s->vocabulary));
}

static void gather(kn_sampler *s, float min) {
    size_t count = 0;
    for (size_t b = 0; b < s->blocks; b++) {
        if (s->largest[b] < min) continue;
        for (size_t t = b * BLOCK; t < kn_min((b + 1) * BLOCK, s->vocabulary); t++)
            if (s->weights[t] >= min) s->ranking[count++] = (ranked){s->weights[t], (int32_t)t};
    }
    heapify(s->ranking, count);
    s->gathered = s->unordered = count;
}

// Number i of those gathered, the largest first; NULL: there are fewer. They are put in order as far as
// asked.
static const ranked *nth(kn_sampler *s, size_t i) {
    if (i >= s->gathered) return NULL;
    while (s->gathered - s->unordered <= i) pop(s->ranking, &s->unordered);
    return &s->ranking[s->gathered - 1 - i];
}

// How many of the first are kept, and their weight.
static size_t choose(kn_sampler *s, const kn_sampling *how, double *mass) {
    float max = note_largest(s);
    size_t limit = how->top_k ? (size_t)how->top_k : s->vocabulary, kept = 0;
    double whole = how->top_k ? 0 : s->total;
    const ranked *r;
    gather(s, bound(s, how, max));
    for (size_t i = 0; how->top_k && i < limit && (r = nth(s, i)); i++) whole += (double)r->weight;
    *mass = 0;
    while (kept < limit && (kept == 0 || how->top_p >= 1 || *mass < how->top_p * whole)) {
        r = nth(s, kept);
        if (!r || (kept && r->weight < (float)how->min_p * max)) break;
        *mass += (double)r->weight;
        kept++;
    }
    return kept;
}

// ---------------------------------------------------------------- drawing

static int32_t draw_kept(kn_sampler *s, size_t kept, double at) {
    int32_t last = -1;
    for (size_t i = 0; i < kept && at >= 0; i++) {
        const ranked *r = nth(s, i);
        last = r->token;
        at -= (double)r->weight;
    }
    return last;
}

// `last`: the last token so far that could be drawn, for when sums by block and by token round differently.
static int32_t draw_all(const kn_sampler *s, double at) {
    int32_t last = -1;
    for (size_t b = 0; b < s->blocks; b++) {
        if (at >= (double)s->sums[b] && b + 1 < s->blocks) {
            at -= (double)s->sums[b];
            continue;
        }
        for (size_t t = b * BLOCK; t < kn_min((b + 1) * BLOCK, s->vocabulary); t++) {
            if (s->weights[t] < NOTHING) continue;
            last = (int32_t)t;
            at -= (double)s->weights[t];
            if (at < 0) return last;
        }
        if (last >= 0) return last;
    }
    return last;
}

static int32_t draw(kn_sampler *s, const kn_sampling *how, double unit) {
    double mass;
    if (how->top_k == 0 && how->top_p >= 1 && how->min_p <= 0) return draw_all(s, unit * s->total);
    size_t kept = choose(s, how, &mass);
    return draw_kept(s, kept, unit * mass);
}

int32_t kn_sampler_pick(kn_sampler *s, const kn_distribution *g, const kn_sampling *how,
                        const kn_sampled *before, kn_random *random) {
    double unit = kn_random_unit(random);
    int32_t token = -1;
    if (how->temperature <= 0)
        token = pick_best(s, g, how, before);
    else {
        gather_special(s, g, how, before);
        if (weigh(s, g, how->temperature)) token = draw(s, how, unit);
    }
    forget_special(s);
    return token;
}
