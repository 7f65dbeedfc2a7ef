// knnlm search: the nearest entries of a store to vectors of your own.
#include "base/file.h"
#include "base/memory.h"
#include "base/progress.h"
#include "cli/input.h"
#include "cli/mixture.h"
#include "cli/store.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct {
    cli_common common;
    cli_mixture mixture; // of it k, probes and the filter
    const char *store, *output;
    int64_t around;
    bool exact;
    uint64_t memory;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'s', "store", CLI_STRING, &args.store, "STORE", "the store (or the first argument)", 0, 0, NULL},
    {'o', "output", CLI_STRING, &args.output, "DIRECTORY", "write ids.npy (int64; -1: none) and distances.npy (f32), (n, k)", 0, 0, NULL},
    {'k', "neighbors", CLI_INTEGER, &args.mixture.k, "K", "neighbours of a vector (default: 10)", 1, CLI_NEIGHBORS_MAX, NULL},
    {0, "probes", CLI_INTEGER, &args.mixture.probes, "N", "lists looked at (default: the index's); as many as there are: all entries", 1, 1 << 24, NULL},
    {0, "probe", CLI_INTEGER, &args.mixture.probes, "N", NULL, 1, 1 << 24, NULL},
    {0, "exact", CLI_FLAG, &args.exact, NULL, "look at every entry, whatever the index", 0, 0, NULL},
    CLI_FILTER_OPTIONS(args.mixture),
    {0, "around", CLI_INTEGER, &args.around, "N", "tokens shown on both sides of a neighbour (default: 12)", 0, 1000, NULL},
    {0, "memory", CLI_BYTES, &args.memory, "SIZE", "most memory for searching, such as 2G", 0, 0, NULL},
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

// Vectors, and what was found for them.
typedef struct finding {
    float *queries;
    size_t n, dimension, k;
    uint32_t *ids;    // (n, k)
    float *distances; // (n, k)
    uint32_t *counts; // (n)
    double seconds;
} finding;

static void finding_free(finding *f) {
    knnlm_free(f->queries);
    free(f->ids);
    free(f->distances);
    free(f->counts);
}

// ---------------------------------------------------------------- searching

