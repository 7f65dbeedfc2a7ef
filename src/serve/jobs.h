// Long work on stores, which outlives the request that asked for it: jobs are done one after another by a
// thread of their own, can be looked at meanwhile, and ended. Not a door: only this room includes it.
#ifndef KN_SERVE_JOBS_H
#define KN_SERVE_JOBS_H

#include "serve/http_error.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdint.h>

enum { KN_JOB_ID = 24, KN_JOBS_WAITING = 64, KN_JOBS_KEPT = 100 };

typedef struct kn_jobs kn_jobs;
typedef struct kn_job kn_job;

// What is to be done. `context` is the work's.
typedef struct kn_job_work {
    const char *kind; // "add", "compact", "tune", "verify"; a constant
    char *store;      // its name; released with free()
    // By the jobs' thread. The result, the caller's; NULL: error set.
    json_t *(*run)(void *context, kn_job *job, kn_http_error *err);
    void (*release)(void *context);
    void *context;
} kn_job_work;

knnlm_status kn_jobs_open(kn_jobs **out);
// Ends the job under way, and forgets the others. NULL is allowed.
void kn_jobs_close(kn_jobs *jobs);
// Whoever works asks no more: for when the server ends.
void kn_jobs_hurry(kn_jobs *jobs);

// Takes the work, whatever it returns; its number in `id`. False: too many wait (error set).
bool kn_jobs_submit(kn_jobs *jobs, kn_job_work *work, char id[KN_JOB_ID], kn_http_error *err);
// The job as JSON; NULL: there is none (error set).
json_t *kn_jobs_describe(kn_jobs *jobs, const char *id, kn_http_error *err);
json_t *kn_jobs_list(kn_jobs *jobs);
// The same after it was told to end, where it has not yet.
json_t *kn_jobs_cancel(kn_jobs *jobs, const char *id, kn_http_error *err);
// Jobs that wait or run.
size_t kn_jobs_unfinished(kn_jobs *jobs);

// ---------------------------------------------------------------- for who does the work

// How far it is; false: it is to end.
bool kn_job_report(kn_job *job, const char *phase, uint64_t done, uint64_t total, const char *unit);
// Whether it may go on.
bool kn_job_goes_on(void *job);

#endif
