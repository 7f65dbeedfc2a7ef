// A folder for the files of a test program: make_folder and remove_folder are its group setup and teardown.
#ifndef KN_TESTS_FOLDER_H
#define KN_TESTS_FOLDER_H

#include "expect.h"

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static char folder[64];

// Of a file in it; valid until the 256th call after: options hold on to paths for a while.
static inline const char *at(const char *name) {
    static char paths[256][256];
    static unsigned next;
    char *path = paths[next++ % 256];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline const char *put(const char *name, const void *data, size_t size) {
    const char *path = at(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline int discard_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static inline void discard(const char *path) {
    nftw(path, discard_one, 8, FTW_DEPTH | FTW_PHYS); // what is not there is discarded already
}

static inline bool there(const char *path) {
    return access(path, F_OK) == 0;
}

static inline int make_folder(void **state) {
    (void)state;
    test_folder(folder, sizeof folder);
    return 0;
}

static inline int remove_folder(void **state) {
    (void)state;
    discard(folder);
    return 0;
}

#endif
