// Explanations by the public header: words are those of the whole distribution, neighbours those that a look
// at every key finds, tokens of texts those of evaluation's rows.
#include "remembered.h"

#include <math.h>

static const char context[] = "A store remembers the";

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-4 * (1 + fabs(b));
}

static knnlm_mixture *open_mixture(fixture *d) {
    const char *store;
    knnlm_mixture_options o = options_of(d, &store);
    knnlm_mixture *m;
    OK(knnlm_mixture_open(d->model, &o, &m));
    return m;
}

// ---------------------------------------------------------------- a context

// The most probable of all, and the target behind them.
static void check_words(fixture *d, knnlm_mixture *m, const knnlm_explanation *e, size_t words) {
    size_t v = (size_t)d->info.vocabulary, count;
    double *p = test_alloc(3 * v, sizeof *p), *lm = p + v, *knn = lm + v;
    int32_t *tokens;
    knnlm_next next;
    OK(knnlm_model_encode(d->model, context, strlen(context), &tokens, &count));
    OK(knnlm_mixture_next(m, tokens, count, p, lm, knn, &next));
    assert_int_equal(e->tokens, count);
    assert_false(e->cut);
    assert_true(e->lambda == next.lambda && e->nearest == next.nearest && e->entropy == next.entropy);
    assert_int_equal(e->word_count, words + 1);
    for (size_t i = 0; i <= words; i++) {
        const knnlm_word *w = &e->words[i];
        assert_true(near(w->p, p[w->token]) && near(w->lm, lm[w->token]) && near(w->knn, knn[w->token]));
        size_t above = 0;
        for (size_t j = 0; j < v; j++) above += p[j] > w->p;
        if (i < words) assert_int_equal(above, i);
    }
    assert_int_equal(e->words[words].token, e->target);
    knnlm_free(tokens);
    free(p);
}

// The state after the context, and its squared distance to every key.
static void measure(fixture *d, const knnlm_store *store, double *distances, size_t entries) {
    size_t width = (size_t)d->info.key_width, count;
    char longer[sizeof context + 2];
    int32_t *tokens;
    snprintf(longer, sizeof longer, "%s x", context); // of the last token, the state is that after the others
    OK(knnlm_model_encode(d->model, longer, strlen(longer), &tokens, &count));
    float *states = test_alloc(count * width, sizeof *states), *keys = test_alloc(width, sizeof *keys);
    OK(knnlm_model_states(d->model, tokens, count, NULL, NULL, states));
    for (size_t i = 0; i < entries; i++) {
        OK(knnlm_store_keys(store, i, 1, keys));
        distances[i] = 0;
        for (size_t j = 0; j < width; j++) {
            double away = (double)keys[j] - (double)states[(count - 1) * width + j];
            distances[i] += away * away;
        }
    }
    knnlm_free(tokens);
    free(states);
    free(keys);
}

// Its words are those of the remembered text, around the entry.
static void check_origin(const knnlm_store *store, const knnlm_neighbor *n) {
    const knnlm_origin *o = &n->origin;
    char joined[sizeof remembered];
    knnlm_entry entry;
    OK(knnlm_store_entry(store, o->entry.id, &entry));
    assert_true(entry.token == o->entry.token && entry.position == o->entry.position);
    assert_int_equal(o->document.name_size, strlen("text.txt")); // below the folder it was named in
    assert_memory_equal(o->document.name, "text.txt", strlen("text.txt"));
    snprintf(joined, sizeof joined, "%s%s%s", o->before, o->word, o->after);
    assert_int_equal(strlen(joined), o->before_size + o->word_size + o->after_size);
    assert_ptr_equal(strstr(remembered, joined), remembered + o->entry.offset - o->before_size);
}

static void check_neighbors(fixture *d, const knnlm_explanation *e) {
    knnlm_store *store;
    knnlm_store_info info;
    double sum = 0;
    OK(knnlm_store_open(d->store, &store));
    knnlm_store_describe(store, &info);
    double *distances = test_alloc(info.entries, sizeof *distances);
    measure(d, store, distances, info.entries);
    for (size_t i = 0; i < info.entries; i++) sum += exp(-(distances[i] - e->nearest) / 20);
    for (size_t i = 0; i < e->neighbor_count; i++) {
        const knnlm_neighbor *n = &e->neighbors[i];
        double distance = distances[n->origin.entry.id];
        size_t nearer = 0;
        for (size_t j = 0; j < info.entries; j++) nearer += distances[j] < distance;
        assert_int_equal(nearer, i);
        assert_true(near(n->distance, distance));
        assert_true(near(n->share, exp(-(distance - e->nearest) / 20) / sum));
        assert_int_equal(n->store, 0);
        check_origin(store, n);
    }
    free(distances);
    knnlm_store_close(store);
}

