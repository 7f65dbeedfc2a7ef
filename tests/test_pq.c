// Product quantization: against brute force in double and against FAISS. The program runs itself once for
// each set of kernels that the CPU has.
#include "expect.h"

#include "base/gguf.h"
#include "base/random.h"
#include "base/threads.h"
#include "index/pq.h"
#include "math/math.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *memory(size_t count, size_t size) {
    void *result = calloc(count ? count : 1, size); // exact sizes, so that sanitizers see any step outside
    assert_non_null(result);
    return result;
}

static float *random_floats(size_t n, uint64_t seed, float offset) {
    kn_random random = {seed};
    float *x = memory(n, sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = offset + (float)kn_random_normal(&random);
    return x;
}

// d, m, bits
static const size_t SHAPES[][3] = {{8, 1, 8},     {8, 1, 4},     {8, 8, 8},    {8, 8, 4},     {10, 5, 4},
                                   {12, 3, 8},    {9, 3, 4},     {64, 16, 8},  {256, 64, 8},  {256, 64, 4},
                                   {1024, 64, 8}, {1024, 64, 4}, {1024, 1, 4}, {128, 128, 8}, {128, 128, 4},
                                   {129, 43, 8},  {300, 300, 8}, {990, 6, 8}};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

static kn_pq random_pq(const size_t *shape, uint64_t seed, float offset) {
    kn_pq p;
    OK(kn_pq_init(&p, shape[0], shape[1], shape[2]));
    float *centroids = random_floats(p.d * p.count, seed, offset);
    memcpy(p.centroids, centroids, p.d * p.count * sizeof *centroids);
    kn_pq_prepare(&p);
    free(centroids);
    return p;
}

// Number j of a code, read as FAISS packs it: bits from the lowest on.
static size_t code_at(const kn_pq *p, const uint8_t *code, size_t j) {
    size_t number = 0;
    for (size_t b = 0; b < p->bits; b++)
        number |= (size_t)(code[(j * p->bits + b) / 8] >> (j * p->bits + b) % 8 & 1) << b;
    return number;
}

static double squared_distance(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sum;
}

static uint8_t *random_codes(const kn_pq *p, size_t n, uint64_t seed) {
    kn_random random = {seed};
    size_t bytes = kn_pq_code_bytes(p);
    uint8_t *codes = memory(n, bytes);
    for (size_t i = 0; i < n * bytes; i++) codes[i] = (uint8_t)kn_random_next(&random);
    for (size_t i = 0; p->bits == 4 && p->m % 2 && i < n; i++) codes[i * bytes + bytes - 1] &= 15;
    return codes;
}

// ---------------------------------------------------------------- coding

// The kernel works on values less the centroids' mean, to f32: its choice may be worse than the best by that
// rounding.
static void check_nearest(const kn_pq *p, const float *x, const uint8_t *code) {
    for (size_t j = 0; j < p->m; j++) {
        const float *part = x + j * p->part, *centroids = p->centroids + j * p->count * p->part;
        double best = INFINITY, size = 0;
        size_t number = code_at(p, code, j);
        for (size_t c = 0; c < p->count; c++) {
            best = fmin(best, squared_distance(part, centroids + c * p->part, p->part));
            size = fmax(size, squared_distance(p->centre + j * p->part, centroids + c * p->part, p->part));
        }
        size += squared_distance(part, p->centre + j * p->part, p->part);
        double chosen = squared_distance(part, centroids + number * p->part, p->part);
        if (!(chosen <= best + 2e-6 * size))
            fail_msg("d %zu m %zu bits %zu, part %zu: %g away, not %g", p->d, p->m, p->bits, j, chosen, best);
    }
}

static void codes_are_nearest(void **state) {
    (void)state;
    static const size_t counts[] = {1, 63, 65, 200};
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        float offset = s % 2 ? 100 : 0;
        size_t n = counts[s % 4];
        kn_pq p = random_pq(SHAPES[s], s, offset);
        float *x = random_floats(n * p.d, 100 + s, offset), *y = memory(n * p.d, sizeof *y);
        uint8_t *codes = memory(n, kn_pq_code_bytes(&p));
        kn_pq_encode(&p, x, n, codes);
        kn_pq_decode(&p, codes, n, y);
        for (size_t r = 0; r < n; r++) {
            const uint8_t *code = codes + r * kn_pq_code_bytes(&p);
            check_nearest(&p, x + r * p.d, code);
            for (size_t j = 0; j < p.m; j++)
                assert_memory_equal(y + r * p.d + j * p.part,
                                    p.centroids + (j * p.count + code_at(&p, code, j)) * p.part,
                                    p.part * sizeof *y);
        }
        kn_pq_free(&p);
        free(x);
        free(y);
        free(codes);
    }
}

