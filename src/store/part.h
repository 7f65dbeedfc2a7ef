// Parts: the immutable files of a store, checksummed block by block. Not a door: only this room includes it.
//
//   1. header, 64 bytes: "knnlmprt", u32 version, u32 kind, zeros
//   2. sections, each padded with zeros to a multiple of 64 bytes
//   3. table: u64 XXH3-64 of each block of 1 MiB of the payload (1 and 2); the last block may be short
//   4. u64 count (of entries, or of numbers removed), u64 bytes of the payload
//   5. u64 XXH3-64 of 3 and 4. The manifest holds this number too: it seals the file
#ifndef KN_STORE_PART_H
#define KN_STORE_PART_H

#include "base/file.h"
#include "base/spool.h"

#define KN_PART_MAGIC "knnlmprt"
enum {
    KN_PART_VERSION = 1,
    KN_PART_HEADER = 64,
    KN_PART_ALIGN = 64,
    KN_PART_BLOCK = 1 << 20,
    KN_PART_FOOTER = 24, // 4 and 5
};
typedef enum kn_part_kind {
    KN_PART_TEXT = 1,
    KN_PART_KEYS = 2,
    KN_PART_REMOVED = 3,
    KN_PART_ANNEX = 4
} kn_part_kind;

// ---- writing: put the sections one after another, then seal; blocks are written through the spool

typedef struct kn_part_writer kn_part_writer;
// Creates (or overwrites: only a crash leaves a file that no manifest names) `path`. Without a spool the
// caller's thread writes.
knnlm_status kn_part_create(const char *path, kn_part_kind kind, kn_spool *spool, kn_part_writer **out);
knnlm_status kn_part_put(kn_part_writer *p, const void *data, size_t size);
knnlm_status kn_part_pad(kn_part_writer *p); // ends a section
uint64_t kn_part_written(const kn_part_writer *p);
// From here on the calling thread writes: for the spool's own, in a job after the part's blocks.
void kn_part_take_over(kn_part_writer *p);
// Writes what is left, syncs and closes, by the calling thread.
knnlm_status kn_part_seal(kn_part_writer *p, uint64_t count, uint64_t *seal);
// Releases the writer; a part that was not sealed is deleted. Not while blocks of it are queued.
void kn_part_free(kn_part_writer *p);

// ---- reading

// Bytes of the whole file for a payload; false when it does not fit.
bool kn_part_bytes(uint64_t payload, uint64_t *bytes);
// payload + size, padded; false when it does not fit.
bool kn_part_extend(uint64_t *payload, uint64_t count, uint64_t size);
// Maps `path`, whose size must be that of a part of `payload` bytes.
knnlm_status kn_part_open(const char *path, uint64_t payload, kn_map *out);

// What is wrong with header, footer and table (against the manifest's seal), in English, or NULL.
const char *kn_part_check(const kn_map *part, kn_part_kind kind, uint64_t count, uint64_t payload,
                          uint64_t seal);
size_t kn_part_blocks(uint64_t payload);
bool kn_part_block_intact(const kn_map *part, uint64_t payload, size_t block);

#endif
