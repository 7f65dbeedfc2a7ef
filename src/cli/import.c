// knnlm import: keys and values from NumPy or FAISS files.
#include "base/distance.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/model.h"

#include <stdio.h>

static struct {
    cli_common common;
    const char *output, *model, *tap, *faiss;
    int64_t dimension, entries, vocabulary;
    int key_type, value_type, keys, distance;
    bool force;
} args;

static const char *const key_types[] = {"f16", "f32", NULL}; // from KNNLM_ARRAY_F16
static const char *const value_types[] = {"int64", "int32", "int16", "uint16",
                                          NULL}; // from KNNLM_ARRAY_INT64
static const char *const store_types[] = {
    [KNNLM_KEYS_F16] = "f16", [KNNLM_KEYS_F32] = "f32", [KNNLM_KEYS_INT8] = "int8", NULL};

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'o', "output", CLI_STRING, &args.output, "STORE", "store to make (required)", 0, 0, NULL},
    {0, "faiss", CLI_STRING, &args.faiss, "INDEX", "codes for keys: of an IVFPQ index file of FAISS", 0, 0, NULL},
    {0, "dim", CLI_INTEGER, &args.dimension, "D", "numbers of a key (default: by the files)", 1, KNNLM_DIMENSION_MAX, NULL},
    {0, "entries", CLI_INTEGER, &args.entries, "N", "entries in the files (default: by the files)", 1, (double)KNNLM_ENTRIES_MAX, NULL},
    {0, "key-type", CLI_CHOICE, &args.key_type, "TYPE", "how keys without header lie: f16 or f32 (default: by the sizes)", 0, 0, key_types},
    {0, "value-type", CLI_CHOICE, &args.value_type, "TYPE", "how values lie: int64, int32, int16, or uint16: int16 that overflowed", 0, 0, value_types},
    {0, "keys", CLI_CHOICE, &args.keys, "TYPE", "keep keys as f16, f32 or int8 (default: as they are)", 0, 0, store_types},
    {0, "distance", CLI_CHOICE, &args.distance, "D", "l2 (default; squared), ip or cosine", 0, 0, kn_distance_names},
    {0, "vocab", CLI_INTEGER, &args.vocabulary, "N", "size of the vocabulary: values must be below it", 1, INT32_MAX, NULL},
    {'m', "model", CLI_STRING, &args.model, "FILE", "model that made the keys: checks them, and is recorded", 0, 0, NULL},
    {0, "tap", CLI_STRING, &args.tap, "TAP", "where in the model keys were taken (default: ffn with -m, else not known)", 0, 0, NULL},
    {0, "force", CLI_FLAG, &args.force, NULL, "go on although the disk seems too small", 0, 0, NULL},
    CLI_ENGINE_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

// ---------------------------------------------------------------- results

static void print_json(const knnlm_import_result *r) {
    cli_print_json(json_pack(
        "{s:o?, s:o?, s:o?, s:I, s:I, s:i, s:s, s:s, s:b, s:I, s:o?, s:o?, "
        "s:{s:s, s:s, s:i, s:o?, s:o?, s:s}}",
        "store", json_string(args.output), "keys", json_string(r->keys), "values", json_string(r->values),
        "entries", (json_int_t)r->entries, "documents", (json_int_t)r->documents, "dimension", r->dimension,
        "key_type", r->key_type, "value_type", r->value_type, "restored", r->restored, "bytes",
        (json_int_t)r->bytes, "seconds", json_real(r->seconds), "entries_per_second",
        json_real((double)r->entries / r->seconds), "settings", "keys", knnlm_keys_name(r->kept), "distance",
        knnlm_distance_name(r->distance), "vocabulary", r->vocabulary, "model", json_string(r->model), "tap",
        json_string(r->tap), "fingerprint", r->fingerprint));
}

static void print_counts(const knnlm_import_result *r) {
    printf("entries          %llu\n", (unsigned long long)r->entries);
    printf("documents        %llu%s\n", (unsigned long long)r->documents,
           r->restored ? "" : ", of unknown text: there is no origins.npy");
}

static void print_costs(const knnlm_import_result *r) {
    char bytes[32], rate[32], time[32];
    printf("size             %sB\n", cli_count((double)r->bytes, bytes));
    printf("time             %s, %s entries/s\n", cli_duration(r->seconds, time),
           cli_count((double)r->entries / r->seconds, rate));
}

static void print_text(const knnlm_import_result *r) {
    printf("store            %s\n", args.output);
    printf("keys             %s: %s, dimension %d\n", r->keys, r->key_type, r->dimension);
    printf("values           %s: %s\n", r->values, r->value_type);
    print_counts(r);
    print_costs(r);
}

