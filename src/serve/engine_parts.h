// The engine's insides, shared by the files that do its work. Not a door: only they include it.
#ifndef KN_SERVE_ENGINE_PARTS_H
#define KN_SERVE_ENGINE_PARTS_H

#include "read/read.h"
#include "serve/engine.h"

// Tokens of texts that are scored together: enough to fill the model's batches, few enough for sequences not
// to wait long.
enum { KN_ENGINE_TOGETHER = 2048 };

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

// Takes the first waiting task of a kind (whose text is not longer than `room`) out of its queue; NULL: none.
// A job waits as long as one of its tasks does. The lock is held.
kn_request_task *kn_engine_take(kn_server_engine *e, kn_request_kind kind, size_t room);
// Whether nobody waits for the task any more.
bool kn_engine_unwanted(kn_request_task *t);
// Makes the task's view: states of stores may have changed since the last time.
knnlm_status kn_engine_view(kn_server_engine *e, kn_request_task *t);
// The task is not touched after this: its memory may be gone.
void kn_engine_finish(kn_server_engine *e, kn_request_task *t, knnlm_status status);

// Some of what waits, by the engine's thread.
void kn_engine_score(kn_server_engine *e);
void kn_engine_explain(kn_server_engine *e);
void kn_engine_embed(kn_server_engine *e);
// One step of every sequence.
void kn_engine_generate(kn_server_engine *e);

#endif