static void of_equal_ones_the_lower(void **state) {
    (void)state;
    for (size_t bits = 4; bits <= 8; bits += 4) {
        kn_pq p = random_pq((const size_t[]){6, 2, bits}, bits, 0);
        for (size_t j = 0; j < p.m; j++)
            for (size_t c = p.count / 2; c < p.count; c++)
                memcpy(p.centroids + (j * p.count + c) * p.part,
                       p.centroids + (j * p.count + c - p.count / 2) * p.part, p.part * sizeof(float));
        kn_pq_prepare(&p);
        float *x = random_floats(300 * p.d, 3, 0);
        uint8_t *codes = memory(300, kn_pq_code_bytes(&p));
        kn_pq_encode(&p, x, 300, codes);
        for (size_t r = 0; r < 300; r++)
            for (size_t j = 0; j < p.m; j++)
                assert_true(code_at(&p, codes + r * kn_pq_code_bytes(&p), j) < p.count / 2);
        kn_pq_free(&p);
        free(x);
        free(codes);
    }
}

static void codes_of_anything(void **state) {
    (void)state;
    kn_pq p = random_pq((const size_t[]){6, 3, 4}, 1, 0);
    float x[6] = {NAN, INFINITY, -INFINITY, 1e38f, -1e38f, 0}, y[6];
    uint8_t code[2];
    kn_pq_encode(&p, x, 1, code);
    kn_pq_decode(&p, code, 1, y);
    assert_true(code[1] < 16);
    for (size_t i = 0; i < 6; i++) assert_true(isfinite(y[i]));
    kn_pq_encode(&p, x, 0, NULL);
    kn_pq_decode(&p, NULL, 0, NULL);
    kn_pq_free(&p);
}

// ---------------------------------------------------------------- scanning

static double exact(const kn_pq *p, const float *query, const float *decoded, bool inner_product) {
    double sum = 0;
    if (!inner_product) return squared_distance(query, decoded, p->d);
    for (size_t i = 0; i < p->d; i++) sum -= (double)query[i] * (double)decoded[i];
    return sum;
}

// What a plain loop over codes sums, and what they stand for.
static void check_sums(const kn_pq *p, const float *tables, const uint8_t *codes, size_t n,
                       const double *wanted, double rounding) {
    size_t bytes = kn_pq_code_bytes(p);
    uint8_t *blocks = memory(kn_pq_blocks_bytes(n, bytes), 1);
    float *sums = memory(n, sizeof *sums);
    size_t *places = memory(n, sizeof *places);
    kn_pq_interleave(codes, n, bytes, blocks);
    for (size_t i = 0; i < n; i++) places[i] = i * 7 % n;
    kn_pq_sum(p, tables, blocks, places, n, sums);
    for (size_t i = 0; i < n; i++) {
        size_t r = places[i];
        float plain = 0;
        for (size_t j = 0; j < p->m; j++) plain += tables[j * p->count + code_at(p, codes + r * bytes, j)];
        assert_true(sums[i] == plain);
        if (!(fabs((double)sums[i] - wanted[r]) <= rounding))
            fail_msg("d %zu m %zu bits %zu: %g, not %g", p->d, p->m, p->bits, (double)sums[i], wanted[r]);
    }
    free(blocks);
    free(places);
    free(sums);
}

