// What learning and encoding share. Not a door: others include pq.h.
#ifndef KN_INDEX_PQ_POINTS_H
#define KN_INDEX_PQ_POINTS_H

#include "math/math.h"

#include <string.h>

// points (part, KN_POINTS) = x (rows, part), stride ld, less `centre` unless it is NULL: as the kernel
// `nearest` reads them.
static inline void kn_pq_points(float *points, const float *x, size_t ld, size_t rows, size_t part,
                                const float *centre) {
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < part; i++) points[i * KN_POINTS + r] = x[r * ld + i];
    for (size_t i = 0; centre && i < part; i++)
        for (size_t r = 0; r < rows; r++) points[i * KN_POINTS + r] -= centre[i];
    for (size_t i = 0; rows < KN_POINTS && i < part; i++)
        memset(points + i * KN_POINTS + rows, 0, (KN_POINTS - rows) * sizeof *points);
}

#endif
