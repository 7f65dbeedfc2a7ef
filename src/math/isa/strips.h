// The product of two panels of 32-bit lanes, by strips of rows (strip_rows.h, which says what is to be
// defined before). Included by the kernels of f32, bf16 and integers, for AVX2 and beyond.
#include "math/isa/strip_rows.h"

// 16 steps of depth a turn, 1 or 2 turns a cell; from its end to the next cell's first row or half.
#define STRIP(n, rows)                                                                                       \
    static void strip_##n(void *block, const void *a, const void *b, size_t cells, bool accumulate,          \
                          const char *ahead, size_t step) {                                                  \
        size_t turns;                                                                                        \
        __asm__ volatile(                                                                                    \
            "testb %[accumulate], %[accumulate]\n"                                                           \
            "jz 1f\n" rows(LOAD, "0") "jmp 2f\n"                                                             \
                                      "1:\n" rows(CLEAR,                                                     \
                                                  "0") "2:\n"                                                \
                                                       "mov $" LINE "/64, %[turns]\n"                        \
                                                       ".p2align 5\n"                                        \
                                                       "3:\n" STEPS_16(rows) "add $64, %[a]\n"               \
                                                                             "add $1024, %[b]\n"             \
                                                                             "add %[step], %[ahead]\n"       \
                                                                             "dec %[turns]\n"                \
                                                                             "jnz 3b\n"                      \
                                                                             "add $31*" LINE ", %[a]\n"      \
                                                                             "add $" HALF ", %[b]\n"         \
                                                                             "dec %[cells]\n"                \
                                                                             "jnz 2b\n" rows(STORE, "0")     \
            : [a] "+r"(a), [b] "+r"(b), [cells] "+r"(cells), [ahead] "+r"(ahead), [turns] "=&r"(turns)       \
            : [block] "r"(block), [accumulate] "q"(accumulate), [step] "r"(step)                             \
            : "cc", "memory", CLOBBERED);                                                                    \
    }
EACH_STRIP

typedef void strip(void *block, const void *a, const void *b, size_t cells, bool accumulate,
                   const char *ahead, size_t step);
static strip *const strips[ROWS] = {STRIP_NAMES};

// Each sum adds in the order of depth, whatever the strip: a row's bits do not depend on the rows beside it.
static void multiply_strips(void *block, const void *lhs, const void *rhs, size_t cells, size_t rows,
                            bool accumulate, const void *ahead) {
    const char *line = ahead ? ahead : lhs; // the latter is in the cache: nothing is fetched
    size_t left = (rows + ROWS - 1) / ROWS; // strips, as equal as can be
    for (size_t r = 0; r < rows; left--) {
        size_t n = (rows - r + left - 1) / left, step = ahead ? n * 64 : 0;
        strips[n - 1]((char *)block + r * KN_CELL * sizeof(float), (const char *)lhs + r * STRIP_LINE, rhs,
                      cells, accumulate, line, step);
        line += STRIP_LINE / 64 * cells * step;
        r += n;
    }
}
