#include "eval/together.h"

#include "base/threads.h"
#include "eval/guess.h"
#include "read/read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Tokens of a batch, numbers of the distributions that come out of it, and neighbours of its rows: windows
// are taken while there is room for them, one at least.
enum { ROWS = 2048, NUMBERS = 16 << 20, NEIGHBORS = 8 << 20 };

// A window of one of the texts: targets [from, from + count), the last of which may be the one after its end.
typedef struct piece {
    size_t text, from, count;
} piece;

// A row of results.
typedef struct row {
    size_t text, position;
    size_t group, query; // where its neighbours are
} row;

// Texts whose searches are alike: those are one.
typedef struct group {
    const kn_mixture *m;
    size_t rows;
    float *states;
    kn_found found[KN_STORES_MOST];
} group;

typedef struct session {
    kn_lm *lm;
    kn_asked *asked;
    size_t count;
    kn_read_options read;
    kn_tap tap;
    kn_past **pasts;   // of each text that is read as a stream in more than one piece
    int32_t **streams; // of each text: start token, tokens, and one more where what comes next is wanted
    piece *pieces;
    size_t piece_count, piece_capacity;
    // of a batch
    kn_window *windows;
    row *rows;
    size_t row_count;
    float *logprobs, *entropies, *distribution, *states;
    size_t capacity, distribution_capacity;
    group *groups;
    size_t group_count;
    kn_guess *guesses; // a worker each
    int workers;
    knnlm_status *statuses; // a row each: the first failure counts
} session;

static size_t width_of(const session *s) {
    return (size_t)kn_lm_describe(s->lm)->key_width;
}
static size_t vocabulary_of(const session *s) {
    return (size_t)kn_lm_describe(s->lm)->vocabulary;
}
static size_t targets_of(const kn_asked *a) {
    return a->count + (a->next_mixture != NULL);
}
static bool ranks(const kn_asked *a) {
    return a->ranked || a->next_mixture;
}
static const kn_mixture *mixture_of(const kn_asked *a, size_t position) {
    return position == a->count ? a->next_mixture : a->mixture;
}

// ---------------------------------------------------------------- windows

static knnlm_status lay_stream(session *s, size_t number) {
    const kn_asked *a = &s->asked[number];
    int32_t start = kn_tokenizer_start(kn_lm_tokenizer(s->lm));
    int32_t *stream = s->streams[number] = kn_alloc(a->count + 2, sizeof *stream);
    if (!stream) return KNNLM_ENOMEM;
    stream[0] = start;
    if (a->count) memcpy(stream + 1, a->tokens, a->count * sizeof *stream);
    stream[a->count + 1] = start; // a target that nobody looks at
    return KNNLM_OK;
}

static knnlm_status cut(session *s, size_t number) {
    size_t targets = targets_of(&s->asked[number]);
    if (s->read.stream && targets > (size_t)s->read.score) KN_TRY(kn_past_open(s->lm, &s->pasts[number]));
    for (size_t done = 0, n; done < targets; done += n) {
        n = kn_read_targets(&s->read, targets, done);
        KN_TRY(kn_grow(&s->pieces, &s->piece_capacity, s->piece_count + 1, sizeof *s->pieces));
        s->pieces[s->piece_count++] = (piece){number, done, n};
    }
    return KNNLM_OK;
}

static kn_window window_of(const session *s, const piece *p) {
    size_t before = kn_least(p->from, (size_t)s->read.context);
    const int32_t *inputs = s->streams[p->text] + p->from - before;
    return (kn_window){inputs, inputs + 1, (int32_t)(before + p->count), (int32_t)before, s->pasts[p->text]};
}

// Of a token.
static size_t neighbors_of(const kn_asked *a) {
    size_t sum = 0;
    for (size_t i = 0; i < a->mixture->count; i++) sum += a->mixture->stores[i].k;
    return sum;
}

