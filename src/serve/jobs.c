// Jobs: a queue, one thread that works on it, and what came of the last hundred.
#include "serve/jobs.h"

#include "base/memory.h"
#include "base/progress.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

typedef enum job_state { WAITING, RUNNING, DONE, FAILED, CANCELLED } job_state;
static const char *const state_names[] = {"waiting", "running", "done", "failed", "cancelled"};

struct kn_job {
    kn_jobs *jobs;
    kn_job *next; // in the order of coming
    char id[KN_JOB_ID];
    kn_job_work work;
    job_state state;
    atomic_bool unwanted;
    int64_t created;
    double begun, seconds;
    char phase[40], unit[16];
    uint64_t done, total; // total 0: not known
    json_t *result;       // once it is done
    kn_http_error error;  // once it has failed
};

struct kn_jobs {
    pthread_mutex_t lock; // of all that follows, and of the jobs
    pthread_cond_t changed;
    pthread_t thread;
    bool started, ending;
    atomic_bool hurry;
    kn_job *first, *last;
};

// ---------------------------------------------------------------- memory

static void job_free(kn_job *job) {
    if (job->work.context) job->work.release(job->work.context);
    json_decref(job->result); // NULL is allowed
    free(job->work.store);
    free(job);
}

static bool is_over(const kn_job *job) {
    return job->state >= DONE;
}

// The oldest that are over make way.
static void forget_some(kn_jobs *j) {
    size_t over = 0;
    for (kn_job *x = j->first; x; x = x->next) over += is_over(x);
    for (kn_job **at = &j->first; *at && over > KN_JOBS_KEPT;) {
        kn_job *x = *at;
        if (is_over(x)) {
            *at = x->next;
            job_free(x);
            over--;
        } else {
            at = &x->next;
        }
    }
    j->last = j->first;
    while (j->last && j->last->next) j->last = j->last->next;
}

// ---------------------------------------------------------------- the thread

static kn_job *next_waiting(const kn_jobs *j) {
    kn_job *x = j->first;
    while (x && x->state != WAITING) x = x->next;
    return x;
}

// Texts and the like are not kept for those who look at the job later.
static void release_work(kn_job *job) {
    job->work.release(job->work.context);
    job->work.context = NULL;
}

static void finish(kn_job *job, json_t *result, const kn_http_error *err) {
    job->state = result ? DONE : job->unwanted ? CANCELLED : FAILED;
    job->result = result;
    job->error = *err;
    job->seconds = kn_seconds() - job->begun;
}

// The lock is held.
static void run(kn_jobs *j, kn_job *job) {
    kn_http_error err = {0};
    job->state = RUNNING;
    job->begun = kn_seconds();
    pthread_mutex_unlock(&j->lock);
    json_t *result = job->work.run(job->work.context, job, &err);
    release_work(job);
    pthread_mutex_lock(&j->lock);
    finish(job, result, &err);
}

