// Allocates memory in checked sizes, and reads how much of it the process and the machine have.
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20 };

void *kn_alloc(size_t count, size_t size) {
    size_t bytes;
    void *memory = kn_mul(count, size, &bytes) ? calloc(count ? count : 1, size ? size : 1) : NULL;
    if (!memory) kn_fail(KNNLM_ENOMEM, "out of memory: %zu x %zu bytes asked for", count, size);
    return memory;
}

void *kn_alloc_aligned(size_t count, size_t size) {
    size_t bytes, padded;
    void *memory = NULL;
    if (kn_mul(count, size, &bytes) && kn_add(bytes, HUGE_PAGE, &padded)) {
        size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : LINE;
        size_t rounded = (bytes + align - 1) / align * align;
        memory = aligned_alloc(align, rounded ? rounded : align);
        if (memory && align == HUGE_PAGE) madvise(memory, rounded, MADV_HUGEPAGE); // only advice: may fail
    }
    if (!memory) kn_fail(KNNLM_ENOMEM, "out of memory: %zu x %zu bytes asked for", count, size);
    return memory;
}

void kn_free_aligned(void *memory) {
    free(memory);
}

knnlm_status kn_grow(void *array, size_t *capacity, size_t needed, size_t size) {
    if (needed <= *capacity) return KNNLM_OK;
    size_t target = *capacity + *capacity / 2;
    if (target < needed) target = needed;
    if (target < 16) target = 16;
    size_t bytes;
    void *old, *grown = NULL;
    memcpy(&old, array, sizeof old);
    if (kn_mul(target, size, &bytes)) grown = realloc(old, bytes);
    if (!grown) return kn_fail(KNNLM_ENOMEM, "out of memory: %zu x %zu bytes asked for", target, size);
    memcpy(array, &grown, sizeof grown);
    *capacity = target;
    return KNNLM_OK;
}

char *kn_strndup(const char *text, size_t length) {
    size_t bytes;
    if (!kn_add(length, 1, &bytes)) bytes = SIZE_MAX; // refused by kn_alloc
    char *copy = kn_alloc(bytes, 1);
    if (copy && length) memcpy(copy, text, length);
    return copy;
}

char *kn_strdup(const char *text) {
    return kn_strndup(text, strlen(text));
}

uint64_t kn_memory_resident(void) {
    unsigned long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%llu %llu", &pages, &resident) != 2) resident = 0;
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t kn_memory_peak(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

uint64_t kn_memory_total(void) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}
