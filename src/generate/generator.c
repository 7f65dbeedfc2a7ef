// Steps of many sequences: the model reads for all, the stores are searched for all, then each draws.
#include "base/progress.h"
#include "generate/begin.h"
#include "generate/sequence.h"
#include "knn/learn.h"

#include <stdlib.h>

enum { PIECE = 512 }; // tokens of a prompt read in one step

struct kn_generator {
    kn_lm *lm;
    size_t max, vocabulary, width;
    // A row for each sequence that is to have a token.
    size_t *sequence_of; // (most)
    size_t rows;
    float *distributions, *entropies; // (most, vocabulary), (most)
    float *states;                    // (most, width)
    const kn_mixture **mixtures;      // (most)
    kn_session **sessions;            // (most): of those that read one token
    int32_t *tokens;                  // (most): the tokens
    kn_predictor *predictor;
    kn_learner *learner;
    kn_distribution distribution;
    kn_sampler *sampler;
    uint8_t *begins; // (vocabulary): as of kn_step
    kn_rarer rarer;
    kn_generator_times times;
};

// ---------------------------------------------------------------- memory

static knnlm_status init(kn_generator *g) {
    size_t cells, state_cells;
    if (!kn_mul(g->max, g->vocabulary, &cells) || !kn_mul(g->max, g->width, &state_cells))
        return kn_fail(KNNLM_ENOMEM, "%zu sequences are too many at a time", g->max);
    KN_TRY(kn_distribution_init(&g->distribution, g->lm));
    KN_TRY(kn_predictor_open(&g->predictor));
    KN_TRY(kn_learner_open(&g->learner));
    KN_TRY(kn_sampler_open(g->vocabulary, &g->sampler));
    g->distributions = kn_alloc_aligned(cells, sizeof *g->distributions);
    g->states = kn_alloc_aligned(state_cells, sizeof *g->states);
    g->mixtures = kn_alloc(g->max, sizeof *g->mixtures);
    g->entropies = kn_alloc(g->max, sizeof *g->entropies);
    g->sequence_of = kn_alloc(g->max, sizeof *g->sequence_of);
    g->sessions = kn_alloc(g->max, sizeof *g->sessions);
    g->tokens = kn_alloc(g->max, sizeof *g->tokens);
    g->begins = kn_alloc(g->vocabulary, 1);
    bool all = g->distributions && g->states && g->mixtures && g->entropies && g->sequence_of &&
               g->sessions && g->tokens && g->begins;
    return all ? KNNLM_OK : KNNLM_ENOMEM;
}

knnlm_status kn_generator_open(kn_lm *lm, size_t max, kn_generator **out) {
    const kn_lm_info *info = kn_lm_describe(lm);
    kn_generator *g = kn_alloc(1, sizeof *g);
    if (!g) return KNNLM_ENOMEM;
    g->lm = lm;
    g->max = max;
    g->vocabulary = (size_t)info->vocabulary;
    g->width = (size_t)info->key_width;
    knnlm_status status = init(g);
    if (status == KNNLM_OK)
        *out = g;
    else
        kn_generator_close(g);
    return status;
}

void kn_generator_close(kn_generator *g) {
    if (!g) return;
    kn_predictor_close(g->predictor);
    kn_learner_close(g->learner);
    kn_sampler_close(g->sampler);
    kn_distribution_free(&g->distribution);
    kn_free_aligned(g->distributions);
    kn_free_aligned(g->states);
    free(g->mixtures);
    free(g->entropies);
    free(g->sequence_of);
    free(g->sessions);
    free(g->tokens);
    free(g->begins);
    free(g);
}

kn_generator_times kn_generator_spent(const kn_generator *g) {
    return g->times;
}

// ---------------------------------------------------------------- what may be stepped

static int32_t layer_of(const kn_lm *lm, kn_tap tap) {
    return tap.layer < 0 ? tap.layer + kn_lm_describe(lm)->layers : tap.layer;
}

// The tap of those with stores, which is one for all; *keyed: states are wanted.
static knnlm_status find_tap(const kn_generator *g, const kn_mixture *const *mixtures, size_t count,
                             kn_tap *tap, bool *keyed) {
    bool searched = false;
    *tap = KN_TAP_DEFAULT;
    *keyed = false;
    for (size_t i = 0; i < count; i++) {
        const kn_mixture_info *m = kn_mixture_describe(mixtures[i]);
        kn_tap own = m->tap;
        *keyed |= m->any;
        if (!m->count) continue;
        if (searched && (own.point != tap->point || layer_of(g->lm, own) != layer_of(g->lm, *tap)))
            return kn_fail(KNNLM_EINVAL, "sequences of one step have stores of one tap");
        *tap = own;
        searched = true;
    }
    return KNNLM_OK;
}

