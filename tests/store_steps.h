// What the tests of single behaviours of stores begin with: a directory per test, some documents, and the
// steps that all of them take.
#ifndef KN_TESTS_STORE_STEPS_H
#define KN_TESTS_STORE_STEPS_H

#include "store_kit.h"

#include "store/state.h"

// ---------------------------------------------------------------- a directory per test

static char directory[KIT_PATH], origin[KIT_PATH];

static inline int enter(void **state) {
    (void)state;
    setenv("SOURCE_DATE_EPOCH", KIT_EPOCH, 1);
    test_folder(directory, sizeof directory);
    return getcwd(origin, sizeof origin) && chdir(directory) == 0 ? 0 : -1;
}

static inline int leave(void **state) {
    (void)state;
    if (chdir(origin) != 0) return -1;
    kit_delete(directory);
    return 0;
}

// Documents of many lengths: empty ones first, last and in a row; some that span several segments.
static const kit_item mixed[] = {
    {1, 0, 0, false}, {2, 1, 1, false},    {3, 6, 6, false},    {4, 7, 7, false},
    {5, 0, 0, false}, {6, 0, 0, false},    {7, 30, 30, false},  {8, 1, 1, false},
    {9, 4, 4, false}, {10, 64, 64, false}, {11, 15, 15, false}, {12, 0, 0, false},
};
enum { MIXED = COUNT(mixed), MIXED_ENTRIES = 128 };

static inline kn_store *opened(const char *path) {
    kn_store *s;
    OK(kn_store_open(path, &s));
    return s;
}

static inline kn_store_writer *writing(const char *path) {
    kn_store_writer *w;
    OK(kn_store_write(path, &w));
    return w;
}

static inline void commit_and_close(kn_store_writer *w) {
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
}

// ---------------------------------------------------------------- compacting

static inline bool stop(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    (void)what;
    (void)unit;
    return done <= total && ++*(int *)context < 5;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)

#endif
