// The command line: one file a subcommand, each a table of options, a call of the library, and what it
// prints.
#ifndef KN_CLI_H
#define KN_CLI_H

#include "base/progress.h"
#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

// ---------------------------------------------------------------- options

typedef enum cli_kind {
    CLI_FLAG,
    CLI_STRING,
    CLI_INTEGER,
    CLI_NUMBER,
    CLI_CHOICE,
    CLI_BYTES, // "2G", "500M", "1.5GB": powers of 1000
    CLI_LIST,  // a string each time it is given
} cli_kind;

enum { CLI_LIST_MAX = 64 };
typedef struct cli_list {
    const char *items[CLI_LIST_MAX];
    size_t count;
} cli_list;

typedef struct cli_option {
    char letter; // 0: none
    const char *name;
    cli_kind kind;
    void *value; // bool *, const char **, int64_t *, double *, int * (index in choices), uint64_t * (bytes),
                 // cli_list *
    const char *argument;       // its name in the help; NULL for flags
    const char *help;           // NULL: an earlier name of another option, still understood
    double low, high;           // allowed range of integers and numbers; both 0: any
    const char *const *choices; // NULL-terminated
} cli_option;

typedef struct cli_command {
    const char *name, *summary, *usage, *examples;
    int (*run)(int argc, char **argv);
} cli_command;

// Parses into the options' values; positional arguments are left in *rest. Returns -1 to go on, else the exit
// code:
// --help was printed, or a message about wrong usage.
int cli_parse(const cli_command *command, const cli_option *options, size_t count, int argc, char **argv,
              char ***rest, size_t *rest_count);

// A value that stands elsewhere, before it becomes an argument: CLI_DONE, or the exit code after a message
// with its `place`.
int cli_check_value(const cli_command *command, const cli_option *option, const char *text,
                    const char *place);

// The command under way, for who has no way to tell it: NULL before cli_parse.
const cli_command *cli_current(void);

// "knnlm eval: …" on stderr; each returns the exit code to leave with.
int cli_fail(const cli_command *command); // the library's message, its fields as options; wrong usage where
                                          // it begins with one
int cli_usage(const cli_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Text for people: what could speak to the terminal is written as \xNN.
void cli_put_text(FILE *out, const char *text, size_t size);
void cli_put_line(FILE *out, const char *text);
// A message of the library, whose `fields` become --options: cut to the size of `out`.
void cli_message(const char *message, char *out, size_t size);
// "knnlm eval: warning: ..." on stderr.
void cli_warn(const char *message);

// Options that mean the same everywhere.
typedef struct cli_common {
    int64_t threads;
    bool verbose, json, accept_model;
    int precision, engine;
} cli_common;
#define CLI_COMMON_OPTIONS(common)                                                                           \
    {'t', "threads", CLI_INTEGER, &(common).threads, "N", "worker threads (default: one per core)",          \
     0,   256,       NULL},                                                                                  \
        {0,                                                                                                  \
         "precision",                                                                                        \
         CLI_CHOICE,                                                                                         \
         &(common).precision,                                                                                \
         "P",                                                                                                \
         "auto, f32, bf16 or int16 products (default: auto)",                                                \
         0,                                                                                                  \
         0,                                                                                                  \
         cli_precisions},                                                                                    \
        {'v', "verbose", CLI_FLAG, &(common).verbose, NULL, "say more on stderr", 0, 0, NULL}, {             \
        0, "json", CLI_FLAG, &(common).json, NULL, "print one JSON object instead of text", 0, 0, NULL       \
    }
extern const char *const cli_precisions[], *const cli_splits[];
// Applies threads; CLI_DONE or the exit code.
int cli_start(const cli_command *command, const cli_common *common);

// Before any work: refuses an output that is one of the inputs ("-" and NULL are none), or a file in a
// directory that is one. Those that are hidden are not read.
knnlm_status cli_check_output(const char *output, const char *const *inputs, size_t count);

// After a file was written to standard output ("-"): what is told for people goes to standard error from now
// on.
void cli_results_to_stderr(void);

// One object a line on stdout; releases it. Members are packed with "s:o?", so that what JSON cannot say
// (numbers that are not finite, names that are not UTF-8) is null. What cannot be said all the same ends the
// command with a message.
void cli_print_json(json_t *object);
// Takes the item; an array that lacks one is not printed.
void cli_json_append(json_t *array, json_t *item);

// ---------------------------------------------------------------- progress and interruption

// Whether lines there can be drawn over, and whether they can have colours (NO_COLOR: they cannot). TERM=dumb
// says that neither is so.
bool cli_terminal(int fd);
bool cli_colors(int fd);

// Draws on stderr when it is a terminal; asks the work to stop after Ctrl-C.
extern const kn_progress cli_progress;
void cli_progress_clear(void);
void cli_progress_line(const char *line); // in its place
// After this, Ctrl-C and SIGTERM only raise a flag; a second one ends the process.
void cli_catch_interrupts(void);
bool cli_interrupted(void);
// After this, reading a mapped file that was cut short ends the process with a line that names it.
void cli_catch_truncation(void);
// "3m05s", "1h02m"
const char *cli_duration(double seconds, char buffer[32]);
// "23.456", "1234.5", "13.2K": what nobody can read the digits of has fewer
const char *cli_perplexity(double x, char buffer[32]);
// "12.3K", "4.56M"
const char *cli_count(double n, char buffer[32]);

extern const cli_command cli_train, cli_build, cli_add, cli_sync, cli_remove, cli_compact, cli_verify,
    cli_index, cli_import, cli_export, cli_tune, cli_eval, cli_explain, cli_generate, cli_serve, cli_info,
    cli_search, cli_tokenize;

#endif
