// Walks directories in name order.
#include "text/walk.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 128 }; // of folders in folders: more is a mistake, or a trap

typedef struct walker {
    const kn_text_options *o;
    kn_walk_files *out;
    size_t root;
    int depth;
    struct {
        dev_t device;
        ino_t inode;
    } above[DEPTH_MAX]; // the directories that it is in
} walker;

// ---- what is wanted

static bool matches(const char *const *patterns, size_t count, const char *path) {
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; i < count; i++)
        if (fnmatch(patterns[i], path, 0) == 0 || (slash && fnmatch(patterns[i], slash + 1, 0) == 0))
            return true;
    return false;
}

// Of a member of an archive, the folders that it is in were not met before.
bool kn_walk_enters(const kn_text_options *o, const char *path) {
    char folder[PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash && o->exclude_count; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof folder, "%.*s", (int)kn_min((size_t)(slash - path), PATH_MAX), path);
        if (matches(o->exclude, o->exclude_count, folder)) return false;
    }
    return !matches(o->exclude, o->exclude_count, path);
}

bool kn_walk_wants(const kn_text_options *o, const char *path) {
    return kn_walk_enters(o, path) && (!o->include_count || matches(o->include, o->include_count, path));
}

bool kn_walk_hides(const kn_text_options *o, const char *path) {
    return !o->hidden && (path[0] == '.' || strstr(path, "/."));
}

knnlm_status kn_walk_skip(const kn_text_options *o, const char *path, const char *reason,
                          knnlm_status status) {
    if (o->strict) return status;
    if (o->skipped) o->skipped(o->skipped_context, path, reason);
    return KNNLM_OK;
}

// ---- the list

static knnlm_status add(kn_walk_files *out, const char *path, size_t root, uint64_t size, bool named) {
    KN_TRY(kn_grow(&out->files, &out->capacity, out->count + 1, sizeof *out->files));
    char *copy = kn_strdup(path);
    if (!copy) return KNNLM_ENOMEM;
    const char *slash = named ? strrchr(path, '/') : NULL;
    size_t own = slash ? (size_t)(slash + 1 - path) : named ? 0 : root;
    out->files[out->count++] = (kn_walk_file){copy, root, own, size, named};
    out->bytes += size;
    return KNNLM_OK;
}

knnlm_status kn_walk_stdin(kn_walk_files *files) {
    return add(files, "-", 0, 0, true);
}

void kn_walk_free(kn_walk_files *f) {
    for (size_t i = 0; i < f->count; i++) free(f->files[i].path);
    free(f->files);
    *f = (kn_walk_files){0};
}

// ---- directories

// By bytes, not by locale: the same order everywhere.
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_itself(const struct dirent *entry) {
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static knnlm_status walk_found(walker *w, const char *path);

static knnlm_status walk_entry(walker *w, const char *directory, const char *name) {
    size_t length = strlen(directory);
    const char *slash = length && directory[length - 1] == '/' ? "" : "/";
    char *path = kn_alloc(length + strlen(name) + 2, 1);
    if (!path) return KNNLM_ENOMEM;
    sprintf(path, "%s%s%s", directory, slash, name);
    if (!w->root) w->root = length + strlen(slash);
    knnlm_status status = walk_found(w, path);
    free(path);
    return status;
}

static knnlm_status cannot(const walker *w, const char *path, int error) {
    const char *reason = error == EACCES || error == EPERM ? "no permission"
                         : error == ELOOP                  ? "link loop"
                         : error == ENOENT                 ? "broken link"
                                                           : "cannot be read";
    kn_fail_errno(KNNLM_EIO, error, "%s", path);
    return w->depth ? kn_walk_skip(w->o, path, reason, KNNLM_EIO) : KNNLM_EIO;
}

static knnlm_status walk_entries(walker *w, const char *path) {
    struct dirent **entries;
    int count = scandir(path, &entries, not_itself, by_name);
    if (count < 0) return cannot(w, path, errno);
    knnlm_status status = KNNLM_OK;
    w->depth++;
    for (int i = 0; i < count; i++) {
        bool hidden = kn_walk_hides(w->o, entries[i]->d_name);
        if (status == KNNLM_OK && !hidden) status = walk_entry(w, path, entries[i]->d_name);
        free(entries[i]);
    }
    w->depth--;
    free(entries);
    return status;
}

// A store of ours among the texts is no text: its first bytes tell (docs/format.md).
static bool is_store(const char *path) {
    static const char mark[] = "knnlm-store ";
    char name[PATH_MAX], first[sizeof mark - 1];
    if (snprintf(name, sizeof name, "%s/MANIFEST", path) >= (int)sizeof name) return false;
    FILE *file = fopen(name, "re");
    bool is =
        file && fread(first, 1, sizeof first, file) == sizeof first && memcmp(first, mark, sizeof first) == 0;
    if (file) fclose(file);
    return is;
}

static knnlm_status walk_directory(walker *w, const char *path, const struct stat *st) {
    for (int i = 0; i < w->depth; i++)
        if (w->above[i].device == st->st_dev && w->above[i].inode == st->st_ino) {
            kn_fail(KNNLM_EIO, "%s: a link to a directory that it is in", path);
            return kn_walk_skip(w->o, path, "link loop", KNNLM_EIO);
        }
    if (w->depth == DEPTH_MAX) {
        kn_fail(KNNLM_EIO, "%s: more than %d directories deep", path, DEPTH_MAX);
        return kn_walk_skip(w->o, path, "too deep", KNNLM_EIO);
    }
    w->above[w->depth].device = st->st_dev;
    w->above[w->depth].inode = st->st_ino;
    return walk_entries(w, path);
}

static knnlm_status walk_found(walker *w, const char *path) {
    struct stat st;
    bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    const char *below = path + w->root;
    bool wanted = kn_walk_wants(w->o, below);
    if (!kn_walk_enters(w->o, below)) return KNNLM_OK;
    if (stat(path, &st) != 0) return wanted ? cannot(w, path, errno) : KNNLM_OK;
    if (!wanted && !S_ISDIR(st.st_mode)) return KNNLM_OK;
    if (link && !w->o->follow) {
        kn_fail(KNNLM_EINVAL, "%s: a symbolic link (`follow` follows those)", path);
        return kn_walk_skip(w->o, path, "link", KNNLM_EINVAL);
    }
    if (S_ISDIR(st.st_mode)) return is_store(path) ? KNNLM_OK : walk_directory(w, path, &st);
    if (S_ISREG(st.st_mode)) return add(w->out, path, w->root, (uint64_t)st.st_size, false);
    kn_fail(KNNLM_ENOTSUP, "%s: a pipe, socket or device, not a file", path);
    return kn_walk_skip(w->o, path, "not a file", KNNLM_ENOTSUP);
}

// What was named may be anything that can be read, links included.
knnlm_status kn_walk(const char *path, const kn_text_options *o, kn_walk_files *files) {
    walker w = {.o = o, .out = files};
    struct stat st;
    size_t before = files->count;
    if (stat(path, &st) != 0) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    if (!S_ISDIR(st.st_mode)) {
        bool has_size = S_ISREG(st.st_mode);
        return add(files, path, strlen(path), has_size ? (uint64_t)st.st_size : 0, true);
    }
    KN_TRY(walk_directory(&w, path, &st));
    if (files->count == before)
        return kn_fail(KNNLM_EINVAL, "%s: no files in this directory (hidden ones not counted)", path);
    return KNNLM_OK;
}
