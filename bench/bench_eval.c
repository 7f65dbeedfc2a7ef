// A large store of a model that would read for half an hour to fill it: some of its keys, and more like them.
#include "harness.h"

#include "base/threads.h"
#include "index/index.h"

#include <math.h>

#define USAGE                                                                                                \
    "bench_eval grow STORE OUT ENTRIES    a store of so many entries: those of STORE, and keys near "        \
    "theirs\n"

typedef struct sample {
    kn_store *store;
    float *keys; // (n, d)
    int32_t *tokens;
    float *near; // (n) squared distance of each to its nearest
    size_t n, d;
} sample;

// ---------------------------------------------------------------- real keys

static void find_nearest(sample *s) {
    kn_entry_range *self = bench_need(kn_alloc(s->n, sizeof *self));
    kn_neighbors found = {bench_need(kn_alloc(s->n, sizeof *found.ids)), s->near,
                          bench_need(kn_alloc(s->n, sizeof *found.counts))};
    kn_index *index;
    for (size_t i = 0; i < s->n; i++) self[i] = (kn_entry_range){i, i + 1};
    bench_check(kn_index_open_flat(s->store, &index));
    bench_check(kn_index_search(index, s->keys, s->n, &(kn_search_options){.k = 1, .exclude = self}, &found));
    kn_index_close(index);
    free(found.ids);
    free(found.counts);
    free(self);
}

static sample sample_open(const char *path) {
    sample s = {0};
    bench_check(kn_store_open(path, &s.store));
    s.n = (size_t)kn_store_describe(s.store)->entries;
    s.d = (size_t)kn_store_describe(s.store)->settings.dimension;
    if (s.n < 2) bench_check(kn_fail(KNNLM_EINVAL, "%s: too few keys to make more like them", path));
    s.keys = bench_need(kn_alloc_aligned(s.n * s.d, sizeof *s.keys));
    s.tokens = bench_need(kn_alloc(s.n, sizeof *s.tokens));
    s.near = bench_need(kn_alloc(s.n, sizeof *s.near));
    bench_check(kn_store_keys(s.store, 0, s.n, s.keys));
    bench_check(kn_store_tokens(s.store, 0, s.n, s.tokens));
    find_nearest(&s);
    return s;
}

static void sample_close(sample *s) {
    free(s->near);
    free(s->tokens);
    kn_free_aligned(s->keys);
    kn_store_close(s->store);
}

// ---------------------------------------------------------------- more like them

enum { DRAWN = 1024 }; // keys at a time

typedef struct drawing {
    const sample *s;
    float *out;
    size_t first;
} drawing;

// The real ones first. Then each of them again and again, moved as far as its nearest neighbour is, in the
// direction from some real key to another: the copies spread where keys do, and lie dense where they do.
// (Noise that is the same in all directions would fill dimensions that the model leaves empty.)
static void draw_one(void *context, size_t task, int worker) {
    const drawing *w = context;
    const sample *s = w->s;
    size_t at = w->first + task, base = at % s->n;
    kn_random random = {kn_mix64(at)};
    float *out = w->out + task * s->d;
    (void)worker;
    memcpy(out, s->keys + base * s->d, s->d * sizeof *out);
    if (at < s->n) return;
    const float *from = s->keys + kn_random_below(&random, s->n) * s->d,
                *to = s->keys + kn_random_below(&random, s->n) * s->d;
    double apart = 0;
    for (size_t j = 0; j < s->d; j++) apart += (double)(to[j] - from[j]) * (double)(to[j] - from[j]);
    if (apart <= 0) return; // a key and itself
    float step = (float)sqrt((double)s->near[base] / apart);
    for (size_t j = 0; j < s->d; j++) out[j] += step * (to[j] - from[j]);
}

static int grow(const char *path, const char *to, size_t entries) {
    sample s = sample_open(path);
    kn_store_document document = {.name = "grown", .name_size = 5, .tokens = entries};
    float *keys = bench_need(kn_alloc(DRAWN * s.d, sizeof *keys));
    int32_t tokens[DRAWN];
    kn_store_writer *w;
    // Of the same model, by the same settings: what evaluates with the one takes the other.
    bench_check(kn_store_create(to, &kn_store_describe(s.store)->settings, &w));
    bench_check(kn_store_writer_document(w, &document));
    for (size_t done = 0, n; done < entries; done += n) {
        n = kn_min(DRAWN, entries - done);
        kn_parallel(n, draw_one, &(drawing){&s, keys, done});
        for (size_t i = 0; i < n; i++) tokens[i] = s.tokens[(done + i) % s.n];
        bench_check(kn_store_writer_append(w, tokens, NULL, keys, n));
    }
    bench_check(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    free(keys);
    sample_close(&s);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "grow") == 0) return grow(argv[2], argv[3], strtoull(argv[4], NULL, 10));
    return bench_usage(USAGE);
}
