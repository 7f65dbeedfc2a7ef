// What the files that use MPI share. Not a door: only this room includes it.
#ifndef KN_RANKS_MPI_H
#define KN_RANKS_MPI_H

#include "ranks/transport.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

// Tags. A call has four of its own, from `tag` on: its bytes both ways, its progress, and that it is to stop.
enum {
    KN_TAG_CALL = 1,
    KN_TAG_PING = 2,
    KN_TAG_PONG = 3,
    KN_TAG_FIRST = 16,
    KN_TAG_EACH = 4,
    KN_TAG_CALLS = 4096, // calls under way at a time, at most: tags go up to 32767 at least
    KN_TAG_PROGRESS = 1, // added to a call's tag
    KN_TAG_STOP = 2,
    KN_TAG_MEETING = 3, // likewise, of calls that exchange messages
};
enum { KN_PIECE = 1 << 30, KN_HOST_NAME = 128 }; // bytes of a message of MPI, whose counts are ints

// The head of a call, and of an answer.
typedef struct kn_call_head {
    char service[KN_SERVICE_NAME]; // empty: the job ends, with code `tag`; size 1: some rank is gone
    uint64_t size;
    int32_t tag, unused;
} kn_call_head;
typedef struct kn_answer_head {
    uint64_t status, size, failure; // sizes of the answer and of the message
} kn_answer_head;
typedef struct kn_progress_note {
    uint64_t done, total;
} kn_progress_note;

typedef struct kn_ranks_job {
    int rank, count;
    char (*hosts)[KN_HOST_NAME];
    char library[64];
    bool begun;
    pthread_t watcher; // rank 0: asks whether the others live; others: answers
    bool watched;
    atomic_bool ending, broken;
    _Atomic double *heard; // (count): of rank 0: when each was heard last
} kn_ranks_job;
extern kn_ranks_job kn_the_job;

// Begins and ends the thread that knows who lives.
knnlm_status kn_watch_begin(void);
void kn_watch_end(void);
// KNNLM_EIO: the rank is not heard of any more.
knnlm_status kn_watch_check(int rank);
knnlm_status kn_mpi_check(int code, const char *what);

#endif
