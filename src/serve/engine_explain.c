// Explains contexts of several clients together.
#include "serve/engine_parts.h"

#include <stdlib.h>
#include <string.h>

// Contexts that are read together: each has a row of the whole vocabulary.
enum { EXPLAINED_TOGETHER = 64 };

void kn_request_explanation_free(kn_request_explanation *x) {
    kn_explanation_free(&x->found);
    free(x->names);
    *x = (kn_request_explanation){0};
}

// Names of documents are the store's, whose state may be gone before the answer is written.
static knnlm_status keep_names(kn_request_explanation *x) {
    size_t size = 1;
    for (size_t i = 0; i < x->found.neighbor_count; i++)
        size += x->found.neighbors[i].origin.document.name_size;
    char *at = x->names = kn_alloc(size, 1);
    if (!at) return KNNLM_ENOMEM;
    for (size_t i = 0; i < x->found.neighbor_count; i++) {
        kn_store_document *d = &x->found.neighbors[i].origin.document;
        if (d->name_size) memcpy(at, d->name, d->name_size);
        d->name = at;
        at += d->name_size;
    }
    return KNNLM_OK;
}

// One for each token of the target, after those before it; the first is the one explained.
static size_t contexts_of(const kn_request_task *t) {
    return kn_max(t->targets, 1);
}

static knnlm_status explain_one(kn_request_task *t, const kn_nexts *nexts, size_t first) {
    kn_request_explanation x = {0};
    const int32_t *targets = t->targets ? t->tokens + t->count : NULL;
    KN_TRY(kn_explain_next(t->view->mixture, kn_nexts_at(nexts, first), targets ? *targets : -1, t->words,
                           t->neighbors, t->around, &x.found));
    for (size_t i = 0; i < x.found.neighbor_count; i++)
        x.found.neighbors[i].store = t->view->numbers[x.found.neighbors[i].store];
    knnlm_status status = keep_names(&x);
    if (status == KNNLM_OK && targets)
        status = kn_explain_targets(nexts, first, targets, t->targets, &x.found);
    if (status == KNNLM_OK)
        t->explanation = x;
    else
        kn_request_explanation_free(&x);
    return status;
}

static void explain(kn_server_engine *e, kn_request_task **tasks, size_t count) {
    kn_context contexts[EXPLAINED_TOGETHER] = {{0}};
    kn_nexts *nexts = NULL;
    knnlm_status status = KNNLM_OK;
    size_t all = 0, first = 0;
    for (size_t i = 0; i < count && status == KNNLM_OK; i++) {
        kn_request_task *t = tasks[i];
        status = kn_engine_view(e, t);
        for (size_t c = 0; c < contexts_of(t) && status == KNNLM_OK; c++)
            contexts[all++] = (kn_context){t->tokens, t->count + c, t->view->mixture};
    }
    if (status == KNNLM_OK) status = kn_nexts_open(e->lm, contexts, all, &nexts);
    for (size_t i = 0; i < count; i++) {
        size_t own_contexts = contexts_of(tasks[i]);
        knnlm_status own = status == KNNLM_OK ? explain_one(tasks[i], nexts, first) : status;
        kn_engine_finish(e, tasks[i], own);
        first += own_contexts;
    }
    kn_nexts_close(nexts);
}

// The next one, where there is room for its contexts beside so many; NULL: none. The lock is held.
static kn_request_task *take(kn_server_engine *e, size_t contexts) {
    const kn_request_task *t = e->queues[KN_REQUEST_EXPLAIN].first;
    if (!t || contexts + contexts_of(t) > EXPLAINED_TOGETHER) return NULL;
    return kn_engine_take(e, KN_REQUEST_EXPLAIN, SIZE_MAX);
}

void kn_engine_explain(kn_server_engine *e) {
    kn_request_task *tasks[EXPLAINED_TOGETHER];
    size_t count = 0, tokens = 0, contexts = 0;
    while (tokens < KN_ENGINE_TOGETHER) {
        pthread_mutex_lock(&e->lock);
        kn_request_task *t = take(e, contexts);
        pthread_mutex_unlock(&e->lock);
        if (!t) break;
        contexts += contexts_of(t);
        tokens += contexts_of(t) * kn_min(t->count, (size_t)kn_lm_describe(e->lm)->context);
        if (kn_engine_unwanted(t))
            kn_engine_finish(e, t, KNNLM_OK);
        else
            tasks[count++] = t;
    }
    if (count) explain(e, tasks, count);
}
