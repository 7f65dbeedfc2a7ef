// knnlm verify: whether a store is intact.
#include "cli/cli.h"
#include "cli/recall.h"
#include "cli/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    cli_common common;
    const char *store;
    cli_recall_wish recall;
    bool repair;
} args = {.recall = {.queries = 200, .k = 1024}};

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'s', "store", CLI_STRING, &args.store, "STORE", "the store (or the first argument)", 0, 0, NULL},
    {0, "repair", CLI_FLAG, &args.repair, NULL, "remove what is lost, write the rest anew, and make a damaged index again", 0, 0, NULL},
    {0, "recall", CLI_FLAG, &args.recall.wanted, NULL, "also measure what searches find, for several probes", 0, 0, NULL},
    {0, "queries", CLI_INTEGER, &args.recall.queries, "N", "with --recall: entries to search for (default: 200)", 1, 1 << 20, NULL},
    {'k', "neighbors", CLI_INTEGER, &args.recall.k, "K", "with --recall: neighbours asked for (default: 1024)", 1, 1 << 24, NULL},
    {0, "memory", CLI_BYTES, &args.recall.memory, "SIZE", "with --recall: most memory for searching, such as 2G", 0, 0, NULL},
    {0, "plot", CLI_STRING, &args.recall.plot, "FILE", "with --recall: draw recall against speed (SVG; -: to standard output)", 0, 0, NULL},
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

static json_t *problems; // as JSON, when that is wanted

static void found(void *context, const knnlm_problem *p) {
    (void)context;
    cli_progress_clear();
    if (problems) {
        cli_json_append(problems,
                        json_pack("{s:s, s:o?, s:I, s:{s:I, s:I}, s:{s:I, s:I}}", "file", p->file, "what",
                                  json_string(p->what), "offset", (json_int_t)p->offset, "entries", "first",
                                  (json_int_t)p->first_entry, "count", (json_int_t)p->entries, "documents",
                                  "first", (json_int_t)p->first_document, "count", (json_int_t)p->documents));
        return;
    }
    printf("damaged          %s: ", p->file);
    cli_put_line(stdout, p->what);
    if (p->entries)
        printf(" (entries %" PRIu64 " to %" PRIu64 ")", p->first_entry, p->first_entry + p->entries - 1);
    if (p->documents)
        printf(" (documents %" PRIu64 " to %" PRIu64 ")", p->first_document,
               p->first_document + p->documents - 1);
    printf("\n");
}

// The damaged documents by name: those to remove and to add again.
static json_t *name_damaged(const knnlm_store *store, const knnlm_verify_result *v) {
    json_t *names = json_array();
    knnlm_store_info info;
    knnlm_store_describe(store, &info);
    for (uint64_t i = 0; i < info.documents; i++) {
        knnlm_document d;
        if (!v->document_damaged[i]) continue;
        bool known = knnlm_store_document(store, i, &d) == KNNLM_OK;
        if (d.removed) continue;
        cli_json_append(names, known ? cli_json_name(d.name, d.name_size) : json_null());
        if (problems) continue;
        printf("lost             ");
        if (known) cli_put_text(stdout, d.name, d.name_size);
        printf(known ? " (document %" PRIu64 ")\n" : "document %" PRIu64 ", its name too\n", i);
    }
    return names;
}

static void print(const knnlm_store *store, const knnlm_verify_result *v, json_t *recall) {
    char bytes[32], rate[32];
    json_t *names = name_damaged(store, v);
    if (problems) {
        cli_print_json(json_pack(
            "{s:o?, s:b, s:I, s:I, s:I, s:I, s:I, s:O, s:o, s:o, s:o?}", "store", json_string(args.store),
            "intact", v->problems == 0, "bytes", (json_int_t)v->bytes, "entries", (json_int_t)v->entries,
            "documents", (json_int_t)v->documents, "damaged_entries", (json_int_t)v->damaged_entries,
            "damaged_documents", (json_int_t)v->damaged_documents, "problems", problems, "lost", names,
            "recall", recall ? recall : json_null(), "seconds", json_real(v->seconds)));
        return;
    }
    json_decref(names);
    printf("read             %sB, %sB/s\n", cli_count((double)v->bytes, bytes),
           cli_count(v->seconds > 0 ? (double)v->bytes / v->seconds : 0, rate));
    printf("intact           %" PRIu64 " of %" PRIu64 " documents, %" PRIu64 " of %" PRIu64 " entries\n",
           v->documents - v->damaged_documents, v->documents, v->entries - v->damaged_entries, v->entries);
}

static knnlm_status advise(const knnlm_verify_result *v) {
    return kn_fail(KNNLM_EDATA, "%s: %zu problems%s", args.store, v->problems,
                   v->damaged_documents
                       ? ": remove the lost documents (knnlm verify --repair), then add them again"
                   : v->index_damaged ? ": the index can be made anew (knnlm verify --repair)"
                                      : "");
}

// Told on stderr, where it does not mix with what was found.
static knnlm_status repair(const knnlm_verify_result *v) {
    knnlm_repair_result r;
    KN_TRY(knnlm_store_repair(args.store, v, &cli_progress, &r));
    cli_progress_clear();
    fprintf(stderr, "knnlm verify: %s: repaired: %" PRIu64 " lost documents removed%s%s\n", args.store,
            r.documents_removed, r.indexed ? ", the index made anew" : "",
            r.documents_removed ? " (knnlm add brings them back)" : "");
    return KNNLM_OK;
}

static knnlm_status verify(const knnlm_store *store) {
    knnlm_verify_result v;
    knnlm_verify_options o = knnlm_verify_options_default();
    o.found = found;
    o.progress = cli_progress;
    KN_TRY(knnlm_store_verify(store, &o, &v));
    cli_progress_clear();
    knnlm_status status = KNNLM_OK;
    json_t *recall = NULL;
    if (args.recall.wanted && !v.problems)
        status = cli_recall(store, &args.recall, problems ? &recall : NULL);
    if (status == KNNLM_OK) print(store, &v, recall);
    if (status == KNNLM_OK && v.problems) status = args.repair ? repair(&v) : advise(&v);
    knnlm_verify_result_free(&v);
    return status;
}

static int run(int argc, char **argv) {
    char **rest;
    size_t count;
    knnlm_store *store;
    int code = cli_parse(&cli_verify, options, sizeof options / sizeof *options, argc, argv, &rest, &count);
    if (code >= 0) return code;
    code = cli_take_store(&cli_verify, &args.store, &rest, &count);
    if (code != CLI_DONE) return code;
    if (count) return cli_usage(&cli_verify, "one store at a time");
    if (args.recall.plot && !args.recall.wanted) return cli_usage(&cli_verify, "--plot is for --recall");
    code = cli_start(&cli_verify, &args.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    if (args.common.json) problems = json_array();
    knnlm_status status = knnlm_store_open(args.store, &store);
    if (status == KNNLM_OK) {
        status = verify(store);
        knnlm_store_close(store);
    }
    json_decref(problems);
    return status == KNNLM_OK ? CLI_DONE : cli_fail(&cli_verify);
}

const cli_command cli_verify = {
    .name = "verify",
    .summary = "check every byte of a store, and tell what is damaged and what is not",
    .usage = "STORE [options]",
    .examples = "  knnlm verify notes.store\n  knnlm verify --repair notes.store\n  knnlm verify --json "
                "notes.store\n",
    .run = run,
};
