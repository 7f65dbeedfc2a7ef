// Logits to what is wanted of them, a batch at a time: nobody keeps rows as long as the vocabulary.
#include "base/threads.h"
#include "lm/llama/engine.h"

typedef struct scoring {
    const kn_llama *m;
    const float *logits;
    const int32_t *places, *targets;
    const kn_lm_output *out;
} scoring;

static void score_row(void *context, size_t row, int worker) {
    const scoring *s = context;
    const kn_lm_output *out = s->out;
    size_t vocabulary = (size_t)s->m->lm.info.vocabulary;
    const float *x = s->logits + (size_t)s->places[row] * vocabulary;
    float entropy, logsum = kn_logsum(s->m->kernels, x, vocabulary, out->entropies ? &entropy : NULL);
    (void)worker;
    if (out->logprobs) out->logprobs[row] = x[s->targets[row]] - logsum;
    if (out->entropies) out->entropies[row] = entropy;
    for (size_t i = 0; out->distribution && i < vocabulary; i++)
        out->distribution[row * vocabulary + i] = x[i] - logsum;
}

void kn_llama_score(const kn_llama *m, const float *logits, const int32_t *places, size_t rows,
                    const int32_t *targets, const kn_lm_output *out) {
    scoring s = {m, logits, places, targets, out};
    kn_parallel(rows, score_row, &s);
}
