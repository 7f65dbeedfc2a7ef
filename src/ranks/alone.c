// Ranks of a build without MPI: this process is the only one.
#include "ranks/transport.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool started_by_mpirun(void) {
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_RANK") || getenv("PMIX_RANK");
}

// Every one of its processes would do all of the work, and write to the same store.
knnlm_status kn_ranks_begin(void) {
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (!started_by_mpirun() || (size && atoi(size) == 1)) return KNNLM_OK;
    return kn_fail(KNNLM_ENOTSUP, "started by mpirun, but built without MPI: install it and build anew");
}

int kn_rank(void) {
    return 0;
}

int kn_rank_count(void) {
    return 1;
}

const char *kn_rank_host(int rank) {
    static char own[128];
    (void)rank;
    if (!*own && gethostname(own, sizeof own - 1) != 0) strcpy(own, "?");
    return own;
}

const char *kn_ranks_library(void) {
    return NULL;
}

int kn_ranks_serve(const kn_service *const *services, size_t count) {
    (void)services;
    (void)count;
    return 0; // rank 0 does not serve
}

int kn_ranks_end(int code) {
    return code;
}

knnlm_status kn_ranks_check(void) {
    return KNNLM_OK;
}

uint64_t kn_ranks_meeting(void) {
    return 0;
}

knnlm_status kn_ranks_exchange(const kn_round *r, knnlm_status status, const kn_progress *progress) {
    (void)r;
    (void)progress;
    return status; // there is nobody else
}

knnlm_status kn_transport_begin(kn_call *call, kn_sending **out) {
    *out = NULL;
    return kn_fail(KNNLM_ENOTSUP, "there is no rank %d", call->rank);
}

knnlm_status kn_transport_poll(kn_sending *sending, bool *answered) {
    (void)sending;
    *answered = true;
    return KNNLM_OK;
}

void kn_transport_stop(kn_sending *sending) {
    (void)sending;
}

void kn_transport_end(kn_sending *sending) {
    (void)sending;
}
