// Who lives: rank 0 asks every rank twice a second, the others answer, in threads of their own.
#include "ranks/mpi.h"

#include <time.h>
#include <unistd.h>

// Seconds without a word. A machine that swaps is slow, not dead; who serves waits longer than who asks, so
// that rank 0 has the last word.
#define GONE "does not answer any more: it has ended, or the way to it is cut"
enum { SILENCE = 10, SILENCE_OF_DRIVER = 30 };

static void rest(void) {
    nanosleep(&(struct timespec){0, 50000000}, NULL);
}

static bool take_byte(int rank, int tag) {
    int there = 0;
    char byte;
    MPI_Iprobe(rank, tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    if (there) MPI_Recv(&byte, 1, MPI_BYTE, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return there;
}

static void send_byte(int rank, int tag) {
    char byte = 0;
    MPI_Send(&byte, 1, MPI_BYTE, rank, tag,
             MPI_COMM_WORLD); // so short that it does not wait for who takes it
}

static void *ask(void *context) {
    double asked = 0;
    (void)context;
    while (!kn_the_job.ending) {
        bool now = kn_seconds() - asked > 0.5;
        for (int i = 1; i < kn_the_job.count; i++) {
            while (take_byte(i, KN_TAG_PONG)) kn_the_job.heard[i] = kn_seconds();
            bool silent = kn_seconds() - kn_the_job.heard[i] > SILENCE;
            if (silent) kn_the_job.broken = true;
            if (now && !silent) send_byte(i, KN_TAG_PING);
        }
        if (now) asked = kn_seconds();
        rest();
    }
    return NULL;
}

// A rank whose driver is gone has nobody to work for. Its stores stand at their last commits.
static void *reply(void *context) {
    double heard = kn_seconds();
    (void)context;
    while (!kn_the_job.ending) {
        while (take_byte(0, KN_TAG_PING)) {
            send_byte(0, KN_TAG_PONG);
            heard = kn_seconds();
        }
        if (kn_seconds() - heard > SILENCE_OF_DRIVER) _exit(1);
        rest();
    }
    return NULL;
}

knnlm_status kn_watch_begin(void) {
    for (int i = 0; i < kn_the_job.count; i++) kn_the_job.heard[i] = kn_seconds();
    int error = pthread_create(&kn_the_job.watcher, NULL, kn_the_job.rank ? reply : ask, NULL);
    kn_the_job.watched = !error;
    return error ? kn_fail_errno(KNNLM_ENOMEM, error, "cannot make a thread") : KNNLM_OK;
}

void kn_watch_end(void) {
    if (!kn_the_job.watched) return;
    kn_the_job.ending = true;
    pthread_join(kn_the_job.watcher, NULL);
}

knnlm_status kn_watch_check(int rank) {
    if (kn_seconds() - kn_the_job.heard[rank] <= SILENCE) return KNNLM_OK;
    return kn_fail(KNNLM_EIO, GONE);
}

knnlm_status kn_ranks_check(void) {
    for (int i = 1; i < kn_the_job.count; i++)
        if (kn_watch_check(i) != KNNLM_OK)
            return kn_fail(KNNLM_EIO, "rank %d (%s) " GONE, i, kn_rank_host(i));
    return KNNLM_OK;
}
