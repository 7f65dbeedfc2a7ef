// Damaged stores: whatever byte is flipped, wherever a file ends or is missing, opening or verifying tells,
// by the name of the file; nothing crashes; and what lies in other blocks is not suspected.
#include "store_kit.h"

#include "index/index.h"

static char directory[KIT_PATH], origin[KIT_PATH];
static bool indexed; // keys of the small store lie in the order of lists
#define STORE "s"

// ---------------------------------------------------------------- reading whatever opens

static volatile char sink; // keeps the reads from being optimised away

static void read_documents(const kn_store *s) {
    const kn_store_info *info = kn_store_describe(s);
    for (uint64_t i = 0; i < info->documents; i++) {
        kn_store_document d;
        if (kn_store_document_at(s, i, &d) != KNNLM_OK) continue;
        for (size_t j = 0; j < d.name_size; j++) sink += d.name[j];
        for (size_t j = 0; j < d.path_size; j++) sink += d.path[j];
        assert_true(d.first + d.count <= info->entries);
    }
}

// All entries, documents and keys: they may be wrong, but reading them does no harm.
static void read_everything(const kn_store *s) {
    const kn_store_info *info = kn_store_describe(s);
    size_t n = (size_t)info->entries, d = (size_t)info->settings.dimension;
    int32_t *tokens = kit_alloc(n, sizeof *tokens);
    uint64_t *offsets = kit_alloc(n, sizeof *offsets);
    float *keys = kit_alloc(n * d, sizeof *keys);
    char *path = NULL;
    OK(kn_store_tokens(s, 0, n, tokens));
    OK(kn_store_offsets(s, 0, n, offsets));
    knnlm_status status =
        info->settings.key_type == KNNLM_KEYS_NONE ? KNNLM_OK : kn_store_keys(s, 0, n, keys);
    assert_true(status == KNNLM_OK ||
                (indexed && status == KNNLM_EDATA)); // where keys lie may not be told any more
    for (uint64_t id = 0; id < n; id++) {
        kn_store_entry e;
        if (kn_store_entry_at(s, id, &e) == KNNLM_OK) assert_true(e.document < info->documents && e.id == id);
        kn_store_entry_removed(s, id);
    }
    read_documents(s);
    if (kn_store_attachment(s, "tokenizer.gguf", &path) == KNNLM_OK) free(path);
    free(tokens);
    free(offsets);
    free(keys);
}

// ---------------------------------------------------------------- is it told?

typedef struct hearing {
    const char *name;   // of the damaged file
    size_t told, right; // problems; those that name it
} hearing;

static void hear(void *context, const knnlm_problem *p) {
    hearing *h = context;
    h->told++;
    h->right += strcmp(p->file, h->name) == 0;
    assert_true(*p->what && !strchr(p->what, '\n'));
}

static size_t refused, reported;

static void check_told(const char *name, const char *what, size_t place) {
    kn_store *s;
    knnlm_verify_result v;
    hearing h = {.name = name};
    knnlm_status status = kn_store_open(STORE, &s);
    if (status != KNNLM_OK) {
        const char *message = knnlm_message();
        if (status != KNNLM_EDATA && status != KNNLM_EIO && status != KNNLM_ENOTSUP)
            fail_msg("%s %s at %zu: status %d: %s", name, what, place, status, message);
        if (!strstr(message, name) || strchr(message, '\n')) fail_msg("%s is not named: %s", name, message);
        refused++;
        return;
    }
    read_everything(s);
    OK(kn_store_verify(s, NULL, hear, &h, &v));
    free(v.document_damaged);
    kn_store_close(s);
    if (!h.right || h.told != v.problems)
        fail_msg("%s %s at %zu: %zu problems, %zu of them name it", name, what, place, h.told, h.right);
    reported++;
}

static void check_intact(void) {
    kn_store *s;
    knnlm_verify_result v;
    hearing h = {.name = ""};
    OK(kn_store_open(STORE, &s));
    OK(kn_store_verify(s, NULL, hear, &h, &v));
    assert_int_equal(v.problems + h.told + v.damaged_entries + v.damaged_documents, 0);
    assert_int_equal(v.entries, kn_store_describe(s)->entries - kn_store_describe(s)->removed_entries);
    free(v.document_damaged);
    kn_store_close(s);
}

