// Ranks, as one process has them: messages give back what was put, calls to oneself are run in place, and the
// first real failure is the one that is told.
#include "expect.h"

#include "ranks/ranks.h"

#include <string.h>

static void messages(void **state) {
    kn_message m = {0};
    const char *const texts[] = {"a", "", "three words here"}, **taken;
    size_t count, size;
    (void)state;
    kn_message_put_number(&m, 7);
    kn_message_put_text(&m, NULL);
    kn_message_put_text(&m, "text");
    kn_message_put_bytes(&m, "a\0b", 3);
    kn_message_put_texts(&m, texts, 3);
    kn_message_put_real(&m, 0.5);
    OK(kn_message_sent(&m));
    assert_int_equal(kn_message_take_number(&m), 7);
    assert_null(kn_message_take_text(&m));
    assert_string_equal(kn_message_take_text(&m), "text");
    assert_memory_equal(kn_message_take_bytes(&m, &size), "a\0b", 4);
    assert_int_equal(size, 3);
    OK(kn_message_take_texts(&m, &taken, &count));
    assert_int_equal(count, 3);
    for (size_t i = 0; i < 3; i++) assert_string_equal(taken[i], texts[i]);
    free(taken);
    assert_true(kn_message_take_real(&m) == 0.5);
    OK(kn_message_read(&m));
    assert_int_equal(kn_message_take_number(&m), 0); // there is no more
    assert_int_equal(kn_message_read(&m), KNNLM_EDATA);
    kn_message_free(&m);
}

// Numbers that promise more than there is.
static void torn_messages(void **state) {
    const uint64_t lies[] = {UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 40, 9};
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        kn_message m = {0};
        const char **texts;
        size_t count, size;
        kn_message_put_number(&m, lies[i]);
        kn_message_put_number(&m, 0);
        if (i % 2) {
            assert_null(kn_message_take_bytes(&m, &size));
            assert_int_equal(size, 0);
        } else {
            assert_int_equal(kn_message_take_texts(&m, &texts, &count), KNNLM_EDATA);
            free(texts);
        }
        kn_message_free(&m);
    }
}

static knnlm_status twice(kn_message *in, kn_message *out, const kn_progress *progress) {
    uint64_t number = kn_message_take_number(in);
    if (number == 13) return kn_fail(KNNLM_EIO, "thirteen");
    if (!kn_progress_report(progress, "doubling", number, 10, "steps"))
        return kn_fail(KNNLM_ESTOPPED, "stopped");
    kn_message_put_number(out, 2 * number);
    return KNNLM_OK;
}
static const kn_service doubling = {"twice", twice};

static void ask(kn_call calls[3], uint64_t middle) {
    const uint64_t numbers[] = {1, middle, 3};
    for (size_t i = 0; i < 3; i++) {
        calls[i] = (kn_call){.rank = 0, .service = &doubling};
        kn_message_put_number(&calls[i].in, numbers[i]);
    }
}

static bool stop(void *context, const char *phase, uint64_t done, uint64_t total, const char *unit) {
    assert_string_equal(phase, "doubling");
    assert_string_equal(unit, "steps");
    assert_int_equal(total, 10);
    *(uint64_t *)context += done;
    return false;
}

static void calls_in_place(void **state) {
    kn_call calls[3];
    uint64_t seen = 0;
    (void)state;
    assert_int_equal(kn_rank(), 0);
    assert_int_equal(kn_rank_count(), 1);
    assert_true(*kn_rank_host(0));
    ask(calls, 2);
    OK(kn_ranks_call(calls, 3, NULL));
    for (size_t i = 0; i < 3; i++) assert_int_equal(kn_message_take_number(&calls[i].out), 2 * (i + 1));
    kn_calls_free(calls, 3);
    ask(calls, 13);
    assert_int_equal(kn_ranks_call(calls, 3, NULL), KNNLM_EIO);
    assert_string_equal(knnlm_message(), "thirteen");
    assert_int_equal(calls[2].out.size, 0); // what comes after a failure is not begun
    kn_calls_free(calls, 3);
    ask(calls, 2);
    assert_int_equal(kn_ranks_call(calls, 3, &(kn_progress){stop, &seen}), KNNLM_ESTOPPED);
    assert_int_equal(seen, 1);
    kn_calls_free(calls, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(torn_messages),
        cmocka_unit_test(calls_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
