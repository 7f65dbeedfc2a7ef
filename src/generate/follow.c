// Words that neighbours began are theirs to the end.
//
// A mixture chooses anew at every token who speaks: a word begun as in a passage of the store ("ch" of
// "chime") may be ended by the model ("ord"), as nobody wrote it. Here the speaker is drawn once a word. When
// a token is drawn, neighbour i gave the part r_i = lambda w_i / p of its probability (its responsibility, as
// of any mixture). It has that part of the next token too, as far as the word goes:
//
//   p'(y) = sum of r_i [the entry after i has y]    over those whose entry goes on with the word
//         + sum of r_i p(y | y begins a word)       over those whose word ends here
//         + (1 - sum of r_i) p(y)
//
// which is what follows exactly where the speaker stays. Where neighbours had little part in the beginning,
// little changes. The first line is mixed in, and told as part of p, p_kNN and lambda. The second is a matter
// of drawing, as penalties are: it says of no token where it comes from, only that some become rarer.
#include "generate/sequence.h"

#include "base/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 64 }; // followers, the nearest: the others' part is drawn anew

#define LITTLE 0.01 // less than this has no say in whether a word ends
#define RAREST -50  // of logarithms: never drawn

// ---------------------------------------------------------------- words

knnlm_status kn_begins_word(const kn_sequence *s, uint8_t *begins, int32_t token, bool *out) {
    enum { UNKNOWN, BEGINS, GOES_ON };
    if (begins[token] == UNKNOWN) {
        char *piece, *joined;
        size_t size;
        KN_TRY(kn_piece_after(kn_lm_tokenizer(s->lm), s->history[s->count - 1], token, &piece, &size));
        joined = kn_alloc(size + 2, 1);
        if (joined) {
            joined[0] = 'a';
            memcpy(joined + 1, piece, size);
            begins[token] = kn_word_border(joined, size + 1, 1) ? BEGINS : GOES_ON;
        }
        free(piece);
        free(joined);
        if (!joined) return KNNLM_ENOMEM;
    }
    *out = begins[token] == BEGINS;
    return KNNLM_OK;
}

knnlm_status kn_is_within_word(const kn_sequence *s, bool *out) {
    size_t left = kn_min(s->count, KN_BORDER_CONTEXT), size;
    char *text;
    KN_TRY(kn_tokenizer_decode(kn_lm_tokenizer(s->lm), s->history + s->count - left, left, &text, &size));
    text[size] = 'a'; // in place of the NUL
    *out = size && !kn_word_border(text, size + 1, size);
    free(text);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- mixing

static double weight_of(const kn_sequence *s, int32_t token) {
    double sum = 0;
    for (size_t i = 0; i < s->follower_count; i++)
        if (token < 0 || s->followers[i].token == token) sum += s->followers[i].weight;
    return fmin(1, sum); // rounding
}

knnlm_status kn_follow_mix(kn_sequence *s, kn_distribution *g) {
    int32_t values[MAX];
    double shares[MAX], weight = weight_of(s, -1);
    s->kept = 1 - weight;
    if (!(weight > 0)) return KNNLM_OK;
    for (size_t i = 0; i < s->follower_count; i++) {
        values[i] = s->followers[i].token;
        shares[i] = s->followers[i].weight / weight;
    }
    return kn_distribution_join(g,
                                &(kn_distribution_part){s->kept, weight, values, shares, s->follower_count});
}

// The likely tokens that go on with the word, with what p (but for the followers' part) is of each; *sum of
// that.
static knnlm_status find_rarer(const kn_sequence *s, const kn_distribution *g, uint8_t *begins, kn_rarer *out,
                               double *sum) {
    int32_t likely[KN_RARER];
    size_t n = kn_distribution_top(g, KN_RARER, likely);
    for (size_t i = 0; i < n; i++) {
        bool is;
        KN_TRY(kn_begins_word(s, begins, likely[i], &is));
        if (is) continue;
        double p = kn_distribution_probability(g, likely[i]) - weight_of(s, likely[i]);
        out->tokens[out->count] = likely[i];
        out->logs[out->count++] = fmax(0, p / s->kept);
        *sum += fmax(0, p / s->kept);
    }
    return KNNLM_OK;
}

knnlm_status kn_follow_end(const kn_sequence *s, const kn_distribution *g, uint8_t *begins, kn_rarer *out) {
    double sum = 0, ending = fmin(s->ending, s->kept);
    out->count = 0;
    if (ending < LITTLE) return KNNLM_OK;
    KN_TRY(find_rarer(s, g, begins, out, &sum));
    double others =
        1 + ending / s->kept * (1 / fmax(1 - sum, 1e-9) - 1); // how much more probable they become
    for (size_t i = 0; i < out->count; i++) {
        double p = out->logs[i], followed = weight_of(s, out->tokens[i]);
        double before = followed + s->kept * p, after = followed + (s->kept - ending) * p;
        out->logs[i] = before > 0 ? fmax(log(after / before) - log(others), RAREST) : 0;
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- who speaks next

// Entries stand in the order of their documents: the next one is of the same unless it begins one.
static knnlm_status follow(kn_sequence *s, const kn_datastore *store, const kn_place *place,
                           uint8_t *begins) {
    kn_store_entry next = {0};
    bool ends = true;
    if (place->id + 1 < kn_datastore_describe(store)->store->entries)
        KN_TRY(kn_datastore_entry(store, place->id + 1, &next));
    if (next.position) KN_TRY(kn_begins_word(s, begins, next.token, &ends));
    if (ends)
        s->ending += place->share;
    else
        s->followers[s->follower_count++] = (kn_follower){place->store, next.id, next.token, place->share};
    return KNNLM_OK;
}

knnlm_status kn_follow_take(kn_sequence *s, const kn_step *step, const kn_place *places, size_t count) {
    bool word = false;
    s->follower_count = 0;
    s->ending = 0;
    if (count) KN_TRY(kn_is_within_word(s, &word));
    if (!word) return KNNLM_OK;
    if (!s->followers) s->followers = kn_alloc(MAX, sizeof *s->followers);
    if (!s->followers) return KNNLM_ENOMEM;
    for (size_t i = 0; i < kn_min(count, MAX); i++)
        KN_TRY(follow(s, kn_mixture_datastore(step->mixture, places[i].store), &places[i], step->begins));
    return KNNLM_OK;
}
