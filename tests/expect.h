// What every test program in C begins with: cmocka, what is expected of a status (success, or a failure whose
// message is one line that says so), memory, and a folder.
#ifndef KN_TESTS_EXPECT_H
#define KN_TESTS_EXPECT_H

#include "knnlm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call)                                                                                             \
    do {                                                                                                     \
        knnlm_status status_ = (call);                                                                       \
        if (status_ != KNNLM_OK) fail_msg("%s: %s", #call, knnlm_message());                                 \
    } while (0)
#define FAILS(status, text, call)                                                                            \
    do {                                                                                                     \
        assert_int_equal(call, status);                                                                      \
        if (!strstr(knnlm_message(), text)) fail_msg("\"%s\" is not in \"%s\"", text, knnlm_message());      \
        if (strchr(knnlm_message(), '\n')) fail_msg("not one line: %s", knnlm_message());                    \
    } while (0)

#define COUNT(array) (sizeof(array) / sizeof *(array))

// Zeroed; released with free().
static inline void *test_alloc(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

// Makes a new folder of a test, whose name is put into `out`: in TMPDIR, or in memory where there is plenty,
// for a sync of a disk takes long.
static inline void test_folder(char *out, size_t size) {
    const char *chosen = getenv("TMPDIR");
    struct statvfs v;
    if (!chosen && access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &v) == 0 &&
        v.f_bavail >= ((uint64_t)1 << 30) / v.f_frsize)
        chosen = "/dev/shm";
    int n = snprintf(out, size, "%s/knnlm-test-XXXXXX", chosen ? chosen : "/tmp");
    if (n < 0 || (size_t)n >= size || !mkdtemp(out)) abort();
}

#endif
