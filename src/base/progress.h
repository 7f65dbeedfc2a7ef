// Progress of long work: a bar with rate and time left. The library only reports; the command line draws.
#ifndef KN_BASE_PROGRESS_H
#define KN_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

// What long work reports to: `done` of `total` units (total 0: unknown). Returning false asks the work to
// stop (it then ends with KNNLM_ESTOPPED). A NULL `report` is nobody listening.
typedef struct kn_progress {
    bool (*report)(void *context, const char *what, uint64_t done, uint64_t total, const char *unit);
    void *context;
} kn_progress;

static inline bool kn_progress_report(const kn_progress *p, const char *what, uint64_t done, uint64_t total,
                                      const char *unit) {
    return !p || !p->report || p->report(p->context, what, done, total, unit);
}

// Seconds on a clock that never goes back.
double kn_seconds(void);
// Of CPU time: what all threads of the process had, and the calling one.
double kn_cpu_seconds(void);
double kn_thread_seconds(void);

#endif
