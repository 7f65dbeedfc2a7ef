// What tests expect of a status: success, or a failure whose message is one line that says so. Includes
// nothing of cmocka's: the test has.
#ifndef KN_TESTS_EXPECT_H
#define KN_TESTS_EXPECT_H

#include "knnlm.h"

#include <string.h>

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

#endif