static void check_fast(const kn_pq *p, const float *tables, const uint8_t *codes, size_t n,
                       const double *wanted, double farthest, double rounding) {
    size_t bytes = kn_pq_code_bytes(p);
    size_t count = (n + KN_PQ_BLOCK - 1) / KN_PQ_BLOCK;
    uint8_t *small = memory(kn_pq_small_bytes(p), 1), *blocks = memory(kn_pq_blocks_bytes(n, bytes), 1);
    uint16_t *sums = memory(count * KN_PQ_BLOCK, sizeof *sums);
    kn_pq_interleave(codes, n, bytes, blocks);
    kn_pq_scale scale = kn_pq_quantize(p, tables, (float)farthest, small);
    kn_pq_scan(p, small, blocks, count, sums);
    double widest = 0;
    for (size_t r = 0; r < n; r++) {
        size_t sum = 0;
        for (size_t j = 0; j < p->m; j++) sum += small[j * p->count + code_at(p, codes + r * bytes, j)];
        if (sum != sums[r])
            fail_msg("d %zu m %zu bits %zu: sum %zu is %u, not %zu", p->d, p->m, p->bits, r, sums[r], sum);
        float distance = scale.offset + scale.scale * (float)sums[r];
        double off = (double)distance - wanted[r];
        if (!(off <= (double)scale.bound + rounding) ||
            !(wanted[r] > farthest || -off <= (double)scale.bound + rounding))
            fail_msg("d %zu m %zu bits %zu: %g is more than %g from %g", p->d, p->m, p->bits,
                     (double)distance, (double)scale.bound, wanted[r]);
        widest = fmax(widest, fabs(wanted[r]));
    }
    double step = (double)scale.scale; // the bound is about half a step a part, not just anything
    assert_true((double)scale.bound <= 0.51 * step * (double)p->m + 1e-3 * widest);
    free(small);
    free(blocks);
    free(sums);
}

static void check_scans(const kn_pq *p, const float *query, bool inner_product, size_t n) {
    float *tables = memory(p->m * p->count, sizeof *tables);
    float *decoded = memory(n * p->d, sizeof *decoded);
    double *wanted = memory(n, sizeof *wanted);
    uint8_t *codes = random_codes(p, n, n);
    kn_pq_decode(p, codes, n, decoded);
    kn_pq_tables(p, query, inner_product, tables);
    double size = 0;
    for (size_t i = 0; i < p->m * p->count; i++) size = fmax(size, fabs((double)tables[i]));
    double rounding = size * (double)p->m * (1e-6 + 4e-7 * sqrt((double)p->part));
    for (size_t r = 0; r < n; r++) wanted[r] = exact(p, query, decoded + r * p->d, inner_product);
    check_sums(p, tables, codes, n, wanted, rounding);
    double low = INFINITY, high = -INFINITY;
    for (size_t r = 0; r < n; r++) {
        low = fmin(low, wanted[r]);
        high = fmax(high, wanted[r]);
    }
    check_fast(p, tables, codes, n, wanted, INFINITY, rounding);
    check_fast(p, tables, codes, n, wanted, (low + high) / 2, rounding);
    check_fast(p, tables, codes, n, wanted, low - (high - low), rounding); // all are too far
    free(tables);
    free(decoded);
    free(wanted);
    free(codes);
}

static void scans_are_distances(void **state) {
    (void)state;
    static const size_t counts[] = {1, 63, 64, 65, 300, 512, 3};
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        kn_pq p = random_pq(SHAPES[s], s, s % 3 ? 0 : 10);
        float *query = random_floats(p.d, 77 + s, 1);
        for (int inner_product = 0; inner_product < 2; inner_product++)
            check_scans(&p, query, inner_product, counts[s % 7]);
        free(query);
        kn_pq_free(&p);
    }
}

// So many parts that each may add only a few steps to a sum of 16 bits.
static void many_parts_do_not_overflow(void **state) {
    (void)state;
    static const size_t shapes[][3] = {{20000, 20000, 4}, {1000, 1000, 8}, {65535, 65535, 4}};
    for (size_t s = 0; s < 3; s++) {
        kn_pq p = random_pq(shapes[s], s, 0);
        float *query = random_floats(p.d, 5, 0);
        check_scans(&p, query, false, 66);
        free(query);
        kn_pq_free(&p);
    }
}

