// Threads: one pool for the process.
//
// Work is cut into numbered tasks by its shape alone, never by the number of threads, and each task writes
// what no other writes: results are the same whatever the threads. A pool of our own rather than OpenMP
// because ThreadSanitizer understands it (libgomp it does not) and because the number of threads may change
// at run time.
#ifndef KN_BASE_THREADS_H
#define KN_BASE_THREADS_H

#include "base/status.h"

#include <stddef.h>

enum { KN_THREADS_MAX = 256 };

// Runs task numbers [0, tasks) of `run`; returns when all are done. `worker` is in [0, kn_threads()): scratch
// memory can be kept per worker. Calls from inside a task run in place, by the calling worker (a task that is
// the only one of its call runs in the caller and may still spread its own calls). Any thread may call: one
// call has the pool at a time, others wait.
typedef void kn_parallel_task(void *context, size_t task, int worker);
void kn_parallel(size_t tasks, kn_parallel_task *run, void *context);

// The number of workers, the calling thread included. Set it (0: one per CPU that the process may use, see
// base/cpus.h) before the first kn_parallel or
// between calls, from one thread; inside a task it is KNNLM_EINVAL.
int kn_threads(void);
knnlm_status kn_threads_set(int threads);

#endif
