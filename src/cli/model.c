// Opens the model that a command names.
#include "cli/model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const cli_engines[] = {
    [KNNLM_ENGINE_AUTO] = "auto", [KNNLM_ENGINE_NATIVE] = "native", [KNNLM_ENGINE_LLAMA] = "llama", NULL};

static const char *opened; // the model that llama.cpp is about

// After its last words llama.cpp ends the process, with a core dump: one line and an exit code serve better.
// It begins them with a place in its sources, of which the folders are of no use.
static void end(const char *line) {
    int length = (int)strcspn(line, "\n");
    const char *folder = memrchr(line, '/', strcspn(line, ":\n"));
    const char *text = folder ? folder + 1 : line;
    fprintf(stderr, "knnlm %s: %s: llama.cpp failed: %.*s\n", cli_current()->name, opened,
            length - (int)(text - line), text);
    _exit(CLI_FAILED);
}

static void say(const char *line, bool fatal) {
    if (fatal) end(line);
    fprintf(stderr, "%s\n", line);
}

static void say_last(const char *line, bool fatal) {
    if (fatal) end(line);
}

knnlm_status cli_open_model(const char *path, const cli_common *common, knnlm_model **out) {
    knnlm_model_options options = knnlm_model_options_default();
    options.precision = (knnlm_precision)common->precision;
    options.engine = (knnlm_engine)common->engine;
    options.accept = common->accept_model;
    options.log = common->verbose ? say : say_last;
    options.progress = cli_progress;
    opened = path;
    knnlm_status status = knnlm_model_open(path, &options, out);
    cli_progress_clear();
    return status;
}
