// The public functions that keep stores in order: what they tell against what the store then holds, and what
// they refuse.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "knnlm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

enum { D = 4, DOCUMENT = 40, DOCUMENTS = 6, ENTRIES = DOCUMENT * DOCUMENTS, VOCABULARY = 50 };

typedef struct fixture {
    char folder[64], path[96];
} fixture;

static void key_of(size_t id, float out[D]) {
    for (size_t j = 0; j < D; j++) out[j] = (float)((id * 37 + j * 11) % 101);
}

static void write_document(knnlm_writer *w, size_t number) {
    float keys[DOCUMENT][D];
    int32_t tokens[DOCUMENT];
    char name[32];
    size_t size = (size_t)snprintf(name, sizeof name, "d%zu", number);
    for (size_t i = 0; i < DOCUMENT; i++) {
        tokens[i] = (int32_t)((number * 7 + i) % VOCABULARY);
        key_of(number * DOCUMENT + i, keys[i]);
    }
    OK(knnlm_writer_begin(w, &(knnlm_document){.name = name, .name_size = size, .tokens = DOCUMENT}));
    OK(knnlm_writer_append(w, tokens, NULL, keys[0], DOCUMENT));
}

static fixture fixture_open(void) {
    fixture t = {.folder = "/tmp/knnlm-test-api-upkeep-XXXXXX"};
    knnlm_store_settings s = knnlm_store_settings_default();
    knnlm_writer *w;
    assert_non_null(mkdtemp(t.folder));
    snprintf(t.path, sizeof t.path, "%s/s.store", t.folder);
    s.dimension = D;
    s.keys = KNNLM_KEYS_F32;
    s.vocabulary = VOCABULARY;
    s.segment = 100;
    OK(knnlm_writer_create(t.path, &s, &w));
    for (size_t i = 0; i < DOCUMENTS; i++) write_document(w, i);
    OK(knnlm_writer_commit(w));
    knnlm_writer_close(w);
    return t;
}

static void fixture_close(const fixture *t) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", t->folder);
    assert_int_equal(system(command), 0);
}

static knnlm_store_info look(const fixture *t) {
    knnlm_store *store;
    knnlm_store_info info;
    OK(knnlm_store_open(t->path, &store));
    knnlm_store_describe(store, &info);
    knnlm_store_close(store);
    return info;
}

// ---------------------------------------------------------------- removing

typedef struct heard {
    size_t count;
    uint64_t numbers[DOCUMENTS];
} heard;

static void hear(void *context, uint64_t number, const knnlm_document *d) {
    heard *h = context;
    char name[32];
    snprintf(name, sizeof name, "d%d", (int)number);
    assert_true(d->name_size == strlen(name) && memcmp(d->name, name, d->name_size) == 0);
    h->numbers[h->count++] = number;
}

static void test_remove(void **state) {
    fixture t = fixture_open();
    heard h = {0};
    const char *patterns[] = {"d[0-9]", "d1", "*1"};
    const uint64_t numbers[] = {4, 1};
    knnlm_remove_options o = knnlm_remove_options_default();
    knnlm_remove_result r;
    (void)state;
    o.patterns = patterns + 1;
    o.pattern_count = 2;
    o.documents = numbers;
    o.document_count = 2;
    o.removed = hear;
    o.context = &h;
    o.dry_run = true;
    OK(knnlm_store_remove(t.path, &o, &r)); // each once, though three things mean it
    assert_true(r.documents == 2 && r.entries == 2 * DOCUMENT && h.count == 2);
    assert_true(h.numbers[0] == 1 && h.numbers[1] == 4);
    assert_int_equal(look(&t).removed_documents, 0);
    o.dry_run = false;
    OK(knnlm_store_remove(t.path, &o, &r));
    assert_true(r.documents == 2 && look(&t).removed_documents == 2 && look(&t).removed_entries == r.entries);
    FAILS(KNNLM_EINVAL, "no document is called \"d1\"", knnlm_store_remove(t.path, &o, NULL));
    o.pattern_count = 0;
    FAILS(KNNLM_EINVAL, "document 4 is removed already", knnlm_store_remove(t.path, &o, NULL));
    o.documents = (const uint64_t[]){0, 99};
    FAILS(KNNLM_EINVAL, "no document has the number 99", knnlm_store_remove(t.path, &o, NULL));
    assert_int_equal(look(&t).removed_documents, 2); // all or none
    FAILS(KNNLM_EIO, "nowhere", knnlm_store_remove("nowhere.store", &o, NULL));
    fixture_close(&t);
}

