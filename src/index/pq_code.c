// Vectors to codes and back.
#include "base/threads.h"
#include "index/pq.h"
#include "index/pq_points.h"

size_t kn_pq_code_bytes(const kn_pq *p) {
    return (p->m * p->bits + 7) / 8;
}

// ---------------------------------------------------------------- encoding

typedef struct encoding {
    const kn_pq *p;
    const kn_kernels *k;
    const float *x;
    size_t n;
    uint8_t *codes;
} encoding;

static void put_codes(const kn_pq *p, size_t j, const uint8_t *nearest, size_t rows, uint8_t *codes) {
    size_t bytes = kn_pq_code_bytes(p);
    if (p->bits == 8)
        for (size_t r = 0; r < rows; r++) codes[r * bytes + j] = nearest[r];
    else if (j % 2 == 0)
        for (size_t r = 0; r < rows; r++) codes[r * bytes + j / 2] = nearest[r];
    else
        for (size_t r = 0; r < rows; r++) codes[r * bytes + j / 2] |= (uint8_t)(nearest[r] << 4);
}

// Parts are taken from the rows a few at a time: 64 rows, a page apart each, are more places than the CPU can
// foresee, and one part of each is as little as a fraction of a cache line.
enum { SLICE = 64 }; // dimensions

static void encode_slice(const encoding *e, size_t first, size_t rows, size_t j, size_t parts) {
    const kn_pq *p = e->p;
    size_t part = p->part, ld = p->d;
    const float *x = e->x + first * ld + j * part;
    float slice[KN_POINTS * SLICE], points[KN_PQ_PART_MAX * KN_POINTS] __attribute__((aligned(64)));
    uint8_t nearest[KN_POINTS];
    if (part * parts <= SLICE) {
        for (size_t r = 0; r < rows; r++) memcpy(slice + r * SLICE, x + r * ld, part * parts * sizeof *x);
        x = slice;
        ld = SLICE;
    }
    for (size_t last = j + parts; j < last; j++, x += part) {
        kn_pq_points(points, x, ld, rows, part, p->centre + j * part);
        e->k->nearest(nearest, points, part, p->centred + j * p->count * part, p->halves + j * p->count,
                      p->count);
        put_codes(p, j, nearest, rows, e->codes + first * kn_pq_code_bytes(p));
    }
}

static void encode_rows(void *context, size_t task, int worker) {
    const encoding *e = context;
    size_t first = task * KN_POINTS, rows = kn_min(KN_POINTS, e->n - first);
    size_t m = e->p->m, parts = kn_max(1, SLICE / e->p->part);
    (void)worker;
    for (size_t j = 0; j < m; j += parts) encode_slice(e, first, rows, j, kn_min(parts, m - j));
}

void kn_pq_encode(const kn_pq *p, const float *x, size_t n, uint8_t *codes) {
    encoding e = {p, kn_math_kernels(KNNLM_PRECISION_AUTO), x, n, codes};
    kn_parallel((n + KN_POINTS - 1) / KN_POINTS, encode_rows, &e);
}

// ---------------------------------------------------------------- decoding

enum { DECODE_ROWS = 256 };

typedef struct decoding {
    const kn_pq *p;
    const uint8_t *codes;
    size_t n;
    float *out;
} decoding;

static void decode_rows(void *context, size_t task, int worker) {
    const decoding *c = context;
    const kn_pq *p = c->p;
    size_t first = task * DECODE_ROWS, last = kn_min(first + DECODE_ROWS, c->n);
    size_t bytes = kn_pq_code_bytes(p), part = p->part;
    (void)worker;
    for (size_t r = first; r < last; r++)
        for (size_t j = 0; j < p->m; j++) {
            const uint8_t *code = c->codes + r * bytes;
            size_t number = p->bits == 8 ? code[j] : code[j / 2] >> j % 2 * 4 & 15;
            memcpy(c->out + r * p->d + j * part, p->centroids + (j * p->count + number) * part,
                   part * sizeof(float));
        }
}

void kn_pq_decode(const kn_pq *p, const uint8_t *codes, size_t n, float *out) {
    decoding c = {p, codes, n, out};
    kn_parallel((n + DECODE_ROWS - 1) / DECODE_ROWS, decode_rows, &c);
}