static knnlm_status check(const kn_generator *g, kn_sequence *const *sequences, size_t count) {
    knnlm_status status = KNNLM_OK;
    size_t seen = 0;
    if (count > g->max) return kn_fail(KNNLM_EINVAL, "%zu sequences: at most %zu a step", count, g->max);
    for (; seen < count && status == KNNLM_OK; seen++) {
        kn_sequence *s = sequences[seen];
        if (s->finish != KNNLM_FINISH_NOT) status = kn_fail(KNNLM_EINVAL, "sequence %zu is finished", seen);
        if (s->stepping) status = kn_fail(KNNLM_EINVAL, "sequence %zu is there twice", seen);
        if (s->lm != g->lm) status = kn_fail(KNNLM_EINVAL, "sequence %zu is of another model", seen);
        s->stepping = true;
    }
    for (size_t i = 0; i < seen; i++) sequences[i]->stepping = false;
    return status;
}

// ---------------------------------------------------------------- the model reads

// A full context goes on with the start token and half as many of the last tokens as it holds.
static void make_room(kn_sequence *s) {
    size_t context = kn_session_room(s->lm), length = kn_session_length(s->session);
    if (length == 0 || length + (s->count - s->next) <= context) return;
    kn_session_cut(s->session, 0);
    s->next = s->count - kn_min(s->count, context / 2);
    s->cut = true;
}

static bool reads_one(const kn_sequence *s) {
    return s->count - s->next == 1 && kn_session_length(s->session) > 0;
}

static kn_lm_output output_at(const kn_generator *g, size_t row, bool keyed) {
    return (kn_lm_output){.distribution = g->distributions + row * g->vocabulary,
                          .entropies = g->entropies + row,
                          .keys = keyed ? g->states + row * g->width : NULL};
}

static knnlm_status read_ones(kn_generator *g, kn_sequence *const *sequences, size_t count, kn_tap tap,
                              bool keyed) {
    kn_lm_output out = output_at(g, 0, keyed);
    for (size_t i = 0; i < count; i++) {
        kn_sequence *s = sequences[i];
        make_room(s);
        if (!reads_one(s)) continue;
        g->sessions[g->rows] = s->session;
        g->tokens[g->rows] = s->history[s->next];
        g->sequence_of[g->rows++] = i;
    }
    KN_TRY(kn_sessions_feed(g->sessions, g->rows, g->tokens, tap, &out));
    for (size_t i = 0; i < g->rows; i++) sequences[g->sequence_of[i]]->next++;
    return KNNLM_OK;
}

// A piece of a prompt; *whole: it is read. What a gate has to learn from it is found out on the way, but for
// what was learnt before the beginning was forgotten.
static knnlm_status read_piece(kn_generator *g, kn_sequence *s, const kn_mixture *m, kn_tap tap,
                               const kn_lm_output *out, bool *whole) {
    static const kn_lm_output nothing = {0};
    int32_t piece[PIECE];
    size_t n = 0;
    if (kn_session_length(s->session) == 0) piece[n++] = kn_tokenizer_start(kn_lm_tokenizer(s->lm));
    while (n < PIECE && s->next < s->count) piece[n++] = s->history[s->next++];
    *whole = s->next == s->count;
    size_t learnt = 0;
    if (kn_mixture_describe(m)->gated && s->next > s->learnt_count) {
        learnt = *whole ? n - 1 : n;
        int32_t last = *whole ? piece[n - 1] : s->history[s->next];
        KN_TRY(kn_learner_read(g->learner, s->session, m, piece, learnt, last, tap, &s->learnt));
        s->learnt_count = *whole ? s->count : s->next + 1;
    }
    if (learnt == n) return KNNLM_OK;
    return kn_session_feed(s->session, piece + learnt, n - learnt, tap, *whole ? out : &nothing);
}

