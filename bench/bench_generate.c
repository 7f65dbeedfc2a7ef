// What neighbours cost a generated token: texts by the model alone and by model and store, in turn.
#include "harness.h"

#include "base/threads.h"
#include "generate/generate.h"

#include <math.h>

#define USAGE                                                                                                \
    "bench_generate MODEL STORE TEXT TOKENS PROBES THREADS ROUNDS\n"                                         \
    "  tokens/s a round: the model alone; with 1024 neighbours from PROBES lists; those with sources; then " \
    "the model alone and with neighbours, 8 texts at a time\n"

enum { PROMPT = 64, SIDE_BY_SIDE = 8 };

typedef struct bench {
    kn_lm *lm;
    kn_mixture *alone, *mixed;
    kn_tokens text;
    size_t tokens;
} bench;

static kn_mixture *open_mixture(const kn_lm *lm, const char *store, int64_t probes) {
    kn_store_choice choice = {.path = store, .weight = NAN, .temperature = NAN};
    kn_mixture *m;
    bench_check(kn_mixture_open(lm,
                                &(kn_mixture_options){.stores = &choice,
                                                      .store_count = store ? 1 : 0,
                                                      .k = store ? 1024 : 0,
                                                      .probes = store ? probes : 0,
                                                      .lambda = NAN,
                                                      .temperature = NAN,
                                                      .distance = -1,
                                                      .fallback = true,
                                                      .cache = 0,
                                                      .cache_lambda = NAN,
                                                      .cache_temperature = NAN},
                                &m));
    return m;
}

static void read_text(bench *b, const char *path) {
    FILE *f = bench_need(fopen(path, "rb"));
    char *text = bench_need(malloc(1 << 20));
    size_t size = fread(text, 1, 1 << 20, f);
    bench_check(kn_tokenizer_encode(kn_lm_tokenizer(b->lm), text, size, &b->text));
    if (b->text.count < 16 * PROMPT) bench_check(kn_fail(KNNLM_EINVAL, "%s: too short", path));
    fclose(f);
    free(text);
}

// Tokens a second of `count` texts that grow together, after prompts from the text; reading those is not
// measured.
static double rate(bench *b, const kn_mixture *m, size_t count, bool sources, size_t round) {
    kn_sequence *sequences[SIDE_BY_SIDE];
    const kn_mixture *mixtures[SIDE_BY_SIDE];
    kn_generate_options o = kn_generate_options_default();
    kn_generator *g;
    o.tokens = b->tokens + 1;
    o.ignore_end = true;
    o.sources = sources;
    bench_check(kn_generator_open(b->lm, count, &g));
    for (size_t i = 0; i < count; i++) {
        size_t from = (round * SIDE_BY_SIDE + i) * 997 % (b->text.count - PROMPT);
        o.seed = round * SIDE_BY_SIDE + i;
        mixtures[i] = m;
        bench_check(kn_sequence_open(b->lm, &o, b->text.ids + from, PROMPT, &sequences[i]));
    }
    bench_check(kn_generator_step(g, sequences, mixtures, count));
    double begun = kn_seconds();
    for (size_t i = 0; i < b->tokens; i++) bench_check(kn_generator_step(g, sequences, mixtures, count));
    double seconds = kn_seconds() - begun;
    for (size_t i = 0; i < count; i++) kn_sequence_close(sequences[i]);
    kn_generator_close(g);
    return (double)(b->tokens * count) / seconds;
}

int main(int argc, char **argv) {
    bench b = {0};
    if (argc != 8) return bench_usage(USAGE);
    bench_check(kn_threads_set(atoi(argv[6])));
    bench_check(kn_lm_open(argv[1], NULL, &b.lm));
    b.alone = open_mixture(b.lm, NULL, 0);
    b.mixed = open_mixture(b.lm, argv[2], strtoll(argv[5], NULL, 10));
    read_text(&b, argv[3]);
    b.tokens = strtoull(argv[4], NULL, 10);
    for (size_t round = 0; round < strtoull(argv[7], NULL, 10); round++) {
        printf("%.2f ", rate(&b, b.alone, 1, false, round));
        printf("%.2f ", rate(&b, b.mixed, 1, false, round));
        printf("%.2f ", rate(&b, b.mixed, 1, true, round));
        printf("%.2f ", rate(&b, b.alone, SIDE_BY_SIDE, false, round));
        printf("%.2f\n", rate(&b, b.mixed, SIDE_BY_SIDE, false, round));
        fflush(stdout);
    }
    kn_tokens_free(&b.text);
    kn_mixture_close(b.mixed);
    kn_mixture_close(b.alone);
    kn_lm_close(b.lm);
    return 0;
}
