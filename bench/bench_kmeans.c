// K-means and the coarse quantizer, on points in .npy files so that peers see the same.
//   bench_kmeans make FILE N D [SEED]              a mixture: 5000 centres in 32 latent dimensions, mapped to
//   D bench_kmeans keys FILE STORE [N]               the first N keys of a store (default: all) bench_kmeans
//   kmeans FILE CLUSTERS [ITERATIONS [OPTIONS [OUT]]]   prints seconds and the objective, exactly
//                                                  measured afterwards; OPTIONS: of letters r (random start),
//                                                  e (exact rounds), s (spherical), or -,
//                                                  and a digit: the seed
//   bench_kmeans measure FILE CENTROIDS            the objective of centroids in a .npy file
//   bench_kmeans assign FILE CLUSTERS [REPEATS]    the quantizer on the file's first CLUSTERS points:
//   vectors/s bench_kmeans probe FILE CLUSTERS PROBES [N]    queries/s, N (1000) at a time, then one at a
//   time
#include "harness.h"

#include "base/threads.h"
#include "index/kmeans.h"
#include "index/quantizer.h"
#include "store/npy.h"
#include "store/store.h"

#include <time.h>

// ---------------------------------------------------------------- points

typedef struct points {
    size_t n, d;
    float *x;
} points;

static points read_points(const char *path) {
    kn_npy file;
    bench_check(kn_npy_open(path, &file));
    points p = {file.dims[0], file.count / file.dims[0],
                bench_need(kn_alloc_aligned(file.count, sizeof(float)))};
    kn_npy_floats(&file, 0, file.count, p.x);
    kn_npy_close(&file);
    return p;
}

static void write_points(const char *path, const float *x, size_t n, size_t d) {
    kn_npy_writer *w;
    bench_check(kn_npy_create(path, KN_NPY_F32, 2, (const size_t[]){n, d}, &w));
    bench_check(kn_npy_put(w, x, n * d));
    bench_check(kn_npy_commit(w));
}

enum { CENTRES = 5000, LATENT = 32, ROWS = 256 };

typedef struct mixture {
    float *x, *centres, *map; // map (LATENT, d)
    size_t n, d;
    uint64_t seed;
} mixture;

static void make_rows(void *context, size_t task, int worker) {
    const mixture *m = context;
    size_t first = task * ROWS, last = kn_min(first + ROWS, m->n);
    const kn_kernels *k = kn_math_kernels(KNNLM_PRECISION_F32);
    (void)worker;
    for (size_t r = first; r < last; r++) {
        kn_random random = {kn_mix64(m->seed + r)};
        const float *centre = m->centres + kn_random_below(&random, CENTRES) * LATENT;
        float *x = m->x + r * m->d;
        for (size_t i = 0; i < m->d; i++) x[i] = 0.05f * (float)kn_random_normal(&random);
        for (size_t l = 0; l < LATENT; l++)
            k->axpy(x, centre[l] + 0.3f * (float)kn_random_normal(&random), m->map + l * m->d, m->d);
    }
}

static int make(const char *path, size_t n, size_t d, uint64_t seed) {
    kn_random random = {seed};
    mixture m = {bench_need(kn_alloc_aligned(n, d * sizeof(float))),
                 bench_need(kn_alloc(CENTRES * LATENT, sizeof(float))),
                 bench_need(kn_alloc(LATENT * d, sizeof(float))),
                 n,
                 d,
                 kn_mix64(seed)};
    for (size_t i = 0; i < CENTRES * LATENT; i++) m.centres[i] = (float)kn_random_normal(&random);
    for (size_t i = 0; i < LATENT * d; i++) m.map[i] = (float)(kn_random_normal(&random) / sqrt(LATENT));
    kn_parallel((n + ROWS - 1) / ROWS, make_rows, &m);
    write_points(path, m.x, n, d);
    return 0;
}

static int keys(const char *path, const char *store_path, size_t n) {
    kn_store *store;
    bench_check(kn_store_open(store_path, &store));
    const kn_store_info *info = kn_store_describe(store);
    size_t d = (size_t)info->settings.dimension;
    n = kn_min(n, info->entries);
    float *x = bench_need(kn_alloc_aligned(n, d * sizeof *x));
    bench_check(kn_store_keys(store, 0, n, x));
    write_points(path, x, n, d);
    kn_store_close(store);
    return 0;
}

// ---------------------------------------------------------------- measuring

static double objective_of(points p, const float *centroids, size_t clusters) {
    kn_quantizer *q;
    uint32_t *lists = bench_need(kn_alloc(p.n, sizeof *lists));
    float *distances = bench_need(kn_alloc(p.n, sizeof *distances));
    double sum = 0;
    bench_check(kn_quantizer_make(centroids, clusters, p.d, KN_QUANTIZER_L2, &q));
    bench_check(kn_quantizer_assign(q, p.x, p.n, lists, distances));
    for (size_t i = 0; i < p.n; i++) sum += (double)distances[i];
    kn_quantizer_free(q);
    free(lists);
    free(distances);
    return sum;
}

