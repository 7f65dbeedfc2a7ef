// Reads a text from standard input or a file, for commands that take one as an argument too.
#include "cli/input.h"

#include "base/file.h"
#include "base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 65536 };

// A read() that waits would go on after Ctrl-C; poll() does not, and its limit covers a signal that came just
// before it.
static knnlm_status wait_for_input(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    int ready;
    do {
        if (cli_interrupted())
            return kn_fail(KNNLM_ESTOPPED, "interrupted while waiting for standard input: nothing was done");
        ready = poll(&input, 1, 200);
    } while (ready == 0 || (ready < 0 && errno == EINTR));
    return KNNLM_OK;
}

static knnlm_status read_all(cli_text *t) {
    size_t capacity = 0;
    for (ssize_t n = 1; n > 0;) {
        KN_TRY(kn_grow(&t->data, &capacity, t->size + PIECE + 1, 1));
        KN_TRY(wait_for_input());
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
