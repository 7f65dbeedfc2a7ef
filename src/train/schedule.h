// The learning rate as a function of the step.
#ifndef KN_TRAIN_SCHEDULE_H
#define KN_TRAIN_SCHEDULE_H

#include "knnlm.h"

typedef struct kn_schedule {
    knnlm_schedule kind;
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
