// Any bytes as what SHARDS says after its first line: what parses has shards, none twice, each with a path.
#include "store/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_shards shards;
    char *file = malloc(size + KN_SHARDS_LINE);
    if (!file) return 0;
    int head = snprintf(file, KN_SHARDS_LINE, "%s %d %016" PRIx64 "\n", KN_SHARDS_MAGIC, KN_SHARDS_VERSION,
                        XXH3_64bits(data, size));
    if (size) memcpy(file + head, data, size);
    knnlm_status status = kn_shards_parse("fuzz.store", "SHARDS", file, (size_t)head + size, &shards);
    if (status == KNNLM_OK && (!shards.count || shards.count > KN_SHARDS_MAX)) abort();
    for (size_t i = 0; status == KNNLM_OK && i < shards.count; i++)
        if (!*shards.places[i].path || (shards.places[i].host && *shards.places[i].path != '/')) abort();
    kn_shards_free(&shards);
    free(file);
    return 0;
}
