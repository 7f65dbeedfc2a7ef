// The multiply-add of pairs of 16-bit integers into 32-bit sums, for strip_rows.h: with VNNI one instruction,
// elsewhere a product of pairs and a sum. PAIRS_VNNI: who runs it has VNNI, whatever this copy of the kernels
// asks for.
#if defined(__AVX512VNNI__) || defined(PAIRS_VNNI)
#define MULTIPLY_ADD(right, left, sum, spare) "vpdpwssd " right ", " left ", " sum "\n"
#else
#define MULTIPLY_ADD(right, left, sum, spare)                                                                \
    "vpmaddwd " right ", " left ", " spare "\n"                                                              \
    "vpaddd " spare ", " sum ", " sum "\n"
#if !defined(__AVX512F__)
#define STRIP_SPARE 1
#endif
#endif
