// The inner product of two panels of f32: one 32x32 block of the result, by strips of as many rows as the
// registers hold sums for.
#include "math/isa/isa.h"

#include <string.h>

#ifndef KN_ISA_BF16

#if defined(__AVX2__)

// A strip is n rows by two vectors of columns: 2n sums, two vectors of the right cell and one number of the
// left one, repeated, in registers. Each of the n + 2 loads of a step of depth feeds 2n multiply-adds. Two of
// these begin in each cycle and take four, so that 8 sums or more must be in flight: 5 rows or 6 of AVX2,
// whose 16 registers hold no more; 32 rows are 6 + 6 + 5 + 5 + 5 + 5.
//
// In assembler: from C, gcc 12 moves sums between registers (at 0.8 of the speed) or to memory (at half of
// it).
#if defined(__AVX512F__)
#define V "%%zmm"
#define RIGHT0 V "24"
#define RIGHT1 V "25"
#define LEFT_EVEN V "26"
#define LEFT_ODD V "27"
#define NEXT "2048" // bytes from the first vector of columns to the second: they are in two halves
#define COLUMN "64" // the same in a row of the block
enum { ROWS = 12, WIDTH = KN_CELL };
#else
#define V "%%ymm"
#define RIGHT0 V "12"
#define RIGHT1 V "13"
#define LEFT_EVEN V "14"
#define LEFT_ODD V "15"
#define NEXT "32"
#define COLUMN "32"
enum { ROWS = 6, WIDTH = KN_HALF };
#endif

// Per row: its number, the registers of its two sums, and one for the repeated number of the left cell. A row
// is 128 bytes, of the left cell and of the block.
#define ROW_1(DO, k) DO("0", V "0", V "1", LEFT_EVEN, k)
#define ROW_2(DO, k) ROW_1(DO, k) DO("1", V "2", V "3", LEFT_ODD, k)
#define ROW_3(DO, k) ROW_2(DO, k) DO("2", V "4", V "5", LEFT_EVEN, k)
#define ROW_4(DO, k) ROW_3(DO, k) DO("3", V "6", V "7", LEFT_ODD, k)
#define ROW_5(DO, k) ROW_4(DO, k) DO("4", V "8", V "9", LEFT_EVEN, k)
#define ROW_6(DO, k) ROW_5(DO, k) DO("5", V "10", V "11", LEFT_ODD, k)
#define ROW_7(DO, k) ROW_6(DO, k) DO("6", V "12", V "13", LEFT_EVEN, k)
#define ROW_8(DO, k) ROW_7(DO, k) DO("7", V "14", V "15", LEFT_ODD, k)
#define ROW_9(DO, k) ROW_8(DO, k) DO("8", V "16", V "17", LEFT_EVEN, k)
#define ROW_10(DO, k) ROW_9(DO, k) DO("9", V "18", V "19", LEFT_ODD, k)
#define ROW_11(DO, k) ROW_10(DO, k) DO("10", V "20", V "21", LEFT_EVEN, k)
#define ROW_12(DO, k) ROW_11(DO, k) DO("11", V "22", V "23", LEFT_ODD, k)

#define CLEAR(row, sum0, sum1, left, k)                                                                      \
    "vpxor" Q " " sum0 ", " sum0 ", " sum0 "\n"                                                              \
    "vpxor" Q " " sum1 ", " sum1 ", " sum1 "\n"
#define LOAD(row, sum0, sum1, left, k)                                                                       \
    "vmovups 128*" row "(%[block]), " sum0 "\n"                                                              \
    "vmovups 128*" row "+" COLUMN "(%[block]), " sum1 "\n"
#define STORE(row, sum0, sum1, left, k)                                                                      \
    "vmovups " sum0 ", 128*" row "(%[block])\n"                                                              \
    "vmovups " sum1 ", 128*" row "+" COLUMN "(%[block])\n"
#define FUSE(row, sum0, sum1, left, k)                                                                       \
    "vbroadcastss 128*" row "+4*" k "(%[a]), " left "\n"                                                     \
    "vfmadd231ps " RIGHT0 ", " left ", " sum0 "\n"                                                           \
    "vfmadd231ps " RIGHT1 ", " left ", " sum1 "\n"
#define FETCH(row, sum0, sum1, left, k) "prefetcht1 64*" row "(%[ahead])\n"
#define STEP(rows, k)                                                                                        \
    "vmovups 64*" k "(%[b]), " RIGHT0 "\n"                                                                   \
    "vmovups 64*" k "+" NEXT "(%[b]), " RIGHT1 "\n" rows(FUSE, k)

#if defined(__AVX512F__)
#define Q "d"
#else
#define Q ""
#endif