// How many of the pieces from `first` on make the next batch; *ranked: a distribution is wanted of some.
static size_t next_batch(const session *s, size_t first, bool *ranked) {
    size_t tokens = 0, rows = 0, neighbors = 0, n = 0;
    *ranked = false;
    for (; first + n < s->piece_count; n++) {
        const piece *p = &s->pieces[first + n];
        bool wanted = *ranked || ranks(&s->asked[p->text]);
        size_t more = (size_t)window_of(s, p).length;
        size_t found = neighbors + p->count * neighbors_of(&s->asked[p->text]);
        if (n && (tokens + more > ROWS || found > NEIGHBORS ||
                  (wanted && (rows + p->count) * vocabulary_of(s) > NUMBERS)))
            break;
        tokens += more;
        neighbors = found;
        rows += p->count;
        *ranked = wanted;
    }
    return n;
}

static knnlm_status make_room(session *s, size_t rows, bool ranked) {
    size_t numbers;
    if (!kn_mul(rows, vocabulary_of(s), &numbers)) return kn_fail(KNNLM_ENOMEM, "too many tokens at a time");
    if (ranked) KN_TRY(kn_grow(&s->distribution, &s->distribution_capacity, numbers, sizeof(float)));
    if (rows <= s->capacity) return KNNLM_OK;
    free(s->rows);
    free(s->logprobs);
    free(s->entropies);
    free(s->states);
    free(s->statuses);
    s->rows = kn_alloc(rows, sizeof *s->rows);
    s->logprobs = kn_alloc(rows, sizeof *s->logprobs);
    s->entropies = kn_alloc(rows, sizeof *s->entropies);
    s->states = kn_alloc(rows * width_of(s), sizeof *s->states);
    s->statuses = kn_alloc(rows, sizeof *s->statuses);
    bool had = s->rows && s->logprobs && s->entropies && s->states && s->statuses;
    s->capacity = had ? rows : 0;
    return had ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status run_model(session *s, size_t first, size_t n, bool ranked) {
    size_t rows = 0;
    for (size_t i = 0; i < n; i++) rows += s->pieces[first + i].count;
    KN_TRY(make_room(s, rows, ranked));
    s->row_count = 0;
    for (size_t i = 0; i < n; i++) {
        const piece *p = &s->pieces[first + i];
        s->windows[i] = window_of(s, p);
        for (size_t t = 0; t < p->count; t++)
            s->rows[s->row_count++] = (row){.text = p->text, .position = p->from + t};
    }
    bool any = false;
    for (size_t i = 0; i < n; i++) any |= s->asked[s->pieces[first + i].text].mixture->count > 0;
    kn_lm_output out = {.logprobs = s->logprobs,
                        .entropies = s->entropies,
                        .distribution = ranked ? s->distribution : NULL,
                        .keys = any ? s->states : NULL};
    return kn_lm_run(s->lm, s->windows, n, s->tap, &out);
}

// ---------------------------------------------------------------- neighbours

static bool search_alike(const kn_mixture *a, const kn_mixture *b) {
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (!kn_mixed_store_same_search(&a->stores[i], &b->stores[i])) return false;
    return true;
}

// Every row goes to a group; those of one text and the same mixture stand together, so the last is tried
// first.
static void sort_rows(session *s) {
    s->group_count = 0;
    for (size_t r = 0; r < s->row_count; r++) {
        const kn_mixture *m = mixture_of(&s->asked[s->rows[r].text], s->rows[r].position);
        size_t g = r ? s->rows[r - 1].group : 0;
        if (r == 0 || !search_alike(s->groups[g].m, m))
            for (g = 0; g < s->group_count && !search_alike(s->groups[g].m, m);) g++;
        if (g == s->group_count) s->groups[s->group_count++] = (group){.m = m};
        s->rows[r].group = g;
        s->rows[r].query = s->groups[g].rows++;
    }
}

static knnlm_status search_group(session *s, size_t number) {
    group *g = &s->groups[number];
    size_t width = width_of(s);
    if (g->m->count == 0) return KNNLM_OK;
    g->states = kn_alloc_aligned(g->rows * width, sizeof *g->states);
    if (!g->states) return KNNLM_ENOMEM;
    for (size_t r = 0; r < s->row_count; r++)
        if (s->rows[r].group == number)
            memcpy(g->states + s->rows[r].query * width, s->states + r * width, width * sizeof *g->states);
    for (size_t i = 0; i < g->m->count; i++) {
        KN_TRY(kn_found_init(&g->found[i], g->rows, g->m->stores[i].k));
        KN_TRY(kn_mixed_store_search(&g->m->stores[i], g->states, g->rows, NULL, 0, &g->found[i]));
    }
    return KNNLM_OK;
}

static void forget_groups(session *s) {
    for (size_t g = 0; g < s->group_count; g++) {
        for (size_t i = 0; i < s->groups[g].m->count; i++) kn_found_free(&s->groups[g].found[i]);
        kn_free_aligned(s->groups[g].states);
    }
    s->group_count = 0;
}

// ---------------------------------------------------------------- verdicts

static void judge(const session *s, const row *w, size_t r, kn_asked *a) {
    const kn_mixture *m = a->mixture;
    const group *g = &s->groups[w->group];
    kn_mixed mixed;
    kn_mixture_mix(m, g->found, w->query, a->tokens[w->position], (double)s->logprobs[r],
                   (double)s->entropies[r], NAN, &mixed);
    a->verdicts[w->position] = (kn_verdict){.p = mixed.p,
                                            .lm = (double)s->logprobs[r],
                                            .knn = kn_mixture_knn(m, &mixed),
                                            .lambda = kn_mixture_lambda(m, &mixed),
                                            .nearest = kn_mixture_nearest(m, g->found, w->query),
                                            .entropy = (double)s->entropies[r]};
}

// Of all stores together, each by the part it has at its own temperature.
static void judge_temperatures(const session *s, const row *w, kn_asked *a) {
    const kn_mixture *m = a->mixture;
    const group *g = &s->groups[w->group];
    kn_mixed mixed, other;
    kn_mixture_mix(m, g->found, w->query, -1, 0, a->verdicts[w->position].entropy, NAN, &mixed);
    other = mixed;
    for (size_t t = 0; t < a->temperature_count; t++) {
        for (size_t i = 0; i < m->count; i++) {
            kn_neighborhood n = kn_found_at(&g->found[i], w->query);
            other.knn[i] = kn_neighborhood_logprob(&n, a->temperatures[t], a->tokens[w->position]);
        }
        a->knn_at[w->position * a->temperature_count + t] = kn_mixture_knn(m, &other);
    }
}

static void rank(const kn_guess *g, size_t position, kn_asked *a) {
    int32_t *ranked = a->ranked + position * a->top;
    double *p = a->ranked_p + position * a->top;
    size_t n = kn_guess_top(g, a->top, ranked);
    for (size_t i = 0; i < n; i++) p[i] = kn_guess_logprob(g, ranked[i]);
    if (position < a->count) a->own_p[position] = kn_guess_logprob(g, a->tokens[position]);
}

static void rank_next(const kn_guess *g, kn_asked *a) {
    kn_guess_top(g, 1, &a->next);
    if (a->ranked) rank(g, a->count, a);
    a->next_verdict = (kn_verdict){.p = kn_guess_logprob(g, a->next),
                                   .lm = (double)g->lm[a->next],
                                   .knn = g->stores ? log(g->knn[a->next]) : NAN,
                                   .lambda = g->lambda,
                                   .nearest = g->nearest,
                                   .entropy = g->entropy};
}

static void judge_row(void *context, size_t r, int worker) {
    session *s = context;
    const row *w = &s->rows[r];
    kn_asked *a = &s->asked[w->text];
    bool next = w->position == a->count;
    s->statuses[r] = KNNLM_OK;
    if (!next) judge(s, w, r, a);
    if (!next && a->knn_at) judge_temperatures(s, w, a);
    if (!next && !a->ranked) return;
    kn_guess *g = &s->guesses[worker];
    s->statuses[r] = kn_guess_mix(g, mixture_of(a, w->position), s->groups[w->group].found, w->query,
                                  s->distribution + r * vocabulary_of(s), (double)s->entropies[r]);
    if (s->statuses[r] != KNNLM_OK) return;
    if (next)
        rank_next(g, a);
    else
        rank(g, w->position, a);
}

static knnlm_status judge_all(session *s) {
    kn_parallel(s->row_count, judge_row, s);
    for (size_t r = 0; r < s->row_count; r++)
        if (s->statuses[r] != KNNLM_OK) return kn_fail(s->statuses[r], "out of memory");
    return KNNLM_OK;
}

// ---------------------------------------------------------------- all of it

static knnlm_status run_batch(session *s, size_t first, size_t n, bool ranked) {
    KN_TRY(run_model(s, first, n, ranked));
    sort_rows(s);
    knnlm_status status = KNNLM_OK;
    for (size_t g = 0; g < s->group_count && status == KNNLM_OK; g++) status = search_group(s, g);
    if (status == KNNLM_OK) status = judge_all(s);
    forget_groups(s);
    return status;
}

static knnlm_status prepare(session *s) {
    s->workers = kn_threads();
    s->streams = kn_alloc(s->count, sizeof *s->streams);
    s->pasts = kn_alloc(s->count, sizeof *s->pasts);
    s->groups = kn_alloc(2 * s->count, sizeof *s->groups); // a text has two mixtures at most
    s->guesses = kn_alloc((size_t)s->workers, sizeof *s->guesses);
    if (!s->streams || !s->pasts || !s->groups || !s->guesses) return KNNLM_ENOMEM;
    for (int i = 0; i < s->workers; i++) KN_TRY(kn_guess_init(&s->guesses[i], s->lm));
    s->read = (kn_read_options){.context = -1};
    s->tap = KN_TAP_DEFAULT;
    KN_TRY(kn_read_resolve(s->lm, &s->read));
    for (size_t i = 0; i < s->count; i++) {
        if (s->asked[i].mixture->count) s->tap = s->asked[i].mixture->tap;
        KN_TRY(lay_stream(s, i));
        KN_TRY(cut(s, i));
    }
    s->windows = kn_alloc(s->piece_count, sizeof *s->windows);
    return s->windows ? KNNLM_OK : KNNLM_ENOMEM;
}

static void session_free(session *s) {
    for (size_t i = 0; s->streams && i < s->count; i++) free(s->streams[i]);
    for (size_t i = 0; s->pasts && i < s->count; i++) kn_past_close(s->pasts[i]);
    for (int i = 0; s->guesses && i < s->workers; i++) kn_guess_free(&s->guesses[i]);
    free(s->streams);
    free(s->pasts);
    free(s->pieces);
    free(s->windows);
    free(s->rows);
    free(s->logprobs);
    free(s->entropies);
    free(s->distribution);
    free(s->states);
    free(s->groups);
    free(s->guesses);
    free(s->statuses);
}

knnlm_status kn_score_together(kn_lm *lm, kn_asked *asked, size_t count, kn_go_on *go_on, void *context) {
    session s = {.lm = lm, .asked = asked, .count = count};
    knnlm_status status = prepare(&s);
    for (size_t done = 0; done < s.piece_count && status == KNNLM_OK;) {
        bool ranked;
        size_t n = next_batch(&s, done, &ranked);
        status = run_batch(&s, done, n, ranked);
        done += n;
        if (status == KNNLM_OK && done < s.piece_count && go_on && !go_on(context))
            status = kn_fail(KNNLM_ESTOPPED, "stopped while scoring");
    }
    session_free(&s);
    return status;
}
