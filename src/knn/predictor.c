// Predictions for many rows: searches that are alike are made together, then every row is mixed.
#include "base/progress.h"
#include "base/threads.h"
#include "knn/mixture_parts.h"
#include "knn/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// What asks: a row, and which of its mixture's stores.
typedef struct asking {
    size_t row, part;
} asking;

// One search of one store, for some of the rows.
typedef struct search {
    const kn_datastore *store;
    kn_retrieve_options how;
    size_t place; // of the store in the mixture of its first row
    asking *rows;
    size_t count, row_capacity;
    kn_retrieved found;
    size_t cells, queries; // room in it
} search;

// Where the neighbours of a row in a store lie.
typedef struct place {
    size_t search, query;
} place;

struct kn_predictor {
    kn_predict_rows rows;
    search *searches;
    size_t search_count, searches_made, search_capacity;
    place *places; // (count, KN_STORES_MAX)
    size_t place_capacity;
    float *gathered;
    size_t gathered_room;
    kn_search_scratch scratch;
    kn_entry_range *exclude; // of the rows of one search, where it is not for all rows
    size_t exclude_capacity;
    kn_row_facts *facts; // of a search's queries, where predictions are all that is wanted
    uint32_t *which;
    int32_t *targets;
    size_t measured_room;
    uint64_t skipped;
    double seconds[KN_STORES_MAX];
};

knnlm_status kn_predictor_open(kn_predictor **out) {
    *out = kn_alloc(1, sizeof **out);
    return *out ? KNNLM_OK : KNNLM_ENOMEM;
}

void kn_predictor_close(kn_predictor *p) {
    if (!p) return;
    for (size_t i = 0; i < p->searches_made; i++) {
        kn_retrieved_free(&p->searches[i].found);
        free(p->searches[i].rows);
    }
    free(p->searches);
    free(p->places);
    free(p->exclude);
    free(p->facts);
    free(p->which);
    free(p->targets);
    kn_free_aligned(p->gathered);
    kn_search_scratch_free(&p->scratch);
    free(p);
}

static const kn_mixture *mixture_of(const kn_predict_rows *rows, size_t row) {
    return rows->mixture ? rows->mixture : rows->mixtures[row];
}

// ---------------------------------------------------------------- which searches

static knnlm_status add_search(kn_predictor *p, const kn_mixture_part *part, size_t place, size_t *out) {
    *out = p->search_count;
    if (*out == p->searches_made) {
        KN_TRY(kn_grow(&p->searches, &p->search_capacity, *out + 1, sizeof *p->searches));
        p->searches[*out] = (search){0};
        p->searches_made++;
    }
    search *s = &p->searches[p->search_count++];
    s->store = part->store;
    s->how = part->retrieve;
    s->place = place;
    s->count = 0;
    return KNNLM_OK;
}

// Rows of one mixture mostly stand together: the search of the row before is tried first.
static knnlm_status find_search(kn_predictor *p, const kn_mixture_part *part, size_t place, size_t likely,
                                size_t *out) {
    const search *s = p->searches;
    *out = likely;
    if (likely < p->search_count &&
        kn_datastore_same_search(s[likely].store, &s[likely].how, part->store, &part->retrieve))
        return KNNLM_OK;
    for (*out = 0; *out < p->search_count; ++*out)
        if (kn_datastore_same_search(s[*out].store, &s[*out].how, part->store, &part->retrieve))
            return KNNLM_OK;
    return add_search(p, part, place, out);
}

static bool is_skipped(const kn_predict_rows *rows, size_t row) {
    const kn_mixture_info *m = &mixture_of(rows, row)->info;
    return m->count && rows->entropies && (double)rows->entropies[row] < m->skip_entropy;
}

static knnlm_status plan_row(kn_predictor *p, size_t row) {
    const kn_mixture *m = mixture_of(&p->rows, row);
    place *places = p->places + row * KN_STORES_MAX;
    if (is_skipped(&p->rows, row)) {
        p->skipped++;
        return KNNLM_OK;
    }
    for (size_t i = 0; i < m->info.count; i++) {
        size_t n;
        KN_TRY(find_search(p, &m->parts[i], i, row ? (places - KN_STORES_MAX)[i].search : SIZE_MAX, &n));
        search *s = &p->searches[n];
        KN_TRY(kn_grow(&s->rows, &s->row_capacity, s->count + 1, sizeof *s->rows));
        places[i] = (place){n, s->count};
        s->rows[s->count++] = (asking){row, i};
    }
    return KNNLM_OK;
}

