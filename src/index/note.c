// Prints and parses what a store's manifest says about its index.
#include "index/note.h"

#include <jansson.h>
#include <stdlib.h>

knnlm_status kn_index_note_add_run(kn_index_note *n, const kn_run_note *run) {
    KN_TRY(kn_grow(&n->runs, &n->run_capacity, n->run_count + 1, sizeof *n->runs));
    n->runs[n->run_count++] = *run;
    return KNNLM_OK;
}

void kn_index_note_free(kn_index_note *n) {
    free(n->runs);
    *n = (kn_index_note){0};
}

knnlm_status kn_index_note_print(const kn_index_note *n, char **text) {
    json_t *runs = json_array();
    bool whole = runs;
    for (size_t i = 0; i < n->run_count && whole; i++)
        whole = json_array_append_new(
                    runs, json_pack("{s:I, s:I, s:f}", "first", (json_int_t)n->runs[i].first, "entries",
                                    (json_int_t)n->runs[i].entries, "objective", n->runs[i].objective)) == 0;
    if (!whole) {
        json_decref(runs);
        return kn_fail(KNNLM_EDATA, "an index whose distances are not finite, or no memory for its note");
    }
    json_t *root = json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:f, s:I, s:o}", "version",
                             KN_INDEX_VERSION, "lists", (json_int_t)n->lists, "groups", (json_int_t)n->groups,
                             "probes", (json_int_t)n->probes, "code_parts", (json_int_t)n->code_parts,
                             "code_bits", (json_int_t)n->code_bits, "plain_codes", n->plain_codes, "trained",
                             (json_int_t)n->trained, "seed", (json_int_t)n->seed, "objective", n->objective,
                             "learnt", (json_int_t)n->learnt, "runs", runs);
    *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return *text ? KNNLM_OK : kn_fail(KNNLM_ENOMEM, "out of memory for the note of an index");
}

// A whole number of at most `max`; *good becomes false otherwise.
static uint64_t get(const json_t *o, const char *key, uint64_t max, bool *good) {
    const json_t *value = json_object_get(o, key);
    json_int_t number = json_integer_value(value);
    if (json_is_integer(value) && number >= 0 && (uint64_t)number <= max) return (uint64_t)number;
    *good = false;
    return 0;
}

static knnlm_status parse_runs(const json_t *list, kn_index_note *n, bool *good) {
    uint64_t next = 0;
    if (!json_is_array(list) || json_array_size(list) > KN_INDEX_RUNS_MAX) *good = false;
    for (size_t i = 0; *good && i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        kn_run_note run = {.first = get(o, "first", KN_STORE_ENTRIES_MAX, good),
                           .entries = get(o, "entries", KN_STORE_ENTRIES_MAX, good),
                           .objective = json_number_value(json_object_get(o, "objective"))};
        if (run.first != next || run.entries > KN_STORE_ENTRIES_MAX - next) *good = false;
        next += run.entries;
        KN_TRY(kn_index_note_add_run(n, &run));
    }
    return KNNLM_OK;
}

static knnlm_status parse(const char *path, const json_t *root, kn_index_note *n) {
    bool good = true;
    uint64_t version = get(root, "version", INT32_MAX, &good);
    if (good && version > KN_INDEX_VERSION)
        return kn_fail(KNNLM_ENOTSUP, "%s: an index of version %llu: this knnlm knows up to %d", path,
                       (unsigned long long)version, KN_INDEX_VERSION);
    *n = (kn_index_note){.lists = (uint32_t)get(root, "lists", KN_INDEX_LISTS_MAX, &good),
                         .probes = (uint32_t)get(root, "probes", KN_INDEX_LISTS_MAX, &good),
                         .code_parts = (uint32_t)get(root, "code_parts", KN_STORE_DIMENSION_MAX, &good),
                         .code_bits = (uint32_t)get(root, "code_bits", 8, &good),
                         .plain_codes = json_is_true(json_object_get(root, "plain_codes")),
                         .trained = get(root, "trained", INT64_MAX, &good),
                         .seed = get(root, "seed", INT64_MAX, &good),
                         .objective = json_number_value(json_object_get(root, "objective"))};
    if (json_object_get(root, "groups")) n->groups = (uint32_t)get(root, "groups", n->lists, &good);
    KN_TRY(parse_runs(json_object_get(root, "runs"), n, &good));
    n->learnt = n->run_count ? n->runs[0].entries : 0; // before runs were merged
    if (json_object_get(root, "learnt")) n->learnt = get(root, "learnt", KN_STORE_ENTRIES_MAX, &good);
    if (good && n->code_parts && version < KN_INDEX_VERSION_BLOCKS)
        return kn_fail(
            KNNLM_ENOTSUP,
            "%s: its index is of version %llu, whose codes lie otherwise (`knnlm_index` makes it anew)", path,
            (unsigned long long)version);
    bool codes = !n->code_parts || n->code_bits == 4 || n->code_bits == 8;
    if (good && n->lists && n->probes && n->probes <= n->lists && codes) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: the note about its index is malformed", path);
}

knnlm_status kn_index_note_parse(const char *path, const char *text, kn_index_note *out) {
    json_t *root = json_loads(text, 0, NULL);
    *out = (kn_index_note){0};
    knnlm_status status = root ? parse(path, root, out)
                               : kn_fail(KNNLM_EDATA, "%s: the note about its index is malformed", path);
    json_decref(root);
    if (status != KNNLM_OK) kn_index_note_free(out);
    return status;
}
