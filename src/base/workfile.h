// Working memory that may be larger than what is resident: a file without a name.
#ifndef KN_BASE_WORKFILE_H
#define KN_BASE_WORKFILE_H

#include "base/status.h"

typedef struct kn_workfile {
    uint8_t *data; // zero at first
    size_t size;
} kn_workfile;

// In `folder`, whose disk has the room: it is taken at once, so that writing never fails later. Nothing is
// left behind, however the process ends. KNNLM_EIO: no room, or no such folder.
knnlm_status kn_workfile_open(const char *folder, size_t size, kn_workfile *out);
// What it holds stays, but need not be resident.
void kn_workfile_release(const kn_workfile *file);
void kn_workfile_close(kn_workfile *file);

#endif
