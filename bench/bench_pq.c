// Product quantization, on points in .npy files (bench_kmeans make) so that peers see the same.
#include "harness.h"

#include "base/threads.h"
#include "index/pq.h"
#include "store/npy.h"

#include <math.h>
#include <time.h>

#define USAGE                                                                                                \
    "bench_pq learn FILE PARTS BITS [REPEATS]    vectors/s (of the sample learnt from), mean squared "       \
    "error\n"                                                                                                \
    "bench_pq encode FILE PARTS BITS [REPEATS]   vectors/s, and a second of the CPU\n"                       \
    "bench_pq tables D PARTS BITS [REPEATS]      microseconds a query: tables, quantizing them\n"            \
    "bench_pq scan CODES PARTS BITS [REPEATS]    million codes/s by one thread: by f32 tables, in blocks\n"

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

static void *memory(size_t count, size_t size) {
    return bench_need(kn_alloc_aligned(count, size));
}

// Of all threads: on a machine that others use too, the steadier number.
static double cpu_seconds(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

static double error_of(const kn_pq *p, const points *x) {
    uint8_t *codes = memory(x->n, kn_pq_code_bytes(p));
    float *again = memory(x->n, x->d * sizeof *again);
    double sum = 0;
    kn_pq_encode(p, x->x, x->n, codes);
    kn_pq_decode(p, codes, x->n, again);
    for (size_t i = 0; i < x->n * x->d; i++)
        sum += ((double)x->x[i] - (double)again[i]) * ((double)x->x[i] - (double)again[i]);
    kn_free_aligned(codes);
    kn_free_aligned(again);
    return sum / (double)x->n;
}

static void learn(const char *path, size_t parts, size_t bits, int repeats) {
    points x = read_points(path);
    for (int i = 0; i < repeats; i++) {
        kn_pq p;
        double start = kn_seconds(), cpu = cpu_seconds(), vectors = (double)kn_min(x.n, KN_PQ_LEARN_MAX);
        bench_check(kn_pq_learn(x.x, x.n, x.d, parts, bits, (uint64_t)i, NULL, &p));
        double seconds = kn_seconds() - start;
        printf("%.1f %.1f %.6g\n", vectors / seconds, vectors / (cpu_seconds() - cpu), error_of(&p, &x));
        kn_pq_free(&p);
    }
}

// The speed does not depend on the centroids: random ones serve.
static kn_pq any_quantizer(size_t d, size_t parts, size_t bits) {
    kn_pq p;
    kn_random random = {2};
    bench_check(kn_pq_init(&p, d, parts, bits));
    for (size_t i = 0; i < d * p.count; i++) p.centroids[i] = (float)kn_random_normal(&random);
    kn_pq_prepare(&p);
    return p;
}

static void encode(const char *path, size_t parts, size_t bits, int repeats) {
    points x = read_points(path);
    kn_pq p = any_quantizer(x.d, parts, bits);
    uint8_t *codes = memory(x.n, kn_pq_code_bytes(&p));
    for (int i = 0; i < repeats; i++) {
        double start = kn_seconds(), cpu = cpu_seconds();
        kn_pq_encode(&p, x.x, x.n, codes);
        printf("%.0f %.0f\n", (double)x.n / (kn_seconds() - start), (double)x.n / (cpu_seconds() - cpu));
    }
}

static void tables(size_t d, size_t parts, size_t bits, int repeats) {
    enum { QUERIES = 200 };
    kn_pq p = any_quantizer(d, parts, bits);
    float *table = memory(parts * p.count, sizeof *table);
    uint8_t *small = memory(kn_pq_small_bytes(&p), 1);
    for (int i = 0; i < repeats; i++) {
        double start = kn_seconds();
        for (size_t q = 0; q < QUERIES; q++) kn_pq_tables(&p, p.centroids + q % 16 * d, false, table);
        double middle = kn_seconds();
        for (size_t q = 0; q < QUERIES; q++) kn_pq_quantize(&p, table, INFINITY, small);
        printf("%.2f %.2f\n", 1e6 * (middle - start) / QUERIES, 1e6 * (kn_seconds() - middle) / QUERIES);
    }
}

// What a scan in blocks is compared with: codes one after the other.
static void sum_plainly(const kn_pq *p, const float *tables, const uint8_t *codes, size_t n, float *sums) {
    size_t bytes = kn_pq_code_bytes(p);
    for (size_t i = 0; i < n; i++, codes += bytes) {
        float sum = 0;
        for (size_t j = 0; j < p->m; j++)
            sum += tables[j * p->count + (p->bits == 8 ? codes[j] : codes[j / 2] >> j % 2 * 4 & 15)];
        sums[i] = sum;
    }
}

static void scan(size_t n, size_t parts, size_t bits, int repeats) {
    kn_pq p = any_quantizer(parts, parts, bits);
    size_t bytes = n * kn_pq_code_bytes(&p);
    float *table = memory(parts * p.count, sizeof *table), *distances = memory(n, sizeof *distances);
    uint8_t *small = memory(kn_pq_small_bytes(&p), 1), *codes = memory(bytes, 1);
    size_t count = (n + KN_PQ_BLOCK - 1) / KN_PQ_BLOCK;
    uint8_t *blocks = memory(kn_pq_blocks_bytes(n, kn_pq_code_bytes(&p)), 1);
    uint16_t *sums = memory(count * KN_PQ_BLOCK, sizeof *sums);
    kn_random random = {3};
    for (size_t i = 0; i < bytes; i++) codes[i] = (uint8_t)kn_random_next(&random);
    kn_pq_interleave(codes, n, kn_pq_code_bytes(&p), blocks);
    kn_pq_tables(&p, p.centroids, false, table);
    kn_pq_quantize(&p, table, INFINITY, small);
    for (int i = 0; i < repeats; i++) {
        double start = kn_seconds();
        sum_plainly(&p, table, codes, n, distances);
        double middle = kn_seconds();
        kn_pq_scan(&p, small, blocks, count, sums);
        double end = kn_seconds();
        printf("%.1f %.1f\n", 1e-6 * (double)n / (middle - start), 1e-6 * (double)n / (end - middle));
    }
}

int main(int count, char **arguments) {
    if (count < 5) return bench_usage(USAGE);
    const char *verb = arguments[1], *what = arguments[2];
    size_t n = strtoull(what, NULL, 10), parts = strtoull(arguments[3], NULL, 10);
    size_t bits = strtoull(arguments[4], NULL, 10);
    int repeats = count > 5 ? atoi(arguments[5]) : 3;
    if (strcmp(verb, "learn") == 0)
        learn(what, parts, bits, repeats);
    else if (strcmp(verb, "encode") == 0)
        encode(what, parts, bits, repeats);
    else if (strcmp(verb, "tables") == 0)
        tables(n, parts, bits, repeats);
    else if (strcmp(verb, "scan") == 0)
        scan(n, parts, bits, repeats);
    else
        return bench_usage(USAGE);
    return 0;
}
