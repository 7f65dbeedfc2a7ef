// DRY, "don't repeat yourself": a text does not say the same over and over.
//
// A token that goes on with a run of tokens as prompt or text went on with it before loses
//
//   multiplier * base^(run - allowed_length)    of log p, where run >= allowed_length
//
// the longest run deciding. Names and settings are those of llama.cpp. Unlike there, words are spared: a word
// that was begun is ended as it was before (else names of many tokens come out mangled), and it is the next
// word that becomes another one.
#include "generate/sequence.h"

#include <math.h>

enum { RUN_MAX = 64 };  // longer ones count as that
#define PENALTY_MAX 100 // forbids

// How far back the tokens before position `at` are those at the end.
static size_t run_before(const int32_t *tokens, size_t at, size_t count) {
    size_t max = kn_min(at, RUN_MAX), run = 0;
    while (run < max && tokens[at - 1 - run] == tokens[count - 1 - run]) run++;
    return run;
}

// What is added to log p of a token, 0 at first; NULL: there is no room for another one.
static double *log_of(kn_rarer *out, int32_t token) {
    size_t i = 0;
    while (i < out->count && out->tokens[i] != token) i++;
    if (i == KN_RARER) return NULL;
    if (i == out->count) {
        out->tokens[out->count++] = token;
        out->logs[i] = 0;
    }
    return &out->logs[i];
}

void kn_dry_find(const int32_t *tokens, size_t count, const kn_sampling *how, kn_rarer *out) {
    out->count = 0;
    if (!(how->dry_multiplier > 0)) return;
    for (size_t at = count; at-- > 1;) { // the newest first: what there is no room for is long ago
        size_t run = run_before(tokens, at, count);
        if (run < how->dry_allowed_length) continue;
        double penalty = how->dry_multiplier * pow(how->dry_base, (double)(run - how->dry_allowed_length));
        double *log = log_of(out, tokens[at]);
        if (log) *log = fmin(*log, -fmin(penalty, PENALTY_MAX));
    }
}

knnlm_status kn_dry_add(const kn_sequence *s, uint8_t *begins, kn_rarer *out) {
    kn_rarer repeats;
    bool within, ends = true;
    kn_dry_find(s->history, s->count, &s->options.sampling, &repeats);
    if (!repeats.count) return KNNLM_OK;
    KN_TRY(kn_is_within_word(s, &within));
    for (size_t i = 0; i < repeats.count; i++) {
        if (within) KN_TRY(kn_begins_word(s, begins, repeats.tokens[i], &ends));
        double *log = ends ? log_of(out, repeats.tokens[i]) : NULL;
        if (log) *log += repeats.logs[i];
    }
    return KNNLM_OK;
}