static knnlm_status read_pieces(kn_generator *g, kn_sequence *const *sequences,
                                const kn_mixture *const *mixtures, size_t count, kn_tap tap, bool keyed) {
    size_t ones = g->rows, seen = 0;
    for (size_t i = 0; i < count; i++) {
        bool whole;
        if (seen < ones && g->sequence_of[seen] == i) {
            seen++;
            continue;
        }
        kn_lm_output out = output_at(g, g->rows, keyed);
        KN_TRY(read_piece(g, sequences[i], mixtures[i], tap, &out, &whole));
        if (whole) g->sequence_of[g->rows++] = i;
    }
    return KNNLM_OK;
}

static knnlm_status read_states(const kn_generator *g, kn_sequence *const *sequences,
                                const kn_mixture *const *mixtures, size_t count, kn_tap tap) {
    for (size_t i = 0; i < count; i++) {
        kn_sequence *s = sequences[i];
        const int32_t *prompt = s->history ? s->history + s->next : NULL; // an empty one has no history
        KN_TRY(kn_states_read(&s->states, g->lm, kn_mixture_describe(mixtures[i]), prompt, s->count - s->next,
                              tap));
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the stores are searched

static knnlm_status search_all(kn_generator *g, const kn_mixture *const *mixtures) {
    for (size_t row = 0; row < g->rows; row++) g->mixtures[row] = mixtures[g->sequence_of[row]];
    return kn_predict(g->predictor,
                      &(kn_predict_rows){.count = g->rows,
                                         .mixtures = g->mixtures,
                                         .states = g->states,
                                         .singly = true,
                                         .entropies = g->entropies},
                      NULL);
}

// ---------------------------------------------------------------- each draws

static knnlm_status draw(kn_generator *g, size_t row, kn_sequence *s, const kn_mixture *m) {
    kn_row_neighbors found[KN_STORES_MAX];
    const float *state = g->states + row * g->width;
    kn_sequence_check_stores(s, m);
    kn_predictor_neighbors(g->predictor, row, found);
    KN_TRY(kn_distribution_mix(&g->distribution, m, found, g->distributions + row * g->vocabulary,
                               (double)g->entropies[row], &s->learnt));
    if (s->options.begin_with_space && s->count == s->prompt)
        KN_TRY(kn_begin_with_space(kn_lm_tokenizer(g->lm), s->count ? s->history[s->count - 1] : -1,
                                   g->distributions + row * g->vocabulary, &g->distribution));
    KN_TRY(kn_states_mix(&s->states, kn_mixture_describe(m), state, &g->distribution));
    KN_TRY(kn_follow_mix(s, &g->distribution));
    KN_TRY(kn_follow_end(s, &g->distribution, g->begins, &g->rarer));
    KN_TRY(kn_dry_add(s, g->begins, &g->rarer));
    kn_sampled before = {s->history, s->prompt, s->count, &g->rarer, s->biases, s->options.bias_count};
    int32_t token = kn_sampler_pick(g->sampler, &g->distribution, &s->options.sampling, &before, &s->random);
    if (token < 0)
        return kn_fail(KNNLM_EINVAL, "%s: its probabilities are not numbers", kn_lm_describe(g->lm)->path);
    KN_TRY(kn_states_add(&s->states, kn_mixture_describe(m), state, token));
    KN_TRY(kn_sequence_take(s, token, &(kn_step){m, found, &g->distribution, g->begins}));
    kn_history_learn(m, found, token, (double)g->distribution.lm[token], &g->distribution.prediction,
                     &s->learnt);
    s->learnt_count = s->count;
    return KNNLM_OK;
}

knnlm_status kn_generator_step(kn_generator *g, kn_sequence *const *sequences,
                               const kn_mixture *const *mixtures, size_t count) {
    kn_tap tap;
    bool keyed;
    KN_TRY(check(g, sequences, count));
    KN_TRY(find_tap(g, mixtures, count, &tap, &keyed));
    double begun = kn_seconds();
    g->rows = 0;
    KN_TRY(read_states(g, sequences, mixtures, count, tap));
    KN_TRY(read_ones(g, sequences, count, tap, keyed));
    KN_TRY(read_pieces(g, sequences, mixtures, count, tap, keyed));
    double read = kn_seconds();
    KN_TRY(search_all(g, mixtures));
    double found = kn_seconds();
    for (size_t row = 0; row < g->rows; row++) {
        size_t i = g->sequence_of[row];
        KN_TRY(draw(g, row, sequences[i], mixtures[i]));
    }
    g->times.model += read - begun;
    g->times.search += found - read;
    g->times.rest += kn_seconds() - found;
    return KNNLM_OK;
}
