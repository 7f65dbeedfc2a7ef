// knnlm export: keys and values as NumPy or FAISS files.
#include "cli/cli.h"
#include "cli/input.h"

#include <stdio.h>

static struct {
    cli_common common;
    const char *output, *faiss;
    int keys;
    bool force;
} args;

static const char *const key_types[] = {[KNNLM_KEYS_F16] = "f16", [KNNLM_KEYS_F32] = "f32", NULL};

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'o', "output", CLI_STRING, &args.output, "DIRECTORY", "where keys.npy, values.npy, origins.npy, documents.tsv go", 0, 0, NULL},
    {0, "faiss", CLI_STRING, &args.faiss, "FILE", "instead, write the index as an IVFPQ index file of FAISS; -: to standard output", 0, 0, NULL},
    {0, "keys", CLI_CHOICE, &args.keys, "TYPE", "write keys as f16 or f32 (default: as they are; int8 as f32)", 0, 0, key_types},
    {0, "force", CLI_FLAG, &args.force, NULL, "go on although the disk seems too small", 0, 0, NULL},
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

static void print_json(const knnlm_store_info *info, const knnlm_export_result *r) {
    cli_print_json(json_pack("{s:o?, s:o?, s:I, s:I, s:i, s:s?, s:s, s:I, s:o?, s:o?}", "store",
                             json_string(info->path), "directory", json_string(args.output), "entries",
                             (json_int_t)r->entries, "documents", (json_int_t)r->documents, "dimension",
                             r->dimension, "keys", r->key_type, "stored_keys", knnlm_keys_name(info->keys),
                             "bytes", (json_int_t)r->bytes, "seconds", json_real(r->seconds),
                             "entries_per_second", json_real((double)r->entries / r->seconds)));
}

static void print_costs(const knnlm_export_result *r) {
    char bytes[32], rate[32], time[32];
    printf("size             %sB\n", cli_count((double)r->bytes, bytes));
    printf("time             %s, %s entries/s\n", cli_duration(r->seconds, time),
           cli_count((double)r->entries / r->seconds, rate));
}

static void print_text(const knnlm_export_result *r) {
    printf("directory        %s\n", args.output);
    printf("entries          %llu\n", (unsigned long long)r->entries);
    printf("documents        %llu\n", (unsigned long long)r->documents);
    if (r->dimension)
        printf("keys             %s, dimension %d\n", r->key_type, r->dimension);
    else
        printf("keys             none: the store keeps none, there is no keys.npy\n");
    print_costs(r);
}

static void print_faiss_json(const knnlm_store_info *info, const knnlm_export_result *r) {
    cli_print_json(json_pack("{s:o?, s:o?, s:I, s:I, s:i, s:s, s:I, s:I, s:I, s:I, s:b, s:I, s:o?, s:o?}",
                             "store", json_string(info->path), "faiss", json_string(args.faiss), "entries",
                             (json_int_t)r->entries, "left_out", (json_int_t)r->left_out, "dimension",
                             r->dimension, "distance", knnlm_distance_name(r->distance), "lists",
                             (json_int_t)r->lists, "probes", (json_int_t)r->probes, "code_parts",
                             (json_int_t)r->code_parts, "code_bits", (json_int_t)r->code_bits, "residuals",
                             r->residuals, "bytes", (json_int_t)r->bytes, "seconds", json_real(r->seconds),
                             "entries_per_second", json_real((double)r->entries / r->seconds)));
}

static void print_faiss_text(const knnlm_export_result *r) {
    printf("index            %s\n", args.faiss);
    printf("entries          %llu\n", (unsigned long long)r->entries);
    if (r->left_out) printf("removed          %llu, left out\n", (unsigned long long)r->left_out);
    printf("distance         %s, dimension %d\n", knnlm_distance_name(r->distance), r->dimension);
    printf("lists            %u, %u probed\n", r->lists, r->probes);
    printf("codes            %u parts of %u bits, of %s\n", r->code_parts, r->code_bits,
           r->residuals ? "residuals" : "keys");
    print_costs(r);
}

static void print(const knnlm_store_info *info, const knnlm_export_result *r) {
    if (args.faiss && args.common.json)
        print_faiss_json(info, r);
    else if (args.faiss)
        print_faiss_text(r);
    else if (args.common.json)
        print_json(info, r);
    else
        print_text(r);
}

static knnlm_status export(const char *path) {
    knnlm_export_options o = knnlm_export_options_default();
    knnlm_export_result result;
    knnlm_store_info info;
    knnlm_store *store;
    o.convert = args.keys >= 0;
    if (o.convert) o.keys = (knnlm_keys)args.keys;
    o.force = args.force;
    o.progress = cli_progress;
    KN_TRY(knnlm_store_open(path, &store));
    knnlm_store_describe(store, &info);
    knnlm_status status = args.faiss ? knnlm_store_export_faiss(store, args.faiss, &o, &result)
                                     : knnlm_store_export(store, args.output, &o, &result);
    cli_progress_clear();
    if (args.faiss && cli_is_standard(args.faiss)) cli_results_to_stderr();
    if (status == KNNLM_OK) print(&info, &result);
    knnlm_store_close(store);
    return status;
}

static int run(int argc, char **argv) {
    char **paths;
    size_t count;
    args.keys = -1;
    int code = cli_parse(&cli_export, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    bool arrays = args.output && *args.output, index = args.faiss && *args.faiss;
    if (arrays == index)
        return cli_usage(&cli_export, arrays ? "-o DIRECTORY or --faiss FILE, one at a time"
                                             : "no -o DIRECTORY or --faiss FILE to write to");
    if (arrays && cli_is_standard(args.output))
        return cli_usage(&cli_export, "-o -: arrays are several files, in a directory");
    if (index && args.keys >= 0)
        return cli_usage(&cli_export, "--keys: a FAISS index has codes in their place");
    if (count != 1) return cli_usage(&cli_export, "one store to export");
    code = cli_start(&cli_export, &args.common);
    if (code != CLI_DONE) return code;
    if (!index) args.faiss = NULL; // an empty name
    cli_catch_interrupts();
    return export(paths[0]) == KNNLM_OK ? CLI_DONE : cli_fail(&cli_export);
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