static void *work(void *context) {
    kn_jobs *j = context;
    pthread_mutex_lock(&j->lock);
    while (!j->ending) {
        kn_job *job = next_waiting(j);
        if (job)
            run(j, job);
        else
            pthread_cond_wait(&j->changed, &j->lock);
        forget_some(j);
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

knnlm_status kn_jobs_open(kn_jobs **out) {
    kn_jobs *j = kn_alloc(1, sizeof *j);
    if (!j) return KNNLM_ENOMEM;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
    int code = pthread_create(&j->thread, NULL, work, j);
    j->started = code == 0;
    *out = j;
    return code ? kn_fail(KNNLM_ENOMEM, "cannot start a thread: %s", strerror(code)) : KNNLM_OK;
}

void kn_jobs_hurry(kn_jobs *j) {
    if (j) j->hurry = true;
}

void kn_jobs_close(kn_jobs *j) {
    if (!j) return;
    j->hurry = true;
    pthread_mutex_lock(&j->lock);
    j->ending = true;
    pthread_cond_signal(&j->changed);
    pthread_mutex_unlock(&j->lock);
    if (j->started) pthread_join(j->thread, NULL);
    for (kn_job *x = j->first, *next; x; x = next) {
        next = x->next;
        job_free(x);
    }
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
    free(j);
}

// ---------------------------------------------------------------- asking

static kn_job *job_of(kn_jobs *j, kn_job_work *take) {
    kn_job *job = kn_alloc(1, sizeof *job);
    uint64_t bits;
    if (!job) {
        take->release(take->context);
        free(take->store);
        return NULL;
    }
    *job = (kn_job){.jobs = j, .work = *take, .created = (int64_t)time(NULL)};
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits) bits = (uint64_t)(uintptr_t)job;
    snprintf(job->id, sizeof job->id, "job-%016llx", (unsigned long long)bits);
    return job;
}

bool kn_jobs_submit(kn_jobs *j, kn_job_work *take, char id[KN_JOB_ID], kn_http_error *err) {
    kn_job *job = job_of(j, take);
    if (!job) return kn_http_error_memory(err);
    memcpy(id, job->id, KN_JOB_ID);
    pthread_mutex_lock(&j->lock);
    size_t waiting = 0;
    for (const kn_job *x = j->first; x; x = x->next) waiting += x->state == WAITING;
    bool full = waiting >= KN_JOBS_WAITING;
    if (!full) {
        *(j->last ? &j->last->next : &j->first) = job;
        j->last = job;
        pthread_cond_signal(&j->changed);
    }
    pthread_mutex_unlock(&j->lock);
    if (full) job_free(job);
    return !full || kn_http_error_set(err, 429, "queue_full", NULL, "too many jobs are waiting: try again");
}

static kn_job *find(const kn_jobs *j, const char *id) {
    kn_job *x = j->first;
    while (x && strcmp(x->id, id) != 0) x = x->next;
    return x;
}

static json_t *error_json(const kn_http_error *err) {
    return json_pack("{s:s, s:s?}", "message", err->message, "code", err->code);
}

static json_t *job_json(const kn_job *x) {
    json_t *progress = json_pack("{s:s, s:I, s:I, s:s}", "phase", x->phase, "done", (json_int_t)x->done,
                                 "total", (json_int_t)x->total, "unit", x->unit);
    double seconds = is_over(x) ? x->seconds : x->begun > 0 ? kn_seconds() - x->begun : 0;
    return json_pack("{s:s, s:s, s:s, s:o?, s:s, s:I, s:f, s:o, s:o, s:o}", "object", "job", "id", x->id,
                     "kind", x->work.kind, "store", json_string(x->work.store), "status",
                     state_names[x->state], "created", (json_int_t)x->created, "seconds", seconds, "progress",
                     progress, "result", x->result ? json_deep_copy(x->result) : json_null(), "error",
                     x->state == FAILED ? error_json(&x->error) : json_null());
}

static json_t *describe(kn_jobs *j, const char *id, bool cancel, kn_http_error *err) {
    pthread_mutex_lock(&j->lock);
    kn_job *x = find(j, id);
    if (x && cancel && x->state == WAITING) {
        x->state = CANCELLED;
        release_work(x);
    }
    if (x && cancel) x->unwanted = true;
    json_t *json = x ? job_json(x) : NULL;
    pthread_mutex_unlock(&j->lock);
    if (!x) kn_http_error_set(err, 404, "not_found", NULL, "no job is called '%.40s'", id);
    return json;
}

json_t *kn_jobs_describe(kn_jobs *j, const char *id, kn_http_error *err) {
    return describe(j, id, false, err);
}

json_t *kn_jobs_cancel(kn_jobs *j, const char *id, kn_http_error *err) {
    return describe(j, id, true, err);
}

json_t *kn_jobs_list(kn_jobs *j) {
    json_t *list = json_array();
    pthread_mutex_lock(&j->lock);
    for (const kn_job *x = j->first; x; x = x->next) json_array_append_new(list, job_json(x));
    pthread_mutex_unlock(&j->lock);
    return list;
}

size_t kn_jobs_unfinished(kn_jobs *j) {
    size_t count = 0;
    pthread_mutex_lock(&j->lock);
    for (const kn_job *x = j->first; x; x = x->next) count += !is_over(x);
    pthread_mutex_unlock(&j->lock);
    return count;
}

// ---------------------------------------------------------------- for who does the work

bool kn_job_goes_on(void *job) {
    const kn_job *x = job;
    return !x->unwanted && !x->jobs->hurry;
}

bool kn_job_report(kn_job *x, const char *phase, uint64_t done, uint64_t total, const char *unit) {
    pthread_mutex_lock(&x->jobs->lock);
    snprintf(x->phase, sizeof x->phase, "%s", phase);
    snprintf(x->unit, sizeof x->unit, "%s", unit);
    x->done = done;
    x->total = total;
    pthread_mutex_unlock(&x->jobs->lock);
    return kn_job_goes_on(x);
}
