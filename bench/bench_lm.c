// How fast a native model reads: tokens per second of a forward pass, and the memory that scoring takes.
#include "harness.h"
#include "lm/lm.h"

#define USAGE                                                                                                \
    "bench_lm kernels                        what this CPU can run\n"                                        \
    "bench_lm make speed|wiki103 FILE        writes a model with random weights\n"                           \
    "bench_lm speed FILE WINDOWS REPEATS     a line a repeat: tokens per second of a forward pass\n"         \
    "bench_lm memory FILE                    scores one window as the paper does: peak memory in bytes\n"

enum { SCORED = 512 };

// The paper's layers without its vocabulary: the forward pass is what is measured.
static kn_config speed_shape(void) {
    kn_config c;
    bench_check(kn_config_preset("wiki103", &c));
    c.context = 512;
    c.bands = 1;
    kn_config_set_vocabulary(&c, 1000);
    return c;
}

static kn_config wiki103_shape(void) {
    kn_config c;
    bench_check(kn_config_preset("wiki103", &c));
    kn_config_set_vocabulary(&c, 267744); // WikiText-103's
    return c;
}

static int make(const char *shape, const char *path) {
    kn_config c = strcmp(shape, "speed") == 0 ? speed_shape() : wiki103_shape();
    kn_layout layout;
    bench_check(kn_layout_init(&c, &layout));
    float *params = bench_need(kn_alloc_aligned(layout.total, sizeof *params));
    kn_layout_fill(&c, &layout, 1, params);
    kn_tokenizer *tokenizer = bench_tokenizer(c.vocabulary);
    bench_check(kn_model_save(path, &c, tokenizer, 0, params, KN_GGUF_BF16));
    kn_tokenizer_free(tokenizer);
    kn_free_aligned(params);
    kn_layout_free(&layout);
    return 0;
}

static kn_lm *open_model(const char *path) {
    kn_lm *lm;
    bench_check(kn_lm_open(path, &(kn_lm_options){.precision = KNNLM_PRECISION_AUTO}, &lm));
    return lm;
}

// Every layer is computed: the output of the last one is what is asked for.
static void forward(kn_lm *lm, const kn_window *windows, size_t count, float *states) {
    kn_tap last = {KN_TAP_OUTPUT, -1};
    bench_check(kn_lm_run(lm, windows, count, last, &(kn_lm_output){.keys = states}));
}

static int speed(const char *path, size_t count, int repeats) {
    kn_lm *lm = open_model(path);
    const kn_lm_info *info = kn_lm_describe(lm);
    size_t tokens = count * (size_t)info->context;
    int32_t *ids = bench_tokens(tokens, info->vocabulary);
    kn_window *windows = bench_need(kn_alloc(count, sizeof *windows));
    for (size_t i = 0; i < count; i++)
        windows[i] = (kn_window){.inputs = ids + i * (size_t)info->context, .length = info->context};
    float *states = bench_need(kn_alloc(tokens, (size_t)info->key_width * sizeof *states));
    forward(lm, windows, count, states);
    for (int i = 0; i < repeats; i++) {
        double start = kn_seconds();
        forward(lm, windows, count, states);
        printf("%.1f\n", (double)tokens / (kn_seconds() - start));
    }
    free(states);
    free(windows);
    free(ids);
    kn_lm_close(lm);
    return 0;
}

// A full window, its last 512 positions scored with log-probability and key: the paper's evaluation.
static int memory(const char *path) {
    kn_lm *lm = open_model(path);
    const kn_lm_info *info = kn_lm_describe(lm);
    int32_t *ids = bench_tokens((size_t)info->context + 1, info->vocabulary);
    kn_window window = {
        .inputs = ids, .targets = ids + 1, .length = info->context, .first = info->context - SCORED};
    float logprobs[SCORED], *keys = bench_need(kn_alloc(SCORED, (size_t)info->key_width * sizeof *keys));
    bench_check(
        kn_lm_run(lm, &window, 1, KN_TAP_DEFAULT, &(kn_lm_output){.logprobs = logprobs, .keys = keys}));
    printf("%llu %llu\n", (unsigned long long)kn_memory_peak(), (unsigned long long)info->parameters);
    free(keys);
    free(ids);
    kn_lm_close(lm);
    return 0;
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    if (argc == 2 && strcmp(verb, "kernels") == 0) return bench_print_kernels();
    if (argc == 4 && strcmp(verb, "make") == 0) return make(argv[2], argv[3]);
    if (argc == 5 && strcmp(verb, "speed") == 0)
        return speed(argv[2], strtoul(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 3 && strcmp(verb, "memory") == 0) return memory(argv[2]);
    return bench_usage(USAGE);
}
