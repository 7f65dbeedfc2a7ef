// The bytes of one file, plain or compressed (zstd, gzip: told by their first bytes), as one stream.
#ifndef KN_TEXT_UNPACK_H
#define KN_TEXT_UNPACK_H

#include "base/progress.h"
#include "base/status.h"

typedef struct kn_unpack kn_unpack;
// "-" is stdin, named <stdin> in messages. `progress` (NULL: nobody listens; it outlives the result) is told
// before every read, and now and then while a pipe has nothing to give: KNNLM_ESTOPPED when it wants to stop.
knnlm_status kn_unpack_open(const char *path, const kn_progress *progress, kn_unpack **out);
// Up to `size` bytes of the unpacked text; *got is 0 only at its end.
knnlm_status kn_unpack_read(kn_unpack *u, char *data, size_t size, size_t *got);
// Bytes taken from the file so far.
uint64_t kn_unpack_done(const kn_unpack *u);
void kn_unpack_close(kn_unpack *u);

#endif