// ---------------------------------------------------------------- a small store, byte by byte

static const kit_item small[] = {{1, 20, 20, false}, {2, 0, 0, false}, {3, 9, 9, true},
                                 {4, 35, 35, false}, {5, 3, 3, true},  {6, 1, 1, false}};

static void build_small(void) {
    kn_store_settings set = kit_settings(KNNLM_KEYS_INT8, 3, 16);
    kn_store_writer *w;
    OK(kit_build(STORE, &set, small, COUNT(small), 10));
    OK(kn_store_write(STORE, &w));
    kit_write_file(STORE, "tokenizer.gguf", "tokens and so on", 16);
    OK(kn_store_writer_attach(w, "tokenizer.gguf"));
    kn_store_writer_tune(w, &(kn_store_tuned){.known = true, .lambda = 0.25, .temperature = 1, .k = 8});
    for (size_t i = 0; i < COUNT(small); i++)
        if (small[i].removed) OK(kn_store_writer_remove(w, i));
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    kn_index_result r;
    if (indexed) OK(kn_index_build(STORE, &(kn_recipe){.lists = 3, .seed = 1}, NULL, &r));
    HOLDS(STORE, small, COUNT(small));
}

static int enter(void **state) {
    (void)state;
    setenv("SOURCE_DATE_EPOCH", KIT_EPOCH, 1);
    test_folder(directory, sizeof directory);
    refused = reported = 0;
    return getcwd(origin, sizeof origin) && chdir(directory) == 0 ? 0 : -1;
}

static int enter_indexed(void **state) {
    indexed = true;
    return enter(state);
}

static int leave(void **state) {
    indexed = false;
    (void)state;
    if (chdir(origin) != 0) return -1;
    kit_delete(directory);
    return 0;
}

static void put_byte(const char *name, size_t at, uint8_t value) {
    char path[KIT_PATH];
    kit_join(path, STORE, name);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, &value, 1, (off_t)at) == 1);
    close(fd);
}

static void every_flipped_byte_is_told(void **state) {
    (void)state;
    kn_random random = {5};
    build_small();
    kit_image image = kit_read(STORE);
    assert_int_equal(image.count, indexed ? 1 + 2 + 4 + 1 + 1 : 1 + 2 * 5 + 1 + 1);
    for (size_t i = 0; i < image.count; i++) {
        const kit_file *f = &image.files[i];
        for (size_t at = 0; at < f->size; at++)
            for (int once = 0; once < 2; once++) {
                uint8_t mask = once ? 0xff : (uint8_t)(1 << kn_random_below(&random, 8));
                put_byte(f->name, at, f->data[at] ^ mask);
                check_told(f->name, once ? "inverted" : "flipped", at);
                put_byte(f->name, at, f->data[at]);
            }
    }
    check_intact();
    print_message("    %zu flips: %zu refused at open, %zu reported\n", refused + reported, refused,
                  reported);
    kit_free(&image);
}

static void every_other_length_is_told(void **state) {
    (void)state;
    build_small();
    kit_image image = kit_read(STORE);
    for (size_t i = 0; i < image.count; i++) {
        const kit_file *f = &image.files[i];
        char path[KIT_PATH];
        kit_join(path, STORE, f->name);
        for (size_t size = 0; size < f->size + 70; size++) { // zeros after the end count, too
            if (size == f->size) continue;
            kit_write_file(STORE, f->name, f->data, size < f->size ? size : f->size);
            assert_int_equal(truncate(path, (off_t)size), 0);
            check_told(f->name, "of another length", size);
        }
        kit_write_file(STORE, f->name, f->data, f->size);
    }
    check_intact();
    print_message("    %zu lengths: %zu refused at open, %zu reported\n", refused + reported, refused,
                  reported);
    kit_free(&image);
}