// Of all threads: what a machine busy with other things cannot spoil.
static double cpu_seconds(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

static int kmeans(const char *path, size_t clusters, int iterations, const char *letters, const char *out) {
    points p = read_points(path);
    kn_kmeans_options options = kn_kmeans_defaults(clusters);
    kn_kmeans_result result;
    float *centroids = bench_need(kn_alloc_aligned(clusters, p.d * sizeof *centroids));
    if (iterations) options.iterations = iterations;
    const char *digit = strpbrk(letters, "0123456789");
    if (digit) options.seed = (uint64_t)(*digit - '0');
    options.plusplus = !strchr(letters, 'r');
    options.exact = strchr(letters, 'e') != NULL;
    options.spherical = strchr(letters, 's') != NULL;
    double cpu = cpu_seconds();
    bench_check(kn_kmeans_learn(p.x, p.n, p.d, &options, NULL, centroids, &result));
    cpu = cpu_seconds() - cpu;
    printf("seconds %.3f cpu %.3f objective %.6g reported %.6g rounds %d reseeded %zu\n", result.seconds, cpu,
           objective_of(p, centroids, clusters), result.objective, result.iterations, result.reseeded);
    if (out) write_points(out, centroids, clusters, p.d);
    return 0;
}

static int measure(const char *path, const char *centroids_path) {
    points p = read_points(path), c = read_points(centroids_path);
    printf("objective %.6g\n", objective_of(p, c.x, c.n));
    return 0;
}

static int assign(const char *path, size_t clusters, int repeats) {
    points p = read_points(path);
    kn_quantizer *q;
    uint32_t *lists = bench_need(kn_alloc(p.n, sizeof *lists));
    bench_check(kn_quantizer_make(p.x, clusters, p.d, KN_QUANTIZER_L2, &q));
    for (int i = 0; i < repeats; i++) {
        double start = kn_seconds();
        bench_check(kn_quantizer_assign(q, p.x, p.n, lists, NULL));
        double seconds = kn_seconds() - start;
        printf("%.0f vectors/s (%.0f GFLOP/s)\n", (double)p.n / seconds,
               2e-9 * (double)p.n * (double)clusters * (double)p.d / seconds);
    }
    kn_quantizer_free(q);
    return 0;
}

static int probe(const char *path, size_t clusters, size_t probes, size_t n) {
    points p = read_points(path);
    kn_quantizer *q;
    uint32_t *lists = bench_need(kn_alloc(n * probes, sizeof *lists));
    bench_check(kn_quantizer_make(p.x, clusters, p.d, KN_QUANTIZER_L2, &q));
    void *scratch = bench_need(kn_alloc_aligned(1, kn_quantizer_scratch_bytes(q)));
    n = kn_min(n, p.n);
    const float *x = p.x + (p.n - n) * p.d;
    for (int i = 0; i < 5; i++) {
        double start = kn_seconds();
        bench_check(kn_quantizer_probe(q, x, n, probes, lists, NULL));
        double middle = kn_seconds();
        for (size_t r = 0; r < n; r++)
            bench_check(kn_quantizer_probe_one(q, x + r * p.d, probes, lists, NULL, scratch));
        double end = kn_seconds();
        printf("%.0f queries/s, one at a time %.3f ms each\n", (double)n / (middle - start),
               1e3 * (end - middle) / (double)n);
    }
    kn_quantizer_free(q);
    return 0;
}

static size_t number(int count, char **arguments, int at, size_t otherwise) {
    return at < count ? strtoull(arguments[at], NULL, 10) : otherwise;
}

int main(int count, char **arguments) {
    const char *verb = count > 1 ? arguments[1] : "", *file = count > 2 ? arguments[2] : NULL;
    size_t a = number(count, arguments, 3, 0), b = number(count, arguments, 4, 0);
    if (strcmp(verb, "make") == 0 && count >= 5) return make(file, a, b, number(count, arguments, 5, 1));
    if (strcmp(verb, "keys") == 0 && count >= 4) return keys(file, arguments[3], b ? b : SIZE_MAX);
    if (strcmp(verb, "kmeans") == 0 && count >= 4)
        return kmeans(file, a, (int)b, count > 5 ? arguments[5] : "", count > 6 ? arguments[6] : NULL);
    if (strcmp(verb, "measure") == 0 && count == 4) return measure(file, arguments[3]);
    if (strcmp(verb, "assign") == 0 && count >= 4) return assign(file, a, b ? (int)b : 3);
    if (strcmp(verb, "probe") == 0 && count >= 5) return probe(file, a, b, number(count, arguments, 5, 1000));
    return bench_usage(
        "usage: bench_kmeans make|keys|kmeans|measure|assign|probe FILE ...; see the source\n");
}
