// Messages between ranks that were called together: all with all, without rank 0 in between.
#include "ranks/mpi.h"

#include <stdlib.h>
#include <string.h>

// A message is a head, then its bytes. The head tells the meeting: what a rank that gave up has left behind
// is of another.
typedef struct parcel_head {
    uint64_t meeting, size, failed;
} parcel_head;

// A message on its way.
typedef struct parcel {
    int rank;
    bool out, bytes, done; // bytes: those are under way, or to be thrown away
    parcel_head head;
    kn_message *message; // that is received
    MPI_Request *requests;
    size_t count, capacity;
} parcel;

typedef struct exchange {
    const kn_round *r;
    int tag;
    bool failed, stopped; // failed: some rank has
    parcel *list;
    size_t count;
    double stopped_at;
} exchange;

// Seconds that a rank which was told to stop waits for messages on their way. It was told because another
// failed, or is gone.
static const double GRACE = 1;

uint64_t kn_ranks_meeting(void) {
    static _Atomic uint64_t meetings;
    return ++meetings;
}

static knnlm_status move(parcel *p, void *data, size_t size, int tag) {
    for (size_t at = 0; at < size; at += KN_PIECE) {
        KN_TRY(kn_grow(&p->requests, &p->capacity, p->count + 1, sizeof *p->requests));
        char *from = (char *)data + at;
        int n = (int)kn_min(KN_PIECE, size - at);
        MPI_Request *request = &p->requests[p->count++];
        int code = p->out ? MPI_Isend(from, n, MPI_BYTE, p->rank, tag, MPI_COMM_WORLD, request)
                          : MPI_Irecv(from, n, MPI_BYTE, p->rank, tag, MPI_COMM_WORLD, request);
        KN_TRY(kn_mpi_check(code, p->out ? "MPI_Isend" : "MPI_Irecv"));
    }
    return KNNLM_OK;
}

static knnlm_status begin_sending(exchange *x, int rank, knnlm_status status) {
    parcel *p = &x->list[x->count++];
    const kn_message *m = x->r->out[rank];
    size_t size = status == KNNLM_OK ? m->size : 0;
    *p = (parcel){.rank = rank, .out = true, .head = {x->r->meeting, size, status != KNNLM_OK}};
    KN_TRY(move(p, &p->head, sizeof p->head, x->tag));
    return move(p, m->data, size, x->tag);
}

static knnlm_status begin_receiving(exchange *x, int rank) {
    parcel *p = &x->list[x->count++];
    *p = (parcel){.rank = rank, .message = &x->r->in[rank]};
    kn_message_clear(p->message);
    return move(p, &p->head, sizeof p->head, x->tag);
}

// The head is here: room for the rest. Bytes of another meeting are taken too, and then the next head.
static knnlm_status take_head(exchange *x, parcel *p) {
    p->count = 0;
    p->bytes = true;
    x->failed |= p->head.meeting == x->r->meeting && p->head.failed;
    kn_message_clear(p->message);
    void *room = kn_message_room(p->message, (size_t)p->head.size);
    if (!room && p->head.size) return kn_message_sent(p->message);
    return move(p, room, (size_t)p->head.size, x->tag);
}

static knnlm_status poll_parcel(exchange *x, parcel *p) {
    int all = 0;
    KN_TRY(kn_mpi_check(MPI_Testall((int)p->count, p->requests, &all, MPI_STATUSES_IGNORE), "MPI_Testall"));
    if (!all) return KNNLM_OK;
    p->done = p->out || (p->bytes && p->head.meeting == x->r->meeting);
    if (p->done) return KNNLM_OK;
    if (!p->bytes) return take_head(x, p);
    p->count = 0;
    p->bytes = false;
    return move(p, &p->head, sizeof p->head, x->tag);
}

// How many are still on their way.
static knnlm_status poll_all(exchange *x, size_t *left) {
    *left = 0;
    for (size_t i = 0; i < x->count; i++) {
        if (!x->list[i].done) KN_TRY(poll_parcel(x, &x->list[i]));
        *left += !x->list[i].done;
    }
    return KNNLM_OK;
}

// Whether to go on waiting.
static bool look_up(exchange *x, const kn_progress *progress) {
    if (!x->stopped && !kn_progress_report(progress, "exchanging", 0, 0, "B")) {
        x->stopped = true;
        x->stopped_at = kn_seconds();
    }
    return !x->stopped || kn_seconds() - x->stopped_at < GRACE;
}

static knnlm_status run(exchange *x, knnlm_status status, const kn_progress *progress) {
    size_t left = 1;
    for (int i = 0; i < kn_the_job.count; i++)
        if (x->r->from[i] && i != kn_the_job.rank) KN_TRY(begin_receiving(x, i));
    for (int i = 0; i < kn_the_job.count; i++)
        if (x->r->to[i] && i != kn_the_job.rank) KN_TRY(begin_sending(x, i, status));
    for (unsigned waited = 0; left; kn_transport_rest(&waited)) {
        KN_TRY(poll_all(x, &left));
        if (left && !look_up(x, progress)) return kn_fail(KNNLM_ESTOPPED, "stopped while other ranks worked");
    }
    return x->failed ? kn_fail(KNNLM_ESTOPPED, "stopped: another rank failed") : KNNLM_OK;
}

// After a failure requests may be under way still: better lost than freed under MPI's hands.
static void end(exchange *x) {
    for (size_t i = 0; i < x->count; i++)
        if (!x->list[i].done) return;
    for (size_t i = 0; i < x->count; i++) free(x->list[i].requests);
    free(x->list);
}

knnlm_status kn_ranks_exchange(const kn_round *r, knnlm_status status, const kn_progress *progress) {
    exchange x = {.r = r,
                  .tag = KN_TAG_FIRST + (int)(r->meeting % KN_TAG_CALLS) * KN_TAG_EACH + KN_TAG_MEETING};
    char *why = status == KNNLM_OK ? NULL : kn_strdup(knnlm_message()); // what follows may fail too
    x.list = kn_alloc(2 * (size_t)kn_the_job.count, sizeof *x.list);
    knnlm_status met = x.list ? run(&x, status, progress) : KNNLM_ENOMEM;
    if (x.list) end(&x);
    if (status != KNNLM_OK) met = why ? kn_fail(status, "%s", why) : status;
    free(why);
    return met;
}
