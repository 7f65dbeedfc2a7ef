// Embeds texts: the model's tapped states of a text, as one vector.
#include "serve/engine_parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct pooling {
    kn_request_task *task;
    size_t width;
    double *sum; // (width)
} pooling;

// The state at position i has read the start token and i tokens: that of position 0 has seen nothing of the
// text, and stands for a text without tokens alone.
static knnlm_status pool(void *context, const kn_records *r) {
    pooling *p = context;
    const kn_request_task *t = p->task;
    for (size_t i = 0; i < r->count; i++) {
        size_t read = (size_t)r->position + i;
        if ((read == 0 && t->count > 0) || (t->last_alone && read < t->count)) continue;
        for (size_t c = 0; c < p->width; c++) p->sum[c] += (double)r->keys[i * p->width + c];
    }
    return kn_engine_unwanted(p->task) ? kn_fail(KNNLM_ESTOPPED, "stopped while embedding") : KNNLM_OK;
}

static knnlm_status embed_with(kn_server_engine *e, kn_request_task *t, int32_t *tokens, double *sum) {
    kn_read_options o = {.context = -1, .tap = kn_served_tap(e->served), .keys = true};
    pooling p = {t, (size_t)kn_lm_describe(e->lm)->key_width, sum};
    if (t->count) memcpy(tokens, t->tokens, t->count * sizeof *tokens);
    tokens[t->count] = kn_tokenizer_start(kn_lm_tokenizer(e->lm)); // so that the last token is read, too
    KN_TRY(kn_read_tokens(e->lm, tokens, t->count + 1, &o, pool, &p));
    double n = t->last_alone || t->count == 0 ? 1 : (double)t->count;
    for (size_t c = 0; c < p.width; c++) t->vector[c] = (float)(sum[c] / n);
    return KNNLM_OK;
}

static knnlm_status embed(kn_server_engine *e, kn_request_task *t) {
    int32_t *tokens = kn_alloc(t->count + 1, sizeof *tokens);
    double *sum = kn_alloc((size_t)kn_lm_describe(e->lm)->key_width, sizeof *sum);
    knnlm_status status = tokens && sum ? embed_with(e, t, tokens, sum) : KNNLM_ENOMEM;
    atomic_fetch_add(&e->metrics->embedded, t->count);
    free(tokens);
    free(sum);
    return status;
}

void kn_engine_embed(kn_server_engine *e) {
    for (size_t tokens = 0; tokens < KN_ENGINE_TOGETHER;) {
        pthread_mutex_lock(&e->lock);
        kn_request_task *t = kn_engine_take(e, KN_REQUEST_EMBED, SIZE_MAX);
        pthread_mutex_unlock(&e->lock);
        if (!t) return;
        tokens += t->count + 1;
        kn_engine_finish(e, t, kn_engine_unwanted(t) ? KNNLM_OK : embed(e, t));
    }
}
