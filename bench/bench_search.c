// Searching: stores of synthetic keys, their index, and how fast and how well it finds.
#include "harness.h"

#include "base/threads.h"
#include "index/index.h"
#include "store/npy.h"

#include <math.h>

#define USAGE                                                                                                \
    "bench_search make STORE ENTRIES DIMENSION QUERIES FILE [f16|f32|int8]\n"                                \
    "    a store of a mixture of 5000 centres in 32 dimensions, and FILE.npy with queries like it\n"         \
    "bench_search keys STORE FILE\n"                                                                         \
    "    the store's keys as FILE.npy, for a peer\n"                                                         \
    "bench_search index STORE LISTS TRAIN [PARTS [MEMORY]]\n"                                                \
    "    indexes, with codes of PARTS bytes; a line: seconds of each step\n"                                 \
    "bench_search batch STORE QUERIES K PROBES REPEATS OUT [MEMORY]\n"                                       \
    "    a line a repeat: queries/s; ids to OUT.npy; with MEMORY (bytes) also what was resident\n"           \
    "bench_search exact STORE QUERIES K REPEATS OUT\n"                                                       \
    "    the same, looking at every entry\n"                                                                 \
    "bench_search single STORE QUERIES K PROBES REPEATS\n"                                                   \
    "    a line a repeat: median milliseconds of a query\n"

enum { CENTRES = 5000, LATENT = 32 };

// ---------------------------------------------------------------- data

// A point: a centre and some noise in a small space, mapped to the large one, and a little noise there.
typedef struct mixture {
    float *centres, *map; // (CENTRES, LATENT), (LATENT, d)
    size_t d;
} mixture;

static mixture mixture_make(size_t d) {
    kn_random random = {7};
    mixture m = {bench_need(kn_alloc(CENTRES * LATENT, sizeof(float))),
                 bench_need(kn_alloc(LATENT * d, sizeof(float))), d};
    for (size_t i = 0; i < CENTRES * LATENT; i++) m.centres[i] = (float)kn_random_normal(&random);
    for (size_t i = 0; i < LATENT * d; i++) m.map[i] = (float)(kn_random_normal(&random) / sqrt(LATENT));
    return m;
}

static void mixture_draw(const mixture *m, kn_random *random, float *out) {
    const float *centre = m->centres + kn_random_below(random, CENTRES) * LATENT;
    float latent[LATENT];
    for (int i = 0; i < LATENT; i++) latent[i] = centre[i] + 0.3f * (float)kn_random_normal(random);
    for (size_t j = 0; j < m->d; j++) out[j] = 0.02f * (float)(kn_random_unit(random) - 0.5);
    for (int i = 0; i < LATENT; i++)
        for (size_t j = 0; j < m->d; j++) out[j] += latent[i] * m->map[(size_t)i * m->d + j];
}

// A thousand keys at a time, drawn by seeds of their own: the same whatever the threads.
enum { DRAWN = 1024 };
typedef struct drawing {
    const mixture *m;
    float *out;
    uint64_t seed;
} drawing;
static void draw_some(void *context, size_t task, int worker) {
    const drawing *d = context;
    (void)worker;
    kn_random random = {kn_mix64(d->seed + task)};
    mixture_draw(d->m, &random, d->out + task * d->m->d);
}
static void draw(const mixture *m, uint64_t seed, size_t n, float *out) {
    kn_parallel(n, draw_some, &(drawing){m, out, seed});
}

static void save_queries(const mixture *m, const char *path, size_t n) {
    float *queries = bench_need(kn_alloc(n * m->d, sizeof *queries));
    kn_npy_writer *w;
    draw(m, (uint64_t)1 << 40, n, queries);
    bench_check(kn_npy_create(path, KN_NPY_F32, 2, (size_t[]){n, m->d}, &w));
    bench_check(kn_npy_put(w, queries, n * m->d));
    bench_check(kn_npy_commit(w));
    free(queries);
}

