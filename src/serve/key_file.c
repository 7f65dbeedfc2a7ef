// The key that clients must have, from a file: unlike an argument or the environment it is not seen by
// others.
#include "serve/serve.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { KEY_MAX = 1024 };

static knnlm_status read_first_line(FILE *file, const char *path, char *line, size_t size) {
    struct stat status;
    if (fstat(fileno(file), &status)) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    if (status.st_mode & (S_IROTH | S_IWOTH))
        return kn_fail(KNNLM_EINVAL, "%s: everybody on this machine can read or write it (chmod 600 %s)",
                       path, path);
    if (!fgets(line, (int)size, file)) *line = 0;
    if (ferror(file)) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    line[strcspn(line, "\r\n")] = 0;
    return KNNLM_OK;
}

knnlm_status kn_serve_read_key(const char *path, char **out) {
    char line[KEY_MAX + 3]; // with \r, \n and NUL
    FILE *file = fopen(path, "re");
    if (!file) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    knnlm_status status = read_first_line(file, path, line, sizeof line);
    fclose(file);
    KN_TRY(status);
    size_t size = strlen(line);
    if (size == 0 || size > KEY_MAX)
        return kn_fail(KNNLM_EDATA, "%s: its first line must be a key of 1 to %d characters", path, KEY_MAX);
    for (size_t i = 0; i < size; i++)
        if (line[i] <= ' ' || line[i] > '~')
            return kn_fail(KNNLM_EDATA,
                           "%s: byte %zu is no printable ASCII character: no header can carry it", path, i);
    *out = kn_strdup(line);
    return *out ? KNNLM_OK : KNNLM_ENOMEM;
}
