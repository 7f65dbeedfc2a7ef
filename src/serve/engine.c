// The engine: one thread that has the model, and batches what many clients ask.
#include "serve/engine.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Tokens of texts that are scored together: enough to fill the model's batches, few enough for sequences not
// to wait long.
enum { SCORED_TOGETHER = 2048, EXPLAINED_TOGETHER = 32 };

struct kn_task_view {
    kn_mixture *mixture, *next;    // next: for what comes after a text
    size_t numbers[KN_STORES_MAX]; // of its stores among those served
};

struct kn_server_engine {
    kn_lm *lm;
    kn_ticket_lock *model_lock;
    kn_served *served;
    kn_metrics *metrics;
    kn_engine_options o;
    kn_generator *generator;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; // of what follows
    pthread_cond_t work;
    struct {
        kn_request_task *first, *last;
    } queues[KN_REQUEST_KINDS]; // waiting, in the order of coming
    size_t waiting_jobs, running;
    bool ending;
    // the thread's own
    size_t last_texts; // scored together the last time, and how long that took
    double last_seconds;
    kn_request_task **sequences; // (parallel): those that take steps
    size_t sequence_count;
};

// ---------------------------------------------------------------- jobs

static void init_monotonic(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void kn_request_job_init(kn_request_job *job) {
    *job = (kn_request_job){0};
    pthread_mutex_init(&job->lock, NULL);
    init_monotonic(&job->changed);
}

void kn_request_job_destroy(kn_request_job *job) {
    pthread_mutex_destroy(&job->lock);
    pthread_cond_destroy(&job->changed);
}

void kn_request_job_wait(kn_request_job *job, unsigned long seen) {
    struct timespec until;
    if (job->changes != seen) return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&job->changed, &job->lock, &until);
}

static void queue(kn_server_engine *e, kn_request_task *t) {
    kn_request_task **last = &e->queues[t->kind].last;
    t->next = NULL;
    *(*last ? &(*last)->next : &e->queues[t->kind].first) = t;
    *last = t;
}

