// Calls on their way: sent, and answered, without anybody having to wait for MPI.
#include "ranks/mpi.h"

#include <stdlib.h>
#include <string.h>

struct kn_sending {
    kn_call *call;
    kn_call_head head;
    kn_answer_head answer;
    int tag;
    MPI_Request *requests; // what is under way
    size_t count, capacity;
    bool body; // the answer's head was here: its bytes are under way
};

static MPI_Request *next_request(kn_sending *s) {
    if (kn_grow(&s->requests, &s->capacity, s->count + 1, sizeof *s->requests) != KNNLM_OK) return NULL;
    return &s->requests[s->count++];
}

static knnlm_status move(kn_sending *s, void *data, size_t size, int tag, bool out) {
    for (size_t at = 0; at < size; at += KN_PIECE) {
        MPI_Request *request = next_request(s);
        char *from = (char *)data + at;
        int n = (int)kn_min(KN_PIECE, size - at);
        if (!request) return KNNLM_ENOMEM;
        int code = out ? MPI_Isend(from, n, MPI_BYTE, s->call->rank, tag, MPI_COMM_WORLD, request)
                       : MPI_Irecv(from, n, MPI_BYTE, s->call->rank, tag, MPI_COMM_WORLD, request);
        KN_TRY(kn_mpi_check(code, out ? "MPI_Isend" : "MPI_Irecv"));
    }
    return KNNLM_OK;
}

static knnlm_status begin(kn_sending *s) {
    static _Atomic unsigned calls;
    kn_message *in = &s->call->in;
    s->tag = KN_TAG_FIRST + (int)(calls++ % KN_TAG_CALLS) * KN_TAG_EACH;
    s->head = (kn_call_head){.size = in->size, .tag = s->tag};
    strncpy(s->head.service, s->call->service->name, KN_SERVICE_NAME - 1);
    KN_TRY(kn_watch_check(s->call->rank));
    KN_TRY(move(s, &s->answer, sizeof s->answer, s->tag, false));
    KN_TRY(move(s, &s->head, sizeof s->head, KN_TAG_CALL, true));
    return move(s, in->data, in->size, s->tag, true);
}

knnlm_status kn_transport_begin(kn_call *call, kn_sending **out) {
    *out = kn_alloc(1, sizeof **out);
    if (!*out) return KNNLM_ENOMEM;
    (*out)->call = call;
    knnlm_status status = begin(*out);
    if (status == KNNLM_OK) return status;
    *out = NULL; // its requests may be under way still: better lost than freed under MPI's hands
    return status;
}

static void hear_progress(const kn_sending *s) {
    kn_progress_note note;
    for (;;) {
        int there = 0, tag = s->tag + KN_TAG_PROGRESS;
        MPI_Iprobe(s->call->rank, tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        if (!there) return;
        MPI_Recv(&note, sizeof note, MPI_BYTE, s->call->rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        s->call->done = note.done;
        s->call->total = note.total;
    }
}

// The answer's head is here: room for the rest.
static knnlm_status take_head(kn_sending *s) {
    kn_call *call = s->call;
    s->count = 0;
    s->body = true;
    call->status = (knnlm_status)s->answer.status;
    if (call->status != KNNLM_OK && !(call->failure = kn_alloc((size_t)s->answer.failure + 1, 1)))
        return KNNLM_ENOMEM;
    void *room = kn_message_room(&call->out, (size_t)s->answer.size);
    KN_TRY(kn_message_sent(&call->out));
    KN_TRY(move(s, call->failure, (size_t)s->answer.failure, s->tag, false));
    return move(s, room, (size_t)s->answer.size, s->tag, false);
}

static knnlm_status is_done(kn_sending *s, bool *done) {
    int all = 0;
    KN_TRY(kn_mpi_check(MPI_Testall((int)s->count, s->requests, &all, MPI_STATUSES_IGNORE), "MPI_Testall"));
    *done = all;
    return KNNLM_OK;
}

knnlm_status kn_transport_poll(kn_sending *s, bool *answered) {
    *answered = false;
    hear_progress(s);
    KN_TRY(is_done(s, answered));
    if (!*answered) return kn_watch_check(s->call->rank);
    if (s->body) return KNNLM_OK;
    KN_TRY(take_head(s));
    return is_done(s, answered);
}

void kn_transport_stop(kn_sending *s) {
    char nothing = 0;
    MPI_Send(&nothing, 1, MPI_BYTE, s->call->rank, s->tag + KN_TAG_STOP, MPI_COMM_WORLD);
}

void kn_transport_end(kn_sending *s) {
    bool done = false;
    if (!s) return;
    hear_progress(s);
    if (is_done(s, &done) != KNNLM_OK || !done) return; // of a rank that is gone: lost, as above
    free(s->requests);
    free(s);
}
