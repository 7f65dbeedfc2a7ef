// What crashes leave behind, and what must not be mistaken for it.
#include "store/writer.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static const char *const kinds[] = {".text",  ".keys", ".removed", ".lists",
                                    ".order", ".rows", ".codes",   ".listed"};

static bool is_part(const char *name, uint64_t *file, const char **kind) {
    char *end;
    if (!isdigit((unsigned char)*name)) return false;
    *file = strtoull(name, &end, 10);
    *kind = end;
    if (end - name < 6) return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(end, kinds[i]) == 0) return true;
    return false;
}

static bool is_attachment(const char *name) {
    return strcmp(name, "tokenizer.gguf") == 0 || strcmp(name, "projection.gguf") == 0;
}

static bool is_temporary(const char *name) {
    return ends_with(name, ".tmp") &&
           (strncmp(name, KN_STORE_MANIFEST ".", sizeof KN_STORE_MANIFEST) == 0 ||
            strncmp(name, "tokenizer.gguf.", 15) == 0 || strncmp(name, "projection.gguf.", 16) == 0);
}

// Whether the manifest names it. The manifest's segments are in ascending order of their files only until a
// compaction: all are looked at.
static bool is_named(const char *name, const kn_manifest *m) {
    uint64_t file;
    const char *kind;
    if (!m) return false;
    if (is_attachment(name)) return kn_manifest_attachment(m, name) != NULL;
    if (!is_part(name, &file, &kind)) return false;
    if (strcmp(kind, ".removed") == 0) return m->removed.file == file;
    for (size_t i = 0; i < m->annex.count; i++)
        if (m->annex.parts[i].file == file && strcmp(m->annex.parts[i].kind, kind + 1) == 0) return true;
    if (strcmp(kind, ".text") != 0 && strcmp(kind, ".keys") != 0) return false;
    for (size_t i = 0; i < m->segment_count; i++)
        if (m->segments[i].file == file)
            return strcmp(kind, ".keys") != 0 ||
                   (m->settings.key_type != KNNLM_KEYS_NONE && !kn_segment_arranged(m, &m->segments[i]));
    return false;
}

static bool is_ours(const char *name) {
    uint64_t file;
    const char *kind;
    return is_part(name, &file, &kind) || is_attachment(name) || is_temporary(name);
}

bool kn_store_owns(const char *name) {
    uint64_t file;
    const char *kind;
    return strcmp(name, KN_STORE_MANIFEST) == 0 || strcmp(name, KN_STORE_LOCK) == 0 ||
           is_part(name, &file, &kind) || is_temporary(name);
}

// A commit that failed, or was killed, after the rename may be undone by a power failure: only once its
// directory is synced are the files of the manifest before it debris.
void kn_store_sweep(const char *path, const kn_manifest *m) {
    if (m && kn_directory_sync(path) != 0) return;
    DIR *directory = opendir(path);
    if (!directory) return;
    for (struct dirent *e; (e = readdir(directory));) {
        if (!is_ours(e->d_name) || is_named(e->d_name, m)) continue;
        unlinkat(dirfd(directory), e->d_name, 0); // what stays does no harm
    }
    closedir(directory);
}

// Without a lock file even names like ours are somebody else's: a store begins with its lock.
knnlm_status kn_store_check_empty(const char *path) {
    DIR *directory = opendir(path);
    knnlm_status status = KNNLM_OK;
    if (!directory) return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot create a store", path);
    bool begun = faccessat(dirfd(directory), KN_STORE_LOCK, F_OK, 0) == 0;
    for (struct dirent *e; (e = readdir(directory)) && status == KNNLM_OK;) {
        const char *name = e->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, KN_STORE_LOCK) == 0) continue;
        if (!begun || !is_ours(name))
            status = kn_fail(KNNLM_EIO, "%s: holds other files (%s): name a new directory", path, name);
    }
    closedir(directory);
    return status;
}
