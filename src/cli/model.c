#include "cli/model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const cli_engines[] = {"auto", "native", "llama", NULL};

static void say(const char *line, bool fatal) {
    (void)fatal;
    fprintf(stderr, "%s\n", line);
}

// After its last words the process is ended by llama.cpp, with a core dump: one line and an exit code serve
// better.
static void say_last(const char *line, bool fatal) {
    if (!fatal) return;
    fprintf(stderr, "knnlm: llama.cpp failed: %.*s\n", (int)strcspn(line, "\n"), line);
    _exit(CLI_FAILED);
}

knnlm_status cli_open_model(const char *path, const cli_common *common, kn_lm **out) {
    kn_lm_options options = {.precision = (kn_precision)common->precision,
                             .engine = (kn_engine_choice)common->engine,
                             .vouched = common->accept_model,
                             .log = common->verbose ? say : say_last,
                             .progress = &cli_progress};
    knnlm_status status = kn_lm_open(path, &options, out);
    cli_progress_clear();
    return status;
}
