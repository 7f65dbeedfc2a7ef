// The product of two panels of 32-bit lanes, by strips of as many rows as the registers hold sums for.
// Included by the kernels of f32 and of integers, for AVX2 and beyond.
//
// A strip is n rows by all 32 columns. Two multiply-adds begin in each cycle and take four, so that 8 sums or
// more must be in flight; and two loads at most, so that few of them may be needed for a step of depth.
//   AVX2     3 rows by 4 vectors: 12 sums; 7 loads (3 of the left cell, 4 of the right) for 12 multiply-adds.
//            Strips of 6 rows by 2 vectors, tried first, take 8 loads and read the left panel twice.
//   AVX-512  up to 12 rows by 2 vectors: 24 sums, 14 loads for 24 multiply-adds; 32 rows are 11 + 11 + 10.
// In assembler: from C, gcc 12 moves sums between registers or to memory.
//
// Whoever includes this says what a multiply-add is: MULTIPLY_ADD(right, left, sum, spare), sum += right *
// left in each lane. `spare` is a register that it may use; with AVX2 there is one only where STRIP_SPARE is
// defined, and strips then have 2 rows at most.
//
// Macros of a row take its number, the registers of its sums and of its number of the left cell, and the step
// of depth. A row is 128 bytes, of the left cell and of the block; a step is 64 bytes of each half of the
// right one.
#if defined(__AVX512F__)
enum { ROWS = 12 };
#define V "%%zmm"
#define CLEARED(sum) "vpxord " sum ", " sum ", " sum "\n"
#define ROW_1(DO, k) DO("0", V "0", V "1", V "26", k)
#define ROW_2(DO, k) ROW_1(DO, k) DO("1", V "2", V "3", V "27", k)
#define ROW_3(DO, k) ROW_2(DO, k) DO("2", V "4", V "5", V "26", k)
#define ROW_4(DO, k) ROW_3(DO, k) DO("3", V "6", V "7", V "27", k)
#define ROW_5(DO, k) ROW_4(DO, k) DO("4", V "8", V "9", V "26", k)
#define ROW_6(DO, k) ROW_5(DO, k) DO("5", V "10", V "11", V "27", k)
#define ROW_7(DO, k) ROW_6(DO, k) DO("6", V "12", V "13", V "26", k)
#define ROW_8(DO, k) ROW_7(DO, k) DO("7", V "14", V "15", V "27", k)
#define ROW_9(DO, k) ROW_8(DO, k) DO("8", V "16", V "17", V "26", k)
#define ROW_10(DO, k) ROW_9(DO, k) DO("9", V "18", V "19", V "27", k)
#define ROW_11(DO, k) ROW_10(DO, k) DO("10", V "20", V "21", V "26", k)
#define ROW_12(DO, k) ROW_11(DO, k) DO("11", V "22", V "23", V "27", k)

#define CLEAR(row, sum0, sum1, left, k) CLEARED(sum0) CLEARED(sum1)
#define LOAD(row, sum0, sum1, left, k)                                                                       \
    "vmovups 128*" row "(%[block]), " sum0 "\n"                                                              \
    "vmovups 128*" row "+64(%[block]), " sum1 "\n"
#define STORE(row, sum0, sum1, left, k)                                                                      \
    "vmovups " sum0 ", 128*" row "(%[block])\n"                                                              \
    "vmovups " sum1 ", 128*" row "+64(%[block])\n"
#define FUSE(row, sum0, sum1, left, k)                                                                       \
    "vbroadcastss 128*" row "+4*" k "(%[a]), " left "\n" MULTIPLY_ADD(V "24", left, sum0, V "28")            \
        MULTIPLY_ADD(V "25", left, sum1, V "29")
#define FETCH(row, sum0, sum1, left, k) "prefetcht1 64*" row "(%[ahead])\n"
#define STEP(rows, k)                                                                                        \
    "vmovups 64*" k "(%[b]), " V "24\n"                                                                      \
    "vmovups 64*" k "+2048(%[b]), " V "25\n" rows(FUSE, k)
#else
#ifdef STRIP_SPARE
enum { ROWS = 2 };
#else
enum { ROWS = 3 };
#endif
#define V "%%ymm"
#define CLEARED(sum) "vpxor " sum ", " sum ", " sum "\n"
#define ROW_1(DO, k) DO("0", V "0", V "1", V "2", V "3", V "12", k)
#define ROW_2(DO, k) ROW_1(DO, k) DO("1", V "4", V "5", V "6", V "7", V "13", k)
#define ROW_3(DO, k) ROW_2(DO, k) DO("2", V "8", V "9", V "10", V "11", V "14", k)

