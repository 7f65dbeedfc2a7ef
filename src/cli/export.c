#include "cli/cli.h"
#include "store/interop.h"

#include <stdio.h>

static struct {
    cli_common common;
    const char *output;
    int keys;
    bool force;
} said;

static const char *const key_types[] = {"f16", "f32", NULL}; // as kn_key_type

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'o', "output", CLI_STRING, &said.output, "DIRECTORY", "where keys.npy, values.npy, origins.npy, documents.tsv go (required)", 0, 0, NULL},
    {0, "keys", CLI_CHOICE, &said.keys, "TYPE", "write keys as f16 or f32 (default: as they are; int8 as f32)", 0, 0, key_types},
    {0, "force", CLI_FLAG, &said.force, NULL, "go on although the disk seems too small", 0, 0, NULL},
    CLI_COMMON_OPTIONS(said.common),
};
// clang-format on

static void print_json(const kn_store_info *info, const kn_export_totals *t, double seconds) {
    const char *keys = t->dimension ? kn_npy_type_name(t->key_type) : NULL;
    cli_print_json(
        json_pack("{s:o?, s:o?, s:I, s:I, s:i, s:s?, s:s, s:I, s:o?, s:o?}", "store", json_string(info->path),
                  "directory", json_string(said.output), "entries", (json_int_t)t->entries, "documents",
                  (json_int_t)t->documents, "dimension", t->dimension, "keys", keys, "stored_keys",
                  kn_key_type_names[info->settings.key_type], "bytes", (json_int_t)t->bytes, "seconds",
                  json_real(seconds), "entries_per_second", json_real((double)t->entries / seconds)));
}

static void print_text(const kn_export_totals *t, double seconds) {
    char bytes[32], rate[32], time[32];
    printf("directory        %s\n", said.output);
    printf("entries          %llu\n", (unsigned long long)t->entries);
    printf("documents        %llu\n", (unsigned long long)t->documents);
    if (t->dimension)
        printf("keys             %s, dimension %d\n", kn_npy_type_name(t->key_type), t->dimension);
    else
        printf("keys             none: the store keeps none, there is no keys.npy\n");
    printf("size             %sB\n", cli_count((double)t->bytes, bytes));
    printf("time             %s, %s entries/s\n", cli_duration(seconds, time),
           cli_count((double)t->entries / seconds, rate));
}

static knnlm_status export_store(const char *path) {
    kn_export_options o = {.convert = said.keys >= 0, .force = said.force};
    if (o.convert) o.key_type = (kn_key_type)said.keys;
    kn_export_totals totals;
    kn_store *store;
    double start = kn_seconds();
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = kn_store_export(store, said.output, &o, &cli_progress, &totals);
    double seconds = kn_seconds() - start;
    cli_progress_clear();
    if (status == KNNLM_OK && said.common.json)
        print_json(kn_store_describe(store), &totals, seconds);
    else if (status == KNNLM_OK)
        print_text(&totals, seconds);
    kn_store_close(store);
    return status;
}

static int run(int argc, char **argv) {
    char **paths;
    size_t count;
    said.keys = -1;
    int code = cli_parse(&cli_export, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    if (!said.output || !*said.output) return cli_usage(&cli_export, "no -o DIRECTORY to write to");
    if (count != 1) return cli_usage(&cli_export, "one store to export");
    code = cli_start(&cli_export, &said.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    return export_store(paths[0]) == KNNLM_OK ? CLI_DONE : cli_fail(&cli_export);
}

const cli_command cli_export = {
    .name = "export",
    .summary = "write a store as NumPy arrays and a table of documents",
    .usage = "STORE -o DIRECTORY [options]",
    .examples =
        "  knnlm export wiki.store -o wiki-arrays\n"
        "  knnlm export wiki.store -o wiki-arrays --keys f32 --json\n"
        "  python3 -c 'import numpy; print(numpy.load(\"wiki-arrays/keys.npy\", mmap_mode=\"r\").shape)'\n",
    .run = run,
};
