// Scores texts of several clients together.
#include "serve/engine_parts.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- gain by document

void kn_request_gains_free(kn_request_gains *g) {
    free(g->listed);
    free(g->names);
    *g = (kn_request_gains){0};
}

// Names are the store's, whose state may be gone before the answer is written.
static knnlm_status keep_names(const kn_mixture *m, kn_request_gains *g) {
    size_t size = 1;
    for (size_t i = 0; i < g->count; i++) {
        kn_store_document d;
        const kn_document_gain *of = &g->listed[i].of;
        KN_TRY(kn_datastore_document(kn_mixture_datastore(m, of->store), of->document, &d));
        g->listed[i].name = d.name;
        g->listed[i].name_size = d.name_size;
        size += d.name_size;
    }
    char *at = g->names = kn_alloc(size, 1);
    if (!at) return KNNLM_ENOMEM;
    for (size_t i = 0; i < g->count; i++) {
        if (g->listed[i].name_size) memcpy(at, g->listed[i].name, g->listed[i].name_size);
        g->listed[i].name = at;
        at += g->listed[i].name_size;
    }
    return KNNLM_OK;
}

static knnlm_status keep_gains(kn_request_task *t, const kn_score_text *a) {
    kn_request_gains *g = &t->gains;
    g->documents = a->document_count;
    g->count = kn_min(a->document_count, t->gains_wanted);
    g->listed = kn_alloc(g->count, sizeof *g->listed);
    if (!g->listed) return KNNLM_ENOMEM;
    for (size_t i = 0; i < a->document_count; i++) {
        g->stores[t->view->numbers[a->documents[i].store]] += a->documents[i].gain;
        if (i < g->count)
            g->listed[i].of = a->documents[i];
        else
            g->others += a->documents[i].gain;
    }
    KN_TRY(keep_names(a->mixture, g));
    for (size_t i = 0; i < g->count; i++) g->listed[i].of.store = t->view->numbers[g->listed[i].of.store];
    return KNNLM_OK;
}

// ---------------------------------------------------------------- scoring

typedef struct scoring {
    kn_request_task **tasks;
    size_t count;
} scoring;

static bool still_wanted(void *context) {
    const scoring *s = context;
    for (size_t i = 0; i < s->count; i++)
        if (!kn_engine_unwanted(s->tasks[i])) return true;
    return false;
}

static knnlm_status ask(kn_server_engine *e, kn_request_task *t, kn_score_text *out) {
    KN_TRY(kn_engine_view(e, t));
    *out = t->scoring;
    out->tokens = t->tokens;
    out->count = t->count;
    out->mixture = t->view->mixture;
    out->next_mixture = t->view->next;
    out->by_document = t->gains_wanted > 0;
    atomic_fetch_add(&e->metrics->generated, t->next_wanted);
    atomic_fetch_add(&e->metrics->scored, t->count);
    return KNNLM_OK;
}

static void score(kn_server_engine *e, kn_request_task **tasks, size_t count) {
    kn_score_text *texts = kn_alloc(count, sizeof *texts);
    knnlm_status status = texts ? KNNLM_OK : KNNLM_ENOMEM;
    scoring s = {tasks, count};
    for (size_t i = 0; i < count && status == KNNLM_OK; i++) status = ask(e, tasks[i], &texts[i]);
    atomic_fetch_add(&e->metrics->batches, 1);
    atomic_fetch_add(&e->metrics->batched, count);
    if (status == KNNLM_OK) status = kn_score_batch(e->lm, texts, count, still_wanted, &s);
    for (size_t i = 0; i < count; i++) {
        knnlm_status own = status;
        if (own == KNNLM_OK && texts[i].by_document) own = keep_gains(tasks[i], &texts[i]);
        if (own == KNNLM_OK) tasks[i]->scoring = texts[i];
        tasks[i]->scoring.documents = NULL;
        if (texts) free(texts[i].documents);
        kn_engine_finish(e, tasks[i], own);
    }
    free(texts);
}

static size_t take_texts(kn_server_engine *e, kn_request_task **tasks, size_t max) {
    size_t count = 0, tokens = 0;
    pthread_mutex_lock(&e->lock);
    while (count < max && (count == 0 || tokens < KN_ENGINE_TOGETHER)) {
        kn_request_task *t =
            kn_engine_take(e, KN_REQUEST_SCORE, count ? KN_ENGINE_TOGETHER - tokens : SIZE_MAX);
        if (!t) break;
        tokens += t->count + 1;
        tasks[count++] = t;
    }
    pthread_mutex_unlock(&e->lock);
    return count;
}

void kn_engine_score(kn_server_engine *e) {
    kn_request_task *tasks[KN_ENGINE_TOGETHER / 8];
    size_t taken = take_texts(e, tasks, sizeof tasks / sizeof *tasks), count = 0;
    for (size_t i = 0; i < taken; i++) {
        if (kn_engine_unwanted(tasks[i]))
            kn_engine_finish(e, tasks[i], KNNLM_OK);
        else
            tasks[count++] = tasks[i];
    }
    if (count == 0) return;
    double begun = kn_seconds();
    score(e, tasks, count);
    e->last_texts = count;
    e->last_seconds = kn_seconds() - begun;
}