bool kn_request_job_submit(kn_server_engine *e, kn_request_job *job, kn_request_task *tasks, size_t count,
                           kn_http_error *err) {
    pthread_mutex_lock(&e->lock);
    bool full = e->waiting_jobs >= e->o.queue, ending = e->ending;
    if (!full && !ending) {
        job->open = job->waiting = count;
        e->waiting_jobs++;
        for (size_t i = 0; i < count; i++) {
            tasks[i].job = job;
            queue(e, &tasks[i]);
        }
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    if (ending) return kn_http_error_set(err, 503, "shutting_down", NULL, "the server is shutting down");
    return !full ||
           kn_http_error_set(err, 429, "queue_full", NULL, "too many requests are waiting: try again");
}

// Takes what has not begun out of the queues: those behind it need not wait for somebody who left.
static void withdraw(kn_server_engine *e, kn_request_job *job) {
    size_t withdrawn = 0;
    pthread_mutex_lock(&e->lock);
    for (int kind = 0; kind < KN_REQUEST_KINDS && job->waiting; kind++) {
        kn_request_task *t = e->queues[kind].first;
        e->queues[kind].first = e->queues[kind].last = NULL;
        for (kn_request_task *next; t; t = next) {
            next = t->next;
            if (t->job == job)
                withdrawn++;
            else
                queue(e, t);
        }
    }
    if (withdrawn) e->waiting_jobs--;
    job->waiting -= withdrawn;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    pthread_mutex_lock(&job->lock);
    job->open -= withdrawn;
    pthread_mutex_unlock(&job->lock);
}

void kn_request_job_end(kn_server_engine *e, kn_request_job *job) {
    pthread_mutex_lock(&job->lock);
    job->unwanted = true;
    pthread_mutex_unlock(&job->lock);
    withdraw(e, job);
    pthread_mutex_lock(&job->lock);
    while (job->open) kn_request_job_wait(job, job->changes);
    pthread_mutex_unlock(&job->lock);
}

static bool unwanted(kn_request_task *t) {
    pthread_mutex_lock(&t->job->lock);
    bool is = t->job->unwanted || t->job->status != KNNLM_OK;
    pthread_mutex_unlock(&t->job->lock);
    return is;
}

static void view_free(struct kn_task_view *v) {
    if (!v) return;
    kn_mixture_close(v->mixture);
    kn_mixture_close(v->next);
    free(v);
}

// The task is not touched after this: its memory may be gone.
static void finish(kn_server_engine *e, kn_request_task *t, knnlm_status status) {
    kn_request_job *job = t->job;
    kn_sequence_close(t->sequence);
    view_free(t->view);
    t->sequence = NULL;
    t->view = NULL;
    pthread_mutex_lock(&e->lock);
    e->running -= t->begun;
    pthread_mutex_unlock(&e->lock);
    pthread_mutex_lock(&job->lock);
    if (status != KNNLM_OK && job->status == KNNLM_OK) {
        job->status = status;
        snprintf(job->message, sizeof job->message, "%s", knnlm_message());
    }
    t->over = true;
    job->open--;
    job->changes++;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

// ---------------------------------------------------------------- the queue

// Takes the first waiting task of a kind (whose text is not longer than `room`) out of its queue; NULL: none.
// A job waits as long as one of its tasks does.
static kn_request_task *take(kn_server_engine *e, kn_request_kind kind, size_t room) {
    kn_request_task *t = e->queues[kind].first;
    if (!t || t->count > room) return NULL; // those behind it do not overtake
    e->queues[kind].first = t->next;
    if (!t->next) e->queues[kind].last = NULL;
    if (--t->job->waiting == 0) e->waiting_jobs--;
    t->begun = true;
    e->running++;
    return t;
}

static bool is_waiting(const kn_server_engine *e) {
    for (int kind = 0; kind < KN_REQUEST_KINDS; kind++)
        if (e->queues[kind].first) return true;
    return false;
}

static bool has_work(const kn_server_engine *e) {
    return is_waiting(e) || e->sequence_count;
}

// ---------------------------------------------------------------- scoring

typedef struct scoring {
    kn_request_task **tasks;
    size_t count;
} scoring;

static bool still_wanted(void *context) {
    const scoring *s = context;
    for (size_t i = 0; i < s->count; i++)
        if (!unwanted(s->tasks[i])) return true;
    return false;
}

// States of stores may have changed since the last time.
static knnlm_status view(kn_server_engine *e, kn_request_task *t) {
    size_t numbers[KN_STORES_MAX];
    view_free(t->view);
    t->view = kn_alloc(1, sizeof *t->view);
    if (!t->view) return KNNLM_ENOMEM;
    KN_TRY(kn_served_view(e->served, &t->selection, &t->view->mixture, t->view->numbers));
    return t->next_wanted ? kn_served_view(e->served, &t->next_selection, &t->view->next, numbers) : KNNLM_OK;
}

static knnlm_status ask(kn_server_engine *e, kn_request_task *t, kn_score_text *out) {
    KN_TRY(view(e, t));
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
        finish(e, tasks[i], status);
    }
    free(texts);
}

static size_t take_texts(kn_server_engine *e, kn_request_task **tasks, size_t max) {
    size_t count = 0, tokens = 0;
    pthread_mutex_lock(&e->lock);
    while (count < max && (count == 0 || tokens < SCORED_TOGETHER)) {
        kn_request_task *t = take(e, KN_REQUEST_SCORE, count ? SCORED_TOGETHER - tokens : SIZE_MAX);
        if (!t) break;
        tokens += t->count + 1;
        tasks[count++] = t;
    }
    pthread_mutex_unlock(&e->lock);
    return count;
}

static void score_some(kn_server_engine *e) {
    kn_request_task *tasks[SCORED_TOGETHER / 8];
    size_t taken = take_texts(e, tasks, sizeof tasks / sizeof *tasks), count = 0;
    for (size_t i = 0; i < taken; i++) {
        if (unwanted(tasks[i]))
            finish(e, tasks[i], KNNLM_OK);
        else
            tasks[count++] = tasks[i];
    }
    if (count == 0) return;
    double begun = kn_seconds();
    score(e, tasks, count);
    e->last_texts = count;
    e->last_seconds = kn_seconds() - begun;
}

// ---------------------------------------------------------------- explaining

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
        status = view(e, tasks[i]);
        if (status == KNNLM_OK)
            contexts[i] = (kn_context){tasks[i]->tokens, tasks[i]->count, tasks[i]->view->mixture};
    }
    if (status == KNNLM_OK) status = kn_nexts_open(e->lm, contexts, count, &next);
    for (size_t i = 0; i < count; i++) {
        knnlm_status own = status == KNNLM_OK ? explain_one(tasks[i], kn_nexts_at(next, i)) : status;
        finish(e, tasks[i], own);
    }
    kn_nexts_close(next);
}

static void explain_some(kn_server_engine *e) {
    kn_request_task *tasks[EXPLAINED_TOGETHER];
    size_t count = 0, tokens = 0;
    while (count < EXPLAINED_TOGETHER && tokens < SCORED_TOGETHER) {
        pthread_mutex_lock(&e->lock);
        kn_request_task *t = take(e, KN_REQUEST_EXPLAIN, SIZE_MAX);
        pthread_mutex_unlock(&e->lock);
        if (!t) break;
        tokens += kn_min(t->count, (size_t)kn_lm_describe(e->lm)->context);
        if (unwanted(t))
            finish(e, t, KNNLM_OK);
        else
            tasks[count++] = t;
    }
    if (count) explain(e, tasks, count);
}

// ---------------------------------------------------------------- generating

