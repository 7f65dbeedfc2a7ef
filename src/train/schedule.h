// The learning rate as a function of the step.
#ifndef KN_TRAIN_SCHEDULE_H
#define KN_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum kn_schedule_kind {
    KN_SCHEDULE_COSINE,   // warm-up, then half a cosine down to `floor` of the rate at the last step
    KN_SCHEDULE_LINEAR,   // warm-up, then a straight line down to `floor` of the rate
    KN_SCHEDULE_CONSTANT, // warm-up, then the rate
    KN_SCHEDULE_PLATEAU,  // warm-up, then the rate, then a straight line down to `floor` over the last `tail`
                          // of the steps: the number of steps may still change while the rate stands
    KN_SCHEDULE_RESTARTS, // warm-up, then cosines with warm restarts (the paper's): periods grow, peaks
                          // shrink
} kn_schedule_kind;

typedef struct kn_schedule {
    kn_schedule_kind kind;
    double rate;
    int64_t warmup, steps;
    double warmup_from;   // rate at step 0
    double floor;         // lowest rate, as a part of the peak
    double tail;          // part of the steps that the plateau's descent takes
    int64_t period;       // of the first cosine
    double period_growth; // each period is so many times the one before
    double peak_shrink;   // each peak is so many times the one before
} kn_schedule;

// The rate of step 0, 1, 2, …
double kn_schedule_rate(const kn_schedule *s, int64_t step);

#endif
