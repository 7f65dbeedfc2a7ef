// Indexes to and from FAISS's files: what Debian's FAISS wrote (tests/golden/make_faiss.py) is read and
// searched as it searches; what is written is read again; what is no such file is refused.
#include "folder.h"
#include "index/faiss.h"
#include "index/view.h"
#include "store_kit.h"

static const kn_store_settings no_settings = {.model = "",
                                              .model_fingerprint = "",
                                              .tokenizer = "",
                                              .tokenizer_fingerprint = "",
                                              .tap = "",
                                              .split = ""};

static knnlm_status import_as(const char *index, const char *values, const char *store,
                              kn_faiss_totals *totals) {
    kn_faiss_import_options o = {.values = values, .settings = no_settings};
    return kn_faiss_import(index, &o, store, NULL, totals);
}

// ---------------------------------------------------------------- searching

typedef struct found {
    kn_neighbors out;
    size_t n, k;
} found;

static void find_one_by_one(const kn_index *x, const float *queries, const kn_search_options *o, found *f) {
    kn_searcher *one;
    OK(kn_searcher_open(x, f->k, &one));
    for (size_t q = 0; q < f->n; q++) {
        kn_neighbors out = {f->out.ids + q * f->k, f->out.distances + q * f->k, f->out.counts + q};
        OK(kn_searcher_find(one, queries + q * x->d, o, &out));
    }
    kn_searcher_close(one);
}

static found search_by(const char *path, const float *queries, size_t n, size_t k, uint32_t probes,
                       bool together) {
    found f = {.n = n, .k = k};
    kn_search_options o = {.k = k, .probes = probes};
    kn_store *store;
    kn_index *index;
    f.out.ids = kit_alloc(n * k, sizeof *f.out.ids);
    f.out.distances = kit_alloc(n * k, sizeof *f.out.distances);
    f.out.counts = kit_alloc(n, sizeof *f.out.counts);
    OK(kn_store_open(path, &store));
    OK(kn_index_open(store, &index));
    if (together)
        OK(kn_index_search(index, queries, n, &o, &f.out));
    else
        find_one_by_one(index, queries, &o, &f);
    kn_index_close(index);
    kn_store_close(store);
    return f;
}

static found search(const char *path, const float *queries, size_t n, size_t k, uint32_t probes) {
    return search_by(path, queries, n, k, probes, true);
}

static void found_free(found *f) {
    free(f->out.ids);
    free(f->out.distances);
    free(f->out.counts);
}

// One query's neighbours are those expected: the same distances, and the same entries but that those equally
// far, to within rounding, may change places (and leave at the end).
static void compare(const found *f, size_t q, const int32_t *ids, const double *distances, size_t count) {
    const uint32_t *own = f->out.ids + q * f->k;
    double scale = 0;
    assert_int_equal(f->out.counts[q], count);
    for (size_t i = 0; i < count; i++) scale = fmax(scale, fabs(distances[i]));
    for (size_t i = 0; i < count; i++) {
        double close = 1e-5 * scale + 1e-5, distance = f->out.distances[q * f->k + i];
        if (fabs(distance - distances[i]) > close)
            fail_msg("query %zu, neighbour %zu: %.9g, not %.9g", q, i, distance, distances[i]);
        size_t j = 0;
        while (j < count && ids[j] != (int32_t)own[i]) j++;
        if (j < count ? fabs(distances[j] - distances[i]) > close
                      : fabs(distances[count - 1] - distances[i]) > close)
            fail_msg("query %zu, neighbour %zu: %u, not %d", q, i, own[i], ids[i]);
    }
}

// ---------------------------------------------------------------- what FAISS wrote

static const struct {
    const char *name;
    size_t lists, parts, bits;
    knnlm_distance distance;
    bool residuals, direct_map;
} goldens[] = {
    {"l2", 16, 4, 8, KNNLM_DISTANCE_L2, true, false},
    {"l2-plain", 16, 3, 4, KNNLM_DISTANCE_L2, false, true},
    {"l2-sparse", 40, 4, 4, KNNLM_DISTANCE_L2, true, false},
    {"ip", 16, 4, 8, KNNLM_DISTANCE_IP, true, true},
    {"ip-plain", 16, 6, 4, KNNLM_DISTANCE_IP, false, false},
    {"ip-sparse", 40, 1, 4, KNNLM_DISTANCE_IP, true, false},
};
enum { GOLDENS = sizeof goldens / sizeof *goldens };

