// What products of panels are made of, in assembler: strips of rows, and steps of depth.
//
// A strip is n rows by all 32 columns. Two multiply-adds begin in each cycle and take four, so that 8 sums or
// more must be in flight; and two loads at most, so that few of them may be needed for a step of depth.
//   AVX2     3 rows by 4 vectors: 12 sums; 7 loads (3 of the left cell, 4 of the right) for 12 multiply-adds.
//            Strips of 6 rows by 2 vectors, tried first, take 8 loads and read the left panel twice.
//            2 rows where a multiply-add is two instructions, with a register between them: 6 loads for 8.
//   AVX-512  up to 12 rows by 2 vectors: 24 sums, 14 loads for 24 multiply-adds; 32 rows are 11 + 11 + 10.
// From C, gcc 12 moves sums between registers or to memory.
//
// Whoever includes this says
//   STRIP_LINE    the bytes of a row of the left cell: 128, or 64 where a lane is a pair of depth;
//   MULTIPLY_ADD  (right, left, sum, spare): sum += right * left in each lane. `spare` is a register for its
//                 own use; with AVX2 there is one only where STRIP_SPARE is defined.
//
// A row of the block is 128 bytes; a step of depth is 4 bytes of a left row and 64 of each half of the right
// cell. ROW_n(DO, k) is DO for each of n rows: its number, the registers of its sums and of its number of the
// left cell, and the step of depth k.
#ifndef KN_MATH_STRIP_ROWS_H
#define KN_MATH_STRIP_ROWS_H

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define LINE TEXT(STRIP_LINE)
#define HALF "16*" LINE // bytes of half of the right cell

#define FETCH_LINE(row) "prefetcht1 64*" row "(%[ahead])\n"
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
#define EACH_STRIP                                                                                           \
    STRIP(1, ROW_1)                                                                                          \
    STRIP(2, ROW_2)                                                                                          \
    STRIP(3, ROW_3)                                                                                          \
    STRIP(4, ROW_4)                                                                                          \
    STRIP(5, ROW_5)                                                                                          \
    STRIP(6, ROW_6)                                                                                          \
    STRIP(7, ROW_7)                                                                                          \
    STRIP(8, ROW_8) STRIP(9, ROW_9) STRIP(10, ROW_10) STRIP(11, ROW_11) STRIP(12, ROW_12)
#define STRIP_NAMES                                                                                          \
    strip_1, strip_2, strip_3, strip_4, strip_5, strip_6, strip_7, strip_8, strip_9, strip_10, strip_11,     \
        strip_12

#define CLEAR(row, sum0, sum1, left, k) CLEARED(sum0) CLEARED(sum1)
#define LOAD(row, sum0, sum1, left, k)                                                                       \
    "vmovups 128*" row "(%[block]), " sum0 "\n"                                                              \
    "vmovups 128*" row "+64(%[block]), " sum1 "\n"
#define STORE(row, sum0, sum1, left, k)                                                                      \
    "vmovups " sum0 ", 128*" row "(%[block])\n"                                                              \
    "vmovups " sum1 ", 128*" row "+64(%[block])\n"
#define FUSE(row, sum0, sum1, left, k)                                                                       \
    "vbroadcastss " LINE "*" row "+4*" k "(%[a]), " left "\n" MULTIPLY_ADD(V "24", left, sum0, V "28")       \
        MULTIPLY_ADD(V "25", left, sum1, V "29")
#define STEP(rows, k)                                                                                        \
    "vmovups 64*" k "(%[b]), " V "24\n"                                                                      \
    "vmovups 64*" k "+" HALF "(%[b]), " V "25\n" rows(FUSE, k)
#define FETCH(row, sum0, sum1, left, k) FETCH_LINE(row)
#else
#define V "%%ymm"
#define CLEARED(sum) "vpxor " sum ", " sum ", " sum "\n"
#define ROW_1(DO, k) DO("0", V "0", V "1", V "2", V "3", V "12", k)
#define ROW_2(DO, k) ROW_1(DO, k) DO("1", V "4", V "5", V "6", V "7", V "13", k)
#ifdef STRIP_SPARE
enum { ROWS = 2 };
#define EACH_STRIP STRIP(1, ROW_1) STRIP(2, ROW_2)
#define STRIP_NAMES strip_1, strip_2
#else
enum { ROWS = 3 };
#define ROW_3(DO, k) ROW_2(DO, k) DO("2", V "8", V "9", V "10", V "11", V "14", k)
#define EACH_STRIP STRIP(1, ROW_1) STRIP(2, ROW_2) STRIP(3, ROW_3)
#define STRIP_NAMES strip_1, strip_2, strip_3
#endif

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
#define SPREAD(row, sum0, sum1, sum2, sum3, left, k) "vbroadcastss " LINE "*" row "+4*" k "(%[a]), " left "\n"
#define FUSE_0(row, sum0, sum1, sum2, sum3, left, k) MULTIPLY_ADD(V "15", left, sum0, V "8")
#define FUSE_1(row, sum0, sum1, sum2, sum3, left, k) MULTIPLY_ADD(V "15", left, sum1, V "9")
#define FUSE_2(row, sum0, sum1, sum2, sum3, left, k) MULTIPLY_ADD(V "15", left, sum2, V "10")
#define FUSE_3(row, sum0, sum1, sum2, sum3, left, k) MULTIPLY_ADD(V "15", left, sum3, V "11")
#define RIGHT(k, at) "vmovups 64*" k "+" at "(%[b]), " V "15\n"
#define STEP(rows, k)                                                                                        \
    rows(SPREAD, k) RIGHT(k, "0") rows(FUSE_0, k) RIGHT(k, "32") rows(FUSE_1, k) RIGHT(k, HALF)              \
        rows(FUSE_2, k) RIGHT(k, HALF "+32") rows(FUSE_3, k)
#define FETCH(row, sum0, sum1, sum2, sum3, left, k) FETCH_LINE(row)
#endif

// 16 steps: all of a cell's where a lane is a pair, else half of them. Meanwhile lines of what is next are
// fetched.
#define STEPS_7(rows)                                                                                        \
    STEP(rows, "1")                                                                                          \
    STEP(rows, "2")                                                                                          \
    STEP(rows, "3") STEP(rows, "4") STEP(rows, "5") STEP(rows, "6") STEP(rows, "7") rows(FETCH, "0")
#define STEPS_15(rows)                                                                                       \
    STEPS_7(rows)                                                                                            \
    STEP(rows, "8")                                                                                          \
    STEP(rows, "9")                                                                                          \
    STEP(rows, "10")                                                                                         \
    STEP(rows, "11") STEP(rows, "12") STEP(rows, "13") STEP(rows, "14") STEP(rows, "15")
#define STEPS_16(rows) STEP(rows, "0") STEPS_15(rows)

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

#endif
