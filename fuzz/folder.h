// A folder for a fuzz target's files: in memory where the system has such a place, deleted at the end.
#ifndef FUZZ_FOLDER_H
#define FUZZ_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// By way of a link from elsewhere: what lies below /dev is never replaced by the library.
static char folder_real[64], folder[80];

static inline void folder_leave(void) {
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", folder, folder_real);
    if (system(command) != 0) fprintf(stderr, "%s: cannot be deleted\n", folder_real);
}

static inline void folder_enter(void) {
    if (*folder) return;
    strcpy(folder_real,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/knnlm-fuzz-XXXXXX" : "/tmp/knnlm-fuzz-XXXXXX");
    if (!mkdtemp(folder_real)) abort();
    snprintf(folder, sizeof folder, "/tmp/knnlm-fuzz-%ld.store", (long)getpid());
    unlink(folder);
    if (symlink(folder_real, folder) != 0) abort();
    atexit(folder_leave);
}

#endif
