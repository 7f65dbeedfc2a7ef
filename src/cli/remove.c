// knnlm remove: documents out of a store.
#include "cli/cli.h"
#include "cli/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    cli_common common;
    const char *store;
    cli_list numbers;
    bool dry_run;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'s', "store", CLI_STRING, &args.store, "STORE", "the store (or the first argument)", 0, 0, NULL},
    {0, "document", CLI_LIST, &args.numbers, "N", "the document of this number (knnlm info --documents); may be given several times", 0, 0, NULL},
    {0, "dry-run", CLI_FLAG, &args.dry_run, NULL, "only tell what would be removed", 0, 0, NULL},
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

static json_t *names; // of removed ones, when JSON is wanted

static void removed(void *context, uint64_t number, const knnlm_document *d) {
    (void)context;
    (void)number;
    if (names) {
        cli_json_append(names, d ? cli_json_name(d->name, d->name_size) : json_null());
    } else if (args.common.verbose || args.dry_run) {
        cli_put_text(stdout, d ? d->name : "(damaged)", d ? d->name_size : strlen("(damaged)"));
        printf("\n");
    }
}

static void print(const knnlm_remove_result *r) {
    if (names)
        cli_print_json(json_pack("{s:o?, s:b, s:I, s:I, s:O}", "store", json_string(args.store), "dry_run",
                                 args.dry_run, "documents", (json_int_t)r->documents, "entries",
                                 (json_int_t)r->entries, "names", names));
    else
        printf("%s          %" PRIu64 " documents, %" PRIu64 " entries%s\n",
               args.dry_run ? "matching" : "removed ", r->documents, r->entries,
               args.dry_run ? "" : " (knnlm compact frees their space)");
}

// The numbers of --document, which the store must have.
static knnlm_status read_numbers(uint64_t documents, uint64_t numbers[CLI_LIST_MAX]) {
    for (size_t i = 0; i < args.numbers.count; i++) {
        const char *text = args.numbers.items[i];
        char *end;
        numbers[i] = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || numbers[i] >= documents)
            return kn_fail(KNNLM_EINVAL,
                           "%s: no document has the number %s (knnlm info --documents lists them)",
                           args.store, text);
    }
    return KNNLM_OK;
}

static knnlm_status count_documents(uint64_t *out) {
    knnlm_store *store;
    knnlm_store_info info;
    KN_TRY(knnlm_store_open(args.store, &store));
    knnlm_store_describe(store, &info);
    *out = info.documents;
    knnlm_store_close(store);
    return KNNLM_OK;
}

static knnlm_status work(char **patterns, size_t count) {
    uint64_t numbers[CLI_LIST_MAX], documents;
    knnlm_remove_result result;
    knnlm_remove_options o = knnlm_remove_options_default();
    if (args.numbers.count) {
        KN_TRY(count_documents(&documents));
        KN_TRY(read_numbers(documents, numbers));
    }
    o.patterns = (const char *const *)patterns;
    o.pattern_count = count;
    o.documents = numbers;
    o.document_count = args.numbers.count;
    o.dry_run = args.dry_run;
    o.removed = removed;
    KN_TRY(knnlm_store_remove(args.store, &o, &result));
    print(&result);
    return KNNLM_OK;
}

static int run(int argc, char **argv) {
    char **patterns;
    size_t count;
    int code =
        cli_parse(&cli_remove, options, sizeof options / sizeof *options, argc, argv, &patterns, &count);
    if (code >= 0) return code;
    code = cli_take_store(&cli_remove, &args.store, &patterns, &count);
    if (code != CLI_DONE) return code;
    if (count == 0 && !args.numbers.count) return cli_usage(&cli_remove, "no document to remove");
    code = cli_start(&cli_remove, &args.common);
    if (code != CLI_DONE) return code;
    if (args.common.json) names = json_array();
    knnlm_status status = work(patterns, count);
    json_decref(names);
    return status == KNNLM_OK ? CLI_DONE : cli_fail(&cli_remove);
}

const cli_command cli_remove = {
    .name = "remove",
    .summary = "remove documents from a store by name, pattern or number",
    .usage = "STORE NAME... [options]",
    .examples = "  knnlm remove notes.store old.txt\n"
                "  knnlm remove notes.store 'drafts/*' --dry-run\n"
                "  knnlm remove wiki.store 'wiki.txt#Anarchism'\n"
                "  knnlm remove notes.store --document 17\n",
    .run = run,
};
