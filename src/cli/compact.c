// knnlm compact: rewrites a store without what was removed.
#include "cli/cli.h"
#include "cli/store.h"

#include <inttypes.h>
#include <stdio.h>

static struct {
    cli_common common;
    const char *store;
    bool force;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'s', "store", CLI_STRING, &args.store, "STORE", "the store (or the first argument)", 0, 0, NULL},
    {0, "force", CLI_FLAG, &args.force, NULL, "go on although the disk seems too small", 0, 0, NULL},
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

static void print(const knnlm_compact_result *c) {
    char before[32], after[32];
    if (args.common.json) {
        cli_print_json(
            json_pack("{s:o?, s:I, s:I, s:{s:I, s:I}, s:{s:I, s:I}}", "store", json_string(args.store),
                      "documents_dropped", (json_int_t)c->documents_dropped, "entries_dropped",
                      (json_int_t)c->entries_dropped, "bytes", "before", (json_int_t)c->bytes_before, "after",
                      (json_int_t)c->bytes_after, "segments", "before", (json_int_t)c->segments_before,
                      "after", (json_int_t)c->segments_after));
        return;
    }
    printf("dropped          %" PRIu64 " documents, %" PRIu64 " entries\n", c->documents_dropped,
           c->entries_dropped);
    printf("size             %sB, was %sB\n", cli_count((double)c->bytes_after, after),
           cli_count((double)c->bytes_before, before));
    printf("segments         %zu, were %zu\n", c->segments_after, c->segments_before);
}

static int run(int argc, char **argv) {
    char **rest;
    size_t count;
    knnlm_compact_result compacted;
    knnlm_compact_options o = knnlm_compact_options_default();
    int code = cli_parse(&cli_compact, options, sizeof options / sizeof *options, argc, argv, &rest, &count);
    if (code >= 0) return code;
    code = cli_take_store(&cli_compact, &args.store, &rest, &count);
    if (code != CLI_DONE) return code;
    if (count) return cli_usage(&cli_compact, "one store at a time");
    code = cli_start(&cli_compact, &args.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    o.force = args.force;
    o.progress = cli_progress;
    if (knnlm_store_compact(args.store, &o, &compacted) != KNNLM_OK) return cli_fail(&cli_compact);
    cli_progress_clear();
    print(&compacted);
    return CLI_DONE;
}

const cli_command cli_compact = {
    .name = "compact",
    .summary = "free the space of removed documents and merge small segments",
    .usage = "STORE [options]",
    .examples = "  knnlm compact notes.store\n",
    .run = run,
};