static void every_missing_file_is_told(void **state) {
    (void)state;
    build_small();
    kit_image image = kit_read(STORE);
    for (size_t i = 0; i < image.count; i++) {
        const kit_file *f = &image.files[i];
        char path[KIT_PATH];
        kit_join(path, STORE, f->name);
        assert_int_equal(unlink(path), 0);
        check_told(f->name, "missing", 0);
        assert_int_equal(mkdir(path, 0777), 0); // something else in its place
        check_told(f->name, "a directory", 0);
        rmdir(path);
        kit_write_file(STORE, f->name, f->data, f->size);
    }
    check_intact();
    kit_free(&image);
}

// Every file in the place of every other: of the right size and with the right checksums, but not the one.
static void every_exchanged_file_is_told(void **state) {
    (void)state;
    build_small();
    kit_image image = kit_read(STORE);
    for (size_t i = 0; i < image.count; i++)
        for (size_t j = 0; j < image.count; j++) {
            if (i == j) continue;
            kit_write_file(STORE, image.files[i].name, image.files[j].data, image.files[j].size);
            check_told(image.files[i].name, "exchanged", j);
            kit_write_file(STORE, image.files[i].name, image.files[i].data, image.files[i].size);
        }
    check_intact();
    assert_true(reported > 3); // some are of the same size
    kit_free(&image);
}

// ---------------------------------------------------------------- larger ones, by chance

// What a test knows of a store without asking it: where everything lies.
enum { BLOCK = 1 << 20, DOCUMENTS = 400, SEGMENTS = 8, RECORD = 72 };
typedef struct layout {
    kn_store_settings set;
    kit_item items[DOCUMENTS];
    uint64_t first[DOCUMENTS], entries; // of the documents
    size_t record_segment[DOCUMENTS], record[DOCUMENTS];
    size_t segments, records[SEGMENTS];
    bool marked[DOCUMENTS];
} layout;

static uint64_t padded(uint64_t n) {
    return (n + 63) / 64 * 64;
}

static layout *build_large(knnlm_keys type, int32_t d, uint32_t segment, uint64_t longest) {
    layout *l = kit_alloc(1, sizeof *l);
    kn_random random = {segment};
    l->set = kit_settings(type, d, segment);
    for (uint32_t i = 0; i < DOCUMENTS; i++) {
        uint64_t n = kn_random_below(&random, longest);
        l->items[i] = (kit_item){i, n, n, false};
        l->first[i] = l->entries;
        size_t at = (size_t)(l->entries / segment);
        l->record_segment[i] = at;
        l->record[i] = l->records[at]++;
        l->entries += n;
    }
    l->segments = (size_t)((l->entries + segment - 1) / segment);
    assert_true(l->segments <= SEGMENTS);
    OK(kit_build(STORE, &l->set, l->items, DOCUMENTS, 5000));
    return l;
}

// Marks rows [from, to) of a segment, and the documents that have entries there.
static void mark_rows(layout *l, bool *entries, size_t segment, uint64_t from, uint64_t to) {
    uint64_t begin = segment * (uint64_t)l->set.segment, low = begin + from, high = begin + to;
    for (uint64_t id = low; id < high; id++) entries[id] = true;
    for (size_t i = 0; i < DOCUMENTS; i++) {
        uint64_t first = l->first[i], end = first + l->items[i].tokens;
        if (first < end && first < high && end > low) l->marked[i] = true;
    }
}

// The rows of a section at `at` of `size` bytes per row that the block touches.
static bool touched(uint64_t block, uint64_t at, uint64_t rows, uint64_t size, uint64_t *from, uint64_t *to) {
    uint64_t low = block * BLOCK, high = low + BLOCK;
    *from = rows;
    *to = 0;
    for (uint64_t row = 0; row < rows; row++) { // slow, and plain
        if (at + (row + 1) * size <= low || at + row * size >= high) continue;
        if (row < *from) *from = row;
        *to = row + 1;
    }
    return *from < *to;
}

