// Which token comes next, drawn from the mixture's distribution.
//
// In this order: penalties on log p (of settings, and of tokens that are to be rarer), temperature, top_k,
// top_p, min_p, one draw. The choice depends on the distribution, the settings and the random numbers alone.
#ifndef KN_GENERATE_SAMPLER_H
#define KN_GENERATE_SAMPLER_H

#include "base/random.h"
#include "knn/distribution.h"

typedef struct kn_sampling {
    double temperature;    // 0: the most probable token
    int32_t top_k;         // so many of the most probable tokens; 0: all
    double top_p;          // the fewest of the most probable tokens that have this much of p; 1: all
    double min_p;          // tokens of at least this part of the most probable one's p; 0: all
    double repeat_penalty; // log p is multiplied by it, of the last `repeat_last` tokens of prompt and text;
                           // 1: none, above 1: they become rarer
    size_t repeat_last;
    double presence_penalty, frequency_penalty; // taken from log p of generated tokens, once and as often as
                                                // they came; 0: none
    double dry_multiplier,
        dry_base;              // DRY (dry.c), of tokens that go on with a run of tokens as it went on before;
    size_t dry_allowed_length; // 0: none; above 0: log p loses multiplier * base^(run - allowed_length)
} kn_sampling;

// 0.8, 40, 0.95, 0.05, no penalties; DRY, once it has a multiplier, by 1.75 from runs of 2 tokens on.
kn_sampling kn_sampling_default(void);
// KNNLM_EINVAL: a setting that makes no sense; the message names it.
knnlm_status kn_sampling_check(const kn_sampling *sampling);

// The buffers of drawing; used by one thread at a time.
typedef struct kn_sampler kn_sampler;
// KNNLM_ENOMEM.
knnlm_status kn_sampler_open(size_t vocabulary, kn_sampler **out);
void kn_sampler_close(kn_sampler *sampler);

// Tokens that become rarer, each once: what is added to log p of each.
enum { KN_RARER = 256 };
typedef struct kn_rarer {
    int32_t tokens[KN_RARER];
    double logs[KN_RARER];
    size_t count;
} kn_rarer;

// Of settings that have dry_multiplier: the tokens that would repeat more of what there is.
void kn_dry_find(const int32_t *tokens, size_t count, const kn_sampling *how, kn_rarer *out);

// What is added to log p of a token, before anything else is done with it; -100 as good as forbids it.
typedef struct kn_logit_bias {
    int32_t token;
    double bias;
} kn_logit_bias;

// What was read and generated before: penalties are about it.
typedef struct kn_sampled {
    const int32_t *tokens; // of prompt and text
    size_t prompt, count;  // tokens of the prompt; of both
    const kn_rarer *rarer; // NULL: none
    const kn_logit_bias *biases;
    size_t bias_count;
} kn_sampled;

// A token; -1: no token has a probability (the model's numbers are not numbers). `sampling` was checked.
// One number is taken from `random`, whatever the settings.
int32_t kn_sampler_pick(kn_sampler *sampler, const kn_distribution *distribution, const kn_sampling *sampling,
                        const kn_sampled *before, kn_random *random);

#endif