static knnlm_status plan(kn_predictor *p) {
    size_t cells;
    p->search_count = 0;
    if (!kn_mul(p->rows.count, KN_STORES_MAX, &cells))
        return kn_fail(KNNLM_ENOMEM, "too many rows at a time");
    KN_TRY(kn_grow(&p->places, &p->place_capacity, cells, sizeof *p->places));
    for (size_t row = 0; row < p->rows.count; row++) {
        for (size_t i = 0; i < KN_STORES_MAX; i++) p->places[row * KN_STORES_MAX + i].search = SIZE_MAX;
        KN_TRY(plan_row(p, row));
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the searches

static knnlm_status room_for_found(search *s) {
    size_t k = s->how.k, cells;
    if (!kn_mul(s->count, k, &cells)) return kn_fail(KNNLM_ENOMEM, "too many neighbours at a time");
    s->found.k = k;
    if (s->found.ids && cells <= s->cells && s->count <= s->queries) return KNNLM_OK;
    kn_retrieved_free(&s->found);
    s->cells = s->queries = 0;
    KN_TRY(kn_retrieved_init(&s->found, s->count, k));
    s->cells = cells;
    s->queries = s->count;
    return KNNLM_OK;
}

// The states of its rows one after another: where it is for all rows, they are that already.
static knnlm_status gather(kn_predictor *p, const search *s, const float **states) {
    size_t width = mixture_of(&p->rows, 0)->info.width, cells;
    *states = p->rows.states;
    if (s->count == p->rows.count) return KNNLM_OK;
    if (!kn_mul(s->count, width, &cells)) return kn_fail(KNNLM_ENOMEM, "too many rows at a time");
    if (cells > p->gathered_room) {
        kn_free_aligned(p->gathered);
        p->gathered = kn_alloc_aligned(cells, sizeof *p->gathered);
        p->gathered_room = p->gathered ? cells : 0;
        if (!p->gathered) return KNNLM_ENOMEM;
    }
    for (size_t i = 0; i < s->count; i++)
        memcpy(p->gathered + i * width, p->rows.states + s->rows[i].row * width, width * sizeof *p->gathered);
    *states = p->gathered;
    return KNNLM_OK;
}

// What its rows are not to find; of one mixture, whose stores are searched for all rows but those skipped.
static knnlm_status gather_exclude(kn_predictor *p, const search *s, kn_retrieve_options *how) {
    size_t each = p->rows.excludes, cells;
    if (!p->rows.exclude) return KNNLM_OK;
    how->excludes = each;
    how->exclude = p->rows.exclude[s->place];
    if (s->count == p->rows.count || !how->exclude) return KNNLM_OK;
    if (!kn_mul(s->count, each, &cells)) return kn_fail(KNNLM_ENOMEM, "too many copies of a document");
    KN_TRY(kn_grow(&p->exclude, &p->exclude_capacity, cells, sizeof *p->exclude));
    for (size_t i = 0; i < s->count; i++)
        memcpy(p->exclude + i * each, how->exclude + s->rows[i].row * each, each * sizeof *p->exclude);
    how->exclude = p->exclude;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- predictions alone

static double entropy_of(const kn_predict_rows *r, size_t row) {
    return r->entropies ? (double)r->entropies[row] : 0;
}

static knnlm_status room_for_facts(kn_predictor *p, size_t count) {
    if (count <= p->measured_room) return KNNLM_OK;
    free(p->facts);
    free(p->which);
    free(p->targets);
    p->facts = kn_alloc(count, sizeof *p->facts);
    p->which = kn_alloc(count, sizeof *p->which);
    p->targets = kn_alloc(count, sizeof *p->targets);
    p->measured_room = p->facts && p->which && p->targets ? count : 0;
    return p->measured_room ? KNNLM_OK : KNNLM_ENOMEM;
}

// Neighbours are measured where they are found. All rows are of one mixture.
static knnlm_status measure(kn_predictor *p, const search *s, const float *states,
                            const kn_retrieve_options *how, kn_prediction *out) {
    const kn_predict_rows *r = &p->rows;
    kn_measure measures[KN_STORES_MAX];
    KN_TRY(room_for_facts(p, s->count));
    for (size_t i = 0; i < r->mixture->info.count; i++) measures[i] = kn_predict_measure(r->mixture, i);
    for (size_t q = 0; q < s->count; q++) {
        p->which[q] = (uint32_t)s->rows[q].part;
        p->targets[q] = r->targets[s->rows[q].row];
    }
    kn_measuring what = {measures, r->mixture->info.count, p->which, p->targets};
    KN_TRY(kn_datastore_measure(s->store, states, s->count, how, &what, p->facts));
    for (size_t q = 0; q < s->count; q++) {
        asking a = s->rows[q];
        kn_predict_part(r->mixture, a.part, &p->facts[q], entropy_of(r, a.row), &out[a.row]);
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- a search

// `out`: predictions that are all that is wanted, or NULL.
static knnlm_status run_search(kn_predictor *p, search *s, kn_prediction *out) {
    kn_retrieve_options how = s->how;
    const float *states;
    double begun = kn_seconds();
    how.singly = p->rows.singly;
    how.scratch = &p->scratch;
    KN_TRY(gather_exclude(p, s, &how));
    KN_TRY(gather(p, s, &states));
    if (!out) KN_TRY(room_for_found(s));
    knnlm_status status = out ? measure(p, s, states, &how, out)
                              : kn_datastore_search(s->store, states, s->count, &how, &s->found);
    p->seconds[s->place] += kn_seconds() - begun;
    return status;
}

void kn_predictor_neighbors(const kn_predictor *p, size_t row, kn_row_neighbors *out) {
    size_t count = mixture_of(&p->rows, row)->info.count;
    for (size_t i = 0; i < count; i++) {
        place at = p->places[row * KN_STORES_MAX + i];
        if (at.search == SIZE_MAX) {
            out[i] = (kn_row_neighbors){.entropy = NAN};
            continue;
        }
        const kn_retrieved *f = &p->searches[at.search].found;
        size_t first = at.query * f->k;
        out[i] = (kn_row_neighbors){{f->distances + first, f->values + first, NULL, f->counts[at.query], 0},
                                    f->ids + first,
                                    f->entropies[at.query],
                                    f->begins[at.query]};
    }
}

uint64_t kn_predictor_skipped(const kn_predictor *p) {
    return p->skipped;
}

double kn_predictor_seconds(const kn_predictor *p, size_t store) {
    return p->seconds[store];
}

// ---------------------------------------------------------------- mixing

enum { CHUNK = 64 }; // rows of a task

typedef struct mixing {
    const kn_predictor *p;
    kn_prediction *out;
} mixing;

// Rows that are searched for have their parts already, where predictions are all that is wanted.
static void mix_row(const mixing *x, size_t row) {
    const kn_predict_rows *r = &x->p->rows;
    const kn_mixture *m = mixture_of(r, row);
    if (!r->predictions_alone || is_skipped(r, row)) {
        kn_row_neighbors found[KN_STORES_MAX];
        kn_predictor_neighbors(x->p, row, found);
        kn_predict_parts(m, found, r->targets[row], entropy_of(r, row), &x->out[row]);
    }
}

// In the order of the rows, as what came before counts; it takes far less than the parts.
static void join_rows(const kn_predict_rows *r, kn_prediction *out) {
    for (size_t row = 0; row < r->count; row++) {
        if (r->history && r->first[row]) *r->history = (kn_history){0};
        kn_predict_join(mixture_of(r, row), r->targets[row], (double)r->lm[row],
                        r->cache ? r->cache[row] : NAN, r->history, &out[row]);
    }
}

static void mix_chunk(void *context, size_t task, int worker) {
    const mixing *x = context;
    size_t end = kn_min((task + 1) * CHUNK, x->p->rows.count);
    (void)worker;
    for (size_t i = task * CHUNK; i < end; i++) mix_row(x, i);
}

knnlm_status kn_predict(kn_predictor *p, const kn_predict_rows *rows, kn_prediction *out) {
    p->rows = *rows;
    KN_TRY(plan(p));
    for (size_t i = 0; i < p->search_count; i++)
        KN_TRY(run_search(p, &p->searches[i], rows->predictions_alone ? out : NULL));
    if (out) kn_parallel((rows->count + CHUNK - 1) / CHUNK, mix_chunk, &(mixing){p, out});
    if (out) join_rows(rows, out);
    return KNNLM_OK;
}