static const char *golden(const char *name, const char *end) {
    static char paths[4][KIT_PATH];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, KIT_PATH, "%s/tests/golden/faiss-%s%s", KN_SOURCE_DIR, name, end);
    return path;
}

static void open_npy(const char *path, kn_npy *out) {
    OK(kn_npy_open(path, out));
}

static void compare_golden(size_t g, const char *store) {
    kn_npy queries, ids, distances;
    open_npy(golden("queries", ".npy"), &queries);
    open_npy(golden(goldens[g].name, ".ids.npy"), &ids);
    open_npy(golden(goldens[g].name, ".distances.npy"), &distances);
    size_t n = queries.dims[0], k = ids.dims[1];
    float *q = kit_alloc(queries.count, sizeof *q), *raw = kit_alloc(k, sizeof *raw);
    int64_t *wide = kit_alloc(k, sizeof *wide);
    int32_t *expected = kit_alloc(k, sizeof *expected);
    double *away = kit_alloc(k, sizeof *away);
    kn_npy_floats(&queries, 0, queries.count, q);
    found f = search(store, q, n, k, 0), singly = search_by(store, q, n, k, 0, false);
    for (size_t i = 0; i < n; i++) {
        size_t count = 0;
        kn_npy_integers(&ids, i * k, k, wide);
        kn_npy_floats(&distances, i * k, k, raw);
        for (; count < k && wide[count] >= 0; count++) {
            expected[count] = (int32_t)wide[count];
            away[count] = goldens[g].distance == KNNLM_DISTANCE_IP ? -raw[count] : raw[count];
        }
        compare(&f, i, expected, away, count);
        compare(&singly, i, expected, away, count);
    }
    found_free(&f);
    found_free(&singly);
    free(q), free(raw), free(wide), free(expected), free(away);
    kn_npy_close(&queries), kn_npy_close(&ids), kn_npy_close(&distances);
}

static void test_goldens_are_searched_as_faiss_does(void **state) {
    (void)state;
    for (size_t g = 0; g < GOLDENS; g++) {
        kn_faiss_totals t;
        OK(import_as(golden(goldens[g].name, ".index"), NULL, at("golden.store"), &t));
        assert_int_equal(t.entries, 300);
        assert_int_equal(t.dimension, 12);
        assert_int_equal(t.lists, goldens[g].lists);
        assert_int_equal(t.probes, 5);
        assert_int_equal(t.code_parts, goldens[g].parts);
        assert_int_equal(t.code_bits, goldens[g].bits);
        assert_int_equal(t.distance, goldens[g].distance);
        assert_int_equal(t.residuals, goldens[g].residuals);
        compare_golden(g, at("golden.store"));
        kit_delete(at("golden.store"));
    }
}

static void write_again(const char *name, bool same) {
    kn_faiss_totals t;
    kn_store *store;
    char theirs_name[64];
    kit_file ours, theirs;
    OK(import_as(golden(name, ".index"), NULL, at("golden.store"), &t));
    OK(kn_store_open(at("golden.store"), &store));
    OK(kn_faiss_export(store, at("again.index"), false, NULL, &t));
    kn_store_close(store);
    kit_delete(at("golden.store"));
    snprintf(theirs_name, sizeof theirs_name, "tests/golden/faiss-%s.index", name);
    kit_read_file(folder, "again.index", &ours);
    kit_read_file(KN_SOURCE_DIR, theirs_name, &theirs);
    assert_int_equal(t.bytes, ours.size);
    if (same && !kit_same_bytes(&ours, &theirs)) fail_msg("%s differs", theirs_name);
    free(ours.data), free(theirs.data);
}

// Byte by byte what FAISS writes, but for direct maps.
static void test_goldens_are_written_as_faiss_does(void **state) {
    (void)state;
    for (size_t g = 0; g < GOLDENS; g++) write_again(goldens[g].name, !goldens[g].direct_map);
    write_again("half-8-4", true);
    write_again("half-8-5", true);
    write_again("half-7-3", true);
    write_again("half-7-4", true);
}

// ---------------------------------------------------------------- there and back

enum { D = 8, QUERIES = 9, NEAREST = 30 };

