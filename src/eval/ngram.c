// An n-gram model beside the mixture: reading what it learns from, and what each weight of it would give.
#include "eval/ngram.h"

#include "mix/mix.h"
#include "mix/ngram.h"

#include <math.h>
#include <stdlib.h>

struct kn_eval_ngram {
    kn_ngram *model;
    double lambda, seconds;
    double *logprobs; // of the batch
    size_t capacity;
    double nll, by_lambda[KNNLM_TUNE_CURVE]; // sums of -log p: by it alone, and by its weight
};

// ---------------------------------------------------------------- learning

static knnlm_status add_documents(const kn_tokenizer *t, kn_documents *source, kn_tokens *out) {
    for (;;) {
        kn_document d;
        bool found;
        KN_TRY(kn_documents_next(source, &d, &found));
        if (!found) return KNNLM_OK;
        KN_TRY(kn_tokens_push(out, KN_NGRAM_START, 0));
        KN_TRY(kn_tokenizer_encode(t, d.text, d.size, out));
    }
}

static knnlm_status read_tokens(const kn_lm *lm, const kn_eval_ngram_options *o, const kn_text_options *texts,
                                const kn_progress *progress, kn_tokens *out) {
    kn_documents *source;
    KN_TRY(kn_documents_open(o->texts, o->count, texts, &source));
    kn_documents_watch(source, progress);
    knnlm_status status = add_documents(kn_lm_tokenizer(lm), source, out);
    kn_documents_close(source);
    if (status == KNNLM_OK && !out->count)
        status = kn_fail(KNNLM_EDATA, "%s: no text to learn n-grams from", o->texts[0]);
    return status;
}

static knnlm_status learn(kn_eval_ngram *n, const kn_lm *lm, const kn_eval_ngram_options *o,
                          const kn_text_options *texts, const kn_progress *progress) {
    kn_tokens tokens = {.progress = progress};
    double begun = kn_seconds();
    knnlm_status status = read_tokens(lm, o, texts, progress, &tokens);
    if (status == KNNLM_OK)
        status = kn_ngram_learn(tokens.ids, tokens.count, o->order, kn_lm_describe(lm)->vocabulary, progress,
                                &n->model);
    kn_tokens_free(&tokens);
    n->seconds = kn_seconds() - begun;
    return status;
}

knnlm_status kn_eval_ngram_open(const kn_lm *lm, const kn_eval_ngram_options *o, const kn_text_options *texts,
                                const kn_progress *progress, kn_eval_ngram **out) {
    *out = NULL;
    if (!o->count) return KNNLM_OK;
    if (!(o->lambda >= 0 && o->lambda <= 1))
        return kn_fail(KNNLM_EINVAL, "`ngram_lambda` %g: not from 0 to 1", o->lambda);
    if (o->order < 1 || o->order > KN_NGRAM_ORDER_MAX)
        return kn_fail(KNNLM_EINVAL, "`ngram_order` %d: not from 1 to %d", o->order, KN_NGRAM_ORDER_MAX);
    kn_eval_ngram *n = kn_alloc(1, sizeof *n);
    if (!n) return KNNLM_ENOMEM;
    n->lambda = o->lambda;
    knnlm_status status = learn(n, lm, o, texts, progress);
    if (status == KNNLM_OK)
        *out = n;
    else
        kn_eval_ngram_close(n);
    return status;
}

void kn_eval_ngram_close(kn_eval_ngram *n) {
    if (!n) return;
    kn_ngram_close(n->model);
    free(n->logprobs);
    free(n);
}

// ---------------------------------------------------------------- scoring

// Of a token after those before it, which are at hand, and at the document's beginning after its start.
static double ask(const kn_ngram *model, const kn_scored *b, size_t i) {
    int32_t context[KN_NGRAM_ORDER_MAX];
    size_t wanted = (size_t)kn_ngram_describe(model)->order - 1, known = 0;
    uint64_t position = b->tokens[i].position;
    if (position < wanted) context[known++] = KN_NGRAM_START;
    for (size_t before = position < wanted ? (size_t)position : wanted; before > 0; before--)
        context[known++] = b->stream[(ptrdiff_t)i - (ptrdiff_t)before];
    return kn_ngram_logprob(model, context, known, b->tokens[i].token);
}

static double lambda_at(size_t point) {
    return (double)point / (KNNLM_TUNE_CURVE - 1);
}

knnlm_status kn_eval_ngram_take(kn_eval_ngram *n, const kn_scored *b) {
    KN_TRY(kn_grow(&n->logprobs, &n->capacity, b->count, sizeof *n->logprobs));
    for (size_t i = 0; i < b->count; i++) {
        double p = b->predictions[i].p, own = n->logprobs[i] = ask(n->model, b, i);
        n->nll -= own;
        for (size_t j = 0; j < KNNLM_TUNE_CURVE; j++) {
            double lambda = lambda_at(j);
            n->by_lambda[j] -= kn_mix(p, &own, &lambda, 1);
        }
    }
    return KNNLM_OK;
}

double kn_eval_ngram_logprob(const kn_eval_ngram *n, size_t i) {
    return n->logprobs[i];
}

double kn_eval_ngram_mix(const kn_eval_ngram *n, size_t i, double p) {
    return kn_mix(p, &n->logprobs[i], &n->lambda, 1);
}

knnlm_eval_ngram kn_eval_ngram_tell(const kn_eval_ngram *n, uint64_t tokens, double *nll) {
    const kn_ngram_info *info = kn_ngram_describe(n->model);
    knnlm_eval_ngram out = {
        .order = info->order, .tokens = info->tokens, .lambda = n->lambda, .seconds = n->seconds};
    for (int i = 0; i < info->order; i++) out.grams[i] = info->grams[i];
    for (size_t j = 0; j < KNNLM_TUNE_CURVE; j++) {
        out.lambdas[j] = lambda_at(j);
        out.by_lambda[j] = exp(n->by_lambda[j] / (double)tokens);
    }
    *nll = n->nll;
    return out;
}
