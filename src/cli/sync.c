// knnlm sync: a store made to have what is in folders now.
#include "cli/addition.h"

#include <inttypes.h>
#include <stdio.h>

static struct {
    cli_addition addition;
    bool dry_run;
} args = {.addition = {.texts = {.split = -1}}};

// One option a line.
// clang-format off
static const cli_option options[] = {
    {0, "dry-run", CLI_FLAG, &args.dry_run, NULL, "only tell what would be added (+), replaced (~) and removed (-)", 0, 0, NULL},
    CLI_ADDITION_OPTIONS(args.addition),
};
// clang-format on

static json_t *changes; // when JSON is wanted

static void found(void *context, char change, const char *name, size_t size) {
    (void)context;
    if (changes) {
        cli_json_append(changes, json_pack("{s:o, s:o}", "change", json_stringn(&change, 1), "name",
                                           cli_json_name(name, size)));
        return;
    }
    cli_progress_clear();
    printf("%c ", change);
    cli_put_text(stdout, name, size);
    printf("\n");
}

static void print(const knnlm_build_result *r) {
    const char *store = args.addition.store;
    uint64_t added = r->documents_added - r->documents_replaced;
    if (changes)
        cli_print_json(json_pack("{s:o?, s:b, s:{s:I, s:I, s:I, s:I}, s:I, s:O, s:o}", "store",
                                 json_string(store), "dry_run", true, "documents", "added", (json_int_t)added,
                                 "replaced", (json_int_t)r->documents_replaced, "removed",
                                 (json_int_t)r->documents_removed, "unchanged",
                                 (json_int_t)r->documents_unchanged, "text_bytes", (json_int_t)r->text_bytes,
                                 "changes", changes, "skipped_files", cli_texts_json(&args.addition.texts)));
    else
        printf("documents        %" PRIu64 " to add, %" PRIu64 " to replace, %" PRIu64 " to remove; %" PRIu64
               " unchanged\n",
               added, r->documents_replaced, r->documents_removed, r->documents_unchanged);
}

static knnlm_status compare(const char *const *folders, size_t count) {
    knnlm_build_options o = cli_addition_options(&cli_sync, &args.addition);
    knnlm_build_result result;
    if (args.addition.common.json) changes = json_array();
    knnlm_status status = knnlm_build_compare(args.addition.store, folders, count, &o, found, NULL, &result);
    cli_progress_clear();
    if (status == KNNLM_OK) print(&result);
    json_decref(changes);
    return status;
}

static int run(int argc, char **argv) {
    char **texts;
    size_t count;
    int code = cli_begin_addition(&cli_sync, options, sizeof options / sizeof *options, &args.addition,
                                  "no directory to follow", argc, argv, &texts, &count);
    if (code != CLI_DONE) return -1 - code;
    const char *const *folders = (const char *const *)texts;
    knnlm_status status = args.dry_run
                              ? compare(folders, count)
                              : cli_add_texts(&cli_sync, &args.addition, knnlm_build_sync, folders, count);
    return cli_end_addition(&cli_sync, &args.addition, status);
}

const cli_command cli_sync = {
    .name = "sync",
    .summary = "make a store follow directories: add what is new, replace what changed, remove what is gone",
    .usage = "STORE DIR... [options]",
    .examples = "  knnlm sync notes.store notes/\n"
                "  knnlm sync notes.store notes/ --dry-run\n",
    .run = run,
};
