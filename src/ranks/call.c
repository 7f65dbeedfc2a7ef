// Makes calls: those to this rank in place, those to others through MPI, and waits for all.
#include "ranks/transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct calling {
    kn_call *calls;
    size_t count, current; // current: the one that runs in place
    kn_sending **sendings; // NULL: in place, or answered
    const kn_progress *progress;
    const char *phase, *unit;
    double told;
    bool stopped;
} calling;

void kn_calls_free(kn_call *calls, size_t count) {
    for (size_t i = 0; calls && i < count; i++) {
        kn_message_free(&calls[i].in);
        kn_message_free(&calls[i].out);
        free(calls[i].failure);
        calls[i].failure = NULL;
    }
}

void kn_transport_rest(unsigned *waited) {
    static const unsigned spins = 64, step = 1000, longest = 200000; // nanoseconds
    if (++*waited < spins) return;
    unsigned nanoseconds = (*waited - spins + 1) * step;
    nanosleep(&(struct timespec){0, nanoseconds < longest ? nanoseconds : longest}, NULL);
}

// Calls of one thread go out before those of another: ranks that exchange messages have to meet in one order.
static pthread_mutex_t outgoing = PTHREAD_MUTEX_INITIALIZER;

static void stop_others(calling *c) {
    for (size_t i = 0; i < c->count && !c->stopped; i++)
        if (c->sendings[i]) kn_transport_stop(c->sendings[i]);
    c->stopped = true;
}

static void keep(kn_call *call, knnlm_status status) {
    call->status = status;
    if (status != KNNLM_OK) call->failure = strdup(knnlm_message());
}

// Looks at every call that is on its way; how many still are.
static size_t poll_all(calling *c) {
    size_t left = 0;
    for (size_t i = 0; i < c->count; i++) {
        bool answered = true;
        if (!c->sendings[i]) continue;
        knnlm_status status = kn_transport_poll(c->sendings[i], &answered);
        if (status != KNNLM_OK) keep(&c->calls[i], status);
        if (status == KNNLM_OK && !answered) {
            left++;
            continue;
        }
        kn_transport_end(c->sendings[i]);
        c->sendings[i] = NULL;
        if (c->calls[i].status != KNNLM_OK) stop_others(c);
    }
    return left;
}

// The sums, a few times a second.
static bool tell(calling *c) {
    uint64_t done = 0, total = 0;
    double now = kn_seconds();
    if (!c->progress || !c->progress->report || now - c->told < 0.1) return true;
    c->told = now;
    for (size_t i = 0; i < c->count; i++) {
        done += c->calls[i].done;
        total += c->calls[i].total;
    }
    return kn_progress_report(c->progress, c->phase ? c->phase : "waiting", done, total,
                              c->unit ? c->unit : "calls");
}

// What runs in place reports; the others are looked after meanwhile.
static bool report(void *context, const char *phase, uint64_t done, uint64_t total, const char *unit) {
    calling *c = context;
    c->phase = phase;
    c->unit = unit;
    c->calls[c->current].done = done;
    c->calls[c->current].total = total;
    poll_all(c);
    if (!c->stopped && !tell(c)) stop_others(c);
    return !c->stopped;
}

static void run_in_place(calling *c) {
    kn_progress progress = {report, c};
    for (size_t i = 0; i < c->count && !c->stopped; i++) {
        if (c->calls[i].rank != kn_rank()) continue;
        c->current = i;
        keep(&c->calls[i], c->calls[i].service->run(&c->calls[i].in, &c->calls[i].out, &progress));
        if (c->calls[i].status != KNNLM_OK) stop_others(c);
    }
}

static void wait_for_others(calling *c) {
    unsigned waited = 0;
    while (poll_all(c)) {
        if (!c->stopped && !tell(c)) stop_others(c);
        kn_transport_rest(&waited);
    }
}

// What others failed of because it was stopped is not why: the reason comes first.
static knnlm_status conclude(const calling *c) {
    const kn_call *first = NULL;
    for (size_t i = 0; i < c->count; i++) {
        const kn_call *call = &c->calls[i];
        if (call->status == KNNLM_OK) continue;
        if (!first || (first->status == KNNLM_ESTOPPED && call->status != KNNLM_ESTOPPED)) first = call;
    }
    if (!first) return c->stopped ? kn_fail(KNNLM_ESTOPPED, "stopped") : KNNLM_OK;
    const char *said = first->failure ? first->failure : knnlm_status_name(first->status);
    if (first->rank == kn_rank()) return kn_fail(first->status, "%s", said);
    return kn_fail(first->status, "rank %d (%s): %s", first->rank, kn_rank_host(first->rank), said);
}

knnlm_status kn_ranks_call(kn_call *calls, size_t count, const kn_progress *progress) {
    calling c = {.calls = calls, .count = count, .progress = progress};
    for (size_t i = 0; i < count; i++) KN_TRY(kn_message_sent(&calls[i].in));
    c.sendings = kn_alloc(count, sizeof *c.sendings);
    if (!c.sendings) return KNNLM_ENOMEM;
    pthread_mutex_lock(&outgoing);
    for (size_t i = 0; i < count && !c.stopped; i++) {
        if (calls[i].rank == kn_rank()) continue;
        keep(&calls[i], kn_transport_begin(&calls[i], &c.sendings[i]));
        if (calls[i].status != KNNLM_OK) stop_others(&c);
    }
    pthread_mutex_unlock(&outgoing);
    run_in_place(&c);
    wait_for_others(&c);
    free(c.sendings);
    return conclude(&c);
}
