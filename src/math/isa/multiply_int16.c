// The inner product of two panels of 16-bit integers with scales (int16.h): one 32x32 block of f32. The sums
// of a cell are exact in 32 bits; they then become f32, are scaled and added to the block.
//
// A step is a pair of depth, twice as many products as an f32 step has. With VNNI it takes one instruction,
// else two, a product of pairs and a sum, which run on more execution ports than a multiply-add of f32, the
// sum with a latency of one cycle.
#include "math/isa/int16.h"

#ifdef KN_ISA_INT16

#if defined(__AVX512F__)
#define PAIRS_VNNI 1
#endif
#define STRIP_LINE 64
#include "math/isa/multiply_pairs.h"
#include "math/isa/strip_rows.h"

#if defined(__AVX512F__)
#define ADD(row, sum0, sum1, left, k)                                                                        \
    "vbroadcastss 4*" row "(%[scales]), " left "\n"                                                          \
    "vcvtdq2ps " sum0 ", " sum0 "\n"                                                                         \
    "vcvtdq2ps " sum1 ", " sum1 "\n"                                                                         \
    "vmulps 2048(%[b]), " sum0 ", " sum0 "\n"                                                                \
    "vmulps 2048+64(%[b]), " sum1 ", " sum1 "\n"                                                             \
    "vfmadd213ps 128*" row "(%[block]), " left ", " sum0 "\n"                                                \
    "vfmadd213ps 128*" row "+64(%[block]), " left ", " sum1 "\n"
#else
#define SCALED(sum, columns) "vcvtdq2ps " sum ", " sum "\nvmulps 2048+" columns "(%[b]), " sum ", " sum "\n"
#define ADDED(sum, row, columns, left) "vfmadd213ps 128*" row "+" columns "(%[block]), " left ", " sum "\n"
#define ADD(row, sum0, sum1, sum2, sum3, left, k)                                                            \
    "vbroadcastss 4*" row "(%[scales]), " left "\n" SCALED(sum0, "0") SCALED(sum1, "32") SCALED(sum2, "64")  \
        SCALED(sum3, "96") ADDED(sum0, row, "0", left) ADDED(sum1, row, "32", left)                          \
            ADDED(sum2, row, "64", left) ADDED(sum3, row, "96", left)
#endif

_Static_assert(sizeof(kn_int16_cell) == 2176, "the strips below count on it");

#define STRIP(n, rows)                                                                                       \
    static void strip_##n(float *block, const int16_t *a, const float *scales, const void *b, size_t cells,  \
                          bool accumulate, const char *ahead, size_t step) {                                 \
        __asm__ volatile(                                                                                    \
            "testb %[accumulate], %[accumulate]\n"                                                           \
            "jnz 1f\n" rows(CLEAR, "0") rows(STORE, "0") ".p2align 5\n"                                      \
                                                         "1:\n" rows(CLEAR, "0") STEPS_16(rows)              \
                                                             rows(ADD, "0")                                  \
                                                                 rows(STORE, "0") "add $2176, %[a]\n"        \
                                                                                  "add $2176, %[scales]\n"   \
                                                                                  "add $2176, %[b]\n"        \
                                                                                  "add %[step], %[ahead]\n"  \
                                                                                  "dec %[cells]\n"           \
                                                                                  "jnz 1b\n"                 \
            : [a] "+r"(a), [scales] "+r"(scales), [b] "+r"(b), [cells] "+r"(cells), [ahead] "+r"(ahead)      \
            : [block] "r"(block), [accumulate] "q"(accumulate), [step] "r"(step)                             \
            : "cc", "memory", CLOBBERED);                                                                    \
    }
EACH_STRIP

typedef void strip(float *block, const int16_t *a, const float *scales, const void *b, size_t cells,
                   bool accumulate, const char *ahead, size_t step);
static strip *const strips[ROWS] = {STRIP_NAMES};

// A row's bits do not depend on the rows beside it: sums of integers are exact, and cells are added in their
// order.
void kn_isa(multiply_ahead_int16)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                                  bool accumulate, const void *ahead) {
    const kn_int16_cell *left = lhs;
    const char *line = ahead ? ahead : lhs;  // the latter is in the cache: nothing is fetched
    size_t count = (rows + ROWS - 1) / ROWS; // strips, as equal as can be
    for (size_t r = 0; r < rows; count--) {
        size_t n = (rows - r + count - 1) / count, step = ahead ? n * 64 : 0;
        strips[n - 1](block + r * KN_CELL, left->numbers + r * KN_CELL, left->scales + r, rhs, cells,
                      accumulate, line, step);
        line += cells * step;
        r += n;
    }
}

void kn_isa(multiply_int16)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate) {
    kn_isa(multiply_ahead_int16)(block, lhs, rhs, cells, rows, accumulate, NULL);
}

#endif
