// Explains contexts of several clients together.
#include "serve/engine_parts.h"

#include <stdlib.h>
#include <string.h>

enum { EXPLAINED_TOGETHER = 32 };

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

static knnlm_status explain_one(kn_request_task *t, const kn_next *next) {
    kn_request_explanation x = {0};
    KN_TRY(kn_explain_next(t->view->mixture, next, t->target, t->words, t->neighbors, t->around, &x.found));
    for (size_t i = 0; i < x.found.neighbor_count; i++)
        x.found.neighbors[i].store = t->view->numbers[x.found.neighbors[i].store];
    knnlm_status status = keep_names(&x);
    if (status == KNNLM_OK)
        t->explanation = x;
    else
        kn_request_explanation_free(&x);
    return status;
}

static void explain(kn_server_engine *e, kn_request_task **tasks, size_t count) {
    kn_context contexts[EXPLAINED_TOGETHER] = {{0}};
    kn_nexts *next = NULL;
    knnlm_status status = KNNLM_OK;
    for (size_t i = 0; i < count && status == KNNLM_OK; i++) {
        status = kn_engine_view(e, tasks[i]);
        if (status == KNNLM_OK)
            contexts[i] = (kn_context){tasks[i]->tokens, tasks[i]->count, tasks[i]->view->mixture};
    }
    if (status == KNNLM_OK) status = kn_nexts_open(e->lm, contexts, count, &next);
    for (size_t i = 0; i < count; i++) {
        knnlm_status own = status == KNNLM_OK ? explain_one(tasks[i], kn_nexts_at(next, i)) : status;
        kn_engine_finish(e, tasks[i], own);
    }
    kn_nexts_close(next);
}

void kn_engine_explain(kn_server_engine *e) {
    kn_request_task *tasks[EXPLAINED_TOGETHER];
    size_t count = 0, tokens = 0;
    while (count < EXPLAINED_TOGETHER && tokens < KN_ENGINE_TOGETHER) {
        pthread_mutex_lock(&e->lock);
        kn_request_task *t = kn_engine_take(e, KN_REQUEST_EXPLAIN, SIZE_MAX);
        pthread_mutex_unlock(&e->lock);
        if (!t) break;
        tokens += kn_min(t->count, (size_t)kn_lm_describe(e->lm)->context);
        if (kn_engine_unwanted(t))
            kn_engine_finish(e, t, KNNLM_OK);
        else
            tasks[count++] = t;
    }
    if (count) explain(e, tasks, count);
}
