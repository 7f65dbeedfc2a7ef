// The data folder (docs/data.md): real texts, tokenizers and a model, too large for the repository.
// KNNLM_DATA names it, else it is `shared` beside the checkout. A test program called with the argument
// "data" runs the tests that need it, as a test of its own (NAME_data), which is skipped where something is
// missing.
#ifndef KN_TESTS_DATA_H
#define KN_TESTS_DATA_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Of a file in it; valid until the fourth call after.
static inline const char *data_path(const char *name) {
    static char paths[4][4096];
    static int turn;
    char *path = paths[turn++ % 4];
    const char *folder = getenv("KNNLM_DATA");
    snprintf(path, sizeof *paths, "%s/%s", folder && *folder ? folder : KN_SOURCE_DIR "/../shared", name);
    return path;
}

static inline bool data_wanted(int argc, char **argv) {
    return argc > 1 && strcmp(argv[1], "data") == 0;
}

static inline bool data_missing(const char *const *names) {
    for (; *names; names++)
        if (access(data_path(*names), R_OK) != 0) {
            printf("skipped: no %s\n", data_path(*names));
            return true;
        }
    return false;
}

// In main: leaves with 77 when one of the named files is missing.
#define DATA_NEEDS(...)                                                                                      \
    do {                                                                                                     \
        static const char *const names_[] = {__VA_ARGS__, NULL};                                             \
        if (data_missing(names_)) return 77;                                                                 \
    } while (0)

#endif