static void tables_of_anything(void **state) {
    (void)state;
    kn_pq p = random_pq((const size_t[]){6, 3, 4}, 1, 0);
    float tables[48];
    uint8_t small[64], blocks[128] = {0};
    uint16_t sums[64];
    static const float odd[] = {INFINITY, -INFINITY, NAN, 3e38f};
    assert_int_equal(kn_pq_small_bytes(&p), sizeof small);
    assert_int_equal(kn_pq_blocks_bytes(64, kn_pq_code_bytes(&p)), sizeof blocks);
    for (size_t o = 0; o < 4; o++) {
        for (size_t i = 0; i < 48; i++) tables[i] = (float)i;
        tables[20] = odd[o];
        tables[40] = o == 3 ? -3e38f : 0;
        assert_true(o == 3 || !(kn_pq_quantize(&p, tables, 99, small).bound < INFINITY));
        kn_pq_quantize(&p, tables, INFINITY, small);
        kn_pq_scan(&p, small, blocks, 1, sums);
    }
    for (size_t i = 0; i < 48; i++) tables[i] = 2.5f; // nothing to tell apart
    kn_pq_scale scale = kn_pq_quantize(&p, tables, INFINITY, small);
    kn_pq_scan(&p, small, blocks, 1, sums);
    for (size_t i = 0; i < 64; i++)
        assert_true(fabsf(scale.offset + scale.scale * sums[i] - 7.5f) <= scale.bound);
    assert_true(scale.bound < 1e-4f);
    kn_pq_free(&p);
}

static void blocks_and_back(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 63, 64, 65, 130};
    for (size_t s = 0; s < SHAPE_COUNT; s++)
        for (size_t i = 0; i < 6; i++) {
            size_t n = counts[i];
            kn_pq p = random_pq(SHAPES[s], s, 0);
            size_t bytes = kn_pq_code_bytes(&p), size = kn_pq_blocks_bytes(n, bytes);
            assert_int_equal(size, (n + 63) / 64 * 64 * bytes);
            uint8_t *codes = random_codes(&p, n, i), *again = memory(n, bytes), *blocks = memory(size, 1);
            memset(blocks, 0xaa, size);
            kn_pq_interleave(codes, n, bytes, blocks);
            for (size_t r = 0; r < (n + 63) / 64 * 64; r++)
                for (size_t j = 0; j < bytes; j++)
                    assert_int_equal(blocks[(r / 64 * bytes + j) * 64 + r % 64],
                                     r < n ? codes[r * bytes + j] : 0);
            for (size_t place = 0; place <= n; place += n / 5 + 1) {
                size_t some = (n - place) * 3 / 4;
                kn_pq_deinterleave(blocks, place, some, bytes, again);
                assert_memory_equal(again, codes + place * bytes, some * bytes);
            }
            kn_pq_deinterleave(blocks, 0, n, bytes, again);
            assert_memory_equal(again, codes, n * bytes);
            free(codes);
            free(again);
            free(blocks);
            kn_pq_free(&p);
        }
}

// ---------------------------------------------------------------- learning

static double mean_error(const kn_pq *p, const float *x, size_t n) {
    uint8_t *codes = memory(n, kn_pq_code_bytes(p));
    float *y = memory(n * p->d, sizeof *y);
    kn_pq_encode(p, x, n, codes);
    kn_pq_decode(p, codes, n, y);
    double error = squared_distance(x, y, n * p->d) / (double)n;
    free(codes);
    free(y);
    return error;
}

static double learnt_error(const float *x, size_t n, size_t d, size_t m, size_t bits, uint64_t seed) {
    kn_pq p;
    OK(kn_pq_learn(x, n, d, m, bits, seed, NULL, &p));
    double error = mean_error(&p, x, n);
    kn_pq_free(&p);
    return error;
}

