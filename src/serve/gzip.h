// Answers compressed, for clients that ask for it. Not a door: only this room includes it.
#ifndef KN_SERVE_GZIP_H
#define KN_SERVE_GZIP_H

#include <stdbool.h>
#include <stddef.h>

// Whether an Accept-Encoding (NULL: none was sent) lets an answer be gzip.
bool kn_gzip_accepted(const char *accept);
// The bytes as gzip, released with free(); NULL: no memory.
char *kn_gzip_pack(const void *data, size_t size, size_t *packed);

#endif
