// Codes that come one after the other, into blocks of a part of an annex. Not a door: only this room includes
// it.
#ifndef KN_INDEX_PQ_STREAM_H
#define KN_INDEX_PQ_STREAM_H

#include "store/store.h"

typedef struct kn_pq_stream {
    kn_annex_writer *to;
    size_t bytes;   // of a code
    size_t waiting; // codes of a block that is not full
    uint8_t *codes, *block;
} kn_pq_stream;

// KNNLM_ENOMEM; then it needs no freeing.
knnlm_status kn_pq_stream_init(kn_pq_stream *s, kn_annex_writer *to, size_t bytes);
// codes (n, bytes). Fails as kn_annex_put does.
knnlm_status kn_pq_stream_put(kn_pq_stream *s, const uint8_t *codes, size_t n);
// Fills the last block up.
knnlm_status kn_pq_stream_end(kn_pq_stream *s);
void kn_pq_stream_free(kn_pq_stream *s);

#endif
