// 128 bits in hexadecimal: how hashes of models, tokenizers and files are written.
#ifndef KN_BASE_FINGERPRINT_H
#define KN_BASE_FINGERPRINT_H

#include <inttypes.h>
#include <stdio.h>

enum { KN_FINGERPRINT = 33 };

static inline void kn_fingerprint_print(uint64_t high, uint64_t low, char out[KN_FINGERPRINT]) {
    snprintf(out, KN_FINGERPRINT, "%016" PRIx64 "%016" PRIx64, high, low);
}

#endif