// As make_pq.py makes them.
static double place_unit(uint64_t z) {
    return (double)(kn_mix64(z) >> 11) * 0x1p-53;
}

static float *golden_vectors(size_t n, size_t d) {
    float *x = memory(n * d, sizeof *x);
    for (uint64_t r = 0; r < n; r++)
        for (uint64_t i = 0; i < d; i++) {
            uint64_t centre = kn_mix64(r + 1) % 60 << 20;
            uint64_t place = ((r + 1) << 20) + i * 2 + ((uint64_t)1 << 60);
            x[r * d + i] =
                (float)(place_unit(centre + i) + 0.25 * place_unit(place) + 0.25 * place_unit(place + 1));
        }
    return x;
}

static void learns_as_well_as_faiss(void **state) {
    (void)state;
    static const size_t shapes[][2] = {{8, 8}, {8, 4}, {4, 8}, {32, 4}};
    enum { N = 4000, D = 32 };
    kn_gguf *file;
    OK(kn_gguf_open(KN_SOURCE_DIR "/tests/golden/pq.golden.gguf", &file));
    float *x = golden_vectors(N, D);
    for (size_t s = 0; s < 4; s++) {
        char key[64];
        double wanted;
        bool found;
        snprintf(key, sizeof key, "error.%d.%zu.%zu", D, shapes[s][0], shapes[s][1]);
        OK(kn_gguf_get_f64(file, key, &wanted, &found));
        assert_true(found);
        double error = learnt_error(x, N, D, shapes[s][0], shapes[s][1], 1);
        if (!(error <= 1.02 * wanted)) fail_msg("%s: %g, FAISS %g", key, error, wanted);
    }
    kn_gguf_close(file);
    free(x);
}

static const float *golden(const kn_gguf *file, const char *name, const char *what, size_t *rows,
                           size_t *columns) {
    char full[KN_GGUF_NAME_MAX];
    snprintf(full, sizeof full, "%s.%s", name, what);
    const kn_gguf_tensor *t = kn_gguf_tensor_find(file, full);
    if (!t) fail_msg("no golden tensor %s", full);
    *columns = (size_t)t->dims[0];
    *rows = (size_t)t->dims[1];
    return (const float *)(const void *)t->data;
}

static void check_golden(const kn_gguf *file, const char *name, size_t m, size_t bits) {
    size_t n, d, rows, part, bytes;
    kn_pq p;
    const float *x = golden(file, name, "vectors", &n, &d);
    const float *centroids = golden(file, name, "centroids", &rows, &part);
    OK(kn_pq_init(&p, d, m, bits));
    assert_true(rows == m * p.count && part == p.part);
    memcpy(p.centroids, centroids, rows * part * sizeof *centroids);
    kn_pq_prepare(&p);
    const float *wanted = golden(file, name, "codes", &rows, &bytes);
    assert_true(rows == n && bytes == kn_pq_code_bytes(&p));
    uint8_t *codes = memory(n, bytes);
    float *decoded = memory(n * d, sizeof *decoded);
    kn_pq_encode(&p, x, n, codes);
    for (size_t i = 0; i < n * bytes; i++) assert_int_equal(codes[i], (int)wanted[i]);
    kn_pq_decode(&p, codes, n, decoded);
    assert_memory_equal(decoded, golden(file, name, "decoded", &rows, &bytes), n * d * sizeof *decoded);
    kn_pq_free(&p);
    free(codes);
    free(decoded);
}

static void codes_as_faiss(void **state) {
    (void)state;
    kn_gguf *file;
    OK(kn_gguf_open(KN_SOURCE_DIR "/tests/golden/pq.golden.gguf", &file));
    check_golden(file, "bytes", 3, 8);
    check_golden(file, "halves", 5, 4);
    kn_gguf_close(file);
}

