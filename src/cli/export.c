#include "cli/cli.h"
#include "index/faiss.h"

#include <stdio.h>

static struct {
    cli_common common;
    const char *output, *faiss;
    int keys;
    bool force;
} said;

static const char *const key_types[] = {"f16", "f32", NULL}; // as knnlm_keys

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'o', "output", CLI_STRING, &said.output, "DIRECTORY", "where keys.npy, values.npy, origins.npy, documents.tsv go", 0, 0, NULL},
    {0, "faiss", CLI_STRING, &said.faiss, "FILE", "instead, write the index as an IVFPQ index file of FAISS", 0, 0, NULL},
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

static void print_faiss_json(const kn_store_info *info, const kn_faiss_totals *t, double seconds) {
    cli_print_json(json_pack("{s:o?, s:o?, s:I, s:I, s:i, s:s, s:I, s:I, s:I, s:I, s:b, s:I, s:o?, s:o?}",
                             "store", json_string(info->path), "faiss", json_string(said.faiss), "entries",
                             (json_int_t)t->entries, "left_out", (json_int_t)t->left_out, "dimension",
                             t->dimension, "distance", kn_distance_names[t->distance], "lists",
                             (json_int_t)t->lists, "probes", (json_int_t)t->probes, "code_parts",
                             (json_int_t)t->code_parts, "code_bits", (json_int_t)t->code_bits, "residuals",
                             t->residuals, "bytes", (json_int_t)t->bytes, "seconds", json_real(seconds),
                             "entries_per_second", json_real((double)t->entries / seconds)));
}

static void print_faiss_text(const kn_faiss_totals *t, double seconds) {
    char bytes[32], rate[32], time[32];
    printf("index            %s\n", said.faiss);
    printf("entries          %llu\n", (unsigned long long)t->entries);
    if (t->left_out) printf("removed          %llu, left out\n", (unsigned long long)t->left_out);
    printf("distance         %s, dimension %d\n", kn_distance_names[t->distance], t->dimension);
    printf("lists            %u, %u probed\n", t->lists, t->probes);
    printf("codes            %u parts of %u bits, of %s\n", t->code_parts, t->code_bits,
           t->residuals ? "residuals" : "keys");
    printf("size             %sB\n", cli_count((double)t->bytes, bytes));
    printf("time             %s, %s entries/s\n", cli_duration(seconds, time),
           cli_count((double)t->entries / seconds, rate));
}

static knnlm_status export_index(const char *path) {
    kn_faiss_totals totals;
    kn_store *store;
    double start = kn_seconds();
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = kn_faiss_export(store, said.faiss, said.force, &cli_progress, &totals);
    double seconds = kn_seconds() - start;
    cli_progress_clear();
    if (status == KNNLM_OK && said.common.json)
        print_faiss_json(kn_store_describe(store), &totals, seconds);
    else if (status == KNNLM_OK)
        print_faiss_text(&totals, seconds);
    kn_store_close(store);
    return status;
}

static knnlm_status export_store(const char *path) {
    kn_export_options o = {.convert = said.keys >= 0, .force = said.force};
    if (o.convert) o.key_type = (knnlm_keys)said.keys;
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
    bool arrays = said.output && *said.output, index = said.faiss && *said.faiss;
    if (arrays == index)
        return cli_usage(&cli_export, arrays ? "-o DIRECTORY or --faiss FILE, one at a time"
                                             : "no -o DIRECTORY or --faiss FILE to write to");
    if (index && said.keys >= 0)
        return cli_usage(&cli_export, "--keys: a FAISS index has codes in their place");
    if (count != 1) return cli_usage(&cli_export, "one store to export");
    code = cli_start(&cli_export, &said.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    knnlm_status status = index ? export_index(paths[0]) : export_store(paths[0]);
    return status == KNNLM_OK ? CLI_DONE : cli_fail(&cli_export);
}

const cli_command cli_export = {
    .name = "export",
    .summary = "write a store as NumPy arrays and a table of documents, or its index for FAISS",
    .usage = "STORE -o DIRECTORY [options]\n       knnlm export STORE --faiss FILE [options]",
    .examples =
        "  knnlm export wiki.store -o wiki-arrays\n"
        "  knnlm export wiki.store -o wiki-arrays --keys f32 --json\n"
        "  knnlm export wiki.store --faiss wiki.faiss\n"
        "  python3 -c 'import numpy; print(numpy.load(\"wiki-arrays/keys.npy\", mmap_mode=\"r\").shape)'\n",
    .run = run,
};
