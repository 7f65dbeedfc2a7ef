// Steps of many sequences: the model reads for all, the stores are searched for all, then each draws.
#include "base/progress.h"
#include "generate/sequence.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 512 }; // tokens of a prompt read in one step

// A search of one store for some of the rows.
typedef struct search {
    const kn_mixed_store *store;
    size_t *rows;
    size_t count;
    kn_found found;
    size_t cells, queries; // room in it
} search;

// Where the neighbours of a row lie.
typedef struct answer {
    size_t search, query;
} answer;

struct kn_generator {
    kn_lm *lm;
    size_t most, vocabulary, width;
    // A row for each sequence that is to have a token.
    size_t *sequence_of; // (most)
    size_t rows;
    float *distributions, *entropies; // (most, vocabulary), (most)
    float *states, *gathered;         // (most, width)
    kn_session **sessions;            // (most): of those that read one token
    int32_t *tokens;                  // (most): the tokens
    search *searches;
    size_t search_count, searches_made, search_capacity;
    answer *answers; // (most, KN_STORES_MOST)
    kn_guess guess;
    kn_sampler *sampler;
    kn_generator_times times;
};

// ---------------------------------------------------------------- memory

static knnlm_status init(kn_generator *g) {
    size_t cells, state_cells;
    if (!kn_mul(g->most, g->vocabulary, &cells) || !kn_mul(g->most, g->width, &state_cells))
        return kn_fail(KNNLM_ENOMEM, "%zu sequences are too many at a time", g->most);
    KN_TRY(kn_guess_init(&g->guess, g->lm));
    KN_TRY(kn_sampler_open(g->vocabulary, &g->sampler));
    g->distributions = kn_alloc_aligned(cells, sizeof *g->distributions);
    g->states = kn_alloc_aligned(state_cells, sizeof *g->states);
    g->gathered = kn_alloc_aligned(state_cells, sizeof *g->gathered);
    g->entropies = kn_alloc(g->most, sizeof *g->entropies);
    g->sequence_of = kn_alloc(g->most, sizeof *g->sequence_of);
    g->sessions = kn_alloc(g->most, sizeof *g->sessions);
    g->tokens = kn_alloc(g->most, sizeof *g->tokens);
    g->answers = kn_alloc(g->most, KN_STORES_MOST * sizeof *g->answers);
    bool all = g->distributions && g->states && g->gathered && g->entropies && g->sequence_of &&
               g->sessions && g->tokens && g->answers;
    return all ? KNNLM_OK : KNNLM_ENOMEM;
}

knnlm_status kn_generator_open(kn_lm *lm, size_t most, kn_generator **out) {
    const kn_lm_info *info = kn_lm_describe(lm);
    kn_generator *g = kn_alloc(1, sizeof *g);
    if (!g) return KNNLM_ENOMEM;
    g->lm = lm;
    g->most = most;
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
    for (size_t i = 0; i < g->searches_made; i++) {
        kn_found_free(&g->searches[i].found);
        free(g->searches[i].rows);
    }
    kn_sampler_close(g->sampler);
    kn_guess_free(&g->guess);
    kn_free_aligned(g->distributions);
    kn_free_aligned(g->states);
    kn_free_aligned(g->gathered);
    free(g->entropies);
    free(g->sequence_of);
    free(g->sessions);
    free(g->tokens);
    free(g->answers);
    free(g->searches);
    free(g);
}

kn_generator_times kn_generator_spent(const kn_generator *g) {
    return g->times;
}

// ---------------------------------------------------------------- what may be stepped

static int32_t layer_of(const kn_lm *lm, kn_tap tap) {
    return tap.layer < 0 ? tap.layer + kn_lm_describe(lm)->layers : tap.layer;
}

// The tap of those with stores, which is one for all.
static knnlm_status find_tap(const kn_generator *g, const kn_mixture *const *mixtures, size_t count,
                             kn_tap *tap, bool *searched) {
    *tap = KN_TAP_DEFAULT;
    *searched = false;
    for (size_t i = 0; i < count; i++) {
        kn_tap own = mixtures[i]->tap;
        if (!mixtures[i]->count) continue;
        if (*searched && (own.point != tap->point || layer_of(g->lm, own) != layer_of(g->lm, *tap)))
            return kn_fail(KNNLM_EINVAL, "sequences of one step have stores of one tap");
        *tap = own;
        *searched = true;
    }
    return KNNLM_OK;
}

