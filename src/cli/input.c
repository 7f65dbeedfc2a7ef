// Reads a text from standard input or a file, for commands that take one as an argument too.
#include "cli/input.h"

#include "base/file.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 65536 };

// A read() that waits would go on after Ctrl-C; poll() does not, and its limit covers a signal that came just
// before it.
static knnlm_status wait_for_input(int fd) {
    struct pollfd input = {.fd = fd, .events = POLLIN};
    int ready;
    do {
        if (cli_interrupted())
            return kn_fail(KNNLM_ESTOPPED, "interrupted while waiting for %s: nothing was done",
                           fd == STDIN_FILENO ? "standard input" : "a pipe");
        ready = poll(&input, 1, 200);
    } while (ready == 0 || (ready < 0 && errno == EINTR));
    return KNNLM_OK;
}

static knnlm_status read_all(cli_text *t) {
    size_t capacity = 0;
    for (ssize_t n = 1; n > 0;) {
        KN_TRY(kn_grow(&t->data, &capacity, t->size + PIECE + 1, 1));
        KN_TRY(wait_for_input(STDIN_FILENO));
        n = read(STDIN_FILENO, t->data + t->size, PIECE);
        if (n < 0) return kn_fail_errno(KNNLM_EIO, errno, "standard input cannot be read");
        t->size += (size_t)n;
    }
    t->data[t->size] = 0;
    return KNNLM_OK;
}

knnlm_status cli_text_read(cli_text *t) {
    knnlm_status status = read_all(t);
    if (status != KNNLM_OK) {
        cli_text_free(t);
        return status;
    }
    if (t->size && t->data[t->size - 1] == '\n') t->data[--t->size] = 0;
    return KNNLM_OK;
}

bool cli_is_standard(const char *argument) {
    return !argument || strcmp(argument, "-") == 0;
}

knnlm_status cli_text_take(cli_text *t, const char *argument) {
    if (cli_is_standard(argument)) return cli_text_read(t);
    t->size = strlen(argument);
    t->data = kn_strdup(argument);
    return t->data ? KNNLM_OK : KNNLM_ENOMEM;
}

knnlm_status cli_text_check(const cli_text *t, const char *what) {
    size_t valid = kn_utf8_valid(t->data, t->size);
    if (valid == t->size) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s is not UTF-8 at byte %zu", what, valid);
}

void cli_text_free(cli_text *t) {
    free(t->data);
    *t = (cli_text){0};
}

// ---------------------------------------------------------------- what can be read only once

static bool is_once(const char *path) {
    struct stat st;
    if (cli_is_standard(path)) return true;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static knnlm_status copy_all(int fd, const char *path, FILE *to) {
    char piece[PIECE];
    for (ssize_t n = 1; n > 0;) {
        KN_TRY(wait_for_input(fd));
        n = read(fd, piece, sizeof piece);
        if (n < 0) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
        if (fwrite(piece, 1, (size_t)n, to) != (size_t)n)
            return kn_fail_errno(KNNLM_EIO, errno, "%s: no room for a copy in the folder for temporary files",
                                 path);
    }
    if (fflush(to) != 0) return kn_fail_errno(KNNLM_EIO, errno, "%s: its copy cannot be written", path);
    return KNNLM_OK;
}

static knnlm_status spool_one(char **path, FILE **file, char **name) {
    enum { NAME = 32 };
    *file = tmpfile();
    *name = kn_alloc(NAME, 1);
    if (!*file) return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot make a file for a copy", *path);
    if (!*name) return KNNLM_ENOMEM;
    int fd = cli_is_standard(*path) ? STDIN_FILENO : open(*path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return kn_fail_errno(KNNLM_EIO, errno, "%s", *path);
    knnlm_status status = copy_all(fd, *path, *file);
    if (fd != STDIN_FILENO) close(fd);
    snprintf(*name, NAME, "/dev/fd/%d", fileno(*file));
    *path = *name;
    return status;
}

knnlm_status cli_spool(char **paths, size_t count, cli_spooled *out) {
    out->count = count;
    out->files = kn_alloc(count, sizeof *out->files);
    out->names = kn_alloc(count, sizeof *out->names);
    if (!out->files || !out->names) return KNNLM_ENOMEM;
    for (size_t i = 0; i < count; i++)
        if (is_once(paths[i])) KN_TRY(spool_one(&paths[i], &out->files[i], &out->names[i]));
    return KNNLM_OK;
}

void cli_spooled_free(cli_spooled *s) {
    for (size_t i = 0; i < s->count; i++) {
        if (s->files && s->files[i]) fclose(s->files[i]);
        if (s->names) free(s->names[i]);
    }
    free(s->files);
    free(s->names);
    *s = (cli_spooled){0};
}
