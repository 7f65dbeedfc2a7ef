// The files under paths: each directory walked in name order, hidden names left out.
#ifndef KN_TEXT_WALK_H
#define KN_TEXT_WALK_H

#include "text/vocab.h"

// Appends the files of `path` to `files` and adds their sizes on disk to *bytes.
// A directory without files is KNNLM_EINVAL.
knnlm_status kn_walk(const char *path, kn_strings *files, uint64_t *bytes);

#endif