static void a_context_is_explained(void **state) {
    fixture *d = *state;
    knnlm_mixture *m = open_mixture(d);
    knnlm_explain_options o = knnlm_explain_options_default();
    knnlm_explanation e;
    int32_t *target;
    size_t count;
    o.target = "zebra";
    o.words = 5;
    o.neighbors = 6;
    o.around = 3;
    OK(knnlm_explain(m, context, &o, &e));
    OK(knnlm_model_encode(d->model, " zebra", 6, &target, &count));
    assert_int_equal(e.target, target[0]);
    assert_int_equal(e.target_count, count);
    assert_int_equal(e.neighbor_count, 6);
    check_words(d, m, &e, 5);
    check_neighbors(d, &e);
    knnlm_free(target);
    knnlm_explanation_free(&e);
    knnlm_explanation_free(&e); // what is empty may be freed again

    OK(knnlm_explain(m, "", NULL, &e));
    assert_true(e.tokens == 0 && e.target == -1 && e.word_count == 8 && e.neighbor_count == 8);
    knnlm_explanation_free(&e);
    o = knnlm_explain_options_default();
    o.words = o.neighbors = o.around = SIZE_MAX; // all that there are
    OK(knnlm_explain(m, context, &o, &e));
    assert_int_equal(e.word_count, 1024);
    assert_true(e.neighbor_count > 20);
    check_neighbors(d, &e);
    knnlm_explanation_free(&e);
    knnlm_mixture_close(m);
}

static void without_stores_there_are_no_neighbors(void **state) {
    fixture *d = *state;
    knnlm_explanation e;
    knnlm_mixture *m;
    OK(knnlm_mixture_open(d->model, NULL, &m));
    OK(knnlm_explain(m, context, NULL, &e));
    assert_true(e.word_count == 8 && e.neighbor_count == 0 && e.lambda == 0);
    assert_true(isnan(e.nearest) && isnan(e.words[0].knn) && near(e.words[0].p, e.words[0].lm));
    knnlm_explanation_free(&e);
    knnlm_mixture_close(m);
}

// ---------------------------------------------------------------- texts

typedef struct rows {
    double gain[256], lm[256];
    size_t count;
} rows;

static bool take_row(void *to, const knnlm_token_row *row) {
    rows *r = to;
    assert_int_equal(row->position, r->count);
    r->lm[r->count] = row->lm;
    r->gain[r->count++] = row->p - row->lm;
    return r->count < 256;
}

static void write_asked(fixture *d, int times, char *path, size_t size) {
    snprintf(path, size, "%s/asked.txt", d->folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < times; i++) fputs(asked, f);
    fclose(f);
}

// In order of gain (sign 1) or of loss (-1), and none that is left out is above.
static void check_gains(fixture *d, const rows *r, const knnlm_token_gain *gains, size_t count, double sign) {
    for (size_t i = 0; i < count; i++) {
        const knnlm_token_gain *x = &gains[i];
        size_t above = 0, size;
        char *text;
        for (size_t j = 0; j < r->count; j++) above += sign * r->gain[j] > sign * r->gain[x->position] + 1e-9;
        assert_true(above <= i); // there are equals: what no neighbour has loses 1 - lambda
        if (i) assert_true(sign * (x->p - x->lm) <= sign * (x[-1].p - x[-1].lm));
        assert_true(near(x->lm, r->lm[x->position]) && near(x->p - x->lm, r->gain[x->position]));
        assert_true(near(exp(x->p), (1 - x->lambda) * exp(x->lm) + x->lambda * exp(x->knn)));
        assert_true(isnan(x->cache) && sign * (x->p - x->lm) > 0);
        assert_int_equal(x->token, d->tokens[x->position]);
        OK(knnlm_model_decode(d->model, d->tokens, x->position, &text, &size));
        assert_string_equal(x->before, text); // it is short
        assert_int_equal(x->before_size, size);
        assert_int_equal(x->offset, size);
        assert_non_null(strstr(x->document, "asked.txt"));
        assert_int_equal(x->neighbor_count, 2);
        assert_true(x->neighbors[0].share >= x->neighbors[1].share && x->neighbors[0].origin.word_size > 0);
        knnlm_free(text);
    }
}

