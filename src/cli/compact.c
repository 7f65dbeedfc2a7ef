#include "cli/cli.h"
#include "cli/store.h"

#include <inttypes.h>
#include <stdio.h>

static struct {
    cli_common common;
    const char *store;
    bool force;
} said;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'s', "store", CLI_STRING, &said.store, "STORE", "the store (or the first argument)", 0, 0, NULL},
    {0, "force", CLI_FLAG, &said.force, NULL, "go on although the disk seems too small", 0, 0, NULL},
    CLI_COMMON_OPTIONS(said.common),
};
// clang-format on

static void print(const kn_store_compacted *c) {
    char before[32], after[32];
    if (said.common.json) {
        cli_print_json(
            json_pack("{s:o?, s:I, s:I, s:{s:I, s:I}, s:{s:I, s:I}}", "store", json_string(said.store),
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

// The recipe of the index that the store has; no lists: it has none.
static knnlm_status recall_recipe(kn_recipe *out) {
    kn_store *store;
    KN_TRY(kn_store_open(said.store, &store));
    knnlm_status status = kn_recipe_of(store, out);
    out->force = said.force;
    kn_store_close(store);
    return status;
}

static bool has_index(void) {
    kn_store *store;
    if (kn_store_open(said.store, &store) != KNNLM_OK) return false;
    bool has = kn_store_annex_note(store) != NULL;
    kn_store_close(store);
    return has;
}

// Entries get other numbers: an index is made anew. Without it searches are right, only slower.
static knnlm_status compact(kn_store_compacted *out) {
    kn_recipe recipe;
    kn_index_result index;
    bool done;
    KN_TRY(recall_recipe(&recipe));
    KN_TRY(kn_store_compact(said.store, said.force, &cli_progress, out));
    if (!recipe.lists || out->segments_after == 0 || has_index()) return KNNLM_OK;
    return kn_build_index(said.store, &recipe, true, NULL, &cli_progress, &done, &index);
}

static int run(int argc, char **argv) {
    char **rest;
    size_t count;
    kn_store_compacted compacted;
    int code = cli_parse(&cli_compact, options, sizeof options / sizeof *options, argc, argv, &rest, &count);
    if (code >= 0) return code;
    code = cli_take_store(&cli_compact, &said.store, &rest, &count);
    if (code != CLI_DONE) return code;
    if (count) return cli_usage(&cli_compact, "one store at a time");
    code = cli_start(&cli_compact, &said.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    if (compact(&compacted) != KNNLM_OK) return cli_fail(&cli_compact);
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
