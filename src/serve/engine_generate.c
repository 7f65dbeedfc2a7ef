// Generates: sequences of several clients take their steps together.
#include "serve/engine_parts.h"

static void admit_some(kn_server_engine *e) {
    while (e->sequence_count < e->o.parallel) {
        pthread_mutex_lock(&e->lock);
        kn_request_task *t = kn_engine_take(e, KN_REQUEST_GENERATE, SIZE_MAX);
        pthread_mutex_unlock(&e->lock);
        if (!t) return;
        knnlm_status status = kn_engine_unwanted(t)
                                  ? KNNLM_ESTOPPED
                                  : kn_sequence_open(e->lm, &t->options, t->tokens, t->count, &t->sequence);
        if (status == KNNLM_OK) {
            atomic_fetch_add(&e->metrics->prompt_tokens, t->count);
            e->sequences[e->sequence_count++] = t;
        } else {
            kn_engine_finish(e, t, status);
        }
    }
}

static double mean_logprob(const kn_sequence *s) {
    size_t count;
    const kn_generated *tokens = kn_sequence_tokens(s, &count), *end = kn_sequence_end(s);
    double sum = end ? end->p : 0;
    for (size_t i = 0; i < count; i++) sum += tokens[i].p;
    return sum / (double)kn_max(count + (end != NULL), 1);
}

static knnlm_status send_chunk(kn_request_task *t) {
    kn_chunk *chunk;
    KN_TRY(kn_chunk_make(t->sequence, t->tokens_wanted, t->options.sources, &t->cursor, &chunk));
    if (!chunk) return KNNLM_OK;
    if (kn_sequence_finish(t->sequence) != KNNLM_FINISH_NOT) t->mean_logprob = mean_logprob(t->sequence);
    pthread_mutex_lock(&t->job->lock);
    kn_chunk_queue_put(&t->chunks, chunk);
    t->generated = kn_sequence_generated(t->sequence) + (kn_sequence_end(t->sequence) != NULL);
    t->job->changes++;
    pthread_cond_broadcast(&t->job->changed);
    pthread_mutex_unlock(&t->job->lock);
    return KNNLM_OK;
}

static void drop(kn_server_engine *e, size_t i, knnlm_status status) {
    kn_request_task *t = e->sequences[i];
    e->sequences[i] = e->sequences[--e->sequence_count];
    kn_engine_finish(e, t, status);
}

static knnlm_status step_all(kn_server_engine *e) {
    const kn_mixture *mixtures[e->sequence_count];
    kn_sequence *sequences[e->sequence_count];
    for (size_t i = 0; i < e->sequence_count; i++) {
        KN_TRY(kn_engine_view(e, e->sequences[i]));
        mixtures[i] = e->sequences[i]->view->mixture;
        sequences[i] = e->sequences[i]->sequence;
    }
    atomic_fetch_add(&e->metrics->steps, 1);
    atomic_fetch_add(&e->metrics->stepped, e->sequence_count);
    return kn_generator_step(e->generator, sequences, mixtures, e->sequence_count);
}

void kn_engine_generate(kn_server_engine *e) {
    admit_some(e);
    for (size_t i = e->sequence_count; i-- > 0;)
        if (kn_engine_unwanted(e->sequences[i])) drop(e, i, KNNLM_OK);
    if (e->sequence_count == 0) return;
    knnlm_status status = step_all(e);
    for (size_t i = e->sequence_count; i-- > 0;) {
        kn_request_task *t = e->sequences[i];
        size_t before = t->generated;
        knnlm_status own = status == KNNLM_OK ? send_chunk(t) : status;
        atomic_fetch_add(&e->metrics->generated, t->generated - before);
        if (own != KNNLM_OK || kn_sequence_finish(t->sequence) != KNNLM_FINISH_NOT) drop(e, i, own);
    }
}