static void print_faiss_json(const knnlm_import_result *r) {
    json_t *values = r->values ? json_string(r->values) : json_null();
    cli_print_json(json_pack(
        "{s:o?, s:o?, s:o?, s:I, s:I, s:i, s:s?, s:b, s:I, s:I, s:I, s:I, s:b, s:I, s:o?, s:o?, "
        "s:{s:s, s:i, s:o?, s:o?, s:s}}",
        "store", json_string(args.output), "faiss", json_string(args.faiss), "values", values, "entries",
        (json_int_t)r->entries, "documents", (json_int_t)r->documents, "dimension", r->dimension,
        "value_type", r->value_type, "restored", r->restored, "lists", (json_int_t)r->lists, "probes",
        (json_int_t)r->probes, "code_parts", (json_int_t)r->code_parts, "code_bits", (json_int_t)r->code_bits,
        "residuals", r->residuals, "bytes", (json_int_t)r->bytes, "seconds", json_real(r->seconds),
        "entries_per_second", json_real((double)r->entries / r->seconds), "settings", "distance",
        knnlm_distance_name(r->distance), "vocabulary", r->vocabulary, "model", json_string(r->model), "tap",
        json_string(r->tap), "fingerprint", r->fingerprint));
}

static void print_faiss_text(const knnlm_import_result *r) {
    printf("store            %s\n", args.output);
    printf("index            %s: %s, dimension %d\n", args.faiss, knnlm_distance_name(r->distance),
           r->dimension);
    if (r->values)
        printf("values           %s: %s\n", r->values, r->value_type);
    else
        printf("values           none: every token is 0\n");
    print_counts(r);
    printf("lists            %u, %u probed\n", r->lists, r->probes);
    printf("codes            %u parts of %u bits, of %s\n", r->code_parts, r->code_bits,
           r->residuals ? "residuals" : "keys");
    print_costs(r);
}

static void print(const knnlm_import_result *r) {
    if (args.faiss && args.common.json)
        print_faiss_json(r);
    else if (args.faiss)
        print_faiss_text(r);
    else if (args.common.json)
        print_json(r);
    else
        print_text(r);
}

// ---------------------------------------------------------------- work

static knnlm_import_options make_options(char **paths, size_t count) {
    knnlm_import_options o = knnlm_import_options_default();
    o.faiss = args.faiss;
    if (args.faiss)
        o.values = count ? paths[0] : NULL;
    else
        o.keys = paths[0];
    if (!args.faiss && count > 1) o.values = paths[1];
    o.tap = args.tap;
    o.entries = (uint64_t)args.entries;
    o.dimension = (int32_t)args.dimension;
    o.vocabulary = (int32_t)args.vocabulary;
    if (args.key_type >= 0) o.key_type = (knnlm_array_type)(KNNLM_ARRAY_F16 + args.key_type);
    if (args.value_type >= 0) o.value_type = (knnlm_array_type)(KNNLM_ARRAY_INT64 + args.value_type);
    o.convert = args.keys >= 0;
    if (o.convert) o.keep = (knnlm_keys)args.keys;
    if (args.distance >= 0) o.distance = (knnlm_distance)args.distance;
    o.force = args.force;
    o.progress = cli_progress;
    return o;
}

static knnlm_status import(knnlm_import_options *o) {
    knnlm_import_result result;
    knnlm_model *model = NULL;
    if (args.model) KN_TRY(cli_open_model(args.model, &args.common, &model));
    o->model = model;
    knnlm_status status = knnlm_import(args.output, o, &result);
    knnlm_model_close(model);
    cli_progress_clear();
    if (status != KNNLM_OK) return status;
    print(&result);
    knnlm_import_result_free(&result);
    return KNNLM_OK;
}

static int check_usage(size_t count) {
    if (!args.output || !*args.output) return cli_usage(&cli_import, "no -o STORE to make");
    if (cli_is_standard(args.output)) return cli_usage(&cli_import, "-o -: a store is a directory");
    if (args.faiss && count > 1) return cli_usage(&cli_import, "--faiss INDEX and a file of values");
    if (args.faiss && (args.distance >= 0 || args.keys >= 0 || args.key_type >= 0 || args.entries))
        return cli_usage(&cli_import,
                         "--distance, --keys, --key-type, --entries: the index of --faiss tells them");
    if (!args.faiss && (count < 1 || count > 2))
        return cli_usage(&cli_import, "a file of keys and a file of values, or a directory with both");
    return CLI_DONE;
}

static int run(int argc, char **argv) {
    char **paths;
    size_t count;
    args.key_type = args.value_type = args.keys = args.distance = -1;
    int code = cli_parse(&cli_import, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    code = check_usage(count);
    if (code == CLI_DONE) code = cli_start(&cli_import, &args.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    knnlm_import_options o = make_options(paths, count);
    return import(&o) == KNNLM_OK ? CLI_DONE : cli_fail(&cli_import);
}

const cli_command cli_import = {
    .name = "import",
    .summary = "make a store of keys and values that another program has written",
    .usage = "KEYS VALUES -o STORE [options]\n       knnlm import DIRECTORY -o STORE [options]\n"
             "       knnlm import --faiss INDEX [VALUES] -o STORE [options]",
    .examples = "  knnlm import dstore_keys.npy dstore_vals.npy -o wiki.store --dim 1024 --key-type f16\n"
                "  knnlm import checkpoints/gpt2 -o wiki.store --vocab 50257\n"
                "  knnlm import wiki-arrays -o copy.store -m my.gguf --keys int8\n"
                "  knnlm import --faiss knn.index dstore_vals.npy -o wiki.store --value-type int64\n",
    .run = run,
};
