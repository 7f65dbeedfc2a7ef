// Scores several texts in memory together.
#include "eval/score_batch.h"

#include "base/threads.h"
#include "knn/distribution.h"
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
} row;

typedef struct session {
    kn_lm *lm;
    kn_score_text *texts;
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
    const kn_mixture **mixtures; // of each row
    kn_history *histories;       // of each text, so far
    kn_gains **gains;            // of each text by document; NULL: not wanted
    kn_history *before;          // of each row: its text's, before it
    size_t row_count;
    float *logprobs, *entropies, *distribution, *states;
    size_t capacity, distribution_capacity;
    kn_predictor *predictor;
    kn_distribution *distributions; // one per worker
    int workers;
    knnlm_status *statuses; // a row each: the first failure counts
} session;

static size_t width_of(const session *s) {
    return (size_t)kn_lm_describe(s->lm)->key_width;
}
static size_t vocabulary_of(const session *s) {
    return (size_t)kn_lm_describe(s->lm)->vocabulary;
}
static size_t targets_of(const kn_score_text *a) {
    return a->count + (a->next_mixture != NULL);
}
static bool ranks(const kn_score_text *a) {
    return a->ranked || a->next_mixture;
}
static const kn_mixture *mixture_of(const kn_score_text *a, size_t position) {
    return position == a->count ? a->next_mixture : a->mixture;
}

// ---------------------------------------------------------------- windows

static knnlm_status lay_stream(session *s, size_t number) {
    const kn_score_text *a = &s->texts[number];
    int32_t start = kn_tokenizer_start(kn_lm_tokenizer(s->lm));
    int32_t *stream = s->streams[number] = kn_alloc(a->count + 2, sizeof *stream);
    if (!stream) return KNNLM_ENOMEM;
    stream[0] = start;
    if (a->count) memcpy(stream + 1, a->tokens, a->count * sizeof *stream);
    stream[a->count + 1] = start; // a target that nobody looks at
    return KNNLM_OK;
}

static knnlm_status cut(session *s, size_t number) {
    size_t targets = targets_of(&s->texts[number]);
    if (s->read.stream && targets > (size_t)s->read.score) KN_TRY(kn_past_open(s->lm, &s->pasts[number]));
    for (size_t done = 0, n; done < targets; done += n) {
        n = kn_read_targets(&s->read, targets, done);
        KN_TRY(kn_grow(&s->pieces, &s->piece_capacity, s->piece_count + 1, sizeof *s->pieces));
        s->pieces[s->piece_count++] = (piece){number, done, n};
    }
    return KNNLM_OK;
}

static kn_window window_of(const session *s, const piece *p) {
    return kn_read_window(&s->read, s->streams[p->text], p->from, p->count, s->pasts[p->text]);
}

