// The two files of an import, opened and understood. Not a door: only this room includes it.
#ifndef KN_STORE_IMPORT_H
#define KN_STORE_IMPORT_H

#include "store/interop.h"

typedef struct kn_import_files {
    char *keys_path, *values_path;
    kn_npy keys, values; // (N, d), (N): also those without header; without data when there is no such file
    bool headers;        // all files are .npy files
} kn_import_files;

// Whatever it returns, *out is released by kn_import_close.
knnlm_status kn_import_open(const kn_import_options *o, kn_import_files *out);
void kn_import_close(kn_import_files *f);

#endif
