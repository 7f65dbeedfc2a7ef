// A thread that does jobs in order behind its owner's back, so that writing overlaps computing.
//
// The queue is bounded: whoever gets too far ahead waits. The first failure is kept, later jobs are only
// disposed of, and every further call reports it.
#ifndef KN_BASE_SPOOL_H
#define KN_BASE_SPOOL_H

#include "base/status.h"

typedef struct kn_spool kn_spool;

// Does the work of `job` and releases it. `failed`: an earlier job failed; release only.
typedef knnlm_status kn_spool_job(void *job, bool failed);

// `depth` jobs may wait at a time.
knnlm_status kn_spool_open(size_t depth, kn_spool **out);
// Takes the job, also when it fails.
knnlm_status kn_spool_put(kn_spool *spool, kn_spool_job *run, void *job);
// Returns when all jobs are done.
knnlm_status kn_spool_drain(kn_spool *spool);
// Drains, then ends the thread. NULL is allowed.
void kn_spool_close(kn_spool *spool);

#endif
