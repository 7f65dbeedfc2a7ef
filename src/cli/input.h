// A text that was given as an argument, or on standard input.
#ifndef KN_CLI_INPUT_H
#define KN_CLI_INPUT_H

#include "cli/cli.h"

#include <stdio.h>

// Zero-initialise.
typedef struct cli_text {
    char *data; // NUL added
    size_t size;
} cli_text;

// Whether standard input, or output, is meant: "-", or nothing.
bool cli_is_standard(const char *argument);
// Standard input without the line end that echo and editors leave. After cli_catch_interrupts: Ctrl-C ends
// the waiting (KNNLM_ESTOPPED).
knnlm_status cli_text_read(cli_text *text);
// The argument itself, or standard input where it is "-" or NULL.
knnlm_status cli_text_take(cli_text *text, const char *argument);
// KNNLM_EDATA, beginning with `what`: not UTF-8.
knnlm_status cli_text_check(const cli_text *text, const char *what);
void cli_text_free(cli_text *text);

// For commands that read texts twice: what can be read only once (standard input, a pipe) is copied to files
// without a name, which stand in its place in `paths` until cli_spooled_free. Zero-initialise.
typedef struct cli_spooled {
    FILE **files; // (count); NULL: as it was
    char **names; // (count): theirs
    size_t count;
} cli_spooled;
knnlm_status cli_spool(char **paths, size_t count, cli_spooled *out);
void cli_spooled_free(cli_spooled *spooled);

#endif
