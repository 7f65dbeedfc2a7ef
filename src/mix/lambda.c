// The weight of a store for one token: the one place where lambda is decided.
#include "mix/mix.h"

#include <math.h>

double kn_fade_weight(const kn_fade *f, double x) {
    if (!(x > f->from && f->to >= f->from)) return 1; // so is NAN
    return x < f->to ? (f->to - x) / (f->to - f->from) : 0;
}

// A beginning is as near as can be without being alike: it is not trusted more than the store as a whole.
static double lambda_by_bins(const kn_lambda_rule *r, const kn_lambda_facts *f) {
    double lambda = fmin(kn_bins_lambda(&r->bins, f->nearest, f->entropy), r->max);
    return f->begins ? fmin(lambda, r->lambda) : lambda;
}

// Without known ends the entropy of p_kNN is held against the most that so many neighbours can have.
static double trust(const kn_lambda_rule *r, const kn_lambda_facts *f) {
    double max = log((double)f->neighbors);
    kn_fade uncertain = isnan(r->uncertain.from) ? (kn_fade){max / 2, max} : r->uncertain;
    return kn_fade_weight(&r->far, f->nearest) * kn_fade_weight(&uncertain, f->knn_entropy);
}

double kn_lambda(const kn_lambda_rule *r, const kn_lambda_facts *f) {
    if (f->neighbors == 0) return 0; // nothing is known: what the model says
    double lambda = r->bins.distances ? lambda_by_bins(r, f) : r->lambda;
    return r->fallback ? lambda * trust(r, f) : lambda;
}