static knnlm_status check(const kn_generator *g, kn_sequence *const *sequences, size_t count) {
    knnlm_status status = KNNLM_OK;
    size_t seen = 0;
    if (count > g->most) return kn_fail(KNNLM_EINVAL, "%zu sequences: at most %zu a step", count, g->most);
    for (; seen < count && status == KNNLM_OK; seen++) {
        kn_sequence *s = sequences[seen];
        if (s->finish != KN_FINISH_NOT) status = kn_fail(KNNLM_EINVAL, "sequence %zu is finished", seen);
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
    s->next = s->count - kn_least(s->count, context / 2);
    s->cut = true;
}

static bool reads_one(const kn_sequence *s) {
    return s->count - s->next == 1 && kn_session_length(s->session) > 0;
}

static kn_lm_output output_at(const kn_generator *g, size_t row, bool searched) {
    return (kn_lm_output){.distribution = g->distributions + row * g->vocabulary,
                          .entropies = g->entropies + row,
                          .keys = searched ? g->states + row * g->width : NULL};
}

static knnlm_status read_ones(kn_generator *g, kn_sequence *const *sequences, size_t count, kn_tap tap,
                              bool searched) {
    kn_lm_output out = output_at(g, 0, searched);
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

// A piece of a prompt; *whole: it is read.
static knnlm_status read_piece(kn_sequence *s, kn_tap tap, const kn_lm_output *out, bool *whole) {
    static const kn_lm_output nothing = {0};
    int32_t piece[PIECE];
    size_t n = 0;
    if (kn_session_length(s->session) == 0) piece[n++] = kn_tokenizer_start(kn_lm_tokenizer(s->lm));
    while (n < PIECE && s->next < s->count) piece[n++] = s->history[s->next++];
    *whole = s->next == s->count;
    return kn_session_feed(s->session, piece, n, tap, *whole ? out : &nothing);
}

static knnlm_status read_pieces(kn_generator *g, kn_sequence *const *sequences, size_t count, kn_tap tap,
                                bool searched) {
    size_t ones = g->rows, seen = 0;
    for (size_t i = 0; i < count; i++) {
        bool whole;
        if (seen < ones && g->sequence_of[seen] == i) {
            seen++;
            continue;
        }
        kn_lm_output out = output_at(g, g->rows, searched);
        KN_TRY(read_piece(sequences[i], tap, &out, &whole));
        if (whole) g->sequence_of[g->rows++] = i;
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the stores are searched

static knnlm_status add_search(kn_generator *g, const kn_mixed_store *store, size_t *out) {
    *out = g->search_count++;
    if (*out == g->searches_made) {
        KN_TRY(kn_grow(&g->searches, &g->search_capacity, *out + 1, sizeof *g->searches));
        g->searches[*out] = (search){.rows = kn_alloc(g->most, sizeof(size_t))};
        g->searches_made++;
    }
    g->searches[*out].store = store;
    g->searches[*out].count = 0;
    return g->searches[*out].rows ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status plan_searches(kn_generator *g, const kn_mixture *const *mixtures) {
    g->search_count = 0;
    for (size_t row = 0; row < g->rows; row++) {
        const kn_mixture *m = mixtures[g->sequence_of[row]];
        for (size_t i = 0; i < m->count; i++) {
            size_t n = 0;
            while (n < g->search_count && !kn_mixed_store_same_search(g->searches[n].store, &m->stores[i]))
                n++;
            if (n == g->search_count) KN_TRY(add_search(g, &m->stores[i], &n));
            search *s = &g->searches[n];
            g->answers[row * KN_STORES_MOST + i] = (answer){n, s->count};
            s->rows[s->count++] = row;
        }
    }
    return KNNLM_OK;
}

static knnlm_status room_for_found(search *s) {
    size_t k = s->store->k, cells;
    if (!kn_mul(s->count, k, &cells)) return kn_fail(KNNLM_ENOMEM, "too many neighbours at a time");
    s->found.k = k;
    if (s->found.ids && cells <= s->cells && s->count <= s->queries) return KNNLM_OK;
    kn_found_free(&s->found);
    s->cells = s->queries = 0;
    KN_TRY(kn_found_init(&s->found, s->count, k));
    s->cells = cells;
    s->queries = s->count;
    return KNNLM_OK;
}

static knnlm_status run_search(kn_generator *g, search *s) {
    const float *states = g->states;
    KN_TRY(room_for_found(s));
    if (s->count < g->rows) {
        for (size_t i = 0; i < s->count; i++)
            memcpy(g->gathered + i * g->width, g->states + s->rows[i] * g->width,
                   g->width * sizeof *g->states);
        states = g->gathered;
    }
    return kn_step_find(s->store, states, g->width, s->count, &s->found);
}

static knnlm_status search_all(kn_generator *g, const kn_mixture *const *mixtures) {
    KN_TRY(plan_searches(g, mixtures));
    for (size_t i = 0; i < g->search_count; i++) KN_TRY(run_search(g, &g->searches[i]));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- each draws

static kn_found found_of(const kn_generator *g, answer a) {
    const kn_found *f = &g->searches[a.search].found;
    size_t first = a.query * f->k;
    return (kn_found){f->k,
                      f->ids + first,
                      f->distances + first,
                      f->values + first,
                      f->counts + a.query,
                      f->entropies + a.query};
}

static knnlm_status draw(kn_generator *g, size_t row, kn_sequence *s, const kn_mixture *m) {
    kn_found found[KN_STORES_MOST];
    for (size_t i = 0; i < m->count; i++) found[i] = found_of(g, g->answers[row * KN_STORES_MOST + i]);
    KN_TRY(kn_guess_mix(&g->guess, m, found, 0, g->distributions + row * g->vocabulary,
                        (double)g->entropies[row]));
    kn_sampled before = {s->history, s->prompt, s->count};
    int32_t token = kn_sampler_pick(g->sampler, &g->guess, &s->options.sampling, &before, &s->random);
    if (token < 0)
        return kn_fail(KNNLM_EINVAL, "%s: its probabilities are not numbers", kn_lm_describe(g->lm)->path);
    return kn_sequence_take(s, token, &(kn_step){m, found, &g->guess});
}

knnlm_status kn_generator_step(kn_generator *g, kn_sequence *const *sequences,
                               const kn_mixture *const *mixtures, size_t count) {
    kn_tap tap;
    bool searched;
    KN_TRY(check(g, sequences, count));
    KN_TRY(find_tap(g, mixtures, count, &tap, &searched));
    double begun = kn_seconds();
    g->rows = 0;
    KN_TRY(read_ones(g, sequences, count, tap, searched));
    KN_TRY(read_pieces(g, sequences, count, tap, searched));
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
