// The one thread that has the model: it takes what requests ask for, many at a time, and runs it in batches.
// Not a door: only this room includes it.
//
// A request is a job of one or more tasks. Who submits it keeps the tasks' memory until the job is over, and
// may end it early. Texts to be scored are scored together, sequences take their steps together; the two take
// turns, so that neither starves.
#ifndef KN_SERVE_ENGINE_H
#define KN_SERVE_ENGINE_H

#include "eval/explain.h"
#include "eval/score_batch.h"
#include "serve/chunk.h"
#include "serve/metrics.h"
#include "serve/served.h"

typedef struct kn_engine_options {
    size_t parallel; // sequences generated at a time
    size_t queue;    // jobs that may wait
} kn_engine_options;

typedef enum kn_request_kind {
    KN_REQUEST_SCORE,
    KN_REQUEST_EXPLAIN,
    KN_REQUEST_GENERATE,
    KN_REQUEST_EMBED,
    KN_REQUEST_KINDS
} kn_request_kind;

// An explanation that outlives the state of the stores it was found in.
typedef struct kn_request_explanation {
    kn_explanation found; // neighbours have the numbers of served stores
    char *names;          // those of their documents are in here
} kn_request_explanation;
void kn_request_explanation_free(kn_request_explanation *explanation); // also where there is none

// What documents did for a text (eval/gain.h), in a form that outlives the state of the stores.
typedef struct kn_request_gain {
    kn_document_gain of; // `store` is the number of a served one
    const char *name;    // of the document
    size_t name_size;
} kn_request_gain;
typedef struct kn_request_gains {
    size_t documents;             // that had a part in it
    double stores[KN_STORES_MAX]; // gain of each served store
    kn_request_gain *listed;      // those of the largest gain or loss first
    size_t count;
    double others; // gain of the documents that are not listed
    char *names;
} kn_request_gains;
void kn_request_gains_free(kn_request_gains *gains); // also where there are none

// What is asked for, and what comes of it. Results are the asker's, who frees them.
typedef struct kn_request_task {
    kn_request_kind kind;
    kn_selection selection;
    const int32_t *tokens; // of the text, the context, the prompt
    size_t count;
    // score: all but the mixtures is filled in by who asks
    kn_score_text scoring;
    kn_selection next_selection;
    bool next_wanted;
    size_t gains_wanted; // documents that are listed, at most; 0: gains are not wanted
    kn_request_gains gains;
    // explain: the tokens of the target stand behind those of the context
    size_t targets;
    size_t words, neighbors, around;
    kn_request_explanation explanation;
    // embed
    float *vector;   // (key_width)
    bool last_alone; // the state after the last token, rather than the mean of those after each
    // generate
    kn_generate_options options;
    bool tokens_wanted;    // chunks have tokens
    kn_chunk_queue chunks; // as they come, under the job's lock
    size_t generated;      // tokens; likewise
    double mean_logprob;   // of them, once it is over

    // the engine's
    struct kn_request_job *job;
    struct kn_request_task *next;
    kn_sequence *sequence;
    struct kn_task_view *view; // how it is mixed; while it is at work
    kn_chosen_entries chosen;  // of its selection
    kn_chunk_cursor cursor;
    bool begun, over;
} kn_request_task;

typedef struct kn_request_job {
    pthread_mutex_t lock;
    pthread_cond_t changed; // a chunk came, or a task is over
    unsigned long changes;  // how often
    size_t open;            // tasks that are not over
    size_t waiting;         // tasks that have not begun; under the engine's lock
    bool unwanted;          // to be ended
    knnlm_status status;    // the first failure of a task
    char message[400];
} kn_request_job;

typedef struct kn_server_engine kn_server_engine;

knnlm_status kn_server_engine_open(kn_lm *lm, kn_ticket_lock *model_lock, kn_served *served,
                                   kn_metrics *metrics, const kn_engine_options *options,
                                   kn_server_engine **out);
// Nothing may be submitted any more, and every job must be over.
void kn_server_engine_close(kn_server_engine *e);
size_t kn_server_engine_waiting(kn_server_engine *e); // jobs
size_t kn_server_engine_running(kn_server_engine *e); // tasks that have begun

void kn_request_job_init(kn_request_job *job);
void kn_request_job_destroy(kn_request_job *job);
// False, with an error, when too many are waiting.
bool kn_request_job_submit(kn_server_engine *e, kn_request_job *job, kn_request_task *tasks, size_t count,
                           kn_http_error *err);
// Waits until there were more than `seen` changes, or for a tenth of a second; the job's lock is held by the
// caller.
void kn_request_job_wait(kn_request_job *job, unsigned long seen);
// Ends the job and waits until the engine has let go of it.
void kn_request_job_end(kn_server_engine *e, kn_request_job *job);

#endif
