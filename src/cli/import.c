#include "build/build.h"
#include "cli/cli.h"
#include "cli/model.h"
#include "index/faiss.h"
#include "lm/lm.h"

#include <stdio.h>
#include <stdlib.h>

static struct {
    cli_common common;
    const char *output, *model, *tap, *faiss;
    int64_t dimension, entries, vocabulary;
    int key_type, value_type, keys, distance;
    bool force;
} said;

static const char *const key_types[] = {"f16", "f32", NULL};
static const char *const value_types[] = {"int64", "int32", "int16", "uint16", NULL};
static const char *const store_types[] = {"f16", "f32", "int8", NULL}; // as knnlm_keys

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'o', "output", CLI_STRING, &said.output, "STORE", "store to make (required)", 0, 0, NULL},
    {0, "faiss", CLI_STRING, &said.faiss, "INDEX", "codes for keys: of an IVFPQ index file of FAISS", 0, 0, NULL},
    {0, "dim", CLI_INTEGER, &said.dimension, "D", "numbers of a key (default: by the files)", 1, KN_STORE_DIMENSION_MAX, NULL},
    {0, "entries", CLI_INTEGER, &said.entries, "N", "entries in the files (default: by the files)", 1, (double)KN_STORE_ENTRIES_MAX, NULL},
    {0, "key-type", CLI_CHOICE, &said.key_type, "TYPE", "how keys without header lie: f16 or f32 (default: by the sizes)", 0, 0, key_types},
    {0, "value-type", CLI_CHOICE, &said.value_type, "TYPE", "how values lie: int64, int32, int16, or uint16: int16 that overflowed", 0, 0, value_types},
    {0, "keys", CLI_CHOICE, &said.keys, "TYPE", "keep keys as f16, f32 or int8 (default: as they are)", 0, 0, store_types},
    {0, "distance", CLI_CHOICE, &said.distance, "D", "l2 (default; squared), ip or cosine", 0, 0, kn_distance_names},
    {0, "vocab", CLI_INTEGER, &said.vocabulary, "N", "size of the vocabulary: values must be below it", 1, INT32_MAX, NULL},
    {'m', "model", CLI_STRING, &said.model, "FILE", "model that made the keys: checks them, and is recorded", 0, 0, NULL},
    {0, "tap", CLI_STRING, &said.tap, "TAP", "where in the model keys were taken (default: ffn with -m, else not known)", 0, 0, NULL},
    {0, "force", CLI_FLAG, &said.force, NULL, "go on although the disk seems too small", 0, 0, NULL},
    CLI_ENGINE_OPTION(said.common),
    CLI_COMMON_OPTIONS(said.common),
};
// clang-format on

typedef struct job {
    kn_import_options o;
    kn_import_totals totals;
    kn_faiss_totals faiss;
    char *keys, *values; // the files found; of an index, values NULL: there are none
    char tokenizer[KN_FINGERPRINT], tap[KN_TAP_TEXT];
    double seconds;
} job;

// ---------------------------------------------------------------- results

static void print_json(const job *j) {
    const kn_import_totals *t = &j->totals;
    const kn_store_settings *s = &j->o.settings;
    knnlm_keys kept = j->o.convert                ? s->key_type
                      : t->key_type == KN_NPY_F16 ? KNNLM_KEYS_F16
                                                  : KNNLM_KEYS_F32;
    cli_print_json(json_pack(
        "{s:o?, s:o?, s:o?, s:I, s:I, s:i, s:s, s:s, s:b, s:I, s:o?, s:o?, "
        "s:{s:s, s:s, s:i, s:o?, s:o?, s:s}}",
        "store", json_string(said.output), "keys", json_string(j->keys), "values", json_string(j->values),
        "entries", (json_int_t)t->entries, "documents", (json_int_t)t->documents, "dimension", t->dimension,
        "key_type", kn_npy_type_name(t->key_type), "value_type", kn_npy_type_name(t->value_type), "restored",
        t->restored, "bytes", (json_int_t)t->bytes, "seconds", json_real(j->seconds), "entries_per_second",
        json_real((double)t->entries / j->seconds), "settings", "keys", kn_key_type_names[kept], "distance",
        kn_distance_names[s->distance], "vocabulary", s->vocabulary, "model", json_string(s->model), "tap",
        json_string(s->tap), "fingerprint", s->model_fingerprint));
}