// ---------------------------------------------------------------- compacting

static void test_compact(void **state) {
    fixture t = fixture_open();
    knnlm_remove_options gone = knnlm_remove_options_default();
    knnlm_index_options lists = knnlm_index_options_default();
    knnlm_compact_result r;
    knnlm_store *store;
    knnlm_index_info index;
    (void)state;
    lists.lists = 4;
    OK(knnlm_index(NULL, t.path, &lists, NULL));
    gone.documents = (const uint64_t[]){2};
    gone.document_count = 1;
    OK(knnlm_store_remove(t.path, &gone, NULL));
    uint64_t before = look(&t).bytes;
    OK(knnlm_store_compact(t.path, NULL, &r));
    knnlm_store_info info = look(&t);
    assert_true(r.documents_dropped == 1 && r.entries_dropped == DOCUMENT && r.bytes_before == before);
    assert_true(info.entries == ENTRIES - DOCUMENT && info.documents == DOCUMENTS - 1 &&
                !info.removed_documents);
    assert_int_equal(r.segments_after, info.segments);
    OK(knnlm_store_open(t.path, &store)); // the index stays, although entries have other numbers
    OK(knnlm_store_index_describe(store, &index));
    assert_true(index.lists == 4 && index.listed == info.entries && info.has_index);
    float key[D], want[D];
    OK(knnlm_store_keys(store, 2 * DOCUMENT, 1, key));
    key_of(3 * DOCUMENT, want);
    assert_memory_equal(key, want, sizeof key);
    knnlm_store_close(store);
    FAILS(KNNLM_EIO, "nowhere", knnlm_store_compact("nowhere.store", NULL, NULL));
    fixture_close(&t);
}

// ---------------------------------------------------------------- verifying

static void note(void *context, const knnlm_problem *p) {
    heard *h = context;
    assert_true(*p->file && *p->what);
    h->count++;
}

static void damage(const fixture *t) {
    char path[160];
    snprintf(path, sizeof path, "%s/000001.keys", t->path);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 64 + 8, SEEK_SET), 0);
    fputc(0x55, f);
    assert_int_equal(fclose(f), 0);
}

static void verify(const fixture *t, heard *h, knnlm_verify_result *r) {
    knnlm_verify_options o = knnlm_verify_options_default();
    knnlm_store *store;
    *h = (heard){0};
    o.found = note;
    o.context = h;
    OK(knnlm_store_open(t->path, &store));
    OK(knnlm_store_verify(store, &o, r));
    assert_int_equal(h->count, r->problems);
    knnlm_store_close(store);
}

static void test_verify_and_repair(void **state) {
    fixture t = fixture_open();
    heard h;
    knnlm_verify_result r;
    knnlm_repair_result repaired;
    (void)state;
    verify(&t, &h, &r);
    assert_true(r.problems == 0 && r.entries == ENTRIES && r.documents == DOCUMENTS && r.seconds >= 0);
    knnlm_verify_result_free(&r);
    damage(&t);
    verify(&t, &h, &r);
    assert_true(r.problems > 0 && r.damaged_entries > 0 && r.damaged_documents > 0 && r.document_damaged[0]);
    assert_false(r.document_damaged[DOCUMENTS - 1]);
    OK(knnlm_store_repair(t.path, &r, NULL, &repaired));
    assert_int_equal(repaired.documents_removed, r.damaged_documents);
    knnlm_verify_result_free(&r);
    verify(&t, &h, &r);
    assert_true(r.problems == 0 && r.documents == DOCUMENTS - repaired.documents_removed);
    FAILS(KNNLM_EIO, "nowhere", knnlm_store_repair("nowhere.store", &r, NULL, NULL));
    knnlm_verify_result_free(&r);
    fixture_close(&t);
}

