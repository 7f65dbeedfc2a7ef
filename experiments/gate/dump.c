// A row per token of texts with all that a gate may know: experiments/gate/dump MODEL STORE TEMPERATURE OUT
// TEXT... Columns (float32): document, log p_LM, entropy, nearest distance, farthest, whether the nearest
// begins a document, what its value has of p_kNN at half the temperature, log p_kNN at half and at twice of
// it.
#include "eval/pass.h"
#include "knn/mixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 9 };

typedef struct dumping {
    FILE *file;
    double temperature;
} dumping;

static knnlm_status take(void *context, const kn_scored *b) {
    const dumping *x = context;
    for (size_t i = 0; i < b->count; i++) {
        kn_row_neighbors found[KN_STORES_MAX];
        kn_predictor_neighbors(b->neighbors, i, found);
        const kn_neighborhood *n = &found[0].near;
        if (!n->count) continue;
        double half = x->temperature / 2, twice = 2 * x->temperature;
        const float row[COLUMNS] = {(float)b->tokens[i].document,
                                    b->lm[i],
                                    b->entropies[i],
                                    n->distances[0],
                                    n->distances[n->count - 1],
                                    found[0].begins,
                                    (float)exp(kn_neighborhood_logprob(n, half, n->values[0])),
                                    (float)kn_neighborhood_logprob(n, half, b->tokens[i].token),
                                    (float)kn_neighborhood_logprob(n, twice, b->tokens[i].token)};
        if (fwrite(row, sizeof row, 1, x->file) != 1) return kn_fail(KNNLM_EIO, "cannot write");
    }
    return KNNLM_OK;
}

static knnlm_status dump(char **argv, size_t texts) {
    dumping x = {fopen(argv[4], "wb"), strtod(argv[3], NULL)};
    kn_store_choice store = {.path = argv[2], .weight = NAN, .temperature = NAN};
    kn_mixture_options o = {.stores = &store,
                            .store_count = 1,
                            .k = 1024,
                            .lambda = 0,
                            .temperature = x.temperature,
                            .exact = true,
                            .fixed = true,
                            .distance = -1,
                            .cache_lambda = NAN,
                            .cache_temperature = NAN};
    kn_lm *lm;
    kn_mixture *m;
    kn_pass_totals totals;
    if (!x.file) return kn_fail(KNNLM_EIO, "%s: cannot be written", argv[4]);
    KN_TRY(kn_lm_open(argv[1], &(kn_lm_options){0}, &lm));
    KN_TRY(kn_mixture_open(lm, &o, &m));
    kn_pass_options pass = {.read = {.context = -1, .texts = {.split = kn_mixture_describe(m)->split}},
                            .entropies = true,
                            .neighbors_alone = true};
    KN_TRY(kn_pass_texts(lm, m, (const char *const *)argv + 5, texts, &pass, NULL, take, &x, &totals));
    return fclose(x.file) == 0 ? KNNLM_OK : kn_fail(KNNLM_EIO, "%s: cannot be written", argv[4]);
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    if (dump(argv, (size_t)argc - 5) == KNNLM_OK) return 0;
    fprintf(stderr, "dump: %s\n", knnlm_message());
    return 1;
}
