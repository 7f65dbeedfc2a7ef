// The engine: one thread that has the model, and batches what many clients ask.
#include "serve/engine_parts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

bool kn_engine_unwanted(kn_request_task *t) {
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

void kn_engine_finish(kn_server_engine *e, kn_request_task *t, knnlm_status status) {
    kn_request_job *job = t->job;
    kn_sequence_close(t->sequence);
    view_free(t->view);
    kn_chosen_entries_free(&t->chosen);
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

kn_request_task *kn_engine_take(kn_server_engine *e, kn_request_kind kind, size_t room) {
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

knnlm_status kn_engine_view(kn_server_engine *e, kn_request_task *t) {
    size_t numbers[KN_STORES_MAX];
    view_free(t->view);
    t->view = kn_alloc(1, sizeof *t->view);
    if (!t->view) return KNNLM_ENOMEM;
    KN_TRY(kn_served_view(e->served, &t->selection, &t->chosen, &t->view->mixture, t->view->numbers));
    if (!t->next_wanted) return KNNLM_OK;
    return kn_served_view(e->served, &t->next_selection, &t->chosen, &t->view->next, numbers);
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
    kn_engine_score(e);
    kn_engine_explain(e);
    kn_engine_embed(e);
    double middle = kn_seconds();
    do kn_engine_generate(e);
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
