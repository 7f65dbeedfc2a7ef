// Which entries of the stores gave a token its probability.
#include "generate/sequence.h"

#include <math.h>
#include <stdlib.h>

typedef struct places {
    kn_place *items;
    size_t count, capacity;
} places;

static knnlm_status add(places *out, kn_place place) {
    KN_TRY(kn_grow(&out->items, &out->capacity, out->count + 1, sizeof *out->items));
    out->items[out->count++] = place;
    return KNNLM_OK;
}

// `part`: of the token's probability that the store's lambda of it is.
static knnlm_status add_neighbors(const kn_step *step, size_t store, int32_t token, double part,
                                  places *out) {
    const kn_row_neighbors *found = &step->found[store];
    const kn_neighborhood *n = &found->near;
    if (!n->count) return KNNLM_OK; // there may be no shares at all
    const double *shares = kn_distribution_shares(step->distribution, store);
    for (size_t i = 0; i < n->count; i++)
        if (n->values[i] == token && part * shares[i] > 0)
            KN_TRY(add(out, (kn_place){store, found->ids[i], fmin(1, part * shares[i])}));
    return KNNLM_OK;
}

static knnlm_status add_followers(const kn_sequence *s, int32_t token, double p, places *out) {
    for (size_t i = 0; i < s->follower_count; i++) {
        const kn_follower *f = &s->followers[i];
        if (f->token == token) KN_TRY(add(out, (kn_place){f->store, f->id, fmin(1, f->weight / p)}));
    }
    return KNNLM_OK;
}

knnlm_status kn_places_find(const kn_sequence *s, const kn_step *step, kn_place **items, size_t *count) {
    int32_t token = s->history[s->count - 1];
    double p = exp(kn_distribution_logprob(step->distribution, token));
    places out = {0};
    knnlm_status status = add_followers(s, token, p, &out);
    size_t stores = kn_mixture_describe(step->mixture)->count;
    for (size_t i = 0; status == KNNLM_OK && i < stores; i++)
        status = add_neighbors(step, i, token, s->kept * step->distribution->prediction.lambdas[i] / p, &out);
    if (status != KNNLM_OK) free(out.items);
    *items = status == KNNLM_OK ? out.items : NULL;
    *count = status == KNNLM_OK ? out.count : 0;
    return status;
}