static void build(const char *path, knnlm_distance distance, knnlm_keys keys, const kit_item *items,
                  size_t count) {
    kn_store_settings s = kit_settings(keys, D, 100);
    s.distance = distance;
    OK(kit_build(path, &s, items, count, 64));
}

static void add(const char *path, const kit_item *items, size_t count) {
    kn_store_writer *w;
    OK(kn_store_write(path, &w));
    OK(kit_add(w, items, count, 64));
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
}

static void drop(const char *path, uint64_t first, uint64_t end) {
    kn_store_writer *w;
    OK(kn_store_write(path, &w));
    for (uint64_t d = first; d < end; d++) OK(kn_store_writer_remove(w, d));
    OK(kn_store_writer_amend(w));
    kn_store_writer_close(w);
}

static void export_as(const char *path, const char *file, kn_faiss_totals *t) {
    kn_store *store;
    OK(kn_store_open(path, &store));
    OK(kn_faiss_export(store, file, false, NULL, t));
    kn_store_close(store);
}

typedef struct pair {
    double distance;
    int32_t id;
} pair;

static int nearer(const void *a, const void *b) {
    const pair *x = a, *y = b;
    if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

// By the definition: every entry's code, decoded, measured in double precision.
static size_t measure_codes(const kn_index *x, const float *query, pair *out) {
    float row[D];
    size_t n = 0;
    for (size_t i = 0; i < x->listed_count; i++)
        for (size_t l = 0; l < x->info.lists; l++)
            for (uint64_t p = x->listed[i].ends[l]; p < x->listed[i].ends[l + 1]; p++) {
                double sum = 0;
                kn_index_decode(x, &x->listed[i], l, x->zero, p, 1, row);
                for (size_t j = 0; j < D; j++)
                    sum += x->distance == KNNLM_DISTANCE_L2
                               ? ((double)query[j] - row[j]) * ((double)query[j] - row[j])
                               : -(double)query[j] * row[j];
                out[n++] = (pair){sum, (int32_t)x->listed[i].ids[p]};
            }
    qsort(out, n, sizeof *out, nearer);
    return n;
}

static void compare_with_codes(const char *source, const char *imported) {
    float queries[QUERIES * D];
    kn_store *store;
    kn_index *x;
    OK(kn_store_open(source, &store));
    OK(kn_index_open(store, &x));
    kit_keys(queries, 77, 0, QUERIES, D);
    found f = search(imported, queries, QUERIES, NEAREST, x->info.lists);
    found singly = search_by(imported, queries, QUERIES, NEAREST, x->info.lists, false);
    pair *all = kit_alloc(x->info.listed, sizeof *all);
    for (size_t q = 0; q < QUERIES; q++) {
        int32_t ids[NEAREST];
        double distances[NEAREST];
        size_t n = kn_min(measure_codes(x, queries + q * D, all), NEAREST);
        for (size_t i = 0; i < n; i++) ids[i] = all[i].id, distances[i] = all[i].distance;
        compare(&f, q, ids, distances, n);
        compare(&singly, q, ids, distances, n);
    }
    found_free(&f);
    found_free(&singly);
    free(all);
    kn_index_close(x);
    kn_store_close(store);
}

static void round_trip(knnlm_distance distance, uint32_t bits, uint32_t lists) {
    const kit_item items[] = {{1, 250, 250, 0}, {2, 1, 1, 0}, {3, 400, 400, 0}, {4, 90, 90, 0}};
    kn_recipe recipe = {.lists = lists, .code_parts = bits == 4 ? 1 : 4, .code_bits = bits, .probes = 2};
    kn_index_result r;
    kn_faiss_totals out, in;
    build(at("a.store"), distance, KNNLM_KEYS_F16, items, 3);
    OK(kn_index_build(at("a.store"), &recipe, NULL, &r));
    add(at("a.store"), items + 3, 1);
    OK(kn_index_extend(at("a.store"), &recipe, NULL, &r));
    export_as(at("a.store"), at("a.index"), &out);
    assert_int_equal(out.entries, 741);
    assert_int_equal(out.left_out, 0);
    assert_int_equal(out.probes, 2);
    OK(import_as(at("a.index"), NULL, at("b.store"), &in));
    assert_int_equal(in.entries, 741);
    assert_int_equal(in.probes, 2);
    assert_int_equal(in.code_parts, recipe.code_parts);
    assert_true(in.residuals && in.distance == out.distance && in.code_bits == bits);
    compare_with_codes(at("a.store"), at("b.store"));
    kit_delete(at("a.store")), kit_delete(at("b.store"));
}

// Two runs, all kinds of codes; short lists and long ones, which begin and end within blocks of codes.
static void test_round_trip_keeps_neighbours(void **state) {
    (void)state;
    for (uint32_t bits = 4; bits <= 8; bits += 4)
        for (uint32_t lists = 2; lists <= 7; lists += 5) {
            round_trip(KNNLM_DISTANCE_L2, bits, lists);
            round_trip(KNNLM_DISTANCE_IP, bits, lists);
        }
}

// ids in the order of the file.
static size_t ids_in(const kn_faiss_file *f, int64_t *out) {
    const uint8_t *place = f->content;
    size_t n = 0;
    for (size_t l = 0; l < f->lists; l++) {
        place += f->sizes[l] * f->code_bytes;
        for (uint64_t i = 0; i < f->sizes[l]; i++, place += 8) memcpy(&out[n++], place, 8);
    }
    return n;
}

static void test_removed_entries_are_left_out(void **state) {
    (void)state;
    const kit_item items[] = {{1, 250, 250, 0}, {2, 40, 40, 0}, {3, 300, 300, 0}};
    kn_recipe recipe = {.lists = 7, .code_parts = 4, .code_bits = 8};
    kn_index_result r;
    kn_faiss_totals t;
    kn_faiss_file f;
    int64_t ids[600];
    build(at("a.store"), KNNLM_DISTANCE_L2, KNNLM_KEYS_F16, items, 3);
    OK(kn_index_build(at("a.store"), &recipe, NULL, &r));
    drop(at("a.store"), 1, 2);
    export_as(at("a.store"), at("a.index"), &t);
    assert_int_equal(t.entries, 550);
    assert_int_equal(t.left_out, 40);
    OK(kn_faiss_open(at("a.index"), &f));
    assert_int_equal(f.entries, 550);
    assert_int_equal(ids_in(&f, ids), 550);
    for (size_t i = 0; i < 550; i++)
        assert_true(ids[i] >= 0 && ids[i] < 590 && (ids[i] < 250 || ids[i] >= 290));
    kn_faiss_close(&f);
    FAILS(KNNLM_EDATA, "names no entry", import_as(at("a.index"), NULL, at("b.store"), &t));
    assert_int_equal(access(at("b.store"), F_OK), -1);
    drop(at("a.store"), 0, 3); // and now all of them
    export_as(at("a.store"), at("a.index"), &t);
    assert_int_equal(t.entries, 0);
    OK(import_as(at("a.index"), NULL, at("b.store"), &t));
    found found = search(at("b.store"), (float[D]){0}, 1, 3, 0);
    assert_int_equal(found.out.counts[0], 0);
    found_free(&found);
    kit_delete(at("a.store")), kit_delete(at("b.store"));
}

static void test_stores_that_cannot_be_exported(void **state) {
    (void)state;
    const kit_item items[] = {{1, 250, 250, 0}, {2, 40, 40, 0}};
    kn_recipe codes = {.lists = 7, .code_parts = 4, .code_bits = 8}, plain = {.lists = 7};
    kn_index_result r;
    kn_faiss_totals t;
    kn_store *store;
    build(at("a.store"), KNNLM_DISTANCE_L2, KNNLM_KEYS_F16, items, 1);
    OK(kn_store_open(at("a.store"), &store));
    FAILS(KNNLM_EINVAL, "`codes` pq64", kn_faiss_export(store, at("no.index"), false, NULL, &t));
    kn_store_close(store);
    OK(kn_index_build(at("a.store"), &plain, NULL, &r));
    OK(kn_store_open(at("a.store"), &store));
    FAILS(KNNLM_EINVAL, "no codes", kn_faiss_export(store, at("no.index"), false, NULL, &t));
    kn_store_close(store);
    OK(kn_index_build(at("a.store"), &codes, NULL, &r));
    add(at("a.store"), items + 1, 1);
    OK(kn_store_open(at("a.store"), &store));
    FAILS(KNNLM_EINVAL, "40 entries were added", kn_faiss_export(store, at("no.index"), false, NULL, &t));
    kn_store_close(store);
    kit_delete(at("a.store"));
    build(at("a.store"), KNNLM_DISTANCE_COSINE, KNNLM_KEYS_F16, items, 2);
    OK(kn_index_build(at("a.store"), &codes, NULL, &r));
    OK(kn_store_open(at("a.store"), &store));
    FAILS(KNNLM_ENOTSUP, "cosine", kn_faiss_export(store, at("no.index"), false, NULL, &t));
    kn_store_close(store);
    kit_delete(at("a.store"));
    assert_int_equal(access(at("no.index"), F_OK), -1);
}

// ---------------------------------------------------------------- values

static void test_values_and_documents_come_along(void **state) {
    (void)state;
    kit_item items[] = {{1, 250, 250, 0}, {2, 40, 40, 0}, {3, 300, 300, 0}};
    kn_recipe recipe = {.lists = 7, .code_parts = 4, .code_bits = 8};
    kn_index_result r;
    kn_faiss_totals t;
    kn_export_totals exported;
    kn_store *store;
    int32_t tokens[3];
    build(at("a.store"), KNNLM_DISTANCE_L2, KNNLM_KEYS_F16, items, 3);
    OK(kn_index_build(at("a.store"), &recipe, NULL, &r));
    export_as(at("a.store"), at("a.index"), &t);
    OK(kn_store_open(at("a.store"), &store));
    OK(kn_store_export(store, at("arrays"), NULL, NULL, &exported));
    kn_store_close(store);
    OK(import_as(at("a.index"), at("arrays/values.npy"), at("b.store"), &t));
    assert_true(t.restored && t.documents == 3 && t.value_type == KN_NPY_I32);
    OK(kn_store_open(at("b.store"), &store));
    OK(kn_store_tokens(store, 249, 3, tokens));
    assert_int_equal(tokens[0], kit_token(1, 249));
    assert_int_equal(tokens[1], kit_token(2, 0));
    assert_int_equal(kn_store_describe(store)->settings.key_type, KNNLM_KEYS_NONE);
    kn_store_close(store);
    kit_delete(at("a.store")), kit_delete(at("b.store")), kit_delete(at("arrays"));
}

static void test_values_are_checked(void **state) {
    (void)state;
    const char *index = golden("l2", ".index");
    int64_t values[301];
    kn_faiss_totals t;
    kn_store *store;
    int32_t tokens[300];
    kn_faiss_import_options o = {.values = at("values"), .settings = no_settings};
    for (int i = 0; i < 301; i++) values[i] = i;
    kit_write_file(folder, "values", values, 300 * sizeof *values);
    OK(kn_faiss_import(index, &o, at("b.store"), NULL, &t));
    assert_int_equal(t.value_type, KN_NPY_I64);
    OK(kn_store_open(at("b.store"), &store));
    OK(kn_store_tokens(store, 0, 300, tokens));
    for (int i = 0; i < 300; i++) assert_int_equal(tokens[i], i);
    kn_store_close(store);
    FAILS(KNNLM_EIO, "is a store already", kn_faiss_import(index, &o, at("b.store"), NULL, &t));
    kit_delete(at("b.store"));
    o.settings.vocabulary = 299;
    FAILS(KNNLM_EDATA, "value 299 is 299", kn_faiss_import(index, &o, at("b.store"), NULL, &t));
    o.settings.vocabulary = 0;
    o.settings.dimension = 13;
    FAILS(KNNLM_EDATA, "dimension 12, not 13", kn_faiss_import(index, &o, at("b.store"), NULL, &t));
    o.settings.dimension = 12;
    o.value_type = KNNLM_ARRAY_INT32;
    FAILS(KNNLM_EDATA, "not the values of 300", kn_faiss_import(index, &o, at("b.store"), NULL, &t));
    o.value_type = KNNLM_ARRAY_ANY;
    kit_write_file(folder, "values", values, 301 * sizeof *values);
    FAILS(KNNLM_EDATA, "not the values of 300", kn_faiss_import(index, &o, at("b.store"), NULL, &t));
    assert_int_equal(access(at("b.store"), F_OK), -1);
}

static bool stop_when_arranging(void *context, const char *what, uint64_t done, uint64_t total,
                                const char *unit) {
    (void)context, (void)done, (void)total, (void)unit;
    return strcmp(what, "arranging") != 0 && strcmp(what, "exporting") != 0;
}

static void test_stopping_leaves_nothing(void **state) {
    (void)state;
    kn_faiss_import_options o = {.settings = no_settings};
    kn_progress progress = {.report = stop_when_arranging};
    kn_faiss_totals t;
    kn_store *store;
    assert_int_equal(kn_faiss_import(golden("l2", ".index"), &o, at("b.store"), &progress, &t),
                     KNNLM_ESTOPPED);
    assert_int_equal(access(at("b.store"), F_OK), -1);
    OK(import_as(golden("l2", ".index"), NULL, at("b.store"), &t));
    OK(kn_store_open(at("b.store"), &store));
    assert_int_equal(kn_faiss_export(store, at("no.index"), false, &progress, &t), KNNLM_ESTOPPED);
    kn_store_close(store);
    assert_int_equal(access(at("no.index"), F_OK), -1);
    kit_delete(at("b.store"));
}

// ---------------------------------------------------------------- hostile files

// In a block of their own, so that a step beyond them is noticed.
static knnlm_status parse(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    kn_faiss_file f;
    assert_non_null(copy);
    memcpy(copy, data, size);
    knnlm_status status = kn_faiss_parse("hostile", copy, size, &f);
    if (status == KNNLM_OK) kn_faiss_close(&f);
    free(copy);
    return status;
}

static void read_seed(const char *name, kit_file *out) {
    char path[64];
    snprintf(path, sizeof path, "fuzz/corpus/faiss/%s.index", name);
    kit_read_file(KN_SOURCE_DIR, path, out);
}

static void test_truncated_files(void **state) {
    (void)state;
    for (size_t g = 0; g < GOLDENS; g++) {
        kit_file seed;
        read_seed(goldens[g].name, &seed);
        OK(parse(seed.data, seed.size));
        for (size_t size = 0; size < seed.size; size++)
            FAILS(KNNLM_EDATA, "hostile: ", parse(seed.data, size));
        uint8_t *longer = kit_alloc(seed.size + 1, 1);
        memcpy(longer, seed.data, seed.size);
        FAILS(KNNLM_EDATA, "hostile: ", parse(longer, seed.size + 1));
        free(longer), free(seed.data);
    }
}

// Every bit of everything; what is still an index becomes a store that can be searched.
static void test_flipped_bits(void **state) {
    (void)state;
    for (size_t g = 0; g < GOLDENS; g++) {
        kit_file seed;
        read_seed(goldens[g].name, &seed);
        for (size_t i = 0; i < seed.size * 8; i++) {
            seed.data[i / 8] ^= (uint8_t)(1 << i % 8);
            knnlm_status status = parse(seed.data, seed.size);
            if (status != KNNLM_OK) {
                assert_true(status == KNNLM_EDATA || status == KNNLM_ENOTSUP);
                assert_memory_equal(knnlm_message(), "hostile: ", 9);
            }
            seed.data[i / 8] ^= (uint8_t)(1 << i % 8);
        }
        free(seed.data);
    }
}

static void import_flipped(const kit_file *seed) {
    kn_faiss_totals t;
    kit_write_file(folder, "flipped.index", seed->data, seed->size);
    knnlm_status status = import_as(at("flipped.index"), NULL, at("flipped.store"), &t);
    if (status != KNNLM_OK) {
        assert_true(status == KNNLM_EDATA || status == KNNLM_ENOTSUP);
        assert_int_equal(access(at("flipped.store"), F_OK), -1);
        return;
    }
    found f = search(at("flipped.store"), (float[]){1, 2, 3, 4}, 1, 9, 12);
    found_free(&f);
    kit_delete(at("flipped.store"));
}

static void test_flipped_bytes_are_imported_or_not(void **state) {
    (void)state;
    kit_file seed;
    read_seed("ip-sparse", &seed);
    for (size_t i = 0; i < seed.size; i++) {
        seed.data[i] ^= 0xff;
        import_flipped(&seed);
        seed.data[i] ^= 0xff;
    }
    free(seed.data);
}

// Places in the seed "l2" (lists 3, d 4, 9 entries).
enum {
    AT_DIMENSION = 4,
    AT_ENTRIES = 8,
    AT_TRAINED = 32,
    AT_METRIC = 33,
    AT_LISTS = 37,
    AT_PROBES = 45,
    AT_QUANTIZER = 53,
    AT_QUANTIZER_METRIC = 86,
    AT_FLOATS = 90,
    AT_CENTROIDS = 98,
    AT_MAP = AT_CENTROIDS + 3 * 4 * 4,
    AT_RESIDUALS = AT_MAP + 9,
    AT_CODE_BYTES = AT_RESIDUALS + 1,
    AT_PARTS = AT_CODE_BYTES + 16,
    AT_BITS = AT_PARTS + 8,
    AT_CODE_CENTROIDS = AT_BITS + 16,
    AT_CONTENT = AT_CODE_CENTROIDS + 16 * 4 * 4,
    AT_SIZES_TYPE = AT_CONTENT + 20,
    AT_SIZES = AT_SIZES_TYPE + 12,
    AT_FIRST_CODE = AT_SIZES + 24,
};

static void put_and_parse(size_t place, const void *bytes, size_t size, knnlm_status status,
                          const char *message) {
    kit_file seed;
    kn_faiss_totals t;
    read_seed("l2", &seed);
    memcpy(seed.data + place, bytes, size);
    kit_write_file(folder, "hostile.index", seed.data, seed.size);
    free(seed.data);
    if (status == KNNLM_OK) {
        OK(import_as(at("hostile.index"), NULL, at("b.store"), &t));
        kit_delete(at("b.store"));
        return;
    }
    FAILS(status, message, import_as(at("hostile.index"), NULL, at("b.store"), &t));
    if (!strstr(knnlm_message(), "hostile.index: ")) fail_msg("%s", knnlm_message());
    assert_int_equal(access(at("b.store"), F_OK), -1);
}

static void put_number(size_t place, uint64_t value, knnlm_status status, const char *message) {
    put_and_parse(place, &value, sizeof value, status, message);
}

static void test_what_is_said_of_other_files(void **state) {
    (void)state;
    put_and_parse(0, "IxF2", 4, KNNLM_ENOTSUP, "type 'IxF2'");
    put_and_parse(0, "IxPT", 4, KNNLM_ENOTSUP, "IVFPQ ('IwPQ') is read");
    put_and_parse(0, "\x93NUM", 4, KNNLM_EDATA, "not a FAISS index");
    put_and_parse(AT_QUANTIZER, "IHNf", 4, KNNLM_ENOTSUP, "type 'IHNf'");
    put_and_parse(AT_METRIC, "\x02", 1, KNNLM_ENOTSUP, "metric 2");
    put_and_parse(AT_METRIC, "\x00", 1, KNNLM_ENOTSUP, "another metric");
    put_and_parse(AT_QUANTIZER_METRIC, "\x00", 1, KNNLM_ENOTSUP, "another metric");
    put_and_parse(AT_TRAINED, "\x00", 1, KNNLM_EDATA, "not trained");
    put_and_parse(AT_CONTENT, "ilod", 4, KNNLM_ENOTSUP, "type 'ilod'");
    put_and_parse(AT_SIZES_TYPE, "fuel", 4, KNNLM_EDATA, "type 'fuel'");
    put_and_parse(AT_MAP, "\x03", 1, KNNLM_EDATA, "unknown type 3");
    put_and_parse(AT_DIMENSION, "\xff\xff\xff\xff", 4, KNNLM_EDATA, "dimension -1");
    put_and_parse(AT_DIMENSION, "\x05", 1, KNNLM_EDATA, "dimension 4, not 3 of 5");
    put_and_parse(AT_CENTROIDS + 4, "\x00\x00\x80\x7f", 4, KNNLM_EDATA, "byte 102: a number");
    put_and_parse(AT_CODE_CENTROIDS + 8, "\x00\x00\xc0\x7f", 4, KNNLM_EDATA, "not finite");
}

static void test_what_is_said_of_counts(void **state) {
    (void)state;
    uint64_t huge = (uint64_t)1 << 40;
    put_number(AT_ENTRIES, 10, KNNLM_EDATA, "header says 10");
    put_number(AT_ENTRIES, 8, KNNLM_EDATA, "header says 8");
    put_number(AT_ENTRIES, huge, KNNLM_ENOTSUP, "a store has at most");
    put_number(AT_LISTS, 0, KNNLM_EDATA, "no lists");
    put_number(AT_LISTS, huge, KNNLM_ENOTSUP, "lists: at most");
    put_number(AT_LISTS, 4, KNNLM_EDATA, "3 vectors");
    put_number(AT_PROBES, huge, KNNLM_OK, NULL);
    put_number(AT_PROBES, 0, KNNLM_OK, NULL);
    put_number(AT_FLOATS, 13, KNNLM_EDATA, "13, not 12");
    put_number(AT_FLOATS, UINT64_MAX / 4 + 13, KNNLM_EDATA, "byte 90");
    put_number(AT_MAP + 1, UINT64_MAX / 8 + 1, KNNLM_EDATA, "in the midst of the direct map");
    put_number(AT_CODE_BYTES, 2, KNNLM_EDATA, "codes of 2 bytes");
    put_number(AT_PARTS, 3, KNNLM_EDATA, "codes of 3 parts");
    put_number(AT_PARTS, 0, KNNLM_EDATA, "codes of 0 parts");
    put_number(AT_BITS, 6, KNNLM_ENOTSUP, "codes of 6 bits");
    put_number(AT_BITS, 8, KNNLM_EDATA, "codes of 1 bytes");
    put_number(AT_SIZES, 100, KNNLM_EDATA, "list 0 has 100 entries");
    put_number(AT_SIZES - 8, 4, KNNLM_EDATA, "4, not 3");
    put_number(AT_SIZES + 16, UINT64_MAX, KNNLM_EDATA, "list 2 has");
}

// Two lists that have entries at least, after "sprs" and the number of numbers: list, size, list, size, ...
static void put_sparse(size_t number, uint64_t value, const char *message) {
    kit_file seed;
    kn_faiss_file f;
    read_seed("l2-sparse", &seed);
    uint8_t *sizes = memmem(seed.data, seed.size, "sprs", 4);
    assert_non_null(sizes);
    memcpy(sizes + 4 + 8 * number, &value, sizeof value);
    FAILS(KNNLM_EDATA, message, kn_faiss_parse("hostile", seed.data, seed.size, &f));
    free(seed.data);
}

static void test_sparse_sizes_are_of_lists_in_order(void **state) {
    (void)state;
    put_sparse(0, 3, "a list without size");
    put_sparse(0, UINT64_MAX - 1, "in the midst of the sizes of lists");
    put_sparse(1, 12, "list 12 is out of order, or none of 12");
    put_sparse(1, UINT64_MAX, "none of 12");
    put_sparse(1, 11, "is out of order"); // then the next one is
    put_sparse(2, 10, "the header says 9");
}

static void test_ids_must_be_all_entries(void **state) {
    (void)state;
    kit_file seed;
    uint64_t first, id = 0;
    read_seed("l2", &seed);
    memcpy(&first, seed.data + AT_SIZES, sizeof first);
    size_t ids = AT_FIRST_CODE + (size_t)first; // codes of one byte
    if (first < 2) fail_msg("the first list of the seed has %llu entries", (unsigned long long)first);
    memcpy(&id, seed.data + ids, sizeof id);
    free(seed.data);
    put_number(ids + 8, id, KNNLM_EDATA, "comes twice");
    put_number(ids, 9, KNNLM_EDATA, "id 9 names no entry");
    put_number(ids, UINT64_MAX, KNNLM_EDATA, "id -1 names no entry");
    FAILS(KNNLM_EIO, "nowhere", import_as(at("nowhere"), NULL, at("b.store"), &(kn_faiss_totals){0}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens_are_searched_as_faiss_does),
        cmocka_unit_test(test_goldens_are_written_as_faiss_does),
        cmocka_unit_test(test_round_trip_keeps_neighbours),
        cmocka_unit_test(test_removed_entries_are_left_out),
        cmocka_unit_test(test_stores_that_cannot_be_exported),
        cmocka_unit_test(test_values_and_documents_come_along),
        cmocka_unit_test(test_values_are_checked),
        cmocka_unit_test(test_stopping_leaves_nothing),
        cmocka_unit_test(test_truncated_files),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_flipped_bytes_are_imported_or_not),
        cmocka_unit_test(test_what_is_said_of_other_files),
        cmocka_unit_test(test_what_is_said_of_counts),
        cmocka_unit_test(test_sparse_sizes_are_of_lists_in_order),
        cmocka_unit_test(test_ids_must_be_all_entries),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