// How many of the pieces from `first` on make the next batch; *ranked: a distribution is wanted of some.
static size_t next_batch(const session *s, size_t first, bool *ranked) {
    size_t tokens = 0, rows = 0, neighbors = 0, n = 0;
    *ranked = false;
    for (; first + n < s->piece_count; n++) {
        const piece *p = &s->pieces[first + n];
        bool wanted = *ranked || ranks(&s->texts[p->text]);
        size_t more = (size_t)window_of(s, p).length;
        size_t found = neighbors + p->count * kn_mixture_describe(s->texts[p->text].mixture)->neighbors;
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

static void free_rows(session *s) {
    free(s->rows);
    free(s->mixtures);
    free(s->before);
    free(s->logprobs);
    free(s->entropies);
    free(s->states);
    free(s->statuses);
}

static knnlm_status make_room(session *s, size_t rows, bool ranked) {
    size_t numbers;
    if (!kn_mul(rows, vocabulary_of(s), &numbers)) return kn_fail(KNNLM_ENOMEM, "too many tokens at a time");
    if (ranked) KN_TRY(kn_grow(&s->distribution, &s->distribution_capacity, numbers, sizeof(float)));
    if (rows <= s->capacity) return KNNLM_OK;
    free_rows(s);
    s->rows = kn_alloc(rows, sizeof *s->rows);
    s->mixtures = kn_alloc(rows, sizeof *s->mixtures);
    s->before = kn_alloc(rows, sizeof *s->before);
    s->logprobs = kn_alloc(rows, sizeof *s->logprobs);
    s->entropies = kn_alloc(rows, sizeof *s->entropies);
    s->states = kn_alloc(rows * width_of(s), sizeof *s->states);
    s->statuses = kn_alloc(rows, sizeof *s->statuses);
    bool had = s->rows && s->mixtures && s->before && s->logprobs && s->entropies && s->states && s->statuses;
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
        for (size_t t = 0; t < p->count; t++) {
            s->mixtures[s->row_count] = mixture_of(&s->texts[p->text], p->from + t);
            s->rows[s->row_count++] = (row){p->text, p->from + t};
        }
    }
    bool any = false;
    for (size_t r = 0; r < s->row_count; r++) any |= kn_mixture_describe(s->mixtures[r])->count > 0;
    kn_lm_output out = {.logprobs = s->logprobs,
                        .entropies = s->entropies,
                        .distribution = ranked ? s->distribution : NULL,
                        .keys = any ? s->states : NULL};
    return kn_lm_run(s->lm, s->windows, n, s->tap, &out);
}

// ---------------------------------------------------------------- results

// What a text has shown grows from row to row: found out first, so that rows can be judged in any order.
static void remember(session *s) {
    for (size_t r = 0; r < s->row_count; r++) {
        const row *w = &s->rows[r];
        const kn_score_text *a = &s->texts[w->text];
        kn_row_neighbors found[KN_STORES_MAX];
        kn_prediction prediction;
        s->before[r] = s->histories[w->text];
        if (w->position == a->count || !kn_mixture_describe(a->mixture)->gated) continue;
        kn_predictor_neighbors(s->predictor, r, found);
        kn_predict_one(a->mixture, found, a->tokens[w->position], (double)s->logprobs[r],
                       (double)s->entropies[r], NAN, &s->histories[w->text], &prediction);
    }
}

static void judge(const session *s, const row *w, size_t r, kn_score_text *a) {
    const kn_mixture *m = a->mixture;
    kn_row_neighbors found[KN_STORES_MAX];
    kn_prediction prediction;
    kn_history before = s->before[r];
    kn_predictor_neighbors(s->predictor, r, found);
    kn_predict_one(m, found, a->tokens[w->position], (double)s->logprobs[r], (double)s->entropies[r], NAN,
                   &before, &prediction);
    a->results[w->position] = (kn_score_result){.p = prediction.p,
                                                .lm = (double)s->logprobs[r],
                                                .knn = kn_prediction_knn(m, &prediction),
                                                .lambda = kn_prediction_lambda(m, &prediction),
                                                .nearest = kn_nearest(m, found),
                                                .entropy = (double)s->entropies[r]};
}

// Of all stores together, each by the part it has at its own temperature.
static void judge_temperatures(const session *s, const row *w, size_t r, kn_score_text *a) {
    const kn_mixture *m = a->mixture;
    kn_row_neighbors found[KN_STORES_MAX];
    kn_prediction other;
    kn_history before = s->before[r];
    kn_predictor_neighbors(s->predictor, r, found);
    kn_predict_one(m, found, -1, 0, a->results[w->position].entropy, NAN, &before, &other);
    // Who turns T by hand turns lambda too: stores then share as without gates.
    const kn_mixture_info *info = kn_mixture_describe(m);
    for (size_t i = 0; i < info->count; i++)
        if (info->stores[i].gated) other.lambdas[i] = found[i].near.count ? info->stores[i].lambda : 0;
    for (size_t t = 0; t < a->temperature_count; t++) {
        for (size_t i = 0; i < kn_mixture_describe(m)->count; i++)
            other.knn[i] =
                kn_neighborhood_logprob(&found[i].near, a->temperatures[t], a->tokens[w->position]);
        a->knn_at[w->position * a->temperature_count + t] = kn_prediction_knn(m, &other);
    }
}

static void rank(const kn_distribution *g, size_t position, kn_score_text *a) {
    int32_t *ranked = a->ranked + position * a->top;
    double *p = a->ranked_p + position * a->top;
    size_t n = kn_distribution_top(g, a->top, ranked);
    for (size_t i = 0; i < n; i++) p[i] = kn_distribution_logprob(g, ranked[i]);
    if (position < a->count) a->own_p[position] = kn_distribution_logprob(g, a->tokens[position]);
}

static void rank_next(const kn_distribution *g, kn_score_text *a) {
    kn_distribution_top(g, 1, &a->next);
    if (a->ranked) rank(g, a->count, a);
    a->next_verdict = (kn_score_result){.p = kn_distribution_logprob(g, a->next),
                                        .lm = (double)g->lm[a->next],
                                        .knn = g->stores ? log(g->knn[a->next]) : NAN,
                                        .lambda = g->lambda,
                                        .nearest = g->nearest,
                                        .entropy = g->entropy};
}

static void judge_row(void *context, size_t r, int worker) {
    session *s = context;
    const row *w = &s->rows[r];
    kn_score_text *a = &s->texts[w->text];
    bool next = w->position == a->count;
    s->statuses[r] = KNNLM_OK;
    if (!next) judge(s, w, r, a);
    if (!next && a->knn_at) judge_temperatures(s, w, r, a);
    if (!next && !a->ranked) return;
    kn_row_neighbors found[KN_STORES_MAX];
    kn_distribution *g = &s->distributions[worker];
    kn_history before = s->before[r];
    kn_predictor_neighbors(s->predictor, r, found);
    s->statuses[r] = kn_distribution_mix(g, s->mixtures[r], found, s->distribution + r * vocabulary_of(s),
                                         (double)s->entropies[r], &before);
    if (s->statuses[r] != KNNLM_OK) return;
    if (next)
        rank_next(g, a);
    else
        rank(g, w->position, a);
}

// Documents' sums, row after row: in one order, whatever the threads.
static knnlm_status share_gain(session *s, size_t r) {
    const row *w = &s->rows[r];
    const kn_score_text *a = &s->texts[w->text];
    kn_row_neighbors found[KN_STORES_MAX];
    kn_prediction prediction;
    kn_history before = s->before[r];
    if (!s->gains[w->text] || w->position == a->count) return KNNLM_OK;
    kn_predictor_neighbors(s->predictor, r, found);
    kn_predict_one(a->mixture, found, a->tokens[w->position], (double)s->logprobs[r], (double)s->entropies[r],
                   NAN, &before, &prediction);
    return kn_gains_add(s->gains[w->text], found, &prediction, a->tokens[w->position],
                        (double)s->logprobs[r]);
}

static knnlm_status judge_all(session *s) {
    remember(s);
    kn_parallel(s->row_count, judge_row, s);
    for (size_t r = 0; r < s->row_count; r++)
        if (s->statuses[r] != KNNLM_OK) return kn_fail(s->statuses[r], "out of memory");
    for (size_t r = 0; r < s->row_count; r++) KN_TRY(share_gain(s, r));
    return KNNLM_OK;
}

static knnlm_status list_gains(session *s) {
    for (size_t i = 0; i < s->count; i++)
        if (s->gains[i])
            KN_TRY(kn_gains_list(s->gains[i], &s->texts[i].documents, &s->texts[i].document_count));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- all of it

static knnlm_status run_batch(session *s, size_t first, size_t n, bool ranked) {
    KN_TRY(run_model(s, first, n, ranked));
    kn_predict_rows rows = {
        .count = s->row_count, .mixtures = s->mixtures, .states = s->states, .entropies = s->entropies};
    KN_TRY(kn_predict(s->predictor, &rows, NULL));
    return judge_all(s);
}

static knnlm_status prepare(session *s) {
    s->workers = kn_threads();
    s->streams = kn_alloc(s->count, sizeof *s->streams);
    s->pasts = kn_alloc(s->count, sizeof *s->pasts);
    s->histories = kn_alloc(s->count, sizeof *s->histories);
    s->gains = kn_alloc(s->count, sizeof *s->gains);
    s->distributions = kn_alloc((size_t)s->workers, sizeof *s->distributions);
    if (!s->streams || !s->pasts || !s->histories || !s->gains || !s->distributions) return KNNLM_ENOMEM;
    KN_TRY(kn_predictor_open(&s->predictor));
    for (int i = 0; i < s->workers; i++) KN_TRY(kn_distribution_init(&s->distributions[i], s->lm));
    s->read = (kn_read_options){.context = -1};
    s->tap = KN_TAP_DEFAULT;
    KN_TRY(kn_read_resolve(s->lm, &s->read));
    for (size_t i = 0; i < s->count; i++) {
        const kn_mixture_info *m = kn_mixture_describe(s->texts[i].mixture);
        if (m->count) s->tap = m->tap;
        if (s->texts[i].by_document) KN_TRY(kn_gains_open(s->texts[i].mixture, &s->gains[i]));
        KN_TRY(lay_stream(s, i));
        KN_TRY(cut(s, i));
    }
    s->windows = kn_alloc(s->piece_count, sizeof *s->windows);
    return s->windows ? KNNLM_OK : KNNLM_ENOMEM;
}

static void session_free(session *s) {
    for (size_t i = 0; s->streams && i < s->count; i++) free(s->streams[i]);
    for (size_t i = 0; s->pasts && i < s->count; i++) kn_past_close(s->pasts[i]);
    for (size_t i = 0; s->gains && i < s->count; i++) kn_gains_close(s->gains[i]);
    for (int i = 0; s->distributions && i < s->workers; i++) kn_distribution_free(&s->distributions[i]);
    kn_predictor_close(s->predictor);
    free_rows(s);
    free(s->streams);
    free(s->pasts);
    free(s->histories);
    free(s->gains);
    free(s->pieces);
    free(s->windows);
    free(s->distribution);
    free(s->distributions);
}

knnlm_status kn_score_batch(kn_lm *lm, kn_score_text *texts, size_t count, kn_keep_going *go_on,
                            void *context) {
    session s = {.lm = lm, .texts = texts, .count = count};
    knnlm_status status = prepare(&s);
    for (size_t done = 0; done < s.piece_count && status == KNNLM_OK;) {
        bool ranked;
        size_t n = next_batch(&s, done, &ranked);
        status = run_batch(&s, done, n, ranked);
        done += n;
        if (status == KNNLM_OK && done < s.piece_count && go_on && !go_on(context))
            status = kn_fail(KNNLM_ESTOPPED, "stopped while scoring");
    }
    if (status == KNNLM_OK) status = list_gains(&s);
    session_free(&s);
    return status;
}
