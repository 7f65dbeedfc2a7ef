// Which kernels this CPU can run, and which of them serve.
#include "math/math.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const kn_kernels kn_isa_kernels_portable;
#ifdef KN_HAVE_ISA_avx2
extern const kn_kernels kn_isa_kernels_avx2, kn_isa_kernels_avx512, kn_isa_kernels_avx512bf16,
    kn_isa_kernels_amx, kn_isa_kernels_int16_avx2, kn_isa_kernels_int16_avx512;
#endif

static const kn_kernels *found[7];
static size_t count, l1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#ifdef KN_HAVE_ISA_avx2
#include <cpuid.h>

enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };

static uint32_t cpuid_register(uint32_t leaf, uint32_t sub, int which) {
    uint32_t r[4] = {0};
    __get_cpuid_count(leaf, sub, &r[0], &r[1], &r[2], &r[3]);
    return r[which];
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx512vnni(void) {
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static bool has_avx512bf16(void) {
    return has_avx512vnni() && (cpuid_register(7, 1, 0) >> 5 & 1);
}

static bool amx_is_announced(void) {
    uint32_t edx = cpuid_register(7, 0, 3);
    bool told = (edx >> 22 & 1) && (edx >> 24 & 1); // AMX-BF16, AMX-TILE
    return told && has_avx512bf16() && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

// One small product, exact in bf16: a hypervisor that announces AMX without keeping its state must not spoil
// results.
static bool amx_works(void) {
    const kn_kernels *k = &kn_isa_kernels_amx;
    float a[KN_CELL_SIZE], b[KN_CELL_SIZE], block[KN_CELL_SIZE] __attribute__((aligned(64)));
    uint16_t lhs[KN_CELL_SIZE] __attribute__((aligned(64))), rhs[KN_CELL_SIZE] __attribute__((aligned(64)));
    for (int i = 0; i < KN_CELL_SIZE; i++) {
        a[i] = (float)(i * 7 % 13 - 6);
        b[i] = (float)(i * 5 % 11 - 5);
    }
    k->pack_lhs(lhs, a, KN_CELL, KN_CELL, KN_CELL);
    k->pack_rhs(rhs, b, KN_CELL, KN_CELL, KN_CELL);
    k->multiply(block, lhs, rhs, 1, KN_CELL, false);
    for (int r = 0; r < KN_CELL; r++)
        for (int c = 0; c < KN_CELL; c++) {
            float sum = 0;
            for (int d = 0; d < KN_CELL; d++) sum += a[r * KN_CELL + d] * b[c * KN_CELL + d];
            if (sum != block[r * KN_CELL + c]) return false;
        }
    return true;
}

static bool has_amx(void) {
    return amx_is_announced() && amx_works();
}
#endif

static bool has_portable(void) {
    return true;
}

// All kernels in the order of their speed, and whether this CPU can run them. What KNNLM_CPU rules out is not
// even tried: where AMX is announced but broken, that is the way round it.
typedef struct candidate {
    const kn_kernels *kernels;
    bool (*has)(void);
} candidate;

// Those from the one on that KNNLM_CPU names; an unknown name rules out nothing.
static void choose(const candidate *all, size_t n) {
    const char *cap = getenv("KNNLM_CPU");
    size_t first = 0;
    for (size_t i = 0; cap && i < n; i++)
        if (strcmp(cap, all[i].kernels->name) == 0) first = i;
    for (size_t i = first; i < n; i++)
        if (all[i].has()) found[count++] = all[i].kernels;
}

static void find(void) {
    static const candidate all[] = {
#ifdef KN_HAVE_ISA_avx2
        {&kn_isa_kernels_amx, has_amx},
        {&kn_isa_kernels_avx512bf16, has_avx512bf16},
        {&kn_isa_kernels_int16_avx512, has_avx512vnni},
        {&kn_isa_kernels_avx512, has_avx512},
        {&kn_isa_kernels_int16_avx2, has_avx2},
        {&kn_isa_kernels_avx2, has_avx2},
#endif
        {&kn_isa_kernels_portable, has_portable},
    };
    _Static_assert(sizeof all / sizeof *all <= sizeof found / sizeof *found, "room for all");
    choose(all, sizeof all / sizeof *all);
    long bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE); // asks the CPU, which takes long in a virtual machine
    l1 = bytes > 0 ? (size_t)bytes : 0;
}

size_t kn_math_l1(void) {
    pthread_once(&once, find);
    return l1;
}

const kn_kernels *const *kn_math_available(size_t *n) {
    pthread_once(&once, find);
    *n = count;
    return found;
}

const kn_kernels *kn_math_kernels(knnlm_precision precision) {
    size_t n;
    const kn_kernels *const *list = kn_math_available(&n), *f32 = NULL;
    if (precision == KNNLM_PRECISION_AUTO) return list[0];
    for (size_t i = 0; i < n; i++) {
        if (list[i]->precision == precision) return list[i];
        if (!f32 && list[i]->precision == KNNLM_PRECISION_F32) f32 = list[i];
    }
    return f32; // portable at the least
}
