// Clocks: wall time, and the CPU time of the process and of a thread.
#include "base/progress.h"

#include <time.h>

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double kn_seconds(void) {
    return seconds(CLOCK_MONOTONIC);
}

double kn_cpu_seconds(void) {
    return seconds(CLOCK_PROCESS_CPUTIME_ID);
}

double kn_thread_seconds(void) {
    return seconds(CLOCK_THREAD_CPUTIME_ID);
}
