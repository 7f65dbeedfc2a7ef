// Memory accounts of requests: a body parsed with less memory than it takes is refused, whatever the amount,
// and the parser survives it.
#include "expect.h"

#include "serve/account.h"

#include <jansson.h>

#include <stdio.h>

enum { LONG = 5000, BODY = 2 * LONG, STEP = 61, ENOUGH = 1 << 20 };

// Tokens of growing length, so that the lexer's buffer grows at many places.
static size_t fill_body(char *body) {
    size_t n = (size_t)sprintf(body, "{\"list\": [");
    for (int length = 1; length < LONG / 4; length = length * 3 / 2 + 1)
        n += (size_t)sprintf(body + n, "\"%0*d\", {\"%0*d\": [1, 2.5]}, ", length, 7, length + 3, 8);
    return n + (size_t)sprintf(body + n, "\"%0*d\"]}", LONG / 4, 9);
}

static bool parse(const char *body, size_t size, size_t memory) {
    kn_budget budget;
    kn_account a;
    json_error_t error;
    kn_budget_init(&budget, memory);
    kn_account_open(&a, &budget);
    bool begun = kn_account_parse_begin(&a, size);
    json_t *root = begun ? json_loadb(body, size, 0, &error) : NULL;
    bool enough = begun && kn_account_parse_end(&a);
    assert_true(enough == (a.shortage == KN_SHORTAGE_NONE));
    assert_true(enough || memory < ENOUGH);
    assert_true(!enough || root); // the body is right
    json_decref(root);
    kn_json_failed();
    kn_account_close(&a);
    assert_int_equal(atomic_load(&budget.used), 0);
    return enough;
}

static void any_amount_of_memory(void **state) {
    char *body = test_alloc(BODY, 1);
    size_t size = fill_body(body), refused = 0, parsed = 0;
    (void)state;
    assert_true(size < BODY);
    for (size_t memory = 0; memory < 64 * BODY; memory += memory < 8 * BODY ? STEP : 64 * STEP) {
        bool enough = parse(body, size, memory);
        refused += !enough;
        parsed += enough;
    }
    if (refused < 100 || parsed < 10) fail_msg("%zu refused, %zu parsed", refused, parsed);
    assert_true(parse(body, size, ENOUGH));
    free(body);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_amount_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
