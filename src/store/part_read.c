// Maps a part of a segment and checks its header and its blocks' checksums.
#include "store/part.h"

#include <string.h>
#include <xxhash.h>

size_t kn_part_blocks(uint64_t payload) {
    return (size_t)(payload / KN_PART_BLOCK + (payload % KN_PART_BLOCK != 0));
}

bool kn_part_bytes(uint64_t payload, uint64_t *bytes) {
    uint64_t table = (uint64_t)kn_part_blocks(payload) * sizeof(uint64_t) + KN_PART_FOOTER;
    return !__builtin_add_overflow(payload, table, bytes);
}

bool kn_part_extend(uint64_t *payload, uint64_t count, uint64_t size) {
    uint64_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(*payload, bytes, payload) ||
        __builtin_add_overflow(*payload, (uint64_t)(KN_PART_ALIGN - 1), payload))
        return false;
    *payload -= *payload % KN_PART_ALIGN;
    return true;
}

knnlm_status kn_part_open(const char *path, uint64_t payload, kn_map *out) {
    uint64_t bytes;
    if (!kn_part_bytes(payload, &bytes)) return kn_fail(KNNLM_EDATA, "%s: of an impossible size", path);
    KN_TRY(kn_map_open(path, out));
    if (out->size == bytes) return KNNLM_OK;
    unsigned long long size = out->size;
    kn_map_close(out);
    return kn_fail(KNNLM_EDATA, "%s: has %llu bytes, not %llu: damaged", path, size,
                   (unsigned long long)bytes);
}

static uint64_t load_u64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t load_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

const char *kn_part_check(const kn_map *part, kn_part_kind kind, uint64_t count, uint64_t payload,
                          uint64_t seal) {
    const uint8_t *header = part->data, *table = part->data + payload;
    size_t table_bytes = kn_part_blocks(payload) * sizeof(uint64_t);
    const uint8_t *footer = table + table_bytes;
    if (memcmp(header, KN_PART_MAGIC, 8) != 0) return "not a part of a store";
    if (load_u32(header + 8) != KN_PART_VERSION) return "of an unknown version";
    if (load_u32(header + 12) != (uint32_t)kind) return "of another kind";
    if (load_u64(footer) != count || load_u64(footer + 8) != payload)
        return "its counts are not the manifest's";
    if (load_u64(footer + 16) != seal) return "its seal is not the manifest's";
    return XXH3_64bits(table, table_bytes + 16) == seal ? NULL : "its table of checksums is damaged";
}

bool kn_part_block_intact(const kn_map *part, uint64_t payload, size_t block) {
    uint64_t start = (uint64_t)block * KN_PART_BLOCK;
    size_t size = kn_min((size_t)(payload - start), KN_PART_BLOCK);
    return XXH3_64bits(part->data + start, size) == load_u64(part->data + payload + block * sizeof(uint64_t));
}
