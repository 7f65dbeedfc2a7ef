// Makes files without a name and maps them.
#include "base/scratch_file.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// File systems without O_TMPFILE get a file that loses its name at once.
static int open_nameless(const char *folder) {
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
    size_t size = strlen(folder) + sizeof "/work-XXXXXX";
    char *path = kn_alloc(size, 1);
    if (!path) return -1;
    snprintf(path, size, "%s/work-XXXXXX", folder);
    fd = mkstemp(path);
    int error = errno;
    if (fd >= 0) unlink(path);
    free(path);
    errno = error;
    return fd;
}

knnlm_status kn_scratch_file_open(const char *folder, size_t size, kn_scratch_file *out) {
    *out = (kn_scratch_file){.size = size};
    if (!size) return KNNLM_OK;
    int fd = open_nameless(folder);
    if (fd < 0) return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot make a file to work in", folder);
    int error = posix_fallocate(fd, 0, (off_t)size);
    void *data = error ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && data == MAP_FAILED) error = errno;
    close(fd);
    if (error) return kn_fail_errno(KNNLM_EIO, error, "%s: no room for %zu bytes to work in", folder, size);
    out->data = data;
    return KNNLM_OK;
}

void kn_scratch_file_release(const kn_scratch_file *s) {
    if (s->data) madvise(s->data, s->size, MADV_DONTNEED); // of a shared file: written, not lost
}

void kn_scratch_file_close(kn_scratch_file *s) {
    if (s->data) munmap(s->data, s->size);
    *s = (kn_scratch_file){0};
}
