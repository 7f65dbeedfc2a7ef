// Working memory that may be larger than what is resident: a file without a name.
#ifndef KN_BASE_SCRATCH_FILE_H
#define KN_BASE_SCRATCH_FILE_H

#include "base/status.h"

typedef struct kn_scratch_file {
    uint8_t *data; // zero at first
    size_t size;
} kn_scratch_file;

// In `folder`, whose disk has the room: it is taken at once, so that writing never fails later. Nothing is
// left behind, however the process ends. KNNLM_EIO: no room, or no such folder.
knnlm_status kn_scratch_file_open(const char *folder, size_t size, kn_scratch_file *out);
// What it holds stays, but need not be resident.
void kn_scratch_file_release(const kn_scratch_file *file);
void kn_scratch_file_close(kn_scratch_file *file);

#endif