static void mark_document(layout *l, bool *entries, size_t i) {
    l->marked[i] = true;
    for (uint64_t p = 0; p < l->items[i].tokens; p++) entries[l->first[i] + p] = true;
}

// Marks what a flip at `at` of a part makes doubtful.
static void expect(layout *l, bool *entries, size_t segment, bool keys, uint64_t at) {
    uint64_t begin = segment * (uint64_t)l->set.segment, left = l->entries - begin, from, to;
    uint64_t n = left < l->set.segment ? left : l->set.segment, block = at / BLOCK;
    uint64_t row = kn_key_bytes(l->set.key_type, (size_t)l->set.dimension);
    uint64_t offsets = padded(64 + 4 * n), records = padded(offsets + 4 * n), k = l->records[segment];
    uint64_t strings = padded(records + RECORD * k);
    memset(l->marked, 0, sizeof l->marked);
    if (keys) {
        if (touched(block, 64, n, row, &from, &to)) mark_rows(l, entries, segment, from, to);
        return;
    }
    if (touched(block, 64, n, 4, &from, &to)) mark_rows(l, entries, segment, from, to);
    if (touched(block, offsets, n, 4, &from, &to)) mark_rows(l, entries, segment, from, to);
    bool named = touched(block, strings, 1, 20 * k, &from, &to); // names are short: all in one block
    touched(block, records, k, RECORD, &from, &to);
    for (size_t i = 0; i < DOCUMENTS; i++)
        if (l->record_segment[i] == segment && (named || (l->record[i] >= from && l->record[i] < to)))
            mark_document(l, entries, i);
}

static void check_verdict(layout *l, const char *name, size_t segment, bool keys, uint64_t at) {
    kn_store *s;
    knnlm_verify_result v;
    hearing h = {.name = name};
    bool *entries = kit_alloc((size_t)l->entries, sizeof *entries);
    uint64_t damaged = 0, documents = 0;
    expect(l, entries, segment, keys, at);
    for (uint64_t id = 0; id < l->entries; id++) damaged += entries[id];
    OK(kn_store_open(STORE, &s));
    OK(kn_store_verify(s, NULL, hear, &h, &v));
    if (!h.right) fail_msg("%s: the flip at %llu is not told", name, (unsigned long long)at);
    for (size_t i = 0; i < DOCUMENTS; i++) {
        documents += l->marked[i];
        if (v.document_damaged[i] != l->marked[i])
            fail_msg("%s: flip at %llu: document %zu is %s", name, (unsigned long long)at, i,
                     l->marked[i] ? "damaged" : "not damaged");
    }
    if (v.damaged_entries != damaged || v.damaged_documents != documents)
        fail_msg("%s: flip at %llu: %llu entries, not %llu", name, (unsigned long long)at,
                 (unsigned long long)v.damaged_entries, (unsigned long long)damaged);
    free(v.document_damaged);
    kn_store_close(s);
    free(entries);
}

// Flips in the blocks of the parts, but for the first bytes, which are the whole file's.
static void flip_by_chance(layout *l, long flips) {
    const char *seed = getenv("STORE_SEED");
    kn_random random = {seed ? strtoull(seed, NULL, 10) : 11};
    kit_image image = kit_read(STORE);
    for (long i = 0; i < flips; i++) {
        const kit_file *f = &image.files[kn_random_below(&random, image.count)];
        if (strcmp(f->name, "MANIFEST") == 0) continue;
        size_t segment = (size_t)atoi(f->name) - 1, table = ((f->size - 24) / (BLOCK + 8) + 1) * 8 + 24;
        size_t at = 16 + kn_random_below(&random, f->size - table - 16);
        put_byte(f->name, at, f->data[at] ^ (uint8_t)(1 << kn_random_below(&random, 8)));
        check_verdict(l, f->name, segment, strstr(f->name, ".keys") != NULL, at);
        put_byte(f->name, at, f->data[at]);
    }
    check_intact();
    kit_free(&image);
}

static long flips_wanted(void) {
    const char *asked = getenv("STORE_FLIPS"); // 100000 at night
    return asked ? atol(asked) : 3000;
}