static void print_text(const job *j) {
    const kn_import_totals *t = &j->totals;
    char bytes[32], rate[32], time[32];
    printf("store            %s\n", said.output);
    printf("keys             %s: %s, dimension %d\n", j->keys, kn_npy_type_name(t->key_type), t->dimension);
    printf("values           %s: %s\n", j->values, kn_npy_type_name(t->value_type));
    printf("entries          %llu\n", (unsigned long long)t->entries);
    printf("documents        %llu%s\n", (unsigned long long)t->documents,
           t->restored ? "" : ", of unknown text: there is no origins.npy");
    printf("size             %sB\n", cli_count((double)t->bytes, bytes));
    printf("time             %s, %s entries/s\n", cli_duration(j->seconds, time),
           cli_count((double)t->entries / j->seconds, rate));
}

static void print_faiss_json(const job *j) {
    const kn_faiss_totals *t = &j->faiss;
    const kn_store_settings *s = &j->o.settings;
    const char *type = j->values ? kn_npy_type_name(t->value_type) : NULL;
    json_t *values = j->values ? json_string(j->values) : json_null();
    cli_print_json(json_pack(
        "{s:o?, s:o?, s:o?, s:I, s:I, s:i, s:s?, s:b, s:I, s:I, s:I, s:I, s:b, s:I, s:o?, s:o?, "
        "s:{s:s, s:i, s:o?, s:o?, s:s}}",
        "store", json_string(said.output), "faiss", json_string(said.faiss), "values", values, "entries",
        (json_int_t)t->entries, "documents", (json_int_t)t->documents, "dimension", t->dimension,
        "value_type", type, "restored", t->restored, "lists", (json_int_t)t->lists, "probes",
        (json_int_t)t->probes, "code_parts", (json_int_t)t->code_parts, "code_bits", (json_int_t)t->code_bits,
        "residuals", t->residuals, "bytes", (json_int_t)t->bytes, "seconds", json_real(j->seconds),
        "entries_per_second", json_real((double)t->entries / j->seconds), "settings", "distance",
        kn_distance_names[t->distance], "vocabulary", j->values || s->vocabulary ? s->vocabulary : 1, "model",
        json_string(s->model), "tap", json_string(s->tap), "fingerprint", s->model_fingerprint));
}

static void print_faiss_text(const job *j) {
    const kn_faiss_totals *t = &j->faiss;
    char bytes[32], rate[32], time[32];
    printf("store            %s\n", said.output);
    printf("index            %s: %s, dimension %d\n", said.faiss, kn_distance_names[t->distance],
           t->dimension);
    if (j->values)
        printf("values           %s: %s\n", j->values, kn_npy_type_name(t->value_type));
    else
        printf("values           none: every token is 0\n");
    printf("entries          %llu\n", (unsigned long long)t->entries);
    printf("documents        %llu%s\n", (unsigned long long)t->documents,
           t->restored ? "" : ", of unknown text: there is no origins.npy");
    printf("lists            %u, %u probed\n", t->lists, t->probes);
    printf("codes            %u parts of %u bits, of %s\n", t->code_parts, t->code_bits,
           t->residuals ? "residuals" : "keys");
    printf("size             %sB\n", cli_count((double)t->bytes, bytes));
    printf("time             %s, %s entries/s\n", cli_duration(j->seconds, time),
           cli_count((double)t->entries / j->seconds, rate));
}

static void print(const job *j) {
    if (said.faiss && said.common.json)
        print_faiss_json(j);
    else if (said.faiss)
        print_faiss_text(j);
    else if (said.common.json)
        print_json(j);
    else
        print_text(j);
}

// ---------------------------------------------------------------- work

// What the model knows of the keys. The strings live in the job and in the model.
static knnlm_status ask_model(const kn_lm *lm, kn_tap tap, job *j) {
    const kn_lm_info *info = kn_lm_describe(lm);
    const kn_tokenizer *t = kn_lm_tokenizer(lm);
    kn_store_settings *s = &j->o.settings;
    if (s->dimension && s->dimension != info->key_width)
        return kn_fail(KNNLM_EINVAL, "--dim %d: the keys of %s are of dimension %d", s->dimension, said.model,
                       info->key_width);
    if (s->vocabulary && s->vocabulary != info->vocabulary)
        return kn_fail(KNNLM_EINVAL, "--vocab %d: the vocabulary of %s has %d", s->vocabulary, said.model,
                       info->vocabulary);
    KN_TRY(kn_tap_print(lm, tap, j->tap));
    kn_tokenizer_fingerprint(t, j->tokenizer);
    s->dimension = info->key_width;
    s->vocabulary = info->vocabulary;
    s->model = info->path;
    s->model_fingerprint = info->fingerprint;
    s->tokenizer = kn_tokenizer_kind_name(kn_tokenizer_kind_of(t));
    s->tokenizer_fingerprint = j->tokenizer;
    s->tap = j->tap;
    return KNNLM_OK;
}

