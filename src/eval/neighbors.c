#include "eval/neighbors.h"

#include <stdlib.h>
#include <string.h>

// Keeps the list sorted by share, nearer first among equals.
static void offer(kn_shown *out, size_t most, size_t *count, const kn_shown *one) {
    size_t at = *count;
    while (at > 0 && (one->share > out[at - 1].share ||
                      (one->share == out[at - 1].share && one->distance < out[at - 1].distance)))
        at--;
    if (at == most) return;
    size_t moved = kn_least(*count, most - 1) - at;
    memmove(out + at + 1, out + at, moved * sizeof *out);
    out[at] = *one;
    *count = kn_least(*count + 1, most);
}

static knnlm_status offer_store(const kn_mixture *m, const kn_found *found, size_t query, size_t store,
                                double part, size_t most, kn_shown *out, size_t *count) {
    kn_neighborhood n = kn_found_at(&found[store], query);
    double *shares = kn_alloc(n.count, sizeof *shares);
    if (!shares) return KNNLM_ENOMEM;
    kn_neighborhood_shares(&n, m->stores[store].temperature, shares);
    // They come nearest first: of one store, the first are those of the largest share.
    for (size_t i = 0; i < kn_least(n.count, most); i++)
        offer(out, most, count,
              &(kn_shown){.store = store,
                          .id = found[store].ids[query * found[store].k + i],
                          .value = n.values[i],
                          .share = part * shares[i],
                          .distance = (double)n.distances[i]});
    free(shares);
    return KNNLM_OK;
}

knnlm_status kn_shown_find(const kn_mixture *m, const kn_found *found, size_t query, const kn_mixed *mixed,
                           size_t most, size_t around, kn_shown *out, size_t *count) {
    *count = 0;
    for (size_t s = 0; s < m->count; s++)
        KN_TRY(offer_store(m, found, query, s, kn_mixture_part(m, mixed, s), most, out, count));
    for (size_t i = 0; i < *count; i++) {
        const kn_mixed_store *s = &m->stores[out[i].store];
        knnlm_status status = kn_origin_read(s->store, s->tokenizer, out[i].id, around, &out[i].origin);
        if (status == KNNLM_OK) continue;
        kn_shown_free(out, i);
        *count = 0;
        return status;
    }
    return KNNLM_OK;
}

void kn_shown_free(kn_shown *shown, size_t count) {
    for (size_t i = 0; i < count; i++) kn_origin_free(&shown[i].origin);
}
