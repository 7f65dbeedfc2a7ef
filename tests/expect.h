// What every test program in C begins with: cmocka, what is expected of a status (success, or a failure whose
// message is one line that says so), and memory.
#ifndef KN_TESTS_EXPECT_H
#define KN_TESTS_EXPECT_H

#include "knnlm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

#endif
