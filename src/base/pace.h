// How many threads pay, for work whose threads wait for each other by spinning.
//
// llama.cpp's do, at a barrier after every operation, whatever its polling is set to: a thread that the
// system does not let run, because others want the CPU as well, holds up all the others, who burn their time
// waiting. On a busy machine two threads were a hundred times slower than one. Such threads use their CPUs
// all the time: what the process got less than that, others took, and as many threads are left out. When
// nothing was taken for a while, as many as there are idle CPUs are tried again: the while is a multiple of
// what the last try took, so that tries in vain cost little.
#ifndef KN_BASE_PACE_H
#define KN_BASE_PACE_H

typedef struct kn_pace {
    int (*idle)(void); // CPUs that nobody else uses at present (kn_cpus_idle); NULL: not known
    int threads;       // that pay; 0 before the first work
    double wall, cpu;  // seconds since the last decision: that passed, and that the process had of all CPUs
    double quiet;      // seconds in which nothing was taken
    double patience;   // of them, before more threads are tried
} kn_pace;

// Threads to use now, 1 to `max`.
int kn_pace_threads(kn_pace *p, int max);
// They took `wall` seconds, in which the process had `cpu` seconds of CPU time.
void kn_pace_note(kn_pace *p, int max, double wall, double cpu);

#endif
