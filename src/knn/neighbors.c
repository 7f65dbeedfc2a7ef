// The nearest few of all stores, as they are shown.
#include "knn/neighbors.h"

#include <stdlib.h>
#include <string.h>

// Keeps the list sorted by share, nearer first among equals.
static void offer(kn_neighbor_detail *out, size_t max, size_t *count, const kn_neighbor_detail *one) {
    size_t at = *count;
    while (at > 0 && (one->share > out[at - 1].share ||
                      (one->share == out[at - 1].share && one->distance < out[at - 1].distance)))
        at--;
    if (at == max) return;
    size_t moved = kn_min(*count, max - 1) - at;
    memmove(out + at + 1, out + at, moved * sizeof *out);
    out[at] = *one;
    *count = kn_min(*count + 1, max);
}

static knnlm_status offer_store(const kn_mixture *m, const kn_row_neighbors *found, size_t store,
                                const kn_prediction *prediction, size_t max, kn_neighbor_detail *out,
                                size_t *count) {
    const kn_neighborhood *n = &found->near;
    double *shares = kn_alloc(2 * n->count, sizeof *shares), part = kn_prediction_part(m, prediction, store);
    if (!shares) return KNNLM_ENOMEM;
    kn_prediction_shares(m, store, prediction, n, shares, shares + n->count);
    // They come nearest first: of one store, the first are those of the largest share.
    for (size_t i = 0; i < kn_min(n->count, max); i++)
        offer(out, max, count,
              &(kn_neighbor_detail){.store = store,
                                    .id = found->ids[i],
                                    .value = n->values[i],
                                    .share = part * shares[i],
                                    .distance = (double)n->distances[i]});
    free(shares);
    return KNNLM_OK;
}

knnlm_status kn_neighbor_details_find(const kn_mixture *m, const kn_row_neighbors *found,
                                      const kn_prediction *prediction, size_t max, size_t around,
                                      kn_neighbor_detail *out, size_t *count) {
    const kn_mixture_info *info = kn_mixture_describe(m);
    *count = 0;
    for (size_t s = 0; s < info->count; s++)
        KN_TRY(offer_store(m, &found[s], s, prediction, max, out, count));
    for (size_t i = 0; i < *count; i++) {
        knnlm_status status =
            kn_datastore_origin(kn_mixture_datastore(m, out[i].store), out[i].id, 1, around, &out[i].origin);
        if (status == KNNLM_OK) continue;
        kn_neighbor_details_free(out, i);
        *count = 0;
        return status;
    }
    return KNNLM_OK;
}

void kn_neighbor_details_free(kn_neighbor_detail *shown, size_t count) {
    for (size_t i = 0; i < count; i++) kn_origin_free(&shown[i].origin);
}
