// Counting n-grams: the places of a text sorted by the tokens that begin there, which are all lengths at
// once.
#include "base/threads.h"
#include "mix/ngram_parts.h"

#include <stdlib.h>

typedef struct counting {
    kn_ngram *model;
    const int32_t *tokens;
    size_t count;
    uint32_t *places;                // by their first token, then sorted within
    size_t *starts;                  // (vocabulary + 2): of each first token, the start's first
    size_t ends[KN_NGRAM_ORDER_MAX]; // n-grams of each length so far
} counting;

// ---------------------------------------------------------------- sorting

// Tokens of the n-gram at a place: its document may end before.
static size_t length_at(const counting *c, size_t place) {
    size_t n = 1;
    while (n < (size_t)c->model->info.order && place + n < c->count && c->tokens[place + n] != KN_NGRAM_START)
        n++;
    return n;
}

// Tokens that two places have in common, up to the order, and to the end of either's document.
static size_t common(const counting *c, size_t a, size_t b) {
    size_t max = kn_min(length_at(c, a), length_at(c, b)), n = 0;
    while (n < max && c->tokens[a + n] == c->tokens[b + n]) n++;
    return n;
}

static int compare(const void *a, const void *b, void *context) {
    const counting *c = context;
    size_t x = *(const uint32_t *)a, y = *(const uint32_t *)b, n = common(c, x, y);
    size_t more_x = length_at(c, x), more_y = length_at(c, y);
    if (n == more_x || n == more_y) return (more_x > n) - (more_y > n);
    return c->tokens[x + n] < c->tokens[y + n] ? -1 : 1;
}

static void sort_one(void *context, size_t task, int worker) {
    counting *c = context;
    (void)worker;
    qsort_r(c->places + c->starts[task], c->starts[task + 1] - c->starts[task], sizeof *c->places, compare,
            c);
}

// By the first token in one pass, so that the rest is sorted by several threads.
static knnlm_status sort_places(counting *c) {
    size_t kinds = (size_t)c->model->vocabulary + 1, at = 0;
    c->places = kn_alloc(c->count, sizeof *c->places);
    c->starts = kn_alloc(kinds + 1, sizeof *c->starts);
    size_t *next = kn_alloc(kinds, sizeof *next);
    if (c->places && c->starts && next) {
        for (size_t i = 0; i < c->count; i++) next[c->tokens[i] + 1]++;
        for (size_t i = 0; i <= kinds; i++) {
            c->starts[i] = at;
            if (i == kinds) break;
            at += next[i];
            next[i] = c->starts[i];
        }
        for (size_t i = 0; i < c->count; i++) c->places[next[c->tokens[i] + 1]++] = (uint32_t)i;
        kn_parallel(kinds, sort_one, c);
    }
    free(next);
    return c->places && c->starts && next ? KNNLM_OK : KNNLM_ENOMEM;
}

// ---------------------------------------------------------------- levels

// A new n-gram of every length from `from` + 1 to `to`: what follows it comes next on the level above.
static void begin_grams(counting *c, size_t place, size_t from, size_t to) {
    for (size_t n = from; n < to; n++) {
        kn_ngram_level *level = &c->model->levels[n];
        size_t i = c->ends[n]++;
        if (!level->tokens) continue; // only their number is wanted
        level->tokens[i] = c->tokens[place + n];
        if (level->children) level->children[i] = (uint32_t)c->ends[n + 1];
    }
}

// Passes over all places in their order; without levels, for the numbers of n-grams.
static void pass_over(counting *c) {
    for (int n = 0; n < KN_NGRAM_ORDER_MAX; n++) c->ends[n] = 0;
    for (size_t i = 0; i < c->count; i++) {
        size_t place = c->places[i], length = length_at(c, place);
        begin_grams(c, place, i ? common(c, c->places[i - 1], place) : 0, length);
        for (size_t n = 0; n < length && c->model->levels[n].counts; n++)
            c->model->levels[n].counts[c->ends[n] - 1]++;
    }
}

static knnlm_status make_level(kn_ngram_level *level, size_t count, bool last) {
    level->count = count;
    level->tokens = kn_alloc(count, sizeof *level->tokens);
    level->counts = kn_alloc(count, sizeof *level->counts);
    if (!level->tokens || !level->counts) return KNNLM_ENOMEM;
    if (last) return KNNLM_OK;
    level->children = kn_alloc(count + 1, sizeof *level->children);
    level->totals = kn_alloc(count, sizeof *level->totals);
    level->left = kn_alloc(count, sizeof *level->left);
    return level->children && level->totals && level->left ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status fill_levels(counting *c) {
    int order = c->model->info.order;
    pass_over(c);
    for (int n = 0; n < order; n++) {
        KN_TRY(make_level(&c->model->levels[n], c->ends[n], n + 1 == order));
        c->model->info.grams[n] = c->ends[n];
    }
    pass_over(c);
    for (int n = 0; n + 1 < order; n++) c->model->levels[n].children[c->ends[n]] = (uint32_t)c->ends[n + 1];
    return KNNLM_OK;
}

knnlm_status kn_ngram_count(kn_ngram *m, const int32_t *tokens, size_t count, const kn_progress *progress) {
    counting c = {.model = m, .tokens = tokens, .count = count};
    knnlm_status status = KNNLM_OK;
    if (!kn_progress_report(progress, "counting n-grams", 0, count, "tokens"))
        status = kn_fail(KNNLM_ESTOPPED, "stopped while counting n-grams");
    if (status == KNNLM_OK) status = sort_places(&c);
    if (status == KNNLM_OK) status = fill_levels(&c);
    free(c.places);
    free(c.starts);
    return status;
}