static void the_same_whatever_the_threads(void **state) {
    (void)state;
    // The last has more vectors than are learnt from, the one before a single part.
    static const size_t shapes[][4] = {{500, 24, 6, 8}, {600, 20, 5, 4}, {2500, 8, 1, 8}, {70000, 2, 1, 4}};
    for (size_t s = 0; s < 4; s++) {
        size_t n = shapes[s][0], d = shapes[s][1];
        float *x = random_floats(n * d, s, 0);
        kn_pq first, p;
        for (int threads = 1; threads <= 3; threads++) {
            OK(kn_threads_set(threads));
            OK(kn_pq_learn(x, n, d, shapes[s][2], shapes[s][3], 42, NULL, threads == 1 ? &first : &p));
            if (threads == 1) continue;
            uint8_t *one = memory(n, kn_pq_code_bytes(&p)), *many = memory(n, kn_pq_code_bytes(&p));
            assert_memory_equal(first.centroids, p.centroids, d * p.count * sizeof(float));
            kn_pq_encode(&p, x, n, many);
            OK(kn_threads_set(1));
            kn_pq_encode(&p, x, n, one);
            assert_memory_equal(one, many, n * kn_pq_code_bytes(&p));
            kn_pq_free(&p);
            free(one);
            free(many);
        }
        OK(kn_pq_learn(x, n, d, shapes[s][2], shapes[s][3], 43, NULL, &p));
        assert_memory_not_equal(first.centroids, p.centroids, d * p.count * sizeof(float));
        kn_pq_free(&p);
        kn_pq_free(&first);
        free(x);
    }
    OK(kn_threads_set(0));
}

// Fewer different points than centroids: each is one.
static void few_points_are_kept(void **state) {
    (void)state;
    for (size_t bits = 4; bits <= 8; bits += 4)
        for (size_t n = 1; n <= (bits == 8 ? 256 : 16); n += bits == 8 ? 51 : 5) {
            float *x = random_floats(n * 12, n, 3);
            assert_true(learnt_error(x, n, 12, 3, bits, 7) < 1e-10);
            free(x);
        }
}

static void crowds_of_equal_points(void **state) {
    (void)state;
    enum { N = 3000, D = 8, DIFFERENT = 20 };
    float *some = random_floats(DIFFERENT * D, 1, 0), *x = memory(N * D, sizeof *x);
    // The first of them 90% of the time: random starts are nearly all the same point.
    for (size_t r = 0; r < N; r++)
        memcpy(x + r * D, some + (r % 10 ? 0 : r / 10 % DIFFERENT) * D, D * sizeof *x);
    assert_true(learnt_error(x, N, D, 2, 8, 1) < 1e-10);
    double all = 0, error = learnt_error(x, N, D, 2, 4, 1);
    for (size_t r = 0; r < N; r++) all += squared_distance(x + r * D, some, D) / N;
    assert_true(error < 0.05 * all); // 16 centroids for 20 points: the nearest few share
    free(some);
    free(x);
}

static void all_points_equal(void **state) {
    (void)state;
    enum { N = 1000, D = 6 };
    float x[N * D];
    for (size_t i = 0; i < N * D; i++) x[i] = 0.1f + (float)(i % D);
    for (size_t bits = 4; bits <= 8; bits += 4) {
        kn_pq p;
        uint8_t codes[N * 3];
        OK(kn_pq_learn(x, N, D, 3, bits, 1, NULL, &p));
        assert_true(mean_error(&p, x, N) == 0);
        kn_pq_encode(&p, x, N, codes);
        for (size_t i = 0; i < N * kn_pq_code_bytes(&p); i++) assert_int_equal(codes[i], 0);
        kn_pq_free(&p);
    }
}

// Squares of values near 1000 keep no digits of differences near 0.01 in f32: the centre must be taken away.
static void far_from_zero(void **state) {
    (void)state;
    enum { N = 2000, D = 8 };
    float *x = random_floats(N * D, 9, 0);
    for (size_t i = 0; i < N * D; i++) x[i] = 1000 + 0.01f * x[i];
    double far = learnt_error(x, N, D, 2, 8, 5);
    for (size_t i = 0; i < N * D; i++) x[i] -= 1000;
    double near = learnt_error(x, N, D, 2, 8, 5);
    if (!(far <= 1.05 * near)) fail_msg("%g far from zero, %g near it", far, near);
    free(x);
}

