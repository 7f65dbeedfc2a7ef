// Which lists are near a query, among very many: the lists' centroids are themselves an index, of int8 rows
// in as many lists as there are groups. What is searched is in memory, and nobody else writes it: nothing is
// checked.
#include "base/keys.h"
#include "index/groups.h"
#include "index/open.h"

#include <stdlib.h>
#include <string.h>

enum {
    ASKED = 16, // groups that a query looks at, at least
    SPARE = 8,  // and so many times the lists that it wants
};

uint32_t kn_coarse_groups(const kn_index *coarse, uint32_t probes) {
    size_t asked = kn_max(ASKED, (size_t)probes * SPARE / KN_GROUP_LISTS);
    // Whoever wants a large part of the lists is to get as many as he wants.
    if ((uint64_t)probes * SPARE > coarse->entries) asked = coarse->info.lists;
    return (uint32_t)kn_min(asked, coarse->info.lists);
}

static knnlm_status fill(kn_index *x, const float *centres, size_t lists, const uint32_t *ends,
                         size_t groups) {
    float *middle = kn_alloc_aligned(groups, x->d * sizeof *middle),
          *scales = kn_alloc(lists, sizeof *scales);
    uint64_t *places = kn_alloc(groups + 1, sizeof *places);
    uint8_t *rows = kn_alloc_aligned(lists, x->d);
    x->listed = kn_alloc(1, sizeof *x->listed);
    x->own = (kn_index_memory){places, rows, scales};
    knnlm_status status = middle && scales && places && rows && x->listed ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        for (size_t g = 0; g <= groups; g++) places[g] = ends[g];
        kn_key_form_of(KNNLM_KEYS_INT8)->narrow(rows, scales, centres, lists, x->d);
        x->listed[0] = (kn_run){.ends = places, .rows = rows, .scales = scales, .count = lists};
        x->listed_count = 1;
        kn_groups_middles(centres, x->d, ends, groups, middle);
        status = kn_quantizer_make(middle, groups, x->d, x->form->norms ? KN_QUANTIZER_L2 : KN_QUANTIZER_IP,
                                   &x->quantizer);
    }
    kn_free_aligned(middle);
    return status;
}

knnlm_status kn_coarse_make(const float *centres, size_t lists, size_t d, const uint32_t *ends, size_t groups,
                            const kn_distance_form *form, kn_index **out) {
    kn_index *x = kn_alloc(1, sizeof *x);
    if (!x) return KNNLM_ENOMEM;
    *x = (kn_index){.k = kn_math_kernels(KNNLM_PRECISION_F32),
                    .integers = kn_math_kernels(KNNLM_PRECISION_AUTO),
                    .distance = form->norms ? KNNLM_DISTANCE_L2 : KNNLM_DISTANCE_IP,
                    .type = KN_ROWS_INT8,
                    .d = d,
                    .row_bytes = d,
                    .entries = lists,
                    .info = {.lists = (uint32_t)groups, .probes = 1, .listed = lists, .has_keys = true}};
    x->form = kn_distance_form_of(x->distance);
    knnlm_status status = fill(x, centres, lists, ends, groups);
    if (status == KNNLM_OK)
        *out = x;
    else
        kn_index_close(x);
    return status;
}
