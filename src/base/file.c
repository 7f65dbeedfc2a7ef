// Maps files for reading, replaces files whole or not at all, and asks file systems for what is free.
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BUFFER = 1 << 20, SUFFIX_CAPACITY = 48 };

struct kn_file_writer {
    char *path, *temporary;
    int fd;
    uint8_t *buffer;
    size_t used;
    uint64_t written;
    int error; // first errno met, reported by commit
};

static knnlm_status open_regular(const char *path, int *fd, size_t *size) {
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe without a writer would wait for one
    if (*fd < 0) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    int error = fstat(*fd, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;
    *size = (size_t)st.st_size;
    if (!error && S_ISREG(st.st_mode)) return KNNLM_OK;
    close(*fd);
    if (!error) return kn_fail(KNNLM_EIO, "%s: not a regular file", path);
    return kn_fail_errno(KNNLM_EIO, error, "%s", path);
}

knnlm_status kn_map_open(const char *path, kn_map *out) {
    int fd;
    *out = (kn_map){0};
    KN_TRY(open_regular(path, &fd, &out->size));
    if (out->size) {
        void *data = mmap(NULL, out->size, PROT_READ, MAP_PRIVATE, fd, 0);
        int error = errno;
        close(fd);
        if (data == MAP_FAILED) {
            out->size = 0;
            return kn_fail_errno(KNNLM_EIO, error, "%s: cannot map", path);
        }
        out->data = data;
    } else {
        close(fd);
    }
    return KNNLM_OK;
}

void kn_map_close(kn_map *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (kn_map){0};
}

void kn_map_release(const kn_map *map, size_t offset, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), start = (offset + page - 1) / page * page;
    size_t end = (offset + size) / page * page;
    if (map->data && end > start && end <= map->size)
        madvise((void *)(uintptr_t)(map->data + start), end - start, MADV_DONTNEED);
}

void kn_map_prefetch(const kn_map *map, size_t offset, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), start = offset / page * page;
    if (map->data && offset < map->size && size <= map->size - offset)
        madvise((void *)(uintptr_t)(map->data + start), offset + size - start, MADV_WILLNEED);
}

knnlm_status kn_file_read(const char *path, char **data, size_t *size) {
    kn_map map;
    KN_TRY(kn_map_open(path, &map));
    *size = map.size;
    *data = kn_strndup((const char *)map.data, map.size);
    kn_map_close(&map);
    return *data ? KNNLM_OK : KNNLM_ENOMEM;
}

static bool is_standard(const kn_file_writer *writer) {
    return writer->fd == STDOUT_FILENO;
}

static void writer_free(kn_file_writer *writer) {
    if (writer->fd >= 0 && !is_standard(writer)) close(writer->fd);
    free(writer->path);
    free(writer->temporary);
    free(writer->buffer);
    free(writer);
}

// The rename would fail only at the end (a directory), or do harm: root may replace /dev/null, or the link
// /dev/stdout, which leads to a regular file when the output is redirected to one.
static knnlm_status check_replaceable(const char *path) {
    struct stat st;
    if (!*path) return kn_fail(KNNLM_EINVAL, "an empty file name to write to");
    bool system = (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0) ||
                  strncmp(path, "/proc/", 6) == 0;
    if (stat(path, &st) != 0 || (S_ISREG(st.st_mode) && !system))
        return KNNLM_OK; // open tells what else is wrong
    if (S_ISDIR(st.st_mode)) return kn_fail_errno(KNNLM_EIO, EISDIR, "%s: cannot create", path);
    return kn_fail(KNNLM_EIO, "%s: cannot create: not a regular file", path);
}

// Nobody can foresee the name, and what is there already, a link above all, is not written through.
static int create_temporary(kn_file_writer *writer) {
    if (strcmp(writer->path, "-") == 0) {
        writer->fd = STDOUT_FILENO;
        return 0;
    }
    for (int attempt = 0; attempt < 100; attempt++) {
        uint64_t number;
        if (getrandom(&number, sizeof number, 0) != sizeof number) return errno ? errno : EIO;
        sprintf(writer->temporary, "%s.%016" PRIx64 ".tmp", writer->path, number);
        writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (writer->fd >= 0) return 0;
        if (errno != EEXIST) return errno;
    }
    return EEXIST;
}

