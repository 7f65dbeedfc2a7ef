// Walks directories in name order.
#include "text/walk.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 128 }; // of folders in folders: a link that leads back up would never end

static int visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}
// By bytes, not by locale: the same order everywhere.
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static knnlm_status walk(const char *path, bool named, int depth, kn_strings *files, uint64_t *bytes);

static knnlm_status walk_entry(const char *directory, const char *name, int depth, kn_strings *files,
                               uint64_t *bytes) {
    size_t length = strlen(directory);
    const char *slash = length && directory[length - 1] == '/' ? "" : "/";
    char *path = kn_alloc(length + strlen(name) + 2, 1);
    if (!path) return KNNLM_ENOMEM;
    sprintf(path, "%s%s%s", directory, slash, name);
    knnlm_status status = walk(path, false, depth, files, bytes);
    free(path);
    return status;
}

static knnlm_status walk_directory(const char *path, int depth, kn_strings *files, uint64_t *bytes) {
    struct dirent **entries;
    if (depth > DEPTH_MAX) return kn_fail(KNNLM_EIO, "%s: more than %d directories deep", path, DEPTH_MAX);
    int count = scandir(path, &entries, visible, by_name);
    if (count < 0) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    knnlm_status status = KNNLM_OK;
    for (int i = 0; i < count; i++) {
        if (status == KNNLM_OK) status = walk_entry(path, entries[i]->d_name, depth + 1, files, bytes);
        free(entries[i]);
    }
    free(entries);
    return status;
}

// What was named may be anything that can be read; what a directory holds is taken when it is a file.
static knnlm_status walk(const char *path, bool named, int depth, kn_strings *files, uint64_t *bytes) {
    struct stat st;
    if (stat(path, &st) != 0) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    if (S_ISDIR(st.st_mode)) return walk_directory(path, depth, files, bytes);
    if (!named && !S_ISREG(st.st_mode)) return KNNLM_OK;
    *bytes += (uint64_t)st.st_size;
    return kn_strings_add(files, path, strlen(path));
}

knnlm_status kn_walk(const char *path, kn_strings *files, uint64_t *bytes) {
    size_t before = files->count;
    KN_TRY(walk(path, true, 0, files, bytes));
    if (files->count == before) return kn_fail(KNNLM_EINVAL, "%s: no files in this directory", path);
    return KNNLM_OK;
}
