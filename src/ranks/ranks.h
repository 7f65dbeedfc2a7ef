// Ranks: the processes of one job, perhaps on many machines, and how one of them has work done by others.
//
// A job that mpirun started has as many ranks as it says; any other process is rank 0 of 1, and none of this
// costs it anything. Rank 0 is the driver: it runs the command. The others serve: they wait for calls and
// answer them, one after another, until rank 0 ends. A call names a service, which rooms above offer; one to
// the caller's own rank is run in place. So there is one way for a shard that is here and one that is not.
#ifndef KN_RANKS_H
#define KN_RANKS_H

#include "base/progress.h"
#include "ranks/message.h"

// Joins the job, if mpirun started this process. KNNLM_ENOTSUP: it did, but this was built without MPI, or
// the MPI cannot serve threads. KNNLM_EINVAL: ranks of different versions.
knnlm_status kn_ranks_begin(void);
int kn_rank(void);
int kn_rank_count(void);
const char *kn_rank_host(int rank);
// What the MPI calls itself; NULL: built without.
const char *kn_ranks_library(void);

// What a rank does when it is called: takes `in`, puts `out`. Progress that is reported goes to the caller,
// who may end the work.
typedef knnlm_status kn_service_run(kn_message *in, kn_message *out, const kn_progress *progress);
typedef struct kn_service {
    const char *name; // at most KN_SERVICE_NAME - 1 bytes, none twice
    kn_service_run *run;
} kn_service;
enum { KN_SERVICE_NAME = 24 };

// Of ranks above 0: answers calls until rank 0 ends. The exit code.
int kn_ranks_serve(const kn_service *const *services, size_t count);
// Of rank 0: ends the others, and the job; they leave with `code`, which is returned.
int kn_ranks_end(int code);

// One call. After kn_ranks_call `out` is the answer; both messages are freed with kn_calls_free.
typedef struct kn_call {
    int rank;
    const kn_service *service;
    kn_message in, out;
    knnlm_status status;
    char *failure; // its message
    uint64_t done, total;
} kn_call;

// Makes all calls, those to other ranks at the same time, and waits for all. Calls to one rank are answered
// in their order, and those of different threads in the same order by all ranks. The first (by number) that
// failed gives status and message, "rank 2 (host): ..." where it was another's; when one fails, the others
// are asked to stop. Any thread of rank 0. `progress` (or NULL) is told the sums of what calls report.
// KNNLM_EIO: a rank does not answer any more.
knnlm_status kn_ranks_call(kn_call *calls, size_t count, const kn_progress *progress);
void kn_calls_free(kn_call *calls, size_t count);

// ---------------------------------------------------------------- between ranks that work together

// Ranks that are called together may exchange messages meanwhile, all with all, in rounds. They know each
// other's messages by a number that all of these calls are told: one for each kn_ranks_call.
uint64_t kn_ranks_meeting(void);

typedef struct kn_round {
    uint64_t meeting;
    const bool *to, *from;        // (ranks): whom this rank has a message for, and who has one for it
    const kn_message *const *out; // (ranks): by rank; several may get the same
    kn_message *in;               // (ranks): what was in them is lost
} kn_round;

// Sends, and waits for what is sent to this rank; a rank has nothing for itself. `status` of what this rank
// did before: if that failed, the others are told, and it is returned. KNNLM_ESTOPPED: another rank failed,
// or the caller does not want it any more (`progress` says so). Who did not fail has all rounds with the same
// ranks.
knnlm_status kn_ranks_exchange(const kn_round *round, knnlm_status status, const kn_progress *progress);

// KNNLM_EIO, naming it: a rank does not answer any more. Any thread of rank 0.
knnlm_status kn_ranks_check(void);

#endif