knnlm_status kn_file_writer_open(const char *path, kn_file_writer **out) {
    KN_TRY(check_replaceable(path));
    kn_file_writer *writer = kn_alloc(1, sizeof *writer);
    if (!writer) return KNNLM_ENOMEM;
    writer->fd = -1;
    writer->path = kn_strdup(path);
    writer->temporary = kn_alloc(strlen(path) + SUFFIX_CAPACITY, 1);
    writer->buffer = kn_alloc(BUFFER, 1);
    if (!writer->path || !writer->temporary || !writer->buffer) {
        writer_free(writer);
        return KNNLM_ENOMEM;
    }
    int error = create_temporary(writer);
    if (error) {
        knnlm_status status = kn_fail_errno(KNNLM_EIO, error, "%s: cannot create", path);
        writer_free(writer);
        return status;
    }
    *out = writer;
    return KNNLM_OK;
}

int kn_write_all(int fd, const uint8_t *data, size_t size) {
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        if (n == 0) return EIO; // would go on for ever
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

static void writer_flush(kn_file_writer *writer) {
    if (!writer->error) writer->error = kn_write_all(writer->fd, writer->buffer, writer->used);
    writer->used = 0;
}

knnlm_status kn_file_writer_put(kn_file_writer *writer, const void *data, size_t size) {
    const uint8_t *bytes = data;
    writer->written += size;
    while (size && !writer->error) {
        size_t room = BUFFER - writer->used, n = size < room ? size : room;
        memcpy(writer->buffer + writer->used, bytes, n);
        writer->used += n;
        bytes += n;
        size -= n;
        if (writer->used == BUFFER) writer_flush(writer);
    }
    return writer->error ? kn_fail_errno(KNNLM_EIO, writer->error, "%s: cannot write", writer->path)
                         : KNNLM_OK;
}

uint64_t kn_file_writer_offset(const kn_file_writer *writer) {
    return writer->written;
}

int kn_directory_sync(const char *directory) {
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
    if (fd < 0) return errno;
    if (fsync(fd) != 0 && errno != EINVAL) error = errno;
    close(fd);
    return error;
}

// A rename is durable only once its directory is synced.
static int sync_parent(const char *path) {
    char *copy = kn_strdup(path);
    int error = copy ? kn_directory_sync(dirname(copy)) : ENOMEM;
    free(copy);
    return error;
}

// Moves what is whole to its place.
static void replace(kn_file_writer *writer) {
    if (!writer->error && fsync(writer->fd) != 0) writer->error = errno;
    if (close(writer->fd) != 0 && !writer->error) writer->error = errno;
    writer->fd = -1;
    if (!writer->error && rename(writer->temporary, writer->path) != 0) writer->error = errno;
    if (writer->error)
        unlink(writer->temporary);
    else
        writer->error = sync_parent(writer->path);
}

knnlm_status kn_file_writer_commit(kn_file_writer *writer) {
    knnlm_status status = KNNLM_OK;
    writer_flush(writer);
    if (!is_standard(writer)) replace(writer);
    if (writer->error) status = kn_fail_errno(KNNLM_EIO, writer->error, "%s: cannot write", writer->path);
    writer_free(writer);
    return status;
}

void kn_file_writer_abort(kn_file_writer *writer) {
    if (!writer) return;
    if (!is_standard(writer)) unlink(writer->temporary);
    writer_free(writer);
}

knnlm_status kn_writer_try(const char *path) {
    kn_file_writer *writer;
    KN_TRY(kn_file_writer_open(path, &writer));
    kn_file_writer_abort(writer);
    return KNNLM_OK;
}

bool kn_file_same(const char *a, const char *b) {
    struct stat left, right;
    return stat(a, &left) == 0 && stat(b, &right) == 0 && left.st_dev == right.st_dev &&
           left.st_ino == right.st_ino;
}

bool kn_file_within(const char *path, const char *directory) {
    char *copy = kn_strdup(path), *outer = realpath(directory, NULL), *inner = realpath(path, NULL);
    if (!inner && copy) inner = realpath(dirname(copy), NULL);
    size_t size = outer ? strlen(outer) : 0;
    bool within = inner && outer && strncmp(inner, outer, size) == 0 &&
                  (inner[size] == '/' || !inner[size] || outer[size - 1] == '/');
    free(copy);
    free(outer);
    free(inner);
    return within;
}

knnlm_status kn_disk_free(const char *path, uint64_t *bytes) {
    struct statvfs fs;
    char *copy = kn_strdup(path);
    if (!copy) return KNNLM_ENOMEM;
    // What is not there yet will be where its directory is.
    int failed = statvfs(path, &fs) != 0 && statvfs(dirname(copy), &fs) != 0, error = errno;
    free(copy);
    if (failed) return kn_fail_errno(KNNLM_EIO, error, "%s: cannot tell the free space", path);
    *bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    return KNNLM_OK;
}