static void random_flips_in_keys_are_told(void **state) {
    (void)state;
    layout *l = build_large(KNNLM_KEYS_F32, 32, 12000, 150);
    assert_true(l->segments >= 2);
    flip_by_chance(l, flips_wanted() / 2);
    free(l);
}

static void random_flips_in_text_are_told(void **state) {
    (void)state;
    layout *l = build_large(KNNLM_KEYS_NONE, 1, 1 << 18, 2200);
    assert_true(l->segments >= 2);
    flip_by_chance(l, flips_wanted() / 2);
    free(l);
}

// ---------------------------------------------------------------- one record

typedef struct span {
    uint64_t first, count, calls;
} span;

static void note_lost(void *context, uint64_t first, uint64_t count) {
    span *x = context;
    if (!x->calls++) x->first = first;
    x->count = first + count - x->first;
}

// Whatever one record is overwritten with, all other documents are as they were, and exactly its own entries
// are lost.
static void a_damaged_record_costs_no_other_document(void **state) {
    enum { N = 9, EACH = 10, SEGMENT = 45 }; // four documents and a half in a segment
    const uint8_t fills[] = {0, 0xff, 0x55};
    kit_item items[N];
    (void)state;
    for (uint32_t i = 0; i < N; i++) items[i] = (kit_item){i, EACH, EACH, false};
    for (size_t fill = 0; fill < COUNT(fills); fill++)
        for (uint64_t bad = 0; bad < N; bad++) {
            kn_store_settings set = kit_settings(KNNLM_KEYS_F32, 3, SEGMENT);
            kn_store_writer *w;
            kn_store *s;
            span lost = {0};
            OK(kit_build(STORE, &set, items, N, 10));
            bool second = bad * EACH >= SEGMENT; // the segment in which it begins
            size_t record =
                (size_t)padded(padded(64 + 4 * SEGMENT) + 4 * SEGMENT) + RECORD * (bad - (second ? 5 : 0));
            for (size_t i = 0; i < RECORD; i++)
                put_byte(second ? "000002.text" : "000001.text", record + i, fills[fill]);
            OK(kn_store_open(STORE, &s));
            for (uint64_t i = 0; i < N; i++) {
                kn_store_document d;
                kit_names names;
                knnlm_status status = kn_store_document_at(s, i, &d);
                assert_int_equal(status, i == bad ? KNNLM_EDATA : KNNLM_OK);
                if (i == bad) continue;
                kn_store_document want = kit_document(&items[i], &names);
                assert_true(d.first == i * EACH && d.count == EACH && d.name_size == want.name_size);
                assert_memory_equal(d.name, want.name, d.name_size);
            }
            for (uint64_t id = 0; id < N * EACH; id++) {
                kn_store_entry e;
                knnlm_status status = kn_store_entry_at(s, id, &e);
                assert_int_equal(status, id / EACH == bad ? KNNLM_EDATA : KNNLM_OK);
                if (status == KNNLM_OK) assert_int_equal(e.document, id / EACH);
            }
            kn_store_find_lost(s, note_lost, &lost);
            assert_true(lost.first == bad * EACH && lost.count == EACH);
            kn_store_close(s);
            OK(kn_store_write(STORE, &w)); // it can go by its number
            OK(kn_store_writer_remove(w, bad));
            OK(kn_store_writer_commit(w));
            kn_store_writer_close(w);
            kit_delete(STORE);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)
#define INDEXED(name)                                                                                        \
    { #name " of an indexed store", name, enter_indexed, leave, NULL }

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_flipped_byte_is_told),
        TEST(every_other_length_is_told),
        TEST(every_missing_file_is_told),
        TEST(every_exchanged_file_is_told),
        INDEXED(every_flipped_byte_is_told),
        INDEXED(every_other_length_is_told),
        INDEXED(every_missing_file_is_told),
        INDEXED(every_exchanged_file_is_told),
        TEST(random_flips_in_keys_are_told),
        TEST(random_flips_in_text_are_told),
        TEST(a_damaged_record_costs_no_other_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
