// The options of commands that read texts, and what they skipped of them.
#ifndef KN_CLI_TEXTS_H
#define KN_CLI_TEXTS_H

#include "cli/cli.h"

typedef struct cli_skip {
    char *path, *reason;
} cli_skip;

typedef struct cli_texts {
    int split; // -1: not given
    const char *encoding, *field, *name_field, *name;
    cli_list include, exclude;
    bool hidden, follow, strict;
    cli_skip *skips;
    size_t skip_count, skip_capacity;
    knnlm_input_options options; // of all these
} cli_texts;

// One option a line. `otherwise`: how documents are cut when nobody says.
// clang-format off
#define CLI_TEXTS_OPTIONS(t, otherwise) \
    {0, "documents", CLI_CHOICE, &(t).split, "HOW", "file; wiki: each \"= Title =\" section is a document; jsonl: each line, an object of JSON (default: " otherwise ")", 0, 0, cli_splits}, \
    {0, "field", CLI_STRING, &(t).field, "NAME", "of JSON lines: the member that is the text (default: text)", 0, 0, NULL}, \
    {0, "name-field", CLI_STRING, &(t).name_field, "NAME", "of JSON lines: the member that names the document (default: its line's number does)", 0, 0, NULL}, \
    {0, "encoding", CLI_STRING, &(t).encoding, "NAME", "of files that do not tell it, such as latin1 or UTF-16LE (default: UTF-8)", 0, 0, NULL}, \
    {0, "include", CLI_LIST, &(t).include, "GLOB", "of directories, read only files that match, such as '*.txt'; may be given several times", 0, 0, NULL}, \
    {0, "exclude", CLI_LIST, &(t).exclude, "GLOB", "of directories, leave out files and folders that match; may be given several times", 0, 0, NULL}, \
    {0, "hidden", CLI_FLAG, &(t).hidden, NULL, "of directories, read what begins with a dot too", 0, 0, NULL}, \
    {0, "follow", CLI_FLAG, &(t).follow, NULL, "of directories, follow symbolic links", 0, 0, NULL}, \
    {0, "strict", CLI_FLAG, &(t).strict, NULL, "fail at the first file that cannot be read, rather than skip it", 0, 0, NULL}, \
    {0, "name", CLI_STRING, &(t).name, "NAME", "what standard input is called (default: <stdin>)", 0, 0, NULL}
// clang-format on

// After parsing: what the options mean; points into `t`, which remembers what is skipped.
const knnlm_input_options *cli_texts_read(cli_texts *t);
// The summary on stderr, by reason; nothing where nothing was skipped.
void cli_texts_report(const cli_texts *t, const cli_command *command);
// [{"path", "reason"}]; a path that is not UTF-8 is null.
json_t *cli_texts_json(const cli_texts *t);
void cli_texts_free(cli_texts *t);

#endif
