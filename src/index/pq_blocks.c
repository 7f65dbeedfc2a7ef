// Codes in blocks.
#include "index/pq.h"
#include "index/pq_stream.h"

#include <stdlib.h>
#include <string.h>

size_t kn_pq_blocks_bytes(size_t n, size_t bytes) {
    return (n + KN_PQ_BLOCK - 1) / KN_PQ_BLOCK * KN_PQ_BLOCK * bytes;
}

void kn_pq_interleave(const uint8_t *codes, size_t n, size_t bytes, uint8_t *blocks) {
    for (size_t first = 0; first < n; first += KN_PQ_BLOCK, blocks += bytes * KN_PQ_BLOCK) {
        size_t rows = kn_min(KN_PQ_BLOCK, n - first);
        if (rows < KN_PQ_BLOCK) memset(blocks, 0, bytes * KN_PQ_BLOCK);
        for (size_t r = 0; r < rows; r++)
            for (size_t j = 0; j < bytes; j++) blocks[j * KN_PQ_BLOCK + r] = codes[(first + r) * bytes + j];
    }
}

void kn_pq_deinterleave(const uint8_t *blocks, size_t place, size_t n, size_t bytes, uint8_t *codes) {
    for (size_t last = place + n; place < last; place++, codes += bytes) {
        const uint8_t *column = blocks + place / KN_PQ_BLOCK * bytes * KN_PQ_BLOCK + place % KN_PQ_BLOCK;
        for (size_t j = 0; j < bytes; j++) codes[j] = column[j * KN_PQ_BLOCK];
    }
}

// ---------------------------------------------------------------- into an annex

knnlm_status kn_pq_stream_init(kn_pq_stream *s, kn_annex_writer *to, size_t bytes) {
    *s = (kn_pq_stream){.to = to, .bytes = bytes};
    s->codes = kn_alloc(KN_PQ_BLOCK, bytes);
    s->block = kn_alloc(KN_PQ_BLOCK, bytes);
    if (s->codes && s->block) return KNNLM_OK;
    kn_pq_stream_free(s);
    return KNNLM_ENOMEM;
}

void kn_pq_stream_free(kn_pq_stream *s) {
    free(s->codes);
    free(s->block);
    *s = (kn_pq_stream){0};
}

static knnlm_status put_block(kn_pq_stream *s) {
    kn_pq_interleave(s->codes, s->waiting, s->bytes, s->block);
    s->waiting = 0;
    return kn_annex_put(s->to, s->block, KN_PQ_BLOCK * s->bytes);
}

knnlm_status kn_pq_stream_put(kn_pq_stream *s, const uint8_t *codes, size_t n) {
    for (size_t some; n; n -= some, codes += some * s->bytes) {
        some = kn_min(n, KN_PQ_BLOCK - s->waiting);
        memcpy(s->codes + s->waiting * s->bytes, codes, some * s->bytes);
        s->waiting += some;
        if (s->waiting == KN_PQ_BLOCK) KN_TRY(put_block(s));
    }
    return KNNLM_OK;
}

knnlm_status kn_pq_stream_end(kn_pq_stream *s) {
    return s->waiting ? put_block(s) : KNNLM_OK;
}