static void tokens_that_gained_are_those_of_the_rows(void **state) {
    fixture *d = *state;
    char path[96];
    const char *store, *texts[] = {path};
    knnlm_mixture_options mix = options_of(d, &store);
    knnlm_mixture *m = open_mixture(d);
    knnlm_explain_texts_options o = knnlm_explain_texts_options_default();
    knnlm_eval_options eval = knnlm_eval_options_default();
    knnlm_eval_result result;
    knnlm_token_gains g;
    rows r = {.count = 0};
    write_asked(d, 1, path, sizeof path);
    eval.row = take_row;
    eval.row_context = &r;
    OK(knnlm_eval(d->model, texts, 1, &mix, &eval, &result));
    o.best = 4;
    o.worst = 3;
    o.neighbors = 2;
    OK(knnlm_explain_texts(m, texts, 1, &o, &g));
    assert_true(g.tokens == r.count && g.best_count == 4 && g.worst_count == 3);
    assert_true(near(g.ppl_lm, result.lm.ppl) && near(g.ppl, result.mixed.ppl));
    check_gains(d, &r, g.best, 4, 1);
    check_gains(d, &r, g.worst, 3, -1);
    knnlm_token_gains_free(&g);

    OK(knnlm_explain_texts(m, texts, 1, NULL, &g));
    assert_true(g.best_count == 5 && g.best[0].neighbor_count == 3);
    knnlm_token_gains_free(&g);
    o.best = o.worst = 1000; // every token that gained or lost
    OK(knnlm_explain_texts(m, texts, 1, &o, &g));
    assert_true(g.best_count + g.worst_count <= r.count && g.best_count > 4);
    knnlm_token_gains_free(&g);
    knnlm_mixture_close(m);
}

// ---------------------------------------------------------------- what makes no sense

static bool stop(void *to, const char *phase, uint64_t done, uint64_t total, const char *unit) {
    (void)to, (void)phase, (void)done, (void)total, (void)unit;
    return false;
}

static void nothing_is_explained(void **state) {
    fixture *d = *state;
    char path[96];
    const char *texts[] = {path}, *missing[] = {"/nowhere/at.txt"};
    knnlm_mixture *m = open_mixture(d), *alone;
    knnlm_explain_options o = knnlm_explain_options_default();
    knnlm_explain_texts_options t = knnlm_explain_texts_options_default();
    knnlm_explanation e;
    knnlm_token_gains g;
    write_asked(d, 1, path, sizeof path);
    o.target = "";
    FAILS(KNNLM_EINVAL, "target has no token", knnlm_explain(m, "A ", &o, &e));
    assert_true(!e.words && !e.neighbors);
    FAILS(KNNLM_EINVAL, "no text", knnlm_explain_texts(m, texts, 0, NULL, &g));
    FAILS(KNNLM_EIO, "/nowhere/at.txt", knnlm_explain_texts(m, missing, 1, NULL, &g));
    t.best = SIZE_MAX;
    FAILS(KNNLM_EINVAL, "`best`", knnlm_explain_texts(m, texts, 1, &t, &g));
    t = knnlm_explain_texts_options_default();
    t.score = 1 << 20;
    FAILS(KNNLM_EINVAL, "`score`", knnlm_explain_texts(m, texts, 1, &t, &g));
    t = knnlm_explain_texts_options_default();
    t.score = 1; // the model reads some thousand tokens at a time, and is asked in between
    t.context = 63;
    write_asked(d, 20, path, sizeof path);
    t.progress.report = stop;
    FAILS(KNNLM_ESTOPPED, "", knnlm_explain_texts(m, texts, 1, &t, &g));
    assert_true(!g.best && !g.worst);
    OK(knnlm_mixture_open(d->model, NULL, &alone));
    FAILS(KNNLM_EINVAL, "nothing is mixed in", knnlm_explain_texts(alone, texts, 1, NULL, &g));
    write_asked(d, 0, path, sizeof path);
    FAILS(KNNLM_EDATA, "no text", knnlm_explain_texts(m, texts, 1, NULL, &g));
    knnlm_mixture_close(alone);
    knnlm_mixture_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_context_is_explained),
        TEST(without_stores_there_are_no_neighbors),
        TEST(tokens_that_gained_are_those_of_the_rows),
        TEST(nothing_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
