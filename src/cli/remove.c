#include "cli/cli.h"
#include "cli/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    cli_common common;
    const char *store;
    cli_list numbers;
    bool dry_run;
} said;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'s', "store", CLI_STRING, &said.store, "STORE", "the store (or the first argument)", 0, 0, NULL},
    {0, "document", CLI_LIST, &said.numbers, "N", "the document of this number (knnlm info --documents); may be given several times", 0, 0, NULL},
    {'n', "dry-run", CLI_FLAG, &said.dry_run, NULL, "only tell what would be removed", 0, 0, NULL},
    CLI_COMMON_OPTIONS(said.common),
};
// clang-format on

typedef struct removal {
    kn_store_writer *w;
    const kn_store *store;
    json_t *names; // removed ones
    uint64_t documents, entries;
} removal;

// Marks the documents that a pattern means.
static knnlm_status mark_matching(const kn_store *store, const char *pattern, bool *marked) {
    uint64_t found = 0, total = kn_store_describe(store)->documents;
    for (uint64_t i = 0; i < total; i++) {
        kn_store_document d;
        knnlm_status status = kn_store_document_at(store, i, &d);
        if (status == KNNLM_EDATA) continue; // damaged: nobody knows its name, but its number is
        KN_TRY(status);
        if (d.removed || !kn_store_document_matches(&d, pattern)) continue;
        marked[i] = true;
        found++;
    }
    if (found) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: no document is called \"%s\": nothing was removed", said.store,
                   pattern);
}

static knnlm_status mark_numbered(const kn_store *store, const char *text, bool *marked) {
    uint64_t total = kn_store_describe(store)->documents;
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || number >= total)
        return kn_fail(KNNLM_EINVAL, "%s: no document has the number %s (knnlm info --documents lists them)",
                       said.store, text);
    if (kn_store_document_removed(store, number))
        return kn_fail(KNNLM_EINVAL, "%s: document %llu is removed already", said.store, number);
    marked[number] = true;
    return KNNLM_OK;
}

static knnlm_status remove_one(removal *r, uint64_t number) {
    kn_store_document d;
    knnlm_status status = kn_store_document_at(r->store, number, &d);
    if (status == KNNLM_EDATA) d = (kn_store_document){.name = "(damaged)", .name_size = 9};
    if (status != KNNLM_OK && status != KNNLM_EDATA) return status;
    if (r->w) KN_TRY(kn_store_writer_remove(r->w, number));
    r->documents++;
    r->entries += d.count;
    if (said.common.json)
        cli_json_append(r->names, status == KNNLM_OK ? cli_json_name(d.name, d.name_size) : json_null());
    else if (said.common.verbose || said.dry_run) {
        cli_put_text(stdout, d.name, d.name_size);
        printf("\n");
    }
    return KNNLM_OK;
}

// All patterns are looked at first: one that means nothing removes nothing, and a document meant by two goes
// once.
static knnlm_status remove_all(removal *r, char **patterns, size_t count) {
    uint64_t total = kn_store_describe(r->store)->documents;
    bool *marked = kn_alloc(total, sizeof *marked);
    knnlm_status status = marked ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; i < count && status == KNNLM_OK; i++)
        status = mark_matching(r->store, patterns[i], marked);
    for (size_t i = 0; i < said.numbers.count && status == KNNLM_OK; i++)
        status = mark_numbered(r->store, said.numbers.items[i], marked);
    for (uint64_t i = 0; i < total && status == KNNLM_OK; i++)
        if (marked[i]) status = remove_one(r, i);
    free(marked);
    if (status != KNNLM_OK || !r->w) return status;
    return kn_store_writer_amend(r->w);
}

static void print(const removal *r) {
    if (said.common.json)
        cli_print_json(json_pack("{s:o?, s:b, s:I, s:I, s:O}", "store", json_string(said.store), "dry_run",
                                 said.dry_run, "documents", (json_int_t)r->documents, "entries",
                                 (json_int_t)r->entries, "names", r->names));
    else
        printf("%s          %" PRIu64 " documents, %" PRIu64 " entries%s\n",
               said.dry_run ? "matching" : "removed ", r->documents, r->entries,
               said.dry_run ? "" : " (knnlm compact frees their space)");
}

static knnlm_status work(char **patterns, size_t count) {
    removal r = {0};
    kn_store *snapshot = NULL;
    if (said.dry_run)
        KN_TRY(kn_store_open(said.store, &snapshot));
    else
        KN_TRY(kn_store_write(said.store, &r.w));
    r.names = json_array();
    r.store = snapshot ? snapshot : kn_store_writer_base(r.w);
    knnlm_status status = remove_all(&r, patterns, count);
    if (status == KNNLM_OK) print(&r);
    kn_store_writer_close(r.w);
    kn_store_close(snapshot);
    json_decref(r.names);
    return status;
}

static int run(int argc, char **argv) {
    char **patterns;
    size_t count;
    int code =
        cli_parse(&cli_remove, options, sizeof options / sizeof *options, argc, argv, &patterns, &count);
    if (code >= 0) return code;
    code = cli_take_store(&cli_remove, &said.store, &patterns, &count);
    if (code != CLI_DONE) return code;
    if (count == 0 && !said.numbers.count) return cli_usage(&cli_remove, "no document to remove");
    code = cli_start(&cli_remove, &said.common);
    if (code != CLI_DONE) return code;
    return work(patterns, count) == KNNLM_OK ? CLI_DONE : cli_fail(&cli_remove);
}

const cli_command cli_remove = {
    .name = "remove",
    .summary = "remove documents from a store by name, pattern or number",
    .usage = "STORE NAME... [options]",
    .examples = "  knnlm remove notes.store notes/old.txt\n"
                "  knnlm remove notes.store 'drafts/*' --dry-run\n"
                "  knnlm remove wiki.store 'wiki.txt#Anarchism'\n"
                "  knnlm remove notes.store --document 17\n",
    .run = run,
};