static knnlm_status find_files(job *j, char **paths, size_t count) {
    if (said.faiss) {
        j->values = count ? kn_strdup(paths[0]) : NULL;
        if (count && !j->values) return KNNLM_ENOMEM;
    } else if (count == 1) {
        KN_TRY(kn_import_find(paths[0], &j->keys, &j->values));
    } else {
        j->keys = kn_strdup(paths[0]);
        j->values = kn_strdup(paths[1]);
        if (!j->keys || !j->values) return KNNLM_ENOMEM;
    }
    j->o.keys = j->keys;
    j->o.values = j->values;
    return KNNLM_OK;
}

// With its tokenizer the store can show text.
static knnlm_status keep_tokenizer(const kn_lm *lm) {
    kn_store_writer *w;
    KN_TRY(kn_store_write(said.output, &w));
    knnlm_status status = kn_build_attach_tokenizer(w, kn_lm_tokenizer(lm));
    if (status == KNNLM_OK) status = kn_store_writer_amend(w);
    kn_store_writer_close(w);
    return status;
}

static knnlm_status import_index(job *j) {
    kn_faiss_import_options o = {
        .values = j->values, .value_type = j->o.value_type, .force = j->o.force, .settings = j->o.settings};
    return kn_faiss_import(said.faiss, &o, said.output, &cli_progress, &j->faiss);
}

static knnlm_status work(job *j, const kn_lm *lm, kn_tap tap) {
    double start = kn_seconds();
    if (lm) KN_TRY(ask_model(lm, tap, j));
    knnlm_status status =
        said.faiss ? import_index(j) : kn_store_import(&j->o, said.output, &cli_progress, &j->totals);
    if (status == KNNLM_OK && lm) status = keep_tokenizer(lm);
    j->seconds = kn_seconds() - start;
    cli_progress_clear();
    if (status == KNNLM_OK) print(j);
    return status;
}

static knnlm_status import_files(job *j, char **paths, size_t count) {
    kn_tap tap = KN_TAP_DEFAULT;
    kn_lm *lm = NULL;
    if (said.tap) KN_TRY(kn_tap_parse(said.tap, &tap));
    KN_TRY(find_files(j, paths, count));
    if (said.model) KN_TRY(cli_open_model(said.model, &said.common, &lm));
    knnlm_status status = work(j, lm, tap);
    kn_lm_close(lm);
    return status;
}

static kn_import_options make_options(void) {
    kn_import_options o = {.entries = (uint64_t)said.entries, .convert = said.keys >= 0, .force = said.force};
    if (said.key_type >= 0) o.key_type = (knnlm_array_type)(KNNLM_ARRAY_F16 + said.key_type);
    if (said.value_type >= 0) o.value_type = (knnlm_array_type)(KNNLM_ARRAY_INT64 + said.value_type);
    o.settings = (kn_store_settings){.model = "",
                                     .model_fingerprint = "",
                                     .tokenizer = "",
                                     .tokenizer_fingerprint = "",
                                     .split = "",
                                     .tap = said.tap ? said.tap : "",
                                     .vocabulary = (int32_t)said.vocabulary,
                                     .key_type = said.keys >= 0 ? (knnlm_keys)said.keys : KNNLM_KEYS_F16,
                                     .dimension = (int32_t)said.dimension,
                                     .distance = said.distance < 0 ? KNNLM_DISTANCE_L2
                                                                   : (knnlm_distance)said.distance};
    return o;
}

static int check_usage(size_t count) {
    if (!said.output || !*said.output) return cli_usage(&cli_import, "no -o STORE to make");
    if (said.faiss && count > 1) return cli_usage(&cli_import, "--faiss INDEX and a file of values");
    if (said.faiss && (said.distance >= 0 || said.keys >= 0 || said.key_type >= 0 || said.entries))
        return cli_usage(&cli_import,
                         "--distance, --keys, --key-type, --entries: the index of --faiss tells them");
    if (!said.faiss && (count < 1 || count > 2))
        return cli_usage(&cli_import, "a file of keys and a file of values, or a directory with both");
    return CLI_DONE;
}

static int run(int argc, char **argv) {
    char **paths;
    size_t count;
    said.key_type = said.value_type = said.keys = said.distance = -1;
    int code = cli_parse(&cli_import, options, sizeof options / sizeof *options, argc, argv, &paths, &count);
    if (code >= 0) return code;
    code = check_usage(count);
    if (code == CLI_DONE) code = cli_start(&cli_import, &said.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    job j = {.o = make_options()};
    knnlm_status status = import_files(&j, paths, count);
    free(j.keys);
    free(j.values);
    return status == KNNLM_OK ? CLI_DONE : cli_fail(&cli_import);
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