static void bad_shapes(void **state) {
    (void)state;
    kn_pq p;
    float x[64] = {0};
    FAILS(KNNLM_EINVAL, "10 dimensions cannot be cut into 3", kn_pq_init(&p, 10, 3, 8));
    FAILS(KNNLM_EINVAL, "0 dimensions", kn_pq_init(&p, 0, 1, 8));
    FAILS(KNNLM_EINVAL, "0 parts", kn_pq_init(&p, 8, 0, 8));
    FAILS(KNNLM_EINVAL, "65536 parts", kn_pq_init(&p, 65536, 65536, 8));
    FAILS(KNNLM_EINVAL, "5 bits", kn_pq_init(&p, 8, 2, 5));
    FAILS(KNNLM_EINVAL, "parts of 2048 dimensions", kn_pq_init(&p, 4096, 2, 8));
    FAILS(KNNLM_EINVAL, "parts of", kn_pq_init(&p, SIZE_MAX, 1, 8));
    FAILS(KNNLM_EINVAL, "no vectors", kn_pq_learn(x, 0, 8, 2, 8, 1, NULL, &p));
    FAILS(KNNLM_EINVAL, "3 equal parts", kn_pq_learn(x, 8, 8, 3, 8, 1, NULL, &p));
    x[29] = NAN;
    FAILS(KNNLM_EDATA, "vector 3 is not finite in dimension 5", kn_pq_learn(x, 8, 8, 2, 8, 1, NULL, &p));
    x[29] = -INFINITY;
    FAILS(KNNLM_EDATA, "vector 3 is not finite", kn_pq_learn(x, 8, 8, 8, 4, 1, NULL, &p));
    assert_null(p.centroids);
    kn_pq_free(&p); // does nothing
}

static bool stop_at(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    (void)what;
    (void)unit;
    assert_true(done <= total && total == 64);
    return done < *(const uint64_t *)context;
}

static void stops_when_asked(void **state) {
    (void)state;
    float *x = random_floats(300 * 64, 1, 0);
    kn_pq p;
    uint64_t never = 0, late = 1000;
    kn_progress stopping = {stop_at, &never}, going = {stop_at, &late};
    FAILS(KNNLM_ESTOPPED, "stopped", kn_pq_learn(x, 300, 64, 64, 4, 1, &stopping, &p));
    OK(kn_pq_learn(x, 300, 64, 64, 4, 1, &going, &p));
    kn_pq_free(&p);
    free(x);
}

// ---------------------------------------------------------------- each kernel

static int run_all(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_nearest),
        cmocka_unit_test(of_equal_ones_the_lower),
        cmocka_unit_test(codes_of_anything),
        cmocka_unit_test(scans_are_distances),
        cmocka_unit_test(many_parts_do_not_overflow),
        cmocka_unit_test(tables_of_anything),
        cmocka_unit_test(blocks_and_back),
        cmocka_unit_test(learns_as_well_as_faiss),
        cmocka_unit_test(codes_as_faiss),
        cmocka_unit_test(the_same_whatever_the_threads),
        cmocka_unit_test(few_points_are_kept),
        cmocka_unit_test(crowds_of_equal_points),
        cmocka_unit_test(all_points_equal),
        cmocka_unit_test(far_from_zero),
        cmocka_unit_test(bad_shapes),
        cmocka_unit_test(stops_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// The kernels of a process are chosen once: each set has a process of its own.
static int run_with(const char *kernels) {
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        setenv("KNNLM_CPU", kernels, 1);
        execl("/proc/self/exe", "test_pq", (char *)NULL);
        _exit(127);
    }
    fprintf(stderr, "test_pq: %s\n", kernels);
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status)) return 1;
    return WEXITSTATUS(status);
}

int main(void) {
    if (getenv("KNNLM_CPU")) return run_all();
    size_t count;
    const kn_kernels *const *all = kn_math_available(&count);
    int failed = 0;
    for (size_t i = 0; i < count; i++) failed |= run_with(all[i]->name);
    return failed;
}