// ---------------------------------------------------------------- describing

static void test_segments(void **state) {
    fixture t = fixture_open();
    knnlm_store *store;
    knnlm_segment g;
    knnlm_origin o;
    uint64_t entries = 0, documents = 0;
    (void)state;
    OK(knnlm_store_open(t.path, &store));
    size_t count = look(&t).segments;
    assert_int_equal(count, 3); // of 100 entries
    for (size_t i = 0; i < count; i++) {
        OK(knnlm_store_segment(store, i, &g));
        assert_true(g.first == entries && g.first_document == documents && g.has_keys && g.keys_checksum);
        entries += g.entries;
        documents += g.documents;
    }
    assert_true(entries == ENTRIES && documents == DOCUMENTS);
    FAILS(KNNLM_EINVAL, "segment 3: there are 3", knnlm_store_segment(store, 3, &g));
    FAILS(KNNLM_ENOTSUP, "tokenizer", knnlm_store_origin(store, 0, 3, &o));
    knnlm_store_close(store);
    fixture_close(&t);
}

static void test_names(void **state) {
    (void)state;
    assert_string_equal(knnlm_keys_name(KNNLM_KEYS_INT8), "int8");
    assert_string_equal(knnlm_distance_name(KNNLM_DISTANCE_COSINE), "cosine");
    assert_string_equal(knnlm_split_name(KNNLM_SPLIT_WIKI), "wiki");
    assert_string_equal(knnlm_split_name(KNNLM_SPLIT_JSONL), "jsonl");
    assert_string_equal(knnlm_keys_name((knnlm_keys)9), "?");
    assert_string_equal(knnlm_distance_name((knnlm_distance)-1), "?");
    assert_string_equal(knnlm_split_name((knnlm_split)3), "?");
    size_t count = 0;
    while (knnlm_kernels(count)) count++;
    assert_true(count > 0 && strcmp(knnlm_kernels(count - 1), "portable") == 0);
    assert_true(knnlm_llama_release() || !knnlm_llama_folder());
}

// ---------------------------------------------------------------- recall

static void test_recall(void **state) {
    fixture t = fixture_open();
    knnlm_recall_options o = knnlm_recall_options_default();
    knnlm_index_options lists = knnlm_index_options_default();
    knnlm_recall rows[KNNLM_RECALL_MAX];
    knnlm_store *store;
    size_t count;
    (void)state;
    lists.lists = 8;
    OK(knnlm_index(NULL, t.path, &lists, NULL));
    OK(knnlm_store_open(t.path, &store));
    o.queries = 20;
    o.k = 10;
    OK(knnlm_store_recall(store, &o, rows, &count));
    assert_true(count > 2 && rows[0].probes == 1 && rows[count - 1].probes == 0);
    for (size_t i = 1; i < count; i++) assert_true(rows[i].recall[3] >= rows[i - 1].recall[3] - 1e-9);
    for (size_t j = 0; j < KNNLM_RECALL_DEPTHS; j++) assert_true(rows[count - 1].recall[j] == 1);
    knnlm_store_close(store);
    fixture_close(&t);
}

// ---------------------------------------------------------------- files of other programs

