// The continuous cache (Grave et al. 2017): the states of the text at hand, each with the token that followed
// it, as neighbours of the states after them. All of the last `size` count, not the nearest few.
#ifndef KN_MIX_CACHE_H
#define KN_MIX_CACHE_H

#include "base/distance.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Rows of consecutive tokens: the state before each, and the token.
typedef struct kn_cache {
    const float *keys; // (rows, d)
    const int32_t *values;
    const size_t *starts; // (rows): the row at which the document of each begins
    size_t d, size;
    knnlm_distance distance; // as of stores
} kn_cache;

// log p_cache of the tokens of rows [first, first + count), each from the rows of its document before it, for
// each of the temperatures: out (temperatures, count). -infinity: none of them has it; NAN:
// there are none. KNNLM_ENOMEM.
knnlm_status kn_cache_score(const kn_cache *cache, size_t first, size_t count, const double *temperatures,
                            size_t temperature_count, double *out);

#endif
