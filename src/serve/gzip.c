// Compression of answers by zlib.
#include "serve/gzip.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

// "gzip;q=0" says no.
static bool is_refused(const char *parameters, size_t size) {
    const char *q = memmem(parameters, size, "q=", 2);
    return q && strtod(q + 2, NULL) <= 0;
}

bool kn_gzip_accepted(const char *accept) {
    for (const char *at = accept; at && *at;) {
        at += strspn(at, ", \t");
        size_t size = strcspn(at, ","), name = strcspn(at, ",; \t");
        bool means = (name == 4 && strncasecmp(at, "gzip", 4) == 0) || (name == 1 && *at == '*');
        if (means) return !is_refused(at, size);
        at += size;
    }
    return false;
}

// What is made grows with what comes out, which is a tenth of what goes in.
static bool pack_all(z_stream *z, char **out, size_t *packed) {
    size_t capacity = 0;
    for (int code = Z_OK; code != Z_STREAM_END;) {
        if (kn_grow(out, &capacity, *packed + (64 << 10), 1) != KNNLM_OK) return false;
        z->next_out = (unsigned char *)*out + *packed;
        z->avail_out = (unsigned)(capacity - *packed);
        code = deflate(z, Z_FINISH);
        *packed = capacity - z->avail_out;
        if (code != Z_OK && code != Z_STREAM_END) return false;
    }
    return true;
}

char *kn_gzip_pack(const void *data, size_t size, size_t *packed) {
    enum { FAST = 2, WINDOW = 15, AS_GZIP = 16, MEMORY = 8 };
    z_stream z = {.next_in = (unsigned char *)data, .avail_in = (unsigned)size};
    char *out = NULL;
    *packed = 0;
    if (size > 1u << 30 ||
        deflateInit2(&z, FAST, Z_DEFLATED, WINDOW + AS_GZIP, MEMORY, Z_DEFAULT_STRATEGY) != Z_OK)
        return NULL;
    bool done = pack_all(&z, &out, packed);
    deflateEnd(&z);
    if (done) return out;
    free(out);
    return NULL;
}
