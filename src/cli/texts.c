// Options of reading texts, and the summary of what was skipped.
#include "cli/texts.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 3 }; // paths of a reason

const char *const cli_splits[] = {
    [KNNLM_SPLIT_FILE] = "file", [KNNLM_SPLIT_WIKI] = "wiki", [KNNLM_SPLIT_JSONL] = "jsonl", NULL};

// What memory does not hold is missing in the summary, and that is all.
static void on_skip(void *context, const char *path, const char *reason) {
    cli_texts *t = context;
    if (kn_grow(&t->skips, &t->skip_capacity, t->skip_count + 1, sizeof *t->skips) != KNNLM_OK) return;
    cli_skip skip = {kn_strdup(path), kn_strdup(reason)};
    if (skip.path && skip.reason) {
        t->skips[t->skip_count++] = skip;
        return;
    }
    free(skip.path);
    free(skip.reason);
}

const knnlm_input_options *cli_texts_read(cli_texts *t) {
    knnlm_input_options *o = &t->options;
    *o = knnlm_input_options_default();
    o->encoding = t->encoding;
    if (t->field) o->field = t->field;
    o->name_field = t->name_field;
    o->name = t->name;
    o->include = t->include.items;
    o->include_count = t->include.count;
    o->exclude = t->exclude.items;
    o->exclude_count = t->exclude.count;
    o->hidden = t->hidden;
    o->follow = t->follow;
    o->strict = t->strict;
    o->skipped = on_skip;
    o->skipped_context = t;
    return o;
}

void cli_texts_free(cli_texts *t) {
    for (size_t i = 0; i < t->skip_count; i++) {
        free(t->skips[i].path);
        free(t->skips[i].reason);
    }
    free(t->skips);
    t->skips = NULL;
    t->skip_count = t->skip_capacity = 0;
}

// ---------------------------------------------------------------- the summary

// The option that would have helped; NULL: none.
static const char *remedy(const char *reason) {
    static const char *const remedies[][2] = {{"not UTF-8", "--encoding?"},
                                              {"wrong encoding", "--encoding?"},
                                              {"link", "--follow?"},
                                              {"not JSON lines", "--documents file?"}};
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
        if (strcmp(reason, remedies[i][0]) == 0) return remedies[i][1];
    return NULL;
}

static bool same_reason(const cli_texts *t, size_t a, size_t b) {
    return strcmp(t->skips[a].reason, t->skips[b].reason) == 0;
}

static bool is_first(const cli_texts *t, size_t number) {
    for (size_t i = 0; i < number; i++)
        if (same_reason(t, i, number)) return false;
    return true;
}

static size_t count_like(const cli_texts *t, size_t number) {
    size_t count = 0;
    for (size_t i = number; i < t->skip_count; i++) count += same_reason(t, i, number);
    return count;
}

// "4 binary (a.png, b.so, c.o, …)"
static void put_reason(const cli_texts *t, size_t first) {
    size_t shown = 0, count = count_like(t, first);
    const char *reason = t->skips[first].reason, *help = remedy(reason);
    fprintf(stderr, "%zu %s (", count, reason);
    for (size_t i = first; i < t->skip_count && shown < SHOWN; i++) {
        if (!same_reason(t, i, first)) continue;
        if (shown++) fputs(", ", stderr);
        cli_put_line(stderr, t->skips[i].path);
    }
    if (count > shown) fputs(", …", stderr);
    if (help) fprintf(stderr, "; %s", help);
    fputc(')', stderr);
}

void cli_texts_report(const cli_texts *t, const cli_command *command) {
    if (!t->skip_count) return;
    cli_progress_clear();
    fprintf(stderr, "knnlm %s: skipped %zu %s: ", command->name, t->skip_count,
            t->skip_count == 1 ? "file" : "files");
    for (size_t i = 0, reasons = 0; i < t->skip_count; i++) {
        if (!is_first(t, i)) continue;
        if (reasons++) fputs(", ", stderr);
        put_reason(t, i);
    }
    fputc('\n', stderr);
}

json_t *cli_texts_json(const cli_texts *t) {
    json_t *list = json_array();
    for (size_t i = 0; i < t->skip_count; i++)
        cli_json_append(list, json_pack("{s:o?, s:s}", "path", json_string(t->skips[i].path), "reason",
                                        t->skips[i].reason));
    return list;
}