static void admit_some(kn_server_engine *e) {
    while (e->sequence_count < e->o.parallel) {
        pthread_mutex_lock(&e->lock);
        kn_request_task *t = take(e, KN_REQUEST_GENERATE, SIZE_MAX);
        pthread_mutex_unlock(&e->lock);
        if (!t) return;
        knnlm_status status = unwanted(t)
                                  ? KNNLM_ESTOPPED
                                  : kn_sequence_open(e->lm, &t->options, t->tokens, t->count, &t->sequence);
        if (status == KNNLM_OK) {
            atomic_fetch_add(&e->metrics->prompt_tokens, t->count);
            e->sequences[e->sequence_count++] = t;
        } else {
            finish(e, t, status);
        }
    }
}

static knnlm_status send_chunk(kn_request_task *t) {
    kn_chunk *chunk;
    KN_TRY(kn_chunk_make(t->sequence, t->tokens_wanted, t->options.sources, &t->cursor, &chunk));
    if (!chunk) return KNNLM_OK;
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
    finish(e, t, status);
}

static knnlm_status step_all(kn_server_engine *e) {
    const kn_mixture *mixtures[e->sequence_count];
    kn_sequence *sequences[e->sequence_count];
    for (size_t i = 0; i < e->sequence_count; i++) {
        KN_TRY(view(e, e->sequences[i]));
        mixtures[i] = e->sequences[i]->view->mixture;
        sequences[i] = e->sequences[i]->sequence;
    }
    atomic_fetch_add(&e->metrics->steps, 1);
    atomic_fetch_add(&e->metrics->stepped, e->sequence_count);
    return kn_generator_step(e->generator, sequences, mixtures, e->sequence_count);
}

static void generate_some(kn_server_engine *e) {
    admit_some(e);
    for (size_t i = e->sequence_count; i-- > 0;)
        if (unwanted(e->sequences[i])) drop(e, i, KNNLM_OK);
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

// ---------------------------------------------------------------- the thread

static void wait_until(kn_server_engine *e, double when) {
    struct timespec until = {(time_t)when, (long)((when - floor(when)) * 1e9)};
    pthread_cond_timedwait(&e->work, &e->lock, &until);
}

// Clients that were answered together ask again nearly together: to wait for them a fraction of the time that
// they took makes one batch of what would be two. The lock is held.
static void wait_for_company(kn_server_engine *e) {
    double until = kn_seconds() + fmin(e->last_seconds / 4, 0.005);
    while (e->queues[KN_REQUEST_SCORE].first && !e->sequence_count && !e->ending &&
           e->waiting_jobs < e->last_texts && kn_seconds() < until)
        wait_until(e, until);
}

// Texts and contexts, then as many steps of the sequences as take about as long, one at least: a batch of
// texts takes far longer than a step, and words should not come at its pace.
static void take_turns(kn_server_engine *e) {
    double begun = kn_seconds();
    score_some(e);
    explain_some(e);
    double middle = kn_seconds();
    do generate_some(e);
    while (e->sequence_count && kn_seconds() - middle < middle - begun);
}

static void *work(void *context) {
    kn_server_engine *e = context;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        while (!has_work(e) && !e->ending) pthread_cond_wait(&e->work, &e->lock);
        wait_for_company(e);
        bool over = e->ending && !has_work(e);
        pthread_mutex_unlock(&e->lock);
        if (over) return NULL;
        kn_ticket_lock_acquire(e->model_lock);
        take_turns(e);
        kn_ticket_lock_release(e->model_lock);
    }
}

knnlm_status kn_server_engine_open(kn_lm *lm, kn_ticket_lock *model_lock, kn_served *served,
                                   kn_metrics *metrics, const kn_engine_options *o, kn_server_engine **out) {
    kn_server_engine *e = kn_alloc(1, sizeof *e);
    if (!e) return KNNLM_ENOMEM;
    *e =
        (kn_server_engine){.lm = lm, .model_lock = model_lock, .served = served, .metrics = metrics, .o = *o};
    pthread_mutex_init(&e->lock, NULL);
    init_monotonic(&e->work);
    e->sequences = kn_alloc(o->parallel, sizeof *e->sequences);
    knnlm_status status = e->sequences ? kn_generator_open(lm, o->parallel, &e->generator) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        int code = pthread_create(&e->thread, NULL, work, e);
        e->started = code == 0;
        if (code) status = kn_fail(KNNLM_ENOMEM, "cannot start a thread: %s", strerror(code));
    }
    if (status == KNNLM_OK)
        *out = e;
    else
        kn_server_engine_close(e);
    return status;
}

void kn_server_engine_close(kn_server_engine *e) {
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->ending = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (e->started) pthread_join(e->thread, NULL);
    kn_generator_close(e->generator);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->work);
    free(e->sequences);
    free(e);
}

size_t kn_server_engine_waiting(kn_server_engine *e) {
    pthread_mutex_lock(&e->lock);
    size_t n = e->waiting_jobs;
    pthread_mutex_unlock(&e->lock);
    return n;
}

size_t kn_server_engine_running(kn_server_engine *e) {
    pthread_mutex_lock(&e->lock);
    size_t n = e->running;
    pthread_mutex_unlock(&e->lock);
    return n;
}