static int make(const char *path, size_t n, size_t d, size_t queries, const char *file, const char *type) {
    kn_store_settings s = {.key_type = strcmp(type, "int8") == 0  ? KNNLM_KEYS_INT8
                                       : strcmp(type, "f32") == 0 ? KNNLM_KEYS_F32
                                                                  : KNNLM_KEYS_F16,
                           .dimension = (int32_t)d,
                           .model_dimension = (int32_t)d,
                           .segment = KN_STORE_SEGMENT_DEFAULT};
    kn_store_document doc = {.name = "synthetic", .name_size = 9, .tokens = n};
    mixture m = mixture_make(d);
    float *keys = bench_need(kn_alloc(DRAWN * d, sizeof *keys));
    int32_t tokens[DRAWN] = {0};
    kn_store_writer *w;
    bench_check(kn_store_create(path, &s, &w));
    bench_check(kn_store_writer_document(w, &doc));
    for (size_t done = 0; done < n; done += DRAWN) {
        draw(&m, done, kn_min(DRAWN, n - done), keys);
        bench_check(kn_store_writer_append(w, tokens, NULL, keys, kn_min(DRAWN, n - done)));
    }
    bench_check(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    save_queries(&m, file, queries);
    free(keys);
    free(m.centres);
    free(m.map);
    return 0;
}

static int keys(const char *path, const char *file) {
    kn_store *s;
    kn_npy_writer *w;
    bench_check(kn_store_open(path, &s));
    const kn_store_info *info = kn_store_describe(s);
    size_t d = (size_t)info->settings.dimension;
    float *some = bench_need(kn_alloc(DRAWN * d, sizeof *some));
    bench_check(kn_npy_create(file, KN_NPY_F32, 2, (size_t[]){info->entries, d}, &w));
    for (uint64_t at = 0; at < info->entries; at += DRAWN) {
        size_t n = kn_min(DRAWN, (size_t)(info->entries - at));
        bench_check(kn_store_keys(s, at, n, some));
        bench_check(kn_npy_put(w, some, n * d));
    }
    bench_check(kn_npy_commit(w));
    free(some);
    kn_store_close(s);
    return 0;
}

// ---------------------------------------------------------------- indexing and searching

static int make_index(const char *path, uint32_t lists, uint64_t train, uint32_t parts, uint64_t memory) {
    kn_recipe recipe = {
        .lists = lists, .train = train, .seed = 1, .code_parts = parts, .code_bits = 8, .memory = memory};
    kn_index_result r;
    bench_check(kn_index_build(path, &recipe, NULL, &r));
    printf("train %.3f assign %.3f write %.3f objective %.6g imbalance %.2f\n", r.train_seconds,
           r.assign_seconds, r.write_seconds, r.objective, r.info.imbalance);
    return 0;
}

typedef struct work {
    kn_store *store;
    kn_index *index;
    kn_npy file;
    float *queries;
    size_t n, d, k;
    kn_neighbors out;
} work;

static work work_open(const char *path, const char *file, bool exact, size_t k) {
    work w = {.k = k};
    bench_check(kn_store_open(path, &w.store));
    bench_check(exact ? kn_index_open_flat(w.store, &w.index) : kn_index_open(w.store, &w.index));
    bench_check(kn_npy_open(file, &w.file));
    w.n = w.file.dims[0];
    w.d = w.file.dims[1];
    w.queries = bench_need(kn_alloc_aligned(w.n * w.d, sizeof *w.queries));
    kn_npy_floats(&w.file, 0, w.n * w.d, w.queries);
    w.out.ids = bench_need(kn_alloc(w.n * k, sizeof *w.out.ids));
    w.out.distances = bench_need(kn_alloc(w.n * k, sizeof *w.out.distances));
    w.out.counts = bench_need(kn_alloc(w.n, sizeof *w.out.counts));
    return w;
}

static void work_close(work *w) {
    free(w->out.ids);
    free(w->out.distances);
    free(w->out.counts);
    kn_free_aligned(w->queries);
    kn_npy_close(&w->file);
    kn_index_close(w->index);
    kn_store_close(w->store);
}

static int batch(const char *path, const char *file, bool exact, size_t k, uint32_t probes, int repeats,
                 const char *out, uint64_t memory) {
    work w = work_open(path, file, exact, k);
    kn_search_options o = {.k = k, .probes = probes, .memory = memory};
    kn_npy_writer *ids;
    // The files' pages are met for the first time once: the peer's keys are in its memory before it is timed.
    if (!memory) bench_check(kn_index_search(w.index, w.queries, w.n, &o, &w.out));
    for (int i = 0; i < repeats; i++) {
        double start = kn_seconds();
        bench_check(kn_index_search(w.index, w.queries, w.n, &o, &w.out));
        printf("%.1f\n", (double)w.n / (kn_seconds() - start));
    }
    if (memory) printf("resident %.0f MB at most\n", (double)kn_memory_peak() / 1e6);
    bench_check(kn_npy_create(out, KN_NPY_U32, 2, (size_t[]){w.n, k}, &ids));
    bench_check(kn_npy_put(ids, w.out.ids, w.n * k));
    bench_check(kn_npy_commit(ids));
    work_close(&w);
    return 0;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int single(const char *path, const char *file, size_t k, uint32_t probes, int repeats) {
    work w = work_open(path, file, false, k);
    kn_search_options o = {.k = k, .probes = probes};
    kn_searcher *s;
    double *times = bench_need(kn_alloc(w.n, sizeof *times));
    bench_check(kn_searcher_open(w.index, k, &s));
    for (int i = 0; i < repeats; i++) {
        for (size_t q = 0; q < w.n; q++) {
            double start = kn_seconds();
            bench_check(kn_searcher_find(s, w.queries + q * w.d, &o, &w.out));
            times[q] = 1e3 * (kn_seconds() - start);
        }
        qsort(times, w.n, sizeof *times, ascending);
        printf("%.4f\n", times[w.n / 2]);
    }
    kn_searcher_close(s);
    free(times);
    work_close(&w);
    return 0;
}

// Argument `i`, or what stands for it when it is not given.
static uint64_t number(int argc, char **argv, int i, uint64_t otherwise) {
    return i < argc ? strtoull(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    char **a = argv + 2;
    int n = argc - 2;
    if ((n == 5 || n == 6) && strcmp(verb, "make") == 0)
        return make(a[0], number(n, a, 1, 0), number(n, a, 2, 0), number(n, a, 3, 0), a[4],
                    n == 6 ? a[5] : "f16");
    if (n == 2 && strcmp(verb, "keys") == 0) return keys(a[0], a[1]);
    if (n >= 3 && n <= 5 && strcmp(verb, "index") == 0)
        return make_index(a[0], (uint32_t)number(n, a, 1, 0), number(n, a, 2, 0),
                          (uint32_t)number(n, a, 3, 0), number(n, a, 4, 0));
    if ((n == 6 || n == 7) && strcmp(verb, "batch") == 0)
        return batch(a[0], a[1], false, number(n, a, 2, 0), (uint32_t)number(n, a, 3, 0), atoi(a[4]), a[5],
                     number(n, a, 6, 0));
    if (n == 5 && strcmp(verb, "exact") == 0)
        return batch(a[0], a[1], true, number(n, a, 2, 0), 0, atoi(a[3]), a[4], 0);
    if (n == 5 && strcmp(verb, "single") == 0)
        return single(a[0], a[1], number(n, a, 2, 0), (uint32_t)number(n, a, 3, 0), atoi(a[4]));
    return bench_usage(USAGE);
}