static knnlm_status make_room(finding *f) {
    size_t cells;
    if (!kn_mul(f->n, f->k, &cells))
        return kn_fail(KNNLM_ENOMEM, "too many neighbours at a time: a smaller -k");
    f->ids = kn_alloc(cells, sizeof *f->ids);
    f->distances = kn_alloc(cells, sizeof *f->distances);
    f->counts = kn_alloc(f->n, sizeof *f->counts);
    return f->ids && f->distances && f->counts ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status search(const knnlm_store *store, const char *path, finding *f) {
    knnlm_search_options o = knnlm_search_options_default();
    knnlm_store_info info;
    knnlm_store_describe(store, &info);
    KN_TRY(knnlm_array_read(path, &cli_progress, &f->queries, &f->n, &f->dimension));
    if (f->dimension != (size_t)info.dimension)
        return kn_fail(KNNLM_EINVAL, "%s: vectors of %zu dimensions, but the keys of %s have %d", path,
                       f->dimension, args.store, info.dimension);
    o.k = f->k = (size_t)args.mixture.k;
    o.probes = (uint32_t)args.mixture.probes;
    o.exact = args.exact;
    o.memory = args.memory;
    o.only = args.mixture.only.items;
    o.only_count = args.mixture.only.count;
    o.except = args.mixture.except.items;
    o.except_count = args.mixture.except.count;
    o.progress = cli_progress;
    KN_TRY(make_room(f));
    double begun = kn_seconds();
    KN_TRY(knnlm_store_search(store, f->queries, f->n, &o, f->ids, f->distances, f->counts));
    cli_progress_clear();
    f->seconds = kn_seconds() - begun;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- arrays

static knnlm_status name_file(const char *name, char *out, size_t size) {
    if (snprintf(out, size, "%s/%s", args.output, name) < (int)size) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "-o: the name is too long");
}

static knnlm_status write_array(const char *name, knnlm_array_type type, const void *data, const finding *f) {
    char path[4096];
    KN_TRY(name_file(name, path, sizeof path));
    return knnlm_array_write(path, type, data, f->n, f->k);
}

static knnlm_status write_arrays(const finding *f) {
    int64_t *ids = kn_alloc(f->n * f->k, sizeof *ids);
    if (!ids) return KNNLM_ENOMEM;
    for (size_t i = 0; i < f->n * f->k; i++) ids[i] = f->ids[i] == UINT32_MAX ? -1 : (int64_t)f->ids[i];
    knnlm_status status = write_array("ids.npy", KNNLM_ARRAY_INT64, ids, f);
    free(ids);
    if (status == KNNLM_OK) status = write_array("distances.npy", KNNLM_ARRAY_F32, f->distances, f);
    return status;
}

// ---------------------------------------------------------------- for people and programs

// Of a store without a tokenizer there is no text, but there are documents.
static knnlm_status find_origin(const knnlm_store *store, uint64_t id, knnlm_origin *out) {
    *out = (knnlm_origin){0};
    knnlm_status status = knnlm_store_origin(store, id, (size_t)args.around, out);
    if (status != KNNLM_ENOTSUP) return status;
    KN_TRY(knnlm_store_entry(store, id, &out->entry));
    return knnlm_store_document(store, out->entry.document, &out->document);
}

static const char *or_empty(const char *text) {
    return text ? text : "";
}

static void print_neighbor(const knnlm_origin *o, double distance) {
    char *before = cli_line(or_empty(o->before), o->before_size, 60, true),
         *word = cli_line(or_empty(o->word), o->word_size, 40, false),
         *after = cli_line(or_empty(o->after), o->after_size, 30, false);
    printf("%10" PRIu64 " %10.4g   %s[%s]%s\n                        ", o->entry.id, distance,
           or_empty(before), or_empty(word), or_empty(after));
    cli_put_text(stdout, o->document.name, o->document.name_size);
    printf(", token %" PRIu64 "\n", o->entry.position);
    free(before);
    free(word);
    free(after);
}

static json_t *json_neighbor(const knnlm_origin *o, double distance) {
    return json_pack("{s:I, s:f, s:i, s:o, s:I, s:I, s:o, s:o, s:o}", "entry", (json_int_t)o->entry.id,
                     "distance", distance, "token", o->entry.token, "document",
                     cli_json_name(o->document.name, o->document.name_size), "position",
                     (json_int_t)o->entry.position, "offset", (json_int_t)o->entry.offset, "before",
                     cli_json_text(o->before, o->before_size), "text", cli_json_text(o->word, o->word_size),
                     "after", cli_json_text(o->after, o->after_size));
}

// The neighbours of one vector: printed, or appended to `list`.
static knnlm_status tell_row(const knnlm_store *store, const finding *f, size_t row, json_t *list) {
    for (size_t i = row * f->k; i < row * f->k + f->counts[row]; i++) {
        knnlm_origin o;
        KN_TRY(find_origin(store, f->ids[i], &o));
        if (list)
            cli_json_append(list, json_neighbor(&o, (double)f->distances[i]));
        else
            print_neighbor(&o, (double)f->distances[i]);
        knnlm_origin_free(&o);
    }
    return KNNLM_OK;
}

static knnlm_status print_rows(const knnlm_store *store, const finding *f) {
    for (size_t row = 0; row < f->n; row++) {
        printf("%svector %zu\n     entry   distance   context [what followed it]\n", row ? "\n" : "", row);
        KN_TRY(tell_row(store, f, row, NULL));
    }
    return KNNLM_OK;
}

static json_t *json_settings(const finding *f) {
    return json_pack("{s:I, s:I, s:b, s:o, s:o}", "k", (json_int_t)f->k, "probes",
                     (json_int_t)args.mixture.probes, "exact", args.exact, "only",
                     cli_json_list(&args.mixture.only), "not", cli_json_list(&args.mixture.except));
}

static knnlm_status print_json(const knnlm_store *store, const finding *f) {
    json_t *rows = json_array();
    knnlm_status status = KNNLM_OK;
    for (size_t row = 0; !args.output && row < f->n && status == KNNLM_OK; row++) {
        json_t *list = json_array();
        status = tell_row(store, f, row, list);
        cli_json_append(rows, list);
    }
    if (status != KNNLM_OK) {
        json_decref(rows);
        return status;
    }
    cli_print_json(json_pack("{s:o?, s:I, s:I, s:f, s:o, s:o}", "store", json_string(args.store), "vectors",
                             (json_int_t)f->n, "dimension", (json_int_t)f->dimension, "seconds", f->seconds,
                             "settings", json_settings(f), "neighbors", rows));
    return KNNLM_OK;
}

static knnlm_status tell(const knnlm_store *store, const finding *f) {
    char rate[32];
    if (args.output) KN_TRY(write_arrays(f));
    if (args.common.json) return print_json(store, f);
    if (!args.output) return print_rows(store, f);
    printf("directory        %s\nvectors          %zu, %s/s\nneighbours       %zu of each\n", args.output,
           f->n, cli_count((double)f->n / fmax(f->seconds, 1e-9), rate), f->k);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the command

// Before the work: vectors are not written over, nor files into a store, and the folder can be written to.
static knnlm_status check_output(const char *vectors) {
    static const char *const names[] = {"ids.npy", "distances.npy"};
    char path[4096];
    if (!args.output) return KNNLM_OK;
    if (knnlm_store_exists(args.output))
        return kn_fail(KNNLM_EINVAL, "-o %s: is a store: name another directory", args.output);
    if (mkdir(args.output, 0777) != 0 && errno != EEXIST)
        return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot create", args.output);
    for (size_t i = 0; i < 2; i++) {
        KN_TRY(name_file(names[i], path, sizeof path));
        if (!cli_is_standard(vectors) && kn_file_same(path, vectors))
            return kn_fail(KNNLM_EINVAL, "-o %s: %s would be written over", args.output, vectors);
        KN_TRY(kn_writer_try(path));
    }
    return KNNLM_OK;
}

static knnlm_status open_and_search(const char *path) {
    knnlm_store *store;
    finding f = {0};
    KN_TRY(check_output(path));
    KN_TRY(knnlm_store_open(args.store, &store));
    knnlm_status status = search(store, path, &f);
    if (status == KNNLM_OK) status = tell(store, &f);
    finding_free(&f);
    knnlm_store_close(store);
    return status;
}

static int run(int argc, char **argv) {
    char **rest;
    size_t count;
    cli_mixture_init(&args.mixture);
    args.mixture.k = 10;
    args.around = 12;
    int code = cli_parse(&cli_search, options, sizeof options / sizeof *options, argc, argv, &rest, &count);
    if (code >= 0) return code;
    code = cli_take_store(&cli_search, &args.store, &rest, &count);
    if (code != CLI_DONE) return code;
    if (count != 1) return cli_usage(&cli_search, "one file of vectors (.npy), or -");
    if (args.exact && args.mixture.probes) return cli_usage(&cli_search, "one of --exact and --probes");
    if (args.output && cli_is_standard(args.output))
        return cli_usage(&cli_search, "-o -: arrays are two files, in a directory (--json prints)");
    code = cli_start(&cli_search, &args.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    return open_and_search(rest[0]) == KNNLM_OK ? CLI_DONE : cli_fail(&cli_search);
}

const cli_command cli_search = {
    .name = "search",
    .summary = "find the entries of a store that are nearest to vectors of your own",
    .usage = "STORE VECTORS.npy [options]",
    .examples =
        "  knnlm search notes.store queries.npy -k 5\n"
        "  knnlm search notes.store queries.npy -k 100 --exact -o found       ids.npy, distances.npy\n"
        "  knnlm search notes.store - --only 'manuals/*' --json <queries.npy\n",
    .run = run,
};
