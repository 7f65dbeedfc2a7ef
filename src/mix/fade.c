#include "mix/mix.h"

double kn_fade_weight(const kn_fade *f, double x) {
    if (!(x > f->from && f->to >= f->from)) return 1; // so is NAN
    return x < f->to ? (f->to - x) / (f->to - f->from) : 0;
}
