// What tests of generation share: models, stores made of a few texts, mixtures, sequences that run to their
// end.
#ifndef KN_TESTS_GENERATE_KIT_H
#define KN_TESTS_GENERATE_KIT_H

#include "expect.h"

#include "generate/generate.h"

#include <math.h>

#define SMALL KN_SOURCE_DIR "/models/small.gguf"

// ---------------------------------------------------------------- models, stores, mixtures

static inline kn_lm *open_model(const char *path) {
    kn_lm *lm;
    OK(kn_lm_open(path, &(kn_lm_options){.precision = KNNLM_PRECISION_F32}, &lm));
    return lm;
}

static inline void write_text(const char *folder, const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static inline void build(const char *folder, const char *model, const char *store, const char *const *names,
                         size_t count, bool listed, const char *tap) {
    char paths[4][128], to[128];
    const char *texts[4];
    knnlm_model *m;
    knnlm_build_options o = knnlm_build_options_default();
    knnlm_index_options lists = knnlm_index_options_default();
    o.keys = KNNLM_KEYS_F32;
    o.tap = tap;
    o.project = listed ? 48 : 0;
    lists.lists = 6;
    lists.probes = 3;
    for (size_t i = 0; i < count; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
        texts[i] = paths[i];
    }
    snprintf(to, sizeof to, "%s/%s", folder, store);
    OK(knnlm_model_open(
        model, &(knnlm_model_options){.size = sizeof(knnlm_model_options), .precision = KNNLM_PRECISION_F32},
        &m));
    OK(knnlm_build(m, to, texts, count, &o, NULL));
    if (listed) OK(knnlm_index(m, to, &lists, NULL));
    knnlm_model_close(m);
}

static inline kn_mixture *open_store(const char *folder, const kn_lm *lm, const char *store, double lambda,
                                     double temperature) {
    char path[128];
    kn_mixture *m;
    snprintf(path, sizeof path, "%s/%s", folder, store);
    kn_store_choice choice = {.path = path, .weight = NAN, .temperature = NAN};
    kn_mixture_options o = {.stores = &choice,
                            .store_count = 1,
                            .lambda = lambda,
                            .temperature = temperature,
                            .distance = -1,
                            .cache_lambda = NAN,
                            .cache_temperature = NAN};
    OK(kn_mixture_open(lm, &o, &m));
    return m;
}

static inline kn_mixture *no_store(const kn_lm *lm) {
    kn_mixture *m;
    kn_mixture_options o = {
        .lambda = NAN, .temperature = NAN, .distance = -1, .cache_lambda = NAN, .cache_temperature = NAN};
    OK(kn_mixture_open(lm, &o, &m));
    return m;
}

// ---------------------------------------------------------------- sequences

static inline kn_generate_options greedy(size_t tokens) {
    kn_generate_options o = kn_generate_options_default();
    o.sampling.temperature = 0;
    o.tokens = tokens;
    return o;
}

static inline kn_tokens encode(const kn_lm *lm, const char *text) {
    kn_tokens tokens = {0};
    OK(kn_tokenizer_encode(kn_lm_tokenizer(lm), text, strlen(text), &tokens));
    return tokens;
}

static inline kn_sequence *begin(kn_lm *lm, const kn_generate_options *o, const char *prompt) {
    kn_tokens tokens = encode(lm, prompt);
    kn_sequence *s;
    OK(kn_sequence_open(lm, o, tokens.ids, tokens.count, &s));
    kn_tokens_free(&tokens);
    return s;
}

static inline void finish(kn_lm *lm, const kn_mixture *m, kn_sequence *s) {
    kn_generator *g;
    OK(kn_generator_open(lm, 1, &g));
    while (kn_sequence_finish(s) == KNNLM_FINISH_NOT) OK(kn_generator_step(g, &s, &m, 1));
    kn_generator_close(g);
}

static inline kn_sequence *generate(kn_lm *lm, const kn_mixture *m, const kn_generate_options *o,
                                    const char *prompt) {
    kn_sequence *s = begin(lm, o, prompt);
    finish(lm, m, s);
    return s;
}

static inline void near(double a, double b) {
    if (!(fabs(a - b) < 1e-3 * (1 + fabs(b))) && !(isinf(a) && a == b)) fail_msg("%.9g is not %.9g", a, b);
}

#endif
