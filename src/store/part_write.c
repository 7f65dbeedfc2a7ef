// Writes a part of a segment block by block, a spool behind it, and seals it with checksums.
#include "store/part.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

struct kn_part_writer {
    char *path;
    int fd;
    kn_spool *spool;
    uint8_t *block; // being filled
    size_t used;
    uint64_t payload;
    // Of the spool's thread alone, once blocks are queued:
    uint64_t *table;
    size_t blocks, capacity;
    bool created, sealed;
};

// A full block on its way to the file.
typedef struct block_job {
    kn_part_writer *part;
    uint8_t *data;
    size_t size;
} block_job;

static knnlm_status cannot_write(const kn_part_writer *p, int error) {
    return kn_fail_errno(KNNLM_EIO, error, "%s: cannot write", p->path);
}

static knnlm_status write_block(kn_part_writer *p, const uint8_t *data, size_t size) {
    KN_TRY(kn_grow(&p->table, &p->capacity, p->blocks + 1, sizeof *p->table));
    p->table[p->blocks++] = XXH3_64bits(data, size);
    int error = kn_write_all(p->fd, data, size);
    return error ? cannot_write(p, error) : KNNLM_OK;
}

static knnlm_status run_block(void *context, bool failed) {
    block_job *job = context;
    knnlm_status status = failed ? KNNLM_OK : write_block(job->part, job->data, job->size);
    free(job->data);
    free(job);
    return status;
}

// Hands the block at hand to the spool and begins a new one.
static knnlm_status queue_block(kn_part_writer *p) {
    if (!p->spool) {
        KN_TRY(write_block(p, p->block, p->used));
        p->used = 0;
        return KNNLM_OK;
    }
    block_job *job = kn_alloc(1, sizeof *job);
    uint8_t *fresh = kn_alloc(KN_PART_BLOCK, 1);
    if (!job || !fresh) {
        free(job);
        free(fresh);
        return KNNLM_ENOMEM;
    }
    *job = (block_job){p, p->block, p->used};
    p->block = fresh;
    p->used = 0;
    return kn_spool_put(p->spool, run_block, job);
}

knnlm_status kn_part_create(const char *path, kn_part_kind kind, kn_spool *spool, kn_part_writer **out) {
    struct {
        char magic[8];
        uint32_t version, kind;
        uint8_t zeros[KN_PART_HEADER - 16];
    } header = {.version = KN_PART_VERSION, .kind = (uint32_t)kind};
    _Static_assert(sizeof header == KN_PART_HEADER, "the header has no holes");
    memcpy(header.magic, KN_PART_MAGIC, sizeof header.magic);
    kn_part_writer *p = kn_alloc(1, sizeof *p);
    if (!p) return KNNLM_ENOMEM;
    p->fd = -1;
    p->spool = spool;
    p->path = kn_strdup(path);
    p->block = kn_alloc(KN_PART_BLOCK, 1);
    knnlm_status status = p->path && p->block ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        unlink(path); // what a crash left, or somebody put there: not to be written through
        p->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (p->fd < 0) status = kn_fail_errno(KNNLM_EIO, errno, "%s: cannot create", path);
        p->created = p->fd >= 0;
    }
    if (status == KNNLM_OK) status = kn_part_put(p, &header, sizeof header);
    if (status != KNNLM_OK)
        kn_part_free(p);
    else
        *out = p;
    return status;
}

knnlm_status kn_part_put(kn_part_writer *p, const void *data, size_t size) {
    const uint8_t *bytes = data;
    while (size) {
        if (p->used == KN_PART_BLOCK) KN_TRY(queue_block(p));
        size_t n = kn_min(size, KN_PART_BLOCK - p->used);
        memcpy(p->block + p->used, bytes, n);
        p->used += n;
        p->payload += n;
        bytes += n;
        size -= n;
    }
    return KNNLM_OK;
}

knnlm_status kn_part_pad(kn_part_writer *p) {
    static const uint8_t zeros[KN_PART_ALIGN];
    size_t over = p->payload % KN_PART_ALIGN;
    return over ? kn_part_put(p, zeros, KN_PART_ALIGN - over) : KNNLM_OK;
}

uint64_t kn_part_written(const kn_part_writer *p) {
    return p->payload;
}

void kn_part_take_over(kn_part_writer *p) {
    p->spool = NULL;
}

static knnlm_status write_footer(kn_part_writer *p, uint64_t count, uint64_t *seal) {
    KN_TRY(kn_grow(&p->table, &p->capacity, p->blocks + 3, sizeof *p->table));
    p->table[p->blocks] = count;
    p->table[p->blocks + 1] = p->payload;
    *seal = p->table[p->blocks + 2] = XXH3_64bits(p->table, (p->blocks + 2) * sizeof *p->table);
    int error = kn_write_all(p->fd, (const uint8_t *)p->table, (p->blocks + 3) * sizeof *p->table);
    return error ? cannot_write(p, error) : KNNLM_OK;
}

knnlm_status kn_part_seal(kn_part_writer *p, uint64_t count, uint64_t *seal) {
    if (p->used) KN_TRY(write_block(p, p->block, p->used));
    p->used = 0;
    KN_TRY(write_footer(p, count, seal));
    if (fsync(p->fd) != 0) return cannot_write(p, errno);
    int failed = close(p->fd), error = errno;
    p->fd = -1;
    if (failed) return cannot_write(p, error);
    p->sealed = true;
    return KNNLM_OK;
}

void kn_part_free(kn_part_writer *p) {
    if (!p) return;
    if (p->fd >= 0) close(p->fd);
    if (p->created && !p->sealed) unlink(p->path);
    free(p->path);
    free(p->block);
    free(p->table);
    free(p);
}