// 16 steps of depth a turn, 2 turns a cell; from its end to the next cell's first row or half.
#define STRIP(n, rows)                                                                                       \
    static void strip_##n(float *block, const float *a, const float *b, size_t cells, bool accumulate,       \
                          const char *ahead, size_t step) {                                                  \
        size_t turns;                                                                                        \
        __asm__ volatile(                                                                                    \
            "testb %[accumulate], %[accumulate]\n"                                                           \
            "jz 1f\n" rows(                                                                                  \
                LOAD, "0") "jmp 2f\n"                                                                        \
                           "1:\n" rows(CLEAR,                                                                \
                                       "0") "2:\n"                                                           \
                                            "mov $2, %[turns]\n"                                             \
                                            ".p2align 5\n"                                                   \
                                            "3:\n" STEP(rows, "0") STEP(rows, "1") STEP(rows, "2") STEP(     \
                                                rows, "3") STEP(rows, "4") STEP(rows, "5") STEP(rows, "6")   \
                                                STEP(rows, "7") rows(FETCH, "0") STEP(rows, "8")             \
                                                    STEP(rows, "9") STEP(rows, "10") STEP(rows, "11")        \
                                                        STEP(rows, "12") STEP(rows, "13") STEP(rows, "14")   \
                                                            STEP(rows, "15") "add $64, %[a]\n"               \
                                                                             "add $1024, %[b]\n"             \
                                                                             "add %[step], %[ahead]\n"       \
                                                                             "dec %[turns]\n"                \
                                                                             "jnz 3b\n"                      \
                                                                             "add $4096-128, %[a]\n"         \
                                                                             "add $2048, %[b]\n"             \
                                                                             "dec %[cells]\n"                \
                                                                             "jnz 2b\n" rows(STORE, "0")     \
            : [a] "+r"(a), [b] "+r"(b), [cells] "+r"(cells), [ahead] "+r"(ahead), [turns] "=&r"(turns)       \
            : [block] "r"(block), [accumulate] "q"(accumulate), [step] "r"(step)                             \
            : "cc", "memory", CLOBBERED);                                                                    \
    }
#define CLOBBERED_LOW                                                                                        \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",        \
        "xmm12", "xmm13", "xmm14", "xmm15"
#if defined(__AVX512F__)
#define CLOBBERED                                                                                            \
    CLOBBERED_LOW, "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", \
        "xmm26", "xmm27"
#else
#define CLOBBERED CLOBBERED_LOW
#endif

STRIP(1, ROW_1)
STRIP(2, ROW_2)
STRIP(3, ROW_3)
STRIP(4, ROW_4)
STRIP(5, ROW_5)
STRIP(6, ROW_6)
#if defined(__AVX512F__)
STRIP(7, ROW_7)
STRIP(8, ROW_8)
STRIP(9, ROW_9)
STRIP(10, ROW_10)
STRIP(11, ROW_11)
STRIP(12, ROW_12)
#endif

typedef void strip(float *block, const float *a, const float *b, size_t cells, bool accumulate,
                   const char *ahead, size_t step);
static strip *const strips[ROWS] = {
    strip_1, strip_2, strip_3, strip_4,  strip_5,  strip_6,
#if defined(__AVX512F__)
    strip_7, strip_8, strip_9, strip_10, strip_11, strip_12,
#endif
};

void kn_isa(multiply_ahead)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate, const void *ahead) {
    const char *line = ahead ? ahead : lhs; // the latter is in the cache: nothing is fetched
    for (size_t c = 0; c < KN_CELL; c += WIDTH, ahead = NULL) {
        const float *b = (const float *)rhs + c / KN_HALF * KN_HALF_SIZE;
        size_t left = (rows + ROWS - 1) / ROWS; // strips, as equal as can be
        for (size_t r = 0; r < rows; left--) {
            size_t n = (rows - r + left - 1) / left, step = ahead ? n * 64 : 0;
            strips[n - 1](block + r * KN_CELL + c, (const float *)lhs + r * KN_CELL, b, cells, accumulate,
                          line, step);
            line += 2 * cells * step;
            r += n;
        }
    }
}

void kn_isa(multiply)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                      bool accumulate) {
    kn_isa(multiply_ahead)(block, lhs, rhs, cells, rows, accumulate, NULL);
}

#else

// The plain form: each sum adds in the order of depth.
void kn_isa(multiply)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                      bool accumulate) {
    for (size_t r = 0; r < rows; r++)
        for (size_t half = 0; half < 2; half++) {
            const float *a = (const float *)lhs + r * KN_CELL, *b = (const float *)rhs + half * KN_HALF_SIZE;
            float sum[KN_HALF] = {0}, *out = block + r * KN_CELL + half * KN_HALF;
            if (accumulate) memcpy(sum, out, sizeof sum);
            for (size_t s = 0; s < cells; s++, a += KN_CELL_SIZE, b += KN_CELL_SIZE)
                for (size_t k = 0; k < KN_CELL; k++)
                    for (size_t c = 0; c < KN_HALF; c++) sum[c] += a[k] * b[k * KN_HALF + c];
            memcpy(out, sum, sizeof sum);
        }
}

void kn_isa(multiply_ahead)(float *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate, const void *ahead) {
    (void)ahead;
    kn_isa(multiply)(block, lhs, rhs, cells, rows, accumulate);
}

#endif
#endif
