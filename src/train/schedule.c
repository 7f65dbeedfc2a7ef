// The learning rate at a step: warm-up, then cosine, linear, a plateau, restarts or constant.
#include "train/schedule.h"

#include <math.h>

static double cosine(double peak, double floor, double part) {
    return floor * peak + (1.0 - floor) * peak * 0.5 * (1.0 + cos(3.141592653589793 * part));
}

static double restarted(const kn_schedule *s, int64_t step) {
    double period = (double)(s->period > 0 ? s->period : 1), peak = s->rate, at = (double)step;
    while (at >= period) {
        at -= period;
        period *= s->period_growth > 1.0 ? s->period_growth : 1.0;
        peak *= s->peak_shrink;
    }
    return cosine(peak, s->floor, at / period);
}

static double plateau(const kn_schedule *s, int64_t step) {
    double descent = s->tail * (double)s->steps, left = (double)(s->steps - step);
    if (left >= descent) return s->rate;
    return s->rate * (s->floor + (1.0 - s->floor) * (left > 0 ? left / descent : 0.0));
}

double kn_schedule_rate(const kn_schedule *s, int64_t step) {
    if (step < s->warmup)
        return s->warmup_from + (s->rate - s->warmup_from) * (double)(step + 1) / (double)s->warmup;
    int64_t left = s->steps - s->warmup;
    double part = left > 0 ? (double)(step - s->warmup) / (double)left : 1.0;
    if (part > 1.0) part = 1.0;
    switch (s->kind) {
    case KNNLM_SCHEDULE_COSINE:
        return cosine(s->rate, s->floor, part);
    case KNNLM_SCHEDULE_LINEAR:
        return s->rate * (1.0 - (1.0 - s->floor) * part);
    case KNNLM_SCHEDULE_PLATEAU:
        return plateau(s, step);
    case KNNLM_SCHEDULE_RESTARTS:
        return restarted(s, step - s->warmup);
    case KNNLM_SCHEDULE_CONSTANT:
        break;
    }
    return s->rate;
}
