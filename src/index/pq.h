// Product quantization: a vector of d dimensions is cut into m parts, and each part is replaced by the number
// of the nearest of 2^bits centroids of its own.
//
// A code is what is left of a vector: m numbers of 8 bits, or of 4 bits packed two a byte, the low half first
// (as FAISS packs them; of an odd m the last high half is 0). Codes that are searched lie in blocks of 64,
// (code_bytes, 64) bytes a block. Distances from a query are sums over a code of tables made once a query, in
// two ways:
//   scan   of whole blocks, by 8-bit tables, into 16-bit sums: within a stated bound of the distances. All
//          kernels give the same sums;
//   sum    of any codes, by f32 tables: of few, or of those that a scan found near.
//
// A kn_pq does not change after learning (or preparing): any number of threads may use it. Encoding and
// decoding spread over the pool; tables and scans run in the caller, who spreads lists or queries.
#ifndef KN_INDEX_PQ_H
#define KN_INDEX_PQ_H

#include "base/memory.h"
#include "base/progress.h"

enum {
    KN_PQ_PARTS_MAX = 65535,     // so that 16-bit sums hold one step a part at least
    KN_PQ_PART_MAX = 1024,       // dimensions of a part
    KN_PQ_BLOCK = 64,            // codes in a block
    KN_PQ_LEARN_MAX = 1 << 16,   // vectors learnt from: 256 a centroid of 8 bits, as FAISS
    KN_PQ_LEARN_ITERATIONS = 25, // as FAISS
};

typedef struct kn_pq {
    size_t d, m, bits, part; // part = d / m
    size_t count;            // 2^bits
    float *centroids;        // (m, count, part)
    // Made from the centroids by kn_pq_prepare:
    float *columns; // (m, part, count): transposed, for tables
    float *centre;  // (d): mean of each part's centroids
    float *centred; // (m, count, part): less their centre, so that squares keep their digits far from 0
    float *halves;  // (m, count): half the squared length of the centred ones
} kn_pq;

// Room for a quantizer, its centroids zero: fill them and call kn_pq_prepare. KNNLM_EINVAL unless m divides
// d, m and d / m are within the limits above and bits is 4 or 8; KNNLM_ENOMEM. On failure *p needs no
// freeing.
knnlm_status kn_pq_init(kn_pq *p, size_t d, size_t m, size_t bits);
void kn_pq_prepare(kn_pq *p);
void kn_pq_free(kn_pq *p);

// Learns from x (n, d), n >= 1, by k-means in each part; from a random choice of KN_PQ_LEARN_MAX when n is
// larger. The same centroids for the same data and seed whatever the threads. KNNLM_EINVAL as kn_pq_init,
// KNNLM_EDATA for values that are not finite, KNNLM_ESTOPPED by `progress` (may be NULL), KNNLM_ENOMEM.
knnlm_status kn_pq_learn(const float *x, size_t n, size_t d, size_t m, size_t bits, uint64_t seed,
                         const kn_progress *progress, kn_pq *out);

// Bytes of a code: m * bits / 8 rounded up.
size_t kn_pq_code_bytes(const kn_pq *p);
// codes (n, code_bytes) of x (n, d): the nearest centroid of each part, the lower number of equally near
// ones. Values that are not finite get some code.
void kn_pq_encode(const kn_pq *p, const float *x, size_t n, uint8_t *codes);
// out (n, d): the centroids that the codes name.
void kn_pq_decode(const kn_pq *p, const uint8_t *codes, size_t n, float *out);

// tables (m, 2^bits): squared distances between the parts of `query` (d) and the centroids, or their inner
// products negated: either way, the lower the nearer.
void kn_pq_tables(const kn_pq *p, const float *query, bool inner_product, float *tables);

// ---------------------------------------------------------------- blocks

// Byte j of the code at `place` is blocks[place / 64 * code_bytes * 64 + j * 64 + place % 64].
// Bytes of n codes of `bytes` in blocks: whole blocks, the last filled up with zeros.
size_t kn_pq_blocks_bytes(size_t n, size_t bytes);
// Codes (n, bytes) into blocks, the first at place 0.
void kn_pq_interleave(const uint8_t *codes, size_t n, size_t bytes, uint8_t *blocks);
// codes (n, bytes): those at [place, place + n) of `blocks`.
void kn_pq_deinterleave(const uint8_t *blocks, size_t place, size_t n, size_t bytes, uint8_t *codes);

// sums (n) of `tables` over the codes at places (n).
void kn_pq_sum(const kn_pq *p, const float *tables, const uint8_t *blocks, const size_t *places, size_t n,
               float *sums);

// What the sums of a scan mean: distance = offset + scale * sum, at most `bound` away from the sum of the
// tables that were quantized (infinitely far when these are not finite). Of what is farther than they were
// quantized for, it may fall short by any amount, but exceeds by `bound` at most.
typedef struct kn_pq_scale {
    float scale, offset, bound;
} kn_pq_scale;

// Bytes of 8-bit tables.
size_t kn_pq_small_bytes(const kn_pq *p);
// `small` (kn_pq_small_bytes) from tables (m, 2^bits), one scale for all parts. What is farther than
// `farthest` is not told apart: the nearer that is, the finer the scale.
kn_pq_scale kn_pq_quantize(const kn_pq *p, const float *tables, float farthest, uint8_t *small);
// sums (count, 64) of the tables `small` over `count` blocks.
void kn_pq_scan(const kn_pq *p, const uint8_t *small, const uint8_t *blocks, size_t count, uint16_t *sums);

#endif