static void check_same(const fixture *t, const char *copy) {
    knnlm_store *a, *b;
    int32_t left[ENTRIES], right[ENTRIES];
    float left_keys[ENTRIES * D], right_keys[ENTRIES * D];
    OK(knnlm_store_open(t->path, &a));
    OK(knnlm_store_open(copy, &b));
    OK(knnlm_store_tokens(a, 0, ENTRIES, left));
    OK(knnlm_store_tokens(b, 0, ENTRIES, right));
    assert_memory_equal(left, right, sizeof left);
    OK(knnlm_store_keys(a, 0, ENTRIES, left_keys));
    OK(knnlm_store_keys(b, 0, ENTRIES, right_keys));
    assert_memory_equal(left_keys, right_keys, sizeof left_keys);
    knnlm_store_close(a);
    knnlm_store_close(b);
}

static void test_export_and_import(void **state) {
    fixture t = fixture_open();
    char arrays[96], copy[96];
    knnlm_store *store;
    knnlm_export_result out;
    knnlm_import_result in;
    knnlm_import_options o = knnlm_import_options_default();
    (void)state;
    snprintf(arrays, sizeof arrays, "%s/arrays", t.folder);
    snprintf(copy, sizeof copy, "%s/copy.store", t.folder);
    OK(knnlm_store_open(t.path, &store));
    OK(knnlm_store_export(store, arrays, NULL, &out));
    assert_true(out.entries == ENTRIES && out.documents == DOCUMENTS && out.dimension == D);
    assert_string_equal(out.key_type, "float32");
    FAILS(KNNLM_EINVAL, "no index", knnlm_store_export_faiss(store, copy, NULL, &out));
    FAILS(KNNLM_EINVAL, "store", knnlm_store_export(store, t.path, NULL, &out));
    knnlm_store_close(store);
    o.keys = arrays;
    o.vocabulary = VOCABULARY;
    OK(knnlm_import(copy, &o, &in));
    assert_true(in.entries == ENTRIES && in.documents == DOCUMENTS && in.restored &&
                in.kept == KNNLM_KEYS_F32);
    assert_true(in.dimension == D && in.vocabulary == VOCABULARY && strstr(in.keys, "keys.npy") &&
                !*in.model);
    knnlm_import_result_free(&in);
    check_same(&t, copy);
    FAILS(KNNLM_EIO, "copy.store", knnlm_import(copy, &o, &in));
    o.keys = NULL;
    FAILS(KNNLM_EINVAL, "no `keys`", knnlm_import(copy, &o, &in));
    o.keys = arrays;
    o.tap = "elsewhere";
    FAILS(KNNLM_EINVAL, "elsewhere", knnlm_import(copy, &o, &in));
    fixture_close(&t);
}

static void test_faiss(void **state) {
    fixture t = fixture_open();
    char file[96], copy[96];
    knnlm_index_options lists = knnlm_index_options_default();
    knnlm_import_options o = knnlm_import_options_default();
    knnlm_store *store;
    knnlm_export_result out;
    knnlm_import_result in;
    (void)state;
    snprintf(file, sizeof file, "%s/x.faiss", t.folder);
    snprintf(copy, sizeof copy, "%s/copy.store", t.folder);
    lists.lists = 4;
    lists.codes = "pq2x4";
    OK(knnlm_index(NULL, t.path, &lists, NULL));
    OK(knnlm_store_open(t.path, &store));
    OK(knnlm_store_export_faiss(store, file, NULL, &out));
    assert_true(out.entries == ENTRIES && out.lists == 4 && out.code_parts == 2 && out.code_bits == 4);
    knnlm_store_close(store);
    o.faiss = file;
    OK(knnlm_import(copy, &o, &in));
    assert_true(in.entries == ENTRIES && in.lists == 4 && in.kept == KNNLM_KEYS_NONE && !in.values);
    assert_true(in.vocabulary == 1 && in.distance == KNNLM_DISTANCE_L2 && in.dimension == D);
    knnlm_import_result_free(&in);
    fixture_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_compact),
        cmocka_unit_test(test_verify_and_repair),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_recall),
        cmocka_unit_test(test_export_and_import),
        cmocka_unit_test(test_faiss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
