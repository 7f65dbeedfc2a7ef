// Logits to what is wanted of them, a batch at a time: nobody keeps rows as long as the vocabulary.
#include "base/threads.h"
#include "lm/llama/engine.h"

typedef struct scoring {
    const kn_llama_context *c;
    const float *logits;
    const int32_t *targets;
    const kn_lm_output *out;
} scoring;

static void score_row(void *context, size_t i, int worker) {
    const scoring *s = context;
    const kn_lm_output *out = s->out;
    const kn_llama *m = s->c->m;
    size_t vocabulary = (size_t)m->lm.info.vocabulary, row = (size_t)s->c->results[i];
    const float *x = s->logits + (size_t)s->c->places[i] * vocabulary;
    float entropy, logsum = kn_logsum(m->kernels, x, vocabulary, out->entropies ? &entropy : NULL);
    (void)worker;
    if (out->logprobs) out->logprobs[row] = x[s->targets[row]] - logsum;
    if (out->entropies) out->entropies[row] = entropy;
    for (size_t j = 0; out->distribution && j < vocabulary; j++)
        out->distribution[row * vocabulary + j] = x[j] - logsum;
}

void kn_llama_score(const kn_llama_context *c, const float *logits, const int32_t *targets,
                    const kn_lm_output *out) {
    scoring s = {c, logits, targets, out};
    kn_parallel(c->count, score_row, &s);
}
