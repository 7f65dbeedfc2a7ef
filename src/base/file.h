// Files: read by mapping, written whole or not at all.
#ifndef KN_BASE_FILE_H
#define KN_BASE_FILE_H

#include "base/memory.h"

// A read-only mapping of a whole file. An empty file has data NULL and size 0.
typedef struct kn_map {
    const uint8_t *data;
    size_t size;
} kn_map;

knnlm_status kn_map_open(const char *path, kn_map *out);
void kn_map_close(kn_map *map);
// Tells the system that the pages of [offset, offset+size) are not needed soon; they can be read again.
void kn_map_release(const kn_map *map, size_t offset, size_t size);
// Tells it that they are needed soon.
void kn_map_prefetch(const kn_map *map, size_t offset, size_t size);

// The whole file as bytes with a NUL after them (not counted); released with free().
knnlm_status kn_file_read(const char *path, char **data, size_t *size);

// Writes `path` by way of a temporary file beside it, synced and renamed by commit: a crash at any point
// leaves the old file or the new one. Write errors are kept and reported by commit.
typedef struct kn_file_writer kn_file_writer;
// Only a regular file is replaced: a directory or a device at `path` is KNNLM_EIO. "-" is standard output, to
// which everything goes as it comes.
knnlm_status kn_file_writer_open(const char *path, kn_file_writer **out);
knnlm_status kn_file_writer_put(kn_file_writer *writer, const void *data, size_t size);
uint64_t kn_file_writer_offset(const kn_file_writer *writer);
// Both release the writer, whatever they return.
knnlm_status kn_file_writer_commit(kn_file_writer *writer);
void kn_file_writer_abort(kn_file_writer *writer);

// All of `data` to a file descriptor: 0, or an errno.
int kn_write_all(int fd, const uint8_t *data, size_t size);
// Makes files created, renamed and deleted in `directory` durable: 0, or an errno.
int kn_directory_sync(const char *directory);

// Whether `path` could be written, found out before the work whose result goes there; nothing is changed.
knnlm_status kn_writer_try(const char *path);

// Whether both names lead to one file; false when either leads to none.
bool kn_file_same(const char *a, const char *b);
// Whether `path`, which need not exist yet, is in `directory` or below.
bool kn_file_within(const char *path, const char *directory);

// Free bytes on the file system that would hold `path`.
knnlm_status kn_disk_free(const char *path, uint64_t *bytes);

#endif
