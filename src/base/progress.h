// Progress of long work: a bar with rate and time left. The library only reports; the command line draws.
#ifndef KN_BASE_PROGRESS_H
#define KN_BASE_PROGRESS_H

#include "knnlm.h"

typedef knnlm_progress kn_progress;

static inline bool kn_progress_report(const kn_progress *p, const char *phase, uint64_t done, uint64_t total,
                                      const char *unit) {
    return !p || !p->report || p->report(p->context, phase, done, total, unit);
}

// Seconds on a clock that never goes back.
double kn_seconds(void);
// Of CPU time: what all threads of the process had, and the calling one.
double kn_cpu_seconds(void);
double kn_thread_seconds(void);

#endif
