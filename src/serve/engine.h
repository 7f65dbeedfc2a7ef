// The one thread that has the model: it takes what requests ask for, many at a time, and runs it in batches.
// Not a door: only this room includes it.
//
// A request is a job of one or more tasks. Who submits it keeps the tasks' memory until the job is over, and
// may end it early. Texts to be scored are scored together, sequences take their steps together; the two take
// turns, so that neither starves.
#ifndef KN_SERVE_ENGINE_H
#define KN_SERVE_ENGINE_H

#include "eval/together.h"
#include "serve/metrics.h"
#include "serve/shelf.h"

typedef struct kn_engine_options {
    size_t parallel; // sequences generated at a time
    size_t queue;    // jobs that may wait
} kn_engine_options;

typedef enum kn_task_kind { KN_TASK_SCORE, KN_TASK_EXPLAIN, KN_TASK_GENERATE, KN_TASK_KINDS } kn_task_kind;

typedef struct kn_task {
    kn_task_kind kind;
    kn_selection selection;
    const int32_t *tokens; // of the text, the context, the prompt
    size_t count;
    // score: all but the mixtures is filled in by who asks
    kn_asked asked;
    kn_selection next_selection;
    bool next_wanted;
    // explain
    int32_t target;
    size_t words, neighbors, around;
    json_t *answer; // of explain; the task's
    // generate
    kn_generate_options options;
    bool tokens_wanted; // pieces have "tokens"
    json_t *
        pieces; // an array, under the job's lock: {"text", "tokens", "end", "sources", "finish"} as they come
    size_t generated;

    // the engine's
    struct kn_job *job;
    struct kn_task *next;
    kn_sequence *sequence;
    struct kn_task_view *view; // how it is mixed; while it is at work
    size_t sent_text, sent_tokens, sent_sources;
    size_t counted_bytes, counted_chars; // of the sequence's text
    bool begun, over;
} kn_task;

typedef struct kn_job {
    pthread_mutex_t lock;
    pthread_cond_t changed; // a piece came, or a task is over
    unsigned long changes;  // how often
    size_t open;            // tasks that are not over
    size_t waiting;         // tasks that have not begun; under the engine's lock
    bool unwanted;          // to be ended
    knnlm_status status;    // the first failure of a task
    char message[400];
} kn_job;

typedef struct kn_server_engine kn_server_engine;

knnlm_status kn_server_engine_open(kn_lm *lm, kn_turn *turn, kn_shelf *shelf, kn_metrics *metrics,
                                   const kn_engine_options *options, kn_server_engine **out);
// Nothing may be submitted any more, and every job must be over.
void kn_server_engine_close(kn_server_engine *e);
size_t kn_server_engine_waiting(kn_server_engine *e); // jobs
size_t kn_server_engine_running(kn_server_engine *e); // tasks that have begun

void kn_job_init(kn_job *job);
void kn_job_destroy(kn_job *job);
// False, with a complaint, when too many are waiting.
bool kn_job_submit(kn_server_engine *e, kn_job *job, kn_task *tasks, size_t count, kn_complaint *c);
// Waits until there were more than `seen` changes, or for a tenth of a second; the job's lock is held by the
// caller.
void kn_job_wait(kn_job *job, unsigned long seen);
// Ends the job and waits until the engine has let go of it.
void kn_job_end(kn_server_engine *e, kn_job *job);

#endif
