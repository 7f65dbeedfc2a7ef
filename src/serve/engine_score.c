// Scores texts of several clients together.
#include "serve/engine_parts.h"

#include <stdlib.h>

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
        if (status == KNNLM_OK) tasks[i]->scoring = texts[i];
        kn_engine_finish(e, tasks[i], status);
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
