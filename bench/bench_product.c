// How fast f32 matrices are multiplied: ours, OpenBLAS's cblas_sgemm, and what the CPU could do at most.
#include "harness.h"

#include "base/threads.h"

#include <dlfcn.h>
#include <math.h>

#define USAGE                                                                                                \
    "bench_product shapes                 the products: name, rows, columns, depth\n"                        \
    "bench_product ours SHAPE REPEATS     a line a repeat: GFLOP/s of the f32 kernel that KNNLM_CPU names\n" \
    "bench_product openblas SHAPE REPEATS the same by OpenBLAS (OPENBLAS_CORETYPE names its kernel)\n"       \
    "bench_product peak REPEATS           the same of multiply-adds in registers, with that kernel's "       \
    "vectors\n"

// Weights are packed once and used for every text, so packing them is not counted; left operands always are,
// and right ones where each product has its own.
typedef struct shape {
    const char *name;
    size_t rows, columns, depth;
    bool kept;       // the right operand is a weight, packed before
    bool transposed; // both operands are (depth, ...), as in the gradient of a weight
} shape;

static const shape shapes[] = {
    {"small_qkv", 2048, 768, 256, true, false},       {"small_up", 2048, 1024, 256, true, false},
    {"small_down", 2048, 256, 1024, true, false},     {"small_head", 1024, 16000, 256, true, false},
    {"small_gradient", 1024, 256, 4096, false, true}, {"paper_out", 2048, 1024, 1024, true, false},
    {"paper_up", 2048, 4096, 1024, true, false},      {"paper_down", 2048, 1024, 4096, true, false},
    {"search_256", 1024, 4096, 256, false, false},    {"search_1024", 1024, 4096, 1024, false, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// A repeat is as many products as take about this long.
static const double SECONDS = 0.15;

static int print_shapes(void) {
    for (size_t i = 0; i < SHAPES; i++)
        printf("%s %zu %zu %zu\n", shapes[i].name, shapes[i].rows, shapes[i].columns, shapes[i].depth);
    return 0;
}

static float *numbers(size_t count) {
    float *x = bench_need(kn_alloc_aligned(count, sizeof *x));
    kn_random random = {count};
    for (size_t i = 0; i < count; i++) x[i] = (float)(kn_random_below(&random, 2001)) / 1000 - 1;
    return x;
}

typedef struct product {
    const shape *s;
    float *left, *right, *out;
    const kn_kernels *k;
    void *lhs;
    kn_rhs rhs;
    void (*sgemm)(int order, int left_t, int right_t, int m, int n, int k, float alpha, const float *a,
                  int lda, const float *b, int ldb, float beta, float *c, int ldc);
} product;

static void ours(const product *p) {
    const shape *s = p->s;
    kn_rhs rhs = p->rhs;
    kn_emit_matrix out = {p->k, p->out, s->columns, NULL};
    kn_lhs_pack(p->k, p->lhs, p->left, s->transposed ? s->rows : s->depth, s->rows, s->depth, s->transposed);
    if (!s->kept) kn_rhs_pack(p->k, &rhs, p->right, s->transposed ? s->columns : s->depth, s->transposed);
    kn_multiply(p->k, p->lhs, s->rows, &rhs, kn_emit_set, &out);
}

static void theirs(const product *p) {
    enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };
    const shape *s = p->s;
    int rows = (int)s->rows, columns = (int)s->columns, depth = (int)s->depth;
    p->sgemm(ROW_MAJOR, s->transposed ? TRANSPOSED : AS_IS, s->transposed ? AS_IS : TRANSPOSED, rows, columns,
             depth, 1, p->left, s->transposed ? rows : depth, p->right, s->transposed ? columns : depth, 0,
             p->out, columns);
}

static void product_open(product *p, const shape *s) {
    *p = (product){.s = s, .k = kn_math_kernels(KNNLM_PRECISION_F32)};
    p->left = numbers(s->rows * s->depth);
    p->right = numbers(s->columns * s->depth);
    p->out = numbers(s->rows * s->columns);
    p->lhs = bench_need(kn_alloc_aligned(1, kn_lhs_bytes(p->k, s->rows, s->depth)));
    bench_check(kn_rhs_init(p->k, &p->rhs, s->columns, s->depth));
    kn_rhs_pack(p->k, &p->rhs, p->right, s->transposed ? s->columns : s->depth, s->transposed);
}

static void product_close(product *p) {
    kn_rhs_free(&p->rhs);
    kn_free_aligned(p->lhs);
    kn_free_aligned(p->out);
    kn_free_aligned(p->right);
    kn_free_aligned(p->left);
}

static void measure(const product *p, void (*run)(const product *), int repeats) {
    double flops = 2.0 * (double)p->s->rows * (double)p->s->columns * (double)p->s->depth;
    run(p);
    for (int i = 0; i < repeats; i++) {
        double start = kn_seconds(), taken;
        int count = 0;
        do {
            run(p);
            count++;
        } while ((taken = kn_seconds() - start) < SECONDS);
        printf("%.1f\n", flops * count / taken / 1e9);
    }
}

// By name at run time, so that only this bench needs it.
static void load_openblas(product *p) {
    void *library = dlopen("libopenblas.so.0", RTLD_NOW),
         *symbol = library ? dlsym(library, "cblas_sgemm") : NULL;
    if (!symbol) {
        fprintf(stderr, "bench: libopenblas.so.0 is not there: scripts/install-deps bench installs it\n");
        exit(1);
    }
    memcpy(&p->sgemm, &symbol, sizeof symbol);
}

// ---------------------------------------------------------------- the peak

// 12 sums in flight hide the latency of a multiply-add on every CPU that has them. In assembler, so that no
// compiler moves them to memory.
// The best of some trials: a trial takes some 30 ms, the first also starts the threads.
enum { SUMS = 12, TURNS = 20000000, TRIALS = 8 };

#define FUSED(v, n) "vfmadd231ps %%" v "14, %%" v "15, %%" v n "\n"
#define PEAK(name, v)                                                                                        \
    static void name(void *context, size_t task, int worker) {                                               \
        long turns = TURNS;                                                                                  \
        (void)context, (void)task, (void)worker;                                                             \
        __asm__ volatile("vzeroall\n1:\n" FUSED(v, "0") FUSED(v, "1") FUSED(v, "2") FUSED(v, "3")            \
                             FUSED(v, "4") FUSED(v, "5") FUSED(v, "6") FUSED(v, "7") FUSED(v, "8")           \
                                 FUSED(v, "9") FUSED(v, "10") FUSED(v, "11") "dec %0\njnz 1b\nvzeroupper\n"  \
                         : "+r"(turns)                                                                       \
                         :                                                                                   \
                         : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",     \
                           "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                    \
    }
PEAK(peak_avx2, "ymm")
PEAK(peak_avx512, "zmm")

static int peak(int repeats) {
    bool wide = strcmp(kn_math_kernels(KNNLM_PRECISION_F32)->name, "avx512") == 0;
    double flops = 2.0 * SUMS * TURNS * (wide ? 16 : 8) * kn_threads();
    for (int i = 0; i < repeats; i++) {
        double best = 0;
        for (int trial = 0; trial < TRIALS; trial++) {
            double start = kn_seconds();
            kn_parallel((size_t)kn_threads(), wide ? peak_avx512 : peak_avx2, NULL);
            best = fmax(best, flops / (kn_seconds() - start) / 1e9);
        }
        printf("%.1f\n", best);
    }
    return 0;
}

static const shape *find(const char *name) {
    for (size_t i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "", *threads = getenv("BENCH_THREADS");
    bench_check(kn_threads_set(threads ? atoi(threads) : 0));
    if (argc == 2 && strcmp(verb, "shapes") == 0) return print_shapes();
    if (argc == 3 && strcmp(verb, "peak") == 0) return peak(atoi(argv[2]));
    bool theirs_asked = strcmp(verb, "openblas") == 0;
    if (argc != 4 || !find(argv[2]) || (!theirs_asked && strcmp(verb, "ours") != 0))
        return bench_usage(USAGE);
    product p;
    product_open(&p, find(argv[2]));
    if (theirs_asked) load_openblas(&p);
    measure(&p, theirs_asked ? theirs : ours, atoi(argv[3]));
    product_close(&p);
    return 0;
}