#define CLEAR(row, sum0, sum1, sum2, sum3, left, k) CLEARED(sum0) CLEARED(sum1) CLEARED(sum2) CLEARED(sum3)
#define LOAD(row, sum0, sum1, sum2, sum3, left, k)                                                           \
    "vmovups 128*" row "(%[block]), " sum0 "\n"                                                              \
    "vmovups 128*" row "+32(%[block]), " sum1 "\n"                                                           \
    "vmovups 128*" row "+64(%[block]), " sum2 "\n"                                                           \
    "vmovups 128*" row "+96(%[block]), " sum3 "\n"
#define STORE(row, sum0, sum1, sum2, sum3, left, k)                                                          \
    "vmovups " sum0 ", 128*" row "(%[block])\n"                                                              \
    "vmovups " sum1 ", 128*" row "+32(%[block])\n"                                                           \
    "vmovups " sum2 ", 128*" row "+64(%[block])\n"                                                           \
    "vmovups " sum3 ", 128*" row "+96(%[block])\n"
#define SPREAD(row, sum0, sum1, sum2, sum3, left, k) "vbroadcastss 128*" row "+4*" k "(%[a]), " left "\n"
#define FUSE_0(row, sum0, sum1, sum2, sum3, left, k) MULTIPLY_ADD(V "15", left, sum0, V "8")
#define FUSE_1(row, sum0, sum1, sum2, sum3, left, k) MULTIPLY_ADD(V "15", left, sum1, V "9")
#define FUSE_2(row, sum0, sum1, sum2, sum3, left, k) MULTIPLY_ADD(V "15", left, sum2, V "10")
#define FUSE_3(row, sum0, sum1, sum2, sum3, left, k) MULTIPLY_ADD(V "15", left, sum3, V "11")
#define FETCH(row, sum0, sum1, sum2, sum3, left, k) "prefetcht1 64*" row "(%[ahead])\n"
#define STEP(rows, k)                                                                                        \
    rows(SPREAD, k) "vmovups 64*" k "(%[b]), " V                                                             \
                    "15\n" rows(FUSE_0, k) "vmovups 64*" k "+32(%[b]), " V "15\n" rows(                      \
                        FUSE_1, k) "vmovups 64*" k "+2048(%[b]), " V                                         \
                                   "15\n" rows(FUSE_2, k) "vmovups 64*" k "+2048+32(%[b]), " V               \
                                                          "15\n" rows(FUSE_3, k)
#endif

// 16 steps of depth a turn, 2 turns a cell; from its end to the next cell's first row or half.
#define STRIP(n, rows)                                                                                       \
    static void strip_##n(void *block, const void *a, const void *b, size_t cells, bool accumulate,          \
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
        "xmm26", "xmm27", "xmm28", "xmm29"
#else
#define CLOBBERED CLOBBERED_LOW
#endif

STRIP(1, ROW_1)
STRIP(2, ROW_2)
#ifndef STRIP_SPARE
STRIP(3, ROW_3)
#endif
#if defined(__AVX512F__)
STRIP(4, ROW_4)
STRIP(5, ROW_5)
STRIP(6, ROW_6)
STRIP(7, ROW_7)
STRIP(8, ROW_8)
STRIP(9, ROW_9)
STRIP(10, ROW_10)
STRIP(11, ROW_11)
STRIP(12, ROW_12)
#endif

typedef void strip(void *block, const void *a, const void *b, size_t cells, bool accumulate,
                   const char *ahead, size_t step);
static strip *const strips[ROWS] = {
    strip_1, strip_2,
#ifndef STRIP_SPARE
    strip_3,
#endif
#if defined(__AVX512F__)
    strip_4, strip_5, strip_6, strip_7, strip_8, strip_9, strip_10, strip_11, strip_12,
#endif
};

// Each sum adds in the order of depth, whatever the strip: a row's bits do not depend on the rows beside it.
static void multiply_strips(void *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate, const void *ahead) {
    enum { LINE = KN_CELL * 4 };            // bytes of a row
    const char *line = ahead ? ahead : lhs; // the latter is in the cache: nothing is fetched
    size_t left = (rows + ROWS - 1) / ROWS; // strips, as equal as can be
    for (size_t r = 0; r < rows; left--) {
        size_t n = (rows - r + left - 1) / left, step = ahead ? n * 64 : 0;
        strips[n - 1]((char *)block + r * LINE, (const char *)lhs + r * LINE, rhs, cells, accumulate, line,
                      step);
        line += 2 * cells * step;
        r += n;
    }
}
