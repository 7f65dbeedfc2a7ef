// Sets up a product quantizer and frees it.
#include "index/pq.h"

#include <stdlib.h>
#include <string.h>

static knnlm_status check_shape(size_t d, size_t m, size_t bits) {
    if (bits != 4 && bits != 8)
        return kn_fail(KNNLM_EINVAL, "product quantizer: %zu bits a part: 4 or 8 are possible", bits);
    if (m < 1 || m > KN_PQ_PARTS_MAX)
        return kn_fail(KNNLM_EINVAL, "product quantizer: %zu parts: 1 to %d are possible", m,
                       KN_PQ_PARTS_MAX);
    if (d < 1 || d % m)
        return kn_fail(
            KNNLM_EINVAL,
            "`codes`: %zu dimensions cannot be cut into %zu equal parts, as product quantization does", d, m);
    if (d / m > KN_PQ_PART_MAX)
        return kn_fail(
            KNNLM_EINVAL,
            "product quantizer: parts of %zu dimensions: up to %d are possible; cut %zu into more parts",
            d / m, KN_PQ_PART_MAX, d);
    return KNNLM_OK;
}

knnlm_status kn_pq_init(kn_pq *p, size_t d, size_t m, size_t bits) {
    memset(p, 0, sizeof *p);
    KN_TRY(check_shape(d, m, bits));
    size_t count = (size_t)1 << bits, values = d * count; // at most 2^34: the limits of the shape
    *p = (kn_pq){.d = d, .m = m, .bits = bits, .part = d / m, .count = count};
    p->centroids = kn_alloc_aligned(values, sizeof(float));
    p->columns = kn_alloc_aligned(values, sizeof(float));
    p->centred = kn_alloc_aligned(values, sizeof(float));
    p->halves = kn_alloc_aligned(m * count, sizeof(float));
    p->centre = kn_alloc_aligned(d, sizeof(float));
    if (!p->centroids || !p->columns || !p->centred || !p->halves || !p->centre) {
        kn_pq_free(p);
        return KNNLM_ENOMEM;
    }
    memset(p->centroids, 0, values * sizeof(float));
    kn_pq_prepare(p);
    return KNNLM_OK;
}

static void prepare_part(kn_pq *p, size_t j) {
    size_t part = p->part, count = p->count;
    const float *from = p->centroids + j * count * part;
    float *columns = p->columns + j * count * part, *centred = p->centred + j * count * part;
    float *centre = p->centre + j * part, *halves = p->halves + j * count;
    for (size_t i = 0; i < part; i++) {
        double sum = 0;
        for (size_t c = 0; c < count; c++) sum += (double)from[c * part + i];
        centre[i] = (float)(sum / (double)count);
    }
    for (size_t c = 0; c < count; c++) {
        double squares = 0;
        for (size_t i = 0; i < part; i++) {
            float value = from[c * part + i], away = value - centre[i];
            columns[i * count + c] = value;
            centred[c * part + i] = away;
            squares += (double)away * (double)away;
        }
        halves[c] = (float)(squares / 2);
    }
}

void kn_pq_prepare(kn_pq *p) {
    for (size_t j = 0; j < p->m; j++) prepare_part(p, j);
}

void kn_pq_free(kn_pq *p) {
    kn_free_aligned(p->centroids);
    kn_free_aligned(p->columns);
    kn_free_aligned(p->centred);
    kn_free_aligned(p->halves);
    kn_free_aligned(p->centre);
    memset(p, 0, sizeof *p);
}
