// Stores: what is put in comes out, whatever its type and wherever segments end; removing, compacting,
// resuming; who may write; what is refused.
#include "store_kit.h"

#include "store/state.h"
#include "store/tuned.h"

#include <sys/wait.h>

// ---------------------------------------------------------------- a directory a test

static char directory[KIT_PATH], origin[KIT_PATH];

static int enter(void **state) {
    (void)state;
    setenv("SOURCE_DATE_EPOCH", KIT_EPOCH, 1);
    kit_temporary(directory);
    return getcwd(origin, sizeof origin) && chdir(directory) == 0 ? 0 : -1;
}

static int leave(void **state) {
    (void)state;
    if (chdir(origin) != 0) return -1;
    kit_delete(directory);
    return 0;
}

// Documents of many lengths: empty ones first, last and in a row; some that span several segments.
static const kit_item mixed[] = {
    {1, 0, 0, false}, {2, 1, 1, false},    {3, 6, 6, false},    {4, 7, 7, false},
    {5, 0, 0, false}, {6, 0, 0, false},    {7, 30, 30, false},  {8, 1, 1, false},
    {9, 4, 4, false}, {10, 64, 64, false}, {11, 15, 15, false}, {12, 0, 0, false},
};
enum { MIXED = COUNT(mixed), MIXED_ENTRIES = 128 };

static kn_store *opened(const char *path) {
    kn_store *s;
    OK(kn_store_open(path, &s));
    return s;
}

static kn_store_writer *writing(const char *path) {
    kn_store_writer *w;
    OK(kn_store_write(path, &w));
    return w;
}

static void commit_and_close(kn_store_writer *w) {
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
}

// ---------------------------------------------------------------- round trips

static void round_trip(knnlm_keys type, int32_t d, uint32_t segment) {
    kn_store_settings set = kit_settings(type, d, segment);
    static const size_t pieces[] = {1, 5, 1000};
    for (size_t i = 0; i < COUNT(pieces); i++) {
        char path[16];
        snprintf(path, sizeof path, "s%zu", i);
        OK(kit_build(path, &set, mixed, MIXED, pieces[i]));
        HOLDS(path, mixed, MIXED);
        SAME_DIRECTORIES("s0", path); // however the entries came
        if (i) kit_delete(path);
    }
    kit_delete("s0");
}

static void every_type_of_keys_comes_back(void **state) {
    (void)state;
    static const uint32_t segments[] = {7, 64, 127, 128, 129, KN_STORE_SEGMENT_DEFAULT};
    static const int32_t dimensions[] = {1, 5, 64};
    for (int type = 0; type < KN_KEY_TYPES; type++)
        for (size_t i = 0; i < COUNT(segments); i++)
            for (size_t j = 0; j < COUNT(dimensions); j++)
                round_trip((knnlm_keys)type, dimensions[j], segments[i]);
    round_trip(KNNLM_KEYS_INT8, 3, 1);
}

static void ranges_span_segments(void **state) {
    (void)state;
    enum { D = 3 };
    kn_store_settings set = kit_settings(KNNLM_KEYS_F32, D, 7);
    int32_t tokens[MIXED_ENTRIES], part[MIXED_ENTRIES];
    uint64_t offsets[MIXED_ENTRIES], offsets_part[MIXED_ENTRIES];
    float keys[MIXED_ENTRIES * D], keys_part[MIXED_ENTRIES * D];
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *s = opened("s");
    for (size_t i = 0, n = 0; i < MIXED; i++) // by the model, not by the store
        for (uint64_t p = 0; p < mixed[i].tokens; p++, n++) {
            tokens[n] = kit_token(mixed[i].seed, p);
            offsets[n] = kit_offset(mixed[i].seed, p);
            kit_keys(keys + n * D, mixed[i].seed, p, 1, D);
        }
    for (size_t first = 0; first <= MIXED_ENTRIES; first++)
        for (size_t n = 0; n <= MIXED_ENTRIES - first; n++) {
            OK(kn_store_tokens(s, first, n, part));
            OK(kn_store_offsets(s, first, n, offsets_part));
            OK(kn_store_keys(s, first, n, keys_part));
            assert_memory_equal(part, tokens + first, n * sizeof *part);
            assert_memory_equal(offsets_part, offsets + first, n * sizeof *offsets_part);
            assert_memory_equal(keys_part, keys + first * D, n * D * sizeof *keys_part);
        }
    kn_store_close(s);
}

static void segments_lie_in_memory(void **state) {
    (void)state;
    enum { D = 4 };
    kn_store_settings set = kit_settings(KNNLM_KEYS_INT8, D, 10);
    OK(kit_build("s", &set, mixed, MIXED, 3));
    kn_store *s = opened("s");
    assert_int_equal(kn_store_describe(s)->segments, 13);
    uint64_t entries = 0, documents = 0;
    for (size_t i = 0; i < 13; i++) {
        kn_store_segment g = kn_store_segment_at(s, i);
        float keys[10 * D];
        assert_int_equal(g.first, entries);
        assert_int_equal(g.first_document, documents);
        assert_int_equal(g.count, i < 12 ? 10 : 8);
        OK(kn_store_keys(s, g.first, g.count, keys));
        for (size_t j = 0; j < g.count; j++) {
            kn_store_entry e;
            OK(kn_store_entry_at(s, g.first + j, &e));
            assert_int_equal(g.tokens[j], e.token);
            assert_int_equal(g.offsets[j], e.offset);
            for (size_t k = 0; k < D; k++)
                assert_true(g.scales[j] * (float)((const int8_t *)g.keys)[j * D + k] == keys[j * D + k]);
        }
        entries += g.count;
        documents += g.document_count;
    }
    assert_int_equal(entries, MIXED_ENTRIES);
    assert_int_equal(documents, MIXED);
    kn_store_close(s);
}

static void a_full_segment_is_small(void **state) {
    (void)state;
    enum { D = 64, N = 4096 };
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, D, N);
    kit_item items[16];
    for (uint32_t i = 0; i < 16; i++) items[i] = (kit_item){i, N / 16, N / 16, false};
    OK(kit_build("s", &set, items, 16, 100));
    kn_store *s = opened("s");
    uint64_t bytes = 0;
    kit_image image = kit_read("s");
    for (size_t i = 0; i < image.count; i++) bytes += image.files[i].size;
    assert_int_equal(kn_store_describe(s)->bytes, bytes);
    assert_int_equal(kn_key_bytes(KNNLM_KEYS_F16, D), 2 * D);
    assert_true(bytes <= (uint64_t)N * (2 * D + 16));
    kit_free(&image);
    kn_store_close(s);
}

static void settings_and_counts_survive(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_INT8, 5, 7);
    set.model = "models/a \"b\" \\ \xc3\xa9.gguf";
    set.distance = KNNLM_DISTANCE_COSINE;
    set.model_dimension = 11;
    set.tap = "attention";
    set.split = "line";
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *s = opened("s/");
    const kn_store_info *info = kn_store_describe(s);
    const kn_store_settings *got = &info->settings;
    assert_string_equal(info->path, "s");
    assert_string_equal(got->model, set.model);
    assert_string_equal(got->model_fingerprint, set.model_fingerprint);
    assert_string_equal(got->tokenizer, set.tokenizer);
    assert_string_equal(got->tokenizer_fingerprint, set.tokenizer_fingerprint);
    assert_string_equal(got->tap, set.tap);
    assert_string_equal(got->split, set.split);
    assert_int_equal(got->vocabulary, set.vocabulary);
    assert_int_equal(got->key_type, set.key_type);
    assert_int_equal(got->dimension, set.dimension);
    assert_int_equal(got->model_dimension, set.model_dimension);
    assert_int_equal(got->distance, set.distance);
    assert_int_equal(got->window, set.window);
    assert_int_equal(got->min_context, set.min_context);
    assert_int_equal(got->segment, set.segment);
    assert_true(info->complete);
    assert_int_equal(info->created, atoll(KIT_EPOCH));
    assert_int_equal(info->generation, MIXED_ENTRIES / 7 + 1);
    assert_int_equal(info->segments, MIXED_ENTRIES / 7 + 1);
    assert_false(info->tuned.known || info->has_tokenizer || info->has_projection);
    kn_store_close(s);
}

static void a_store_may_be_empty(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 4, 7);
    kn_store_entry e;
    OK(kit_build("s", &set, NULL, 0, 1));
    HOLDS("s", NULL, 0);
    kn_store *s = opened("s");
    OK(kn_store_tokens(s, 0, 0, NULL));
    FAILS(KNNLM_EINVAL, "there are 0", kn_store_entry_at(s, 0, &e));
    assert_true(kn_store_entry_removed(s, 0));
    assert_false(kn_store_document_removed(s, 0));
    kn_store_close(s);
    OK(kit_build("t", &set, mixed, 1, 1)); // one document, and it is empty
    HOLDS("t", mixed, 1);
    kn_store_writer *w = writing("t");
    OK(kit_add(w, mixed + 1, 5, 2));
    commit_and_close(w);
    HOLDS("t", mixed, 6);
}

// ---------------------------------------------------------------- what the clock and the file system say

static void times_are_the_environments(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 4, 7);
    kit_item one = {2, 3, 3, false}; // its own time is 0: now
    kn_store_document d;
    static const char *const wrong[] = {"", "x", "12x", "-5"};
    OK(kit_build("s", &set, &one, 1, 3));
    kn_store *s = opened("s");
    OK(kn_store_document_at(s, 0, &d));
    assert_int_equal(d.added, atoll(KIT_EPOCH));
    kn_store_close(s);
    for (size_t i = 0; i < COUNT(wrong); i++) { // then the clock's
        setenv("SOURCE_DATE_EPOCH", wrong[i], 1);
        OK(kit_build("t", &set, &one, 1, 3));
        s = opened("t");
        assert_true(kn_store_describe(s)->created > atoll(KIT_EPOCH) + 1000);
        kn_store_close(s);
        kit_delete("t");
    }
}

static void names_need_not_be_utf8(void **state) {
    (void)state;
    static const char path[] = "st\xff\xfe re \n";
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 4, 7);
    set.model = set.tap = "caf\xe9.gguf";
    OK(kit_build(path, &set, mixed, MIXED, 10));
    kn_store_writer *w = writing(path);
    OK(kn_store_writer_remove(w, 0));
    commit_and_close(w);
    kn_store *s = opened(path);
    assert_string_equal(kn_store_describe(s)->settings.model, "caf?.gguf");
    assert_int_equal(kn_store_describe(s)->removed_documents, 1);
    kn_store_close(s);
}

static void what_is_no_store_is_refused(void **state) {
    (void)state;
    kn_store *s;
    kn_store_writer *w;
    assert_false(kn_store_exists("nowhere"));
    FAILS(KNNLM_EIO, "nowhere", kn_store_open("nowhere", &s));
    FAILS(KNNLM_EIO, "nowhere", kn_store_write("nowhere", &w));
    assert_int_equal(access("nowhere", F_OK), -1);
    assert_int_equal(mkdir("empty", 0777), 0);
    FAILS(KNNLM_EDATA, "not a store", kn_store_open("empty", &s));
    FAILS(KNNLM_EDATA, "not a store", kn_store_write("empty", &w));
    assert_int_equal(access("empty/LOCK", F_OK), -1);
    kit_write_file(".", "file", "x", 1);
    FAILS(KNNLM_EIO, "file", kn_store_open("file", &s));
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 4, 7);
    FAILS(KNNLM_EIO, "file: cannot create", kn_store_create("file", &set, &w));
    kit_write_file("empty", "MANIFEST", "", 0);
    FAILS(KNNLM_EDATA, "not the manifest", kn_store_open("empty", &s));
    static const char newer[] = "knnlm-store 2 0123456789abcdef\n{}";
    kit_write_file("empty", "MANIFEST", newer, sizeof newer - 1);
    FAILS(KNNLM_ENOTSUP, "version 2", kn_store_open("empty", &s));
    static const char wrong[] = "knnlm-store 1 0123456789abcdef\n{}";
    kit_write_file("empty", "MANIFEST", wrong, sizeof wrong - 1);
    FAILS(KNNLM_EDATA, "checksum", kn_store_open("empty", &s));
    assert_true(kn_store_exists("empty"));
    FAILS(KNNLM_EIO, "store already", kn_store_create("empty", &set, &w));
}

// ---------------------------------------------------------------- bad arguments

static void impossible_settings_are_refused(void **state) {
    (void)state;
    kn_store_writer *w;
    static char endless[100000];
    const kn_store_settings good = kit_settings(KNNLM_KEYS_F16, 4, 7);
    kn_store_settings bad[12];
    memset(endless, 'x', sizeof endless - 1);
    for (size_t i = 0; i < COUNT(bad); i++) bad[i] = good;
    bad[0].key_type = (knnlm_keys)KN_KEY_TYPES;
    bad[1].distance = (knnlm_distance)KN_DISTANCES;
    bad[2].dimension = 0;
    bad[3].dimension = bad[3].model_dimension = KN_STORE_DIMENSION_MAX + 1;
    bad[4].model_dimension = 3;
    bad[5].vocabulary = -1;
    bad[6].window = -1;
    bad[7].min_context = -1;
    bad[8].segment = 0;
    bad[9].segment = KN_STORE_SEGMENT_MAX + 1;
    bad[10].model = endless;
    bad[11].key_type = (knnlm_keys)-1;
    for (size_t i = 0; i < COUNT(bad); i++)
        FAILS(KNNLM_EINVAL, "a store with", kn_store_create("s", &bad[i], &w));
    assert_int_equal(access("s", F_OK), -1);
    FAILS(KNNLM_EIO, "no/where", kn_store_create("no/where", &good, &w));
}

static void reading_beyond_the_end_is_refused(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_NONE, 4, 7);
    int32_t token;
    uint64_t offset;
    float key[4];
    kn_store_entry e;
    kn_store_document d;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *s = opened("s");
    FAILS(KNNLM_EINVAL, "no entries 128", kn_store_entry_at(s, MIXED_ENTRIES, &e));
    FAILS(KNNLM_EINVAL, "no entries", kn_store_entry_at(s, UINT64_MAX, &e));
    FAILS(KNNLM_EINVAL, "no document 12", kn_store_document_at(s, MIXED, &d));
    FAILS(KNNLM_EINVAL, "no document", kn_store_document_at(s, UINT64_MAX, &d));
    FAILS(KNNLM_EINVAL, "no entries", kn_store_tokens(s, MIXED_ENTRIES, 1, &token));
    FAILS(KNNLM_EINVAL, "no entries", kn_store_tokens(s, 1, SIZE_MAX, &token));
    FAILS(KNNLM_EINVAL, "no entries", kn_store_offsets(s, MIXED_ENTRIES + 1, 0, &offset));
    FAILS(KNNLM_ENOTSUP, "no keys", kn_store_keys(s, 0, 1, key));
    kn_store_segment g = kn_store_segment_at(s, 0);
    assert_true(!g.keys && !g.scales && g.tokens);
    assert_true(kn_store_entry_removed(s, UINT64_MAX));
    kn_store_close(s);
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 1));
    commit_and_close(w);
    s = opened("s");
    assert_false(kn_store_document_removed(s, MIXED));
    assert_false(kn_store_document_removed(s, UINT64_MAX));
    kn_store_close(s);
}

static void writing_out_of_turn_is_refused(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 2, 7);
    kn_store_writer *w;
    kit_names names;
    kit_item item = {1, 3, 3, false};
    kn_store_document d = kit_document(&item, &names), huge = d, many = d;
    int32_t tokens[4] = {1, 2, 3, 4}, wrong[1] = {KIT_VOCABULARY}, negative[1] = {-1};
    uint64_t offsets[4] = {0, 1, 2, 3}, far[1] = {UINT64_C(1) << 32}, present;
    float keys[8] = {0};
    huge.bytes = KN_STORE_DOCUMENT_BYTES_MAX + UINT64_C(1);
    many.tokens = KN_STORE_ENTRIES_MAX + UINT64_C(1);
    OK(kn_store_create("s", &set, &w));
    assert_null(kn_store_writer_base(w));
    assert_string_equal(kn_store_writer_path(w), "s");
    FAILS(KNNLM_EINVAL, "1 entries more", kn_store_writer_append(w, tokens, offsets, keys, 1));
    FAILS(KNNLM_EINVAL, "nothing to go on with", kn_store_writer_continue(w, &present));
    FAILS(KNNLM_EINVAL, "no document 0", kn_store_writer_remove(w, 0));
    FAILS(KNNLM_ENOTSUP, "at most 4 GiB", kn_store_writer_document(w, &huge));
    FAILS(KNNLM_ENOTSUP, "entries", kn_store_writer_document(w, &many));
    OK(kn_store_writer_document(w, &d));
    FAILS(KNNLM_EINVAL, "4 entries more", kn_store_writer_append(w, tokens, offsets, keys, 4));
    FAILS(KNNLM_EINVAL, "without keys", kn_store_writer_append(w, tokens, offsets, NULL, 1));
    FAILS(KNNLM_EINVAL, "without offsets", kn_store_writer_append(w, tokens, NULL, keys, 1));
    FAILS(KNNLM_EINVAL, "offset", kn_store_writer_append(w, tokens, far, keys, 1));
    FAILS(KNNLM_EINVAL, "token 1000", kn_store_writer_append(w, wrong, offsets, keys, 1));
    FAILS(KNNLM_EINVAL, "token -1", kn_store_writer_append(w, negative, offsets, keys, 1));
    FAILS(KNNLM_EINVAL, "after 0 of 3", kn_store_writer_document(w, &d));
    FAILS(KNNLM_EINVAL, "after 0 of 3", kn_store_writer_commit(w));
    OK(kn_store_writer_append(w, tokens, offsets, keys, 0));
    // None of that did any harm.
    OK(kit_append(w, &item, 0, 3, 2));
    assert_int_equal(kn_store_writer_entries(w), 3);
    commit_and_close(w);
    HOLDS("s", &item, 1);
}

static void keys_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        knnlm_keys type;
        float value;
        const char *text;
    } cases[] = {{KNNLM_KEYS_F16, 65520, "do not fit f16"},
                 {KNNLM_KEYS_F16, -1e30f, "do not fit f16"},
                 {KNNLM_KEYS_F16, NAN, "entry 300 is not finite"},
                 {KNNLM_KEYS_F32, -INFINITY, "entry 300 is not finite"},
                 {KNNLM_KEYS_F32, NAN, "entry 300 is not finite"},
                 {KNNLM_KEYS_INT8, INFINITY, "entry 300 is not finite"},
                 {KNNLM_KEYS_INT8, NAN, "entry 300 is not finite"}};
    kit_item item = {0, 400, 400, false};
    static int32_t tokens[400];
    static uint64_t offsets[400];
    static float keys[400 * 2];
    for (size_t i = 0; i < COUNT(cases); i++) {
        kn_store_settings set = kit_settings(cases[i].type, 2, 7000);
        kit_names names;
        kn_store_document d = kit_document(&item, &names);
        kn_store_writer *w;
        OK(kn_store_create("s", &set, &w));
        OK(kn_store_writer_document(w, &d));
        keys[601] = cases[i].value;
        FAILS(KNNLM_EDATA, cases[i].text, kn_store_writer_append(w, tokens, offsets, keys, 400));
        FAILS(KNNLM_EDATA, cases[i].text, kn_store_writer_commit(w)); // it stays so
        FAILS(KNNLM_EDATA, cases[i].text, kn_store_writer_document(w, &d));
        kn_store_writer_close(w);
        assert_false(kn_store_exists("s"));
        kit_delete("s");
    }
}

// 65519.99 rounds to the largest f16; the largest f32 must not become infinite as int8.
static void the_largest_keys_are_kept(void **state) {
    (void)state;
    static const struct {
        knnlm_keys type;
        float in, out;
    } cases[] = {{KNNLM_KEYS_F16, 65519.99f, 65504},
                 {KNNLM_KEYS_F32, 0x1.fffffep127f, 0x1.fffffep127f},
                 {KNNLM_KEYS_INT8, 0x1.fffffep127f, 0x1.fffffep127f},
                 {KNNLM_KEYS_INT8, 0x1p-149f, 0}};
    kit_item item = {0, 1, 1, false};
    for (size_t i = 0; i < COUNT(cases); i++) {
        kn_store_settings set = kit_settings(cases[i].type, 1, 7);
        kit_names names;
        kn_store_document d = kit_document(&item, &names);
        kn_store_writer *w;
        float key;
        OK(kn_store_create("s", &set, &w));
        OK(kn_store_writer_document(w, &d));
        OK(kn_store_writer_append(w, &(int32_t){0}, &(uint64_t){0}, &cases[i].in, 1));
        commit_and_close(w);
        kn_store *s = opened("s");
        OK(kn_store_keys(s, 0, 1, &key));
        assert_true(fabs((double)key - (double)cases[i].out) <= 1e-6 * fabs((double)cases[i].out));
        kn_store_close(s);
        kit_delete("s");
    }
}

// ---------------------------------------------------------------- resuming

// What a build does: goes on where the store ends.
static void resume(const char *path, const kn_store_settings *set, size_t stop_after) {
    kn_store_writer *w;
    uint64_t present = 0, first = 0;
    if (kn_store_exists(path)) {
        w = writing(path);
        first = kn_store_describe(kn_store_writer_base(w))->documents;
        if (kn_store_writer_continue(w, &present) == KNNLM_OK) first--;
    } else {
        OK(kn_store_create(path, set, &w));
    }
    for (uint64_t i = first; i < MIXED && stop_after; i++) {
        kit_names names;
        kn_store_document d = kit_document(&mixed[i], &names);
        uint64_t from = i == first ? present : 0, to = mixed[i].tokens;
        if (!from) OK(kn_store_writer_document(w, &d));
        if (to - from > stop_after) to = from + stop_after;
        OK(kit_append(w, &mixed[i], from, to, 5));
        stop_after -= (size_t)(to - from);
    }
    if (stop_after) OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
}

static void an_interrupted_build_goes_on(void **state) {
    (void)state;
    static const uint32_t segments[] = {7, 16, 64};
    for (size_t i = 0; i < COUNT(segments); i++) {
        kn_store_settings set = kit_settings(i ? KNNLM_KEYS_INT8 : KNNLM_KEYS_F16, 3, segments[i]);
        OK(kit_build("whole", &set, mixed, MIXED, 100));
        for (size_t stop = 1; stop <= MIXED_ENTRIES; stop++) {
            resume("s", &set, stop);
            if (stop % 3 == 0) resume("s", &set, 20); // and once more
            resume("s", &set, SIZE_MAX);
            SAME_DIRECTORIES("whole", "s");
            kit_delete("s");
        }
        kit_delete("whole");
    }
}

// Four whole segments and the beginning of a fifth: 28 of the first document's 40 entries are there.
static void interrupt(const char *path, const kit_item *item) {
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 3, 7);
    kit_names names;
    kn_store_document d = kit_document(item, &names);
    kn_store_writer *w;
    OK(kn_store_create(path, &set, &w));
    OK(kn_store_writer_document(w, &d));
    OK(kit_append(w, item, 0, 30, 4));
    kn_store_writer_close(w);
    kn_store *s = opened(path);
    assert_false(kn_store_describe(s)->complete);
    kn_store_close(s);
}

static void what_is_not_continued_is_removed(void **state) {
    (void)state;
    kit_item items[] = {{1, 40, 28, true}, {2, 5, 5, false}};
    interrupt("s", &items[0]);
    kn_store_writer *w = writing("s");
    OK(kit_add(w, &items[1], 1, 9));
    commit_and_close(w);
    HOLDS("s", items, 2);
    uint64_t present;
    w = writing("s");
    FAILS(KNNLM_EINVAL, "whole", kn_store_writer_continue(w, &present));
    kn_store_writer_close(w);
    kn_store_compacted c;
    OK(kn_store_compact("s", false, NULL, &c));
    assert_int_equal(c.entries_dropped, 28);
    HOLDS("s", &items[1], 1);
}

static void what_is_unfinished_stays_so(void **state) {
    (void)state;
    kit_item item = {1, 40, 28, false};
    interrupt("s", &item);
    kn_store_compacted c;
    uint64_t present = 0;
    kn_store_writer *w = writing("s");
    kn_store_writer_tune(w, &(kn_store_tuned){.known = true, .lambda = 0.5, .temperature = 1, .k = 4});
    OK(kn_store_writer_amend(w));
    kn_store_writer_close(w);
    HOLDS("s", &item, 1); // verifies: to be incomplete is no damage
    OK(kn_store_compact("s", false, NULL, &c));
    w = writing("s");
    OK(kn_store_writer_continue(w, &present));
    assert_int_equal(present, 28);
    FAILS(KNNLM_EINVAL, "being", kn_store_writer_remove(w, 0));
    FAILS(KNNLM_EINVAL, "after 28 of 40", kn_store_writer_commit(w));
    OK(kit_append(w, &item, 28, 40, 5));
    commit_and_close(w);
    item.count = 40;
    HOLDS("s", &item, 1);
    kn_store *s = opened("s");
    assert_true(kn_store_describe(s)->complete);
    kn_store_close(s);
}

static void what_is_unfinished_can_be_removed(void **state) {
    (void)state;
    kit_item item = {1, 40, 28, true};
    uint64_t present;
    interrupt("s", &item);
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 0));
    FAILS(KNNLM_EINVAL, "nothing to go on with", kn_store_writer_continue(w, &present));
    commit_and_close(w);
    HOLDS("s", &item, 1);
    kn_store *s = opened("s");
    assert_true(kn_store_describe(s)->complete);
    kn_store_close(s);
}

// ---------------------------------------------------------------- removing

static void removal_shows_at_the_next_open(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 3, 16);
    kit_item items[MIXED], extra = {40, 20, 20, false};
    memcpy(items, mixed, sizeof mixed);
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *old = opened("s");
    kn_store_writer *w = writing("s");
    static const size_t gone[] = {9, 0, 6, 9, 11}; // one of them twice
    for (size_t i = 0; i < COUNT(gone); i++) OK(kn_store_writer_remove(w, gone[i]));
    HOLDS("s", mixed, MIXED); // not yet
    assert_true(kn_store_is_current(old));
    OK(kn_store_writer_commit(w));
    assert_false(kn_store_is_current(old));
    assert_null(kit_compare(old, mixed, MIXED)); // it is another state
    for (size_t i = 0; i < COUNT(gone); i++) items[gone[i]].removed = true;
    HOLDS("s", items, MIXED);
    OK(kn_store_writer_remove(w, 1)); // the same writer goes on
    items[1].removed = true;
    commit_and_close(w);
    HOLDS("s", items, MIXED);
    w = writing("s");
    OK(kn_store_writer_remove(w, 2));
    FAILS(KNNLM_EINVAL, "no document 12", kn_store_writer_remove(w, MIXED));
    OK(kit_add(w, &extra, 1, 3));
    kn_store_writer_close(w); // without a commit; 16 entries were committed on the way, the removal with them
    kn_store *s = opened("s");
    assert_true(kn_store_document_removed(s, 2));
    assert_false(kn_store_document_removed(s, 3));
    kn_store_close(s);
    kn_store_close(old);
}

static void nothing_to_commit_is_no_commit(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 3, 16);
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *s = opened("s");
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_commit(w));
    commit_and_close(w);
    assert_true(kn_store_is_current(s));
    kn_store_close(s);
}

// The same inode and time may come again; a state must not be taken for another.
static void states_are_told_apart(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_NONE, 3, 16);
    OK(kit_build("s", &set, mixed, 3, 10));
    for (int i = 0; i < 50; i++) {
        kn_store *s = opened("s");
        kn_store_writer *w = writing("s");
        assert_true(kn_store_is_current(s));
        for (int j = 0; j < 2; j++) {
            kn_store_writer_tune(
                w, &(kn_store_tuned){.known = true, .lambda = 0.25 + j / 2.0, .temperature = 1, .k = 4});
            OK(kn_store_writer_commit(w));
            assert_false(kn_store_is_current(s));
        }
        kn_store_writer_close(w);
        kn_store_close(s);
    }
}

// ---------------------------------------------------------------- compacting

// Parts in the order of the segments: their numbers differ, their bytes must not.
static void same_segments(const char *a, const char *b) {
    kn_store *left = opened(a), *right = opened(b);
    kit_image x = kit_read(a), y = kit_read(b);
    assert_int_equal(left->manifest.segment_count, right->manifest.segment_count);
    for (size_t i = 0; i < left->manifest.segment_count; i++)
        for (int kind = 0; kind < 2; kind++) {
            char name[2][KN_PART_NAME];
            kn_part_name(name[0], left->manifest.segments[i].file, kind ? "keys" : "text");
            kn_part_name(name[1], right->manifest.segments[i].file, kind ? "keys" : "text");
            if (kind && left->manifest.settings.key_type == KNNLM_KEYS_NONE) continue;
            if (!kit_same_bytes(kit_find(&x, name[0]), kit_find(&y, name[1])))
                fail_msg("%s and %s differ", name[0], name[1]);
        }
    assert_int_equal(x.count, y.count); // nothing else is left
    kit_free(&x);
    kit_free(&y);
    kn_store_close(left);
    kn_store_close(right);
}

// The documents of `items` that were not removed.
static size_t survivors(const kit_item *items, size_t count, kit_item *out) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (!items[i].removed) out[n++] = items[i];
    return n;
}

// Adds the documents in several goes, removes those of the pattern, compacts.
static void compact_pattern(knnlm_keys type, uint32_t segment, unsigned pattern) {
    kn_store_settings set = kit_settings(type, 5, segment);
    kit_item items[MIXED], left[MIXED];
    kn_store_compacted c;
    memcpy(items, mixed, sizeof mixed);
    OK(kit_build("s", &set, items, 4, 10));
    kn_store_writer *w = writing("s");
    OK(kit_add(w, items + 4, 5, 2));
    OK(kn_store_writer_commit(w));
    OK(kit_add(w, items + 9, MIXED - 9, 3));
    commit_and_close(w);
    w = writing("s");
    for (size_t i = 0; i < MIXED; i++) {
        items[i].removed = pattern >> i & 1;
        if (items[i].removed) OK(kn_store_writer_remove(w, i));
    }
    commit_and_close(w);
    HOLDS("s", items, MIXED);
    size_t n = survivors(items, MIXED, left);
    OK(kn_store_compact("s", false, NULL, &c));
    assert_int_equal(c.documents_dropped, MIXED - n);
    HOLDS("s", left, n);
    OK(kit_build("fresh", &set, left, n, 1000));
    same_segments("s", "fresh");
    kit_delete("s");
    kit_delete("fresh");
}

static void compacted_is_as_built_afresh(void **state) {
    (void)state;
    kn_random random = {7};
    static const uint32_t segments[] = {7, 16, 30, 1000};
    for (int type = 0; type < KN_KEY_TYPES; type++) {
        compact_pattern((knnlm_keys)type, 16, (1u << MIXED) - 1); // all
        for (int i = 0; i < 12; i++)
            compact_pattern((knnlm_keys)type, segments[i % 4],
                            (unsigned)kn_random_below(&random, 1u << MIXED));
    }
    compact_pattern(KNNLM_KEYS_F16, 7, 0);
    for (unsigned i = 0; i < MIXED; i++) compact_pattern(KNNLM_KEYS_F16, 7, 1u << i);
}

static void compacting_what_is_compact_changes_nothing(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    kn_store_compacted c;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *s = opened("s");
    kit_image before = kit_read("s");
    OK(kn_store_compact("s", false, NULL, &c));
    kit_image after = kit_read("s");
    assert_null(kit_compare_images(&before, &after));
    assert_true(kn_store_is_current(s));
    assert_int_equal(c.segments_before, c.segments_after);
    assert_int_equal(c.bytes_before, c.bytes_after);
    assert_int_equal(c.entries_dropped + c.documents_dropped, 0);
    kit_free(&before);
    kit_free(&after);
    kn_store_close(s);
}

static void segments_before_the_first_change_stay(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    kn_store_compacted c;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 10));
    commit_and_close(w);
    kit_image before = kit_read("s");
    OK(kn_store_compact("s", false, NULL, &c));
    assert_true(c.bytes_after < c.bytes_before && c.segments_after == c.segments_before - 2);
    assert_int_equal(c.entries_dropped, 15);
    kit_image after = kit_read("s");
    for (int i = 1; i <= 16; i++) { // the eleventh document begins in the 17th segment
        char name[KN_PART_NAME];
        kn_part_name(name, (uint64_t)i, "keys");
        assert_true(kit_same_bytes(kit_find(&before, name), kit_find(&after, name)));
    }
    assert_null(kit_find(&after, "000017.keys"));
    kit_free(&before);
    kit_free(&after);
}

static bool stop(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    (void)what;
    (void)unit;
    return done <= total && ++*(int *)context < 5;
}

static void a_stopped_compaction_changes_nothing(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    kn_store_compacted c;
    int calls = 0;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 1));
    commit_and_close(w);
    kit_image before = kit_read("s");
    FAILS(KNNLM_ESTOPPED, "as it was", kn_store_compact("s", false, &(kn_progress){stop, &calls}, &c));
    assert_int_equal(calls, 5);
    kit_image after = kit_read("s");
    assert_null(kit_compare_images(&before, &after));
    kit_free(&before);
    kit_free(&after);
}

static void a_snapshot_outlives_its_files(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    kit_item left[MIXED];
    kn_store_compacted c;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store *old = opened("s");
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 1));
    commit_and_close(w);
    OK(kn_store_compact("s", false, NULL, &c));
    assert_int_equal(access("s/000001.text", F_OK), -1);
    assert_null(kit_compare(old, mixed, MIXED));
    memcpy(left, mixed, sizeof mixed);
    left[1].removed = true;
    HOLDS("s", left, survivors(left, MIXED, left));
    kn_store_close(old);
}

// One document a segment; byte `at` (from the middle) of a part of the second is flipped.
static void build_damaged(const char *name) {
    static const kit_item items[] = {{1, 8, 8, false}, {2, 8, 8, false}, {3, 8, 8, false}, {4, 8, 8, false}};
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 8);
    OK(kit_build("s", &set, items, 4, 10));
    kit_file file;
    kit_read_file("s", name, &file);
    size_t record = 64 + 64 + 64; // of the text: after the tokens and the offsets
    file.data[record < file.size - 100 ? record + 3 : 70] ^= 0xff;
    kit_write_file("s", name, file.data, file.size);
    free(file.data);
}

static void damage_is_not_copied(void **state) {
    (void)state;
    static const char *const names[] = {"000002.text", "000002.keys"};
    static const kit_item kept[] = {{3, 8, 8, false}, {4, 8, 8, false}};
    for (int i = 0; i < 2; i++) {
        kn_store_compacted c;
        build_damaged(names[i]);
        kn_store_writer *w = writing("s");
        OK(kn_store_writer_remove(w, 0));
        commit_and_close(w);
        kit_image before = kit_read("s");
        FAILS(KNNLM_EDATA, names[i], kn_store_compact("s", false, NULL, &c));
        kit_image after = kit_read("s");
        assert_null(kit_compare_images(&before, &after));
        kit_free(&before);
        kit_free(&after);
        w = writing("s");
        OK(kn_store_writer_remove(w, 1)); // the damaged one
        commit_and_close(w);
        OK(kn_store_compact("s", false, NULL, &c));
        HOLDS("s", kept, 2);
        kit_delete("s");
    }
}

// Also when it is the last one, whose record a writer looks at first.
static void a_damaged_last_document_can_go(void **state) {
    (void)state;
    static const kit_item kept[] = {{1, 8, 8, false}, {2, 8, 8, false}, {3, 8, 8, false}};
    kn_store_compacted c;
    build_damaged("000004.text");
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 3));
    commit_and_close(w);
    OK(kn_store_compact("s", false, NULL, &c));
    HOLDS("s", kept, 3);
}

// ---------------------------------------------------------------- who writes

static void one_writes_at_a_time(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    kn_store_writer *second;
    kn_store_compacted c;
    int status;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store_writer *w = writing("s");
    FAILS(KNNLM_EBUSY, "another process", kn_store_write("s", &second));
    FAILS(KNNLM_EBUSY, "another process", kn_store_compact("s", false, NULL, &c));
    pid_t child = fork();
    if (child == 0)
        _exit(kn_store_write("s", &second) == KNNLM_EBUSY && strstr(knnlm_message(), "another process") ? 0
                                                                                                        : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    HOLDS("s", mixed, MIXED); // reading needs no lock
    kn_store_writer_close(w);
    kn_store_writer_close(writing("s"));
    OK(kn_store_create("t", &set, &w));
    FAILS(KNNLM_EBUSY, "another process", kn_store_create("t", &set, &second));
    kn_store_writer_close(w);
}

static void debris_is_swept_up(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    static const char *const debris[] = {
        "000999.text",    "000999.keys",    "1234567.removed", "MANIFEST.12.0.tmp", "tokenizer.gguf.9.1.tmp",
        "000001.removed", "tokenizer.gguf", "projection.gguf"};
    static const char *const foreign[] = {"README",       "000001.texts", "a.text",      "12.keys",
                                          "MANIFEST.old", "x.tmp",        "000001.text~"};
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kit_image before = kit_read("s");
    for (size_t i = 0; i < COUNT(debris); i++) kit_write_file("s", debris[i], "x", 1);
    for (size_t i = 0; i < COUNT(foreign); i++) kit_write_file("s", foreign[i], "x", 1);
    HOLDS("s", mixed, MIXED); // a reader does not mind
    kn_store_writer_close(writing("s"));
    for (size_t i = 0; i < COUNT(foreign); i++) {
        char path[KIT_PATH];
        kit_join(path, "s", foreign[i]);
        if (unlink(path) != 0) fail_msg("%s is gone", foreign[i]);
    }
    kit_image after = kit_read("s");
    assert_null(kit_compare_images(&before, &after));
    kit_free(&before);
    kit_free(&after);
}

static void a_new_store_takes_no_ones_place(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    static const char *const foreign[] = {"notes.txt", "tokenizer.gguf", "000001.text"};
    kn_store_writer *w;
    assert_int_equal(mkdir("s", 0777), 0);
    for (size_t i = 0; i < COUNT(foreign); i++) {
        char path[KIT_PATH];
        kit_join(path, "s", foreign[i]);
        kit_write_file("s", foreign[i], "mine", 4);
        FAILS(KNNLM_EIO, foreign[i], kn_store_create("s", &set, &w));
        if (unlink(path) != 0) fail_msg("%s is gone", foreign[i]);
    }
    kit_write_file("s", "LOCK", "", 0); // what a crash before the first commit leaves
    kit_write_file("s", "tokenizer.gguf", "x", 1);
    kit_write_file("s", "000001.keys", "x", 1);
    OK(kit_build("s", &set, mixed, MIXED, 10)); // an empty directory will do
    OK(kit_build("t", &set, mixed, MIXED, 10));
    SAME_DIRECTORIES("s", "t");
    FAILS(KNNLM_EIO, "is a store already", kn_store_create("s", &set, &w));
}

static void what_is_not_committed_is_gone(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 1000);
    kn_store_writer *w;
    OK(kn_store_create("s", &set, &w));
    OK(kit_add(w, mixed, MIXED, 10));
    kn_store_writer_close(w);
    kit_image image = kit_read("s");
    assert_int_equal(image.count, 0);
    OK(kit_build("s", &set, mixed, MIXED, 10));
    w = writing("s");
    OK(kit_add(w, mixed, MIXED, 10));
    kn_store_writer_close(w);
    HOLDS("s", mixed, MIXED);
    kit_free(&image);
}

// ---------------------------------------------------------------- what else a store keeps

// Static, so that the bytes between its members are zeros on both sides.
static kn_store_tuned full_tuning(void) {
    static kn_store_tuned t;
    t.known = true;
    t.lambda = 0.1 + 0.2;
    t.temperature = 1e-30;
    t.k = INT64_MAX;
    t.probes = 32;
    t.codes = true;
    t.cache = (kn_store_cache){2000, 0.05, 7.5};
    t.bins.distances = KN_BINS_MOST;
    t.bins.entropies = 3;
    for (int i = 0; i < KN_BINS_MOST - 1; i++) t.bins.distance_edges[i] = i - 3.3;
    t.bins.entropy_edges[0] = 1.0 / 3;
    t.bins.entropy_edges[1] = 5;
    for (int i = 0; i < 3 * KN_BINS_MOST; i++) t.bins.lambdas[i] = i / 47.0;
    t.seen.known = true;
    t.seen.distance = (kn_store_range){-17.25, 1.0 / 3};
    t.seen.entropy = (kn_store_range){0, 2.2};
    t.tokens = 123456;
    t.text_count = KN_TUNED_TEXTS;
    for (size_t i = 0; i < KN_TUNED_TEXTS; i++) t.texts[i] = UINT64_MAX - KN_TUNED_TEXTS + i;
    return t;
}

// Each is the full one with one thing wrong.
static kn_store_tuned wrong_tuning(int what) {
    kn_store_tuned t = full_tuning();
    if (what == 0) t.lambda = NAN;
    if (what == 1) t.lambda = 1.01;
    if (what == 2) t.temperature = INFINITY;
    if (what == 3) t.temperature = 1e-31;
    if (what == 4) t.k = -1;
    if (what == 5) t.probes = -1;
    if (what == 6) t.cache.lambda = 0.71; // with lambda above 1
    if (what == 7) t.cache.temperature = -1;
    if (what == 8) t.bins.entropies = KN_BINS_MOST + 1;
    if (what == 9) t.bins.distance_edges[7] = t.bins.distance_edges[6];
    if (what == 10) t.bins.lambdas[47] = -0.1;
    if (what == 11) t.text_count++;
    if (what == 12) t.seen.distance.high = -17.5; // below the median
    if (what == 13) t.seen.distance.median = -INFINITY;
    if (what == 14) t.seen.entropy.median = -0.1;
    if (what == 15) t.seen.entropy.high = NAN;
    return t;
}

static void tuned_values_survive(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    const kn_store_tuned tuned = full_tuning();
    kn_store_compacted c;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store_writer *w = writing("s");
    kn_store_writer_tune(w, &tuned);
    OK(kn_store_writer_remove(w, 3));
    commit_and_close(w);
    OK(kn_store_compact("s", false, NULL, &c));
    kn_store *s = opened("s");
    assert_memory_equal(&kn_store_describe(s)->tuned, &tuned, sizeof tuned);
    for (int i = 0; i < 16; i++) {
        kn_store_tuned bad = wrong_tuning(i);
        w = writing("s");
        kn_store_writer_tune(w, &bad);
        FAILS(KNNLM_EINVAL, "tuned", kn_store_writer_commit(w));
        kn_store_writer_close(w);
    }
    assert_true(kn_store_is_current(s));
    w = writing("s");
    kn_store_writer_tune(w, &(kn_store_tuned){0}); // forgets them
    commit_and_close(w);
    kn_store_close(s);
    s = opened("s");
    assert_false(kn_store_describe(s)->tuned.known);
    kn_store_close(s);
}

// Whether the manifest's member is taken, with `more` in it.
static bool tuned_parses(const char *more, kn_store_tuned *out) {
    char text[256];
    snprintf(text, sizeof text, "{\"lambda\": 0.25, \"temperature\": 1, \"k\": 8%s}", more);
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    bool good = kn_tuned_parse(object, out);
    json_decref(object);
    return good;
}

static void tuned_values_know_what_was_seen(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "null",
        "[1, 2]",
        "{}",
        "{\"distance\": [1, 2]}",
        "{\"entropy\": [1, 2]}",
        "{\"distance\": [1], \"entropy\": [1, 2]}",
        "{\"distance\": [1, 2, 3], \"entropy\": [1, 2]}",
        "{\"distance\": [1, \"2\"], \"entropy\": [1, 2]}",
        "{\"distance\": 1, \"entropy\": [1, 2]}",
        "{\"distance\": [2, 1], \"entropy\": [1, 2]}",
        "{\"distance\": [1, 2], \"entropy\": [2, 1]}",
        "{\"distance\": [1, 2], \"entropy\": [-1, 2]}",
    };
    char more[128];
    kn_store_tuned t;
    assert_true(tuned_parses("", &t) && !t.seen.known); // as stores were before
    assert_true(tuned_parses(", \"seen\": {\"distance\": [-2, 1.5], \"entropy\": [0, 0]}", &t));
    assert_true(t.seen.known && t.seen.distance.median == -2 && t.seen.distance.high == 1.5);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        snprintf(more, sizeof more, ", \"seen\": %s", wrong[i]);
        if (tuned_parses(more, &t)) fail_msg("%s is taken", wrong[i]);
    }
}

static void attach(const char *name, const char *content) {
    kn_store_writer *w = writing("s");
    kit_write_file("s", name, content, strlen(content));
    OK(kn_store_writer_attach(w, name));
    commit_and_close(w);
}

static void files_can_be_attached(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    kn_store_compacted c;
    char *path;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    attach("tokenizer.gguf", "a tokenizer");
    attach("notes", "");
    attach("notes", "some"); // again: the last one counts
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 3));
    commit_and_close(w);
    OK(kn_store_compact("s", false, NULL, &c));
    kn_store *s = opened("s");
    assert_true(kn_store_describe(s)->has_tokenizer);
    assert_false(kn_store_describe(s)->has_projection);
    OK(kn_store_attachment(s, "tokenizer.gguf", &path));
    assert_string_equal(path, "s/tokenizer.gguf");
    free(path);
    OK(kn_store_attachment(s, "notes", &path));
    free(path);
    OK(kn_store_attachment(s, "projection.gguf", &path));
    assert_null(path);
    kit_write_file("s", "tokenizer.gguf", "A tokenizer", 11);
    FAILS(KNNLM_EDATA, "checksum", kn_store_attachment(s, "tokenizer.gguf", &path));
    unlink("s/tokenizer.gguf");
    FAILS(KNNLM_EIO, "tokenizer.gguf", kn_store_attachment(s, "tokenizer.gguf", &path));
    kn_store_close(s);
}

static void what_cannot_be_attached_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",         ".",    "..",          "../x", "a/b",           ".x",
                                      "MANIFEST", "LOCK", "000001.text", "\xff", "MANIFEST.1.tmp"};
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    kn_store_writer *w;
    OK(kn_store_create("s", &set, &w));
    for (size_t i = 0; i < COUNT(bad); i++)
        FAILS(KNNLM_EINVAL, "cannot be", kn_store_writer_attach(w, bad[i]));
    kit_write_file("s", "tokenizer.gguf", "x", 1);
    OK(kn_store_writer_attach(w, "tokenizer.gguf"));
    FAILS(KNNLM_EIO, "nothing", kn_store_writer_attach(w, "nothing"));
    kn_store_writer_close(w);
}

static void another_model_is_refused_by_name(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    const char *model = set.model_fingerprint, *tokenizer = set.tokenizer_fingerprint;
    OK(kit_build("s", &set, mixed, 3, 10));
    kn_store *s = opened("s");
    OK(kn_store_check_model(s, "x.gguf", model, tokenizer, 5));
    FAILS(KNNLM_EINVAL, "models/tiny.gguf", kn_store_check_model(s, "x.gguf", "other", tokenizer, 5));
    assert_non_null(strstr(knnlm_message(), "x.gguf"));
    assert_non_null(strstr(knnlm_message(), "s: "));
    FAILS(KNNLM_EINVAL, "word", kn_store_check_model(s, "x.gguf", model, "other", 5));
    assert_non_null(strstr(knnlm_message(), "x.gguf"));
    FAILS(KNNLM_EINVAL, "x.gguf has 6", kn_store_check_model(s, "x.gguf", model, tokenizer, 6));
    kn_store_close(s);
    set.model_fingerprint = set.tokenizer_fingerprint = ""; // imported: only the width is known
    OK(kit_build("t", &set, mixed, 3, 10));
    s = opened("t");
    OK(kn_store_check_model(s, "x.gguf", "any", "any", 5));
    FAILS(KNNLM_EINVAL, "width", kn_store_check_model(s, "x.gguf", "any", "any", 4));
    kn_store_close(s);
}

// ---------------------------------------------------------------- the manifest

static void manifests_print_and_parse(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_INT8, 5, 7);
    kn_manifest m = {.complete = true, .generation = 3, .next_file = 9, .created = 5, .job_time = 6}, back,
                copy;
    char *text, *again;
    size_t size, again_size;
    OK(kn_settings_copy(&set, &m.settings));
    OK(kn_manifest_add_segment(&m,
                               &(kn_segment_entry){.file = 1, .entries = 7, .documents = 2, .strings = 9}));
    OK(kn_manifest_add_segment(&m, &(kn_segment_entry){.file = 2, .entries = 7, .continued = 7}));
    OK(kn_manifest_attach(&m, "tokenizer.gguf", 77, UINT64_MAX));
    m.removed = (kn_removed_entry){.file = 3, .documents = 1, .entries = 4, .seal = 1};
    m.tuned = (kn_store_tuned){.known = true, .lambda = 1.0 / 3, .temperature = 2, .k = 1024};
    OK(kn_manifest_print(&m, &text, &size));
    OK(kn_manifest_parse("m", text, size, &back));
    OK(kn_manifest_copy(&back, &copy));
    OK(kn_manifest_print(&copy, &again, &again_size));
    assert_int_equal(size, again_size);
    assert_memory_equal(text, again, size);
    assert_int_equal(copy.segments[1].first_entry, 7);
    assert_int_equal(copy.documents, 2);
    free(text);
    free(again);
    kn_manifest_free(&m);
    kn_manifest_free(&back);
    kn_manifest_free(&copy);
}

// A manifest of the store with other counters, its checksum right.
static void set_counters(uint64_t generation, uint64_t next_file) {
    kn_store *s = opened("s");
    kn_manifest m;
    char *text;
    size_t size;
    OK(kn_manifest_copy(&s->manifest, &m));
    kn_store_close(s);
    m.generation = generation;
    m.next_file = next_file;
    OK(kn_manifest_print(&m, &text, &size));
    kit_write_file("s", KN_STORE_MANIFEST, text, size);
    free(text);
    kn_manifest_free(&m);
}

static void counters_do_not_overflow(void **state) {
    (void)state;
    const uint64_t most = KN_MANIFEST_COUNTER_MAX, wrong[] = {most + 1, INT64_MAX};
    kn_store_settings set = kit_settings(KNNLM_KEYS_F32, 5, 7);
    kn_store_writer *w;
    kn_store *s;
    for (int i = 0; i < 2; i++)
        for (int which = 0; which < 2; which++) {
            OK(kit_build("s", &set, mixed, 3, 10));
            set_counters(which ? 1 : wrong[i], which ? wrong[i] : 100);
            FAILS(KNNLM_EDATA, which ? "next_file" : "generation", kn_store_open("s", &s));
            FAILS(KNNLM_EDATA, which ? "next_file" : "generation", kn_store_write("s", &w));
            kit_delete("s");
            OK(kit_build("s", &set, mixed, 3, 10));
            set_counters(which ? 1 : most, which ? most : 100); // can be read, but not be written any more
            kn_store_close(opened("s"));
            OK(kn_store_write("s", &w));
            OK(kn_store_writer_remove(w, 0));
            FAILS(KNNLM_EDATA, "no more numbers", kn_store_writer_commit(w));
            kn_store_writer_close(w);
            kn_store_close(opened("s"));
            kit_delete("s");
        }
}

// ---------------------------------------------------------------- others in the directory

static void links_are_not_followed(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F32, 5, 7);
    kn_store_writer *w;
    kit_names names;
    struct stat st;
    OK(kit_build("s", &set, mixed, 3, 10));
    kit_write_file(".", "victim", "mine", 4);
    assert_int_equal(unlink("s/LOCK"), 0);
    assert_int_equal(symlink("../victim", "s/LOCK"), 0);
    FAILS(KNNLM_EIO, "s/LOCK", kn_store_write("s", &w));
    assert_int_equal(unlink("s/LOCK"), 0);
    OK(kn_store_write("s", &w));
    for (int i = 1; i < 100; i++) { // whatever the next part will be called
        static const char *const kinds[] = {"text", "keys", "removed"};
        for (int kind = 0; kind < 3; kind++) {
            char name[64];
            snprintf(name, sizeof name, "s/%06d.%s", i, kinds[kind]);
            if (access(name, F_OK) != 0) assert_int_equal(symlink("../victim", name), 0);
        }
    }
    kn_store_document d = kit_document(&mixed[0], &names);
    OK(kn_store_writer_document(w, &d));
    OK(kit_append(w, &mixed[0], 0, mixed[0].tokens, 10));
    OK(kn_store_writer_remove(w, 1));
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    assert_true(stat("victim", &st) == 0 && st.st_size == 4);
    kn_store_close(opened("s"));
    OK(kn_store_write("s", &w)); // what was left of the links is swept up
    kn_store_writer_close(w);
    assert_int_equal(lstat("s/000099.text", &st), -1);
}

static void a_writer_without_its_lock_does_not_commit(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F32, 5, 7);
    kn_store_writer *first, *second;
    OK(kit_build("s", &set, mixed, 3, 10));
    OK(kn_store_write("s", &first));
    FAILS(KNNLM_EBUSY, "another process", kn_store_write("s", &second));
    assert_int_equal(unlink("s/LOCK"), 0);
    OK(kn_store_write("s", &second));
    OK(kn_store_writer_remove(first, 0));
    FAILS(KNNLM_EIO, "s/LOCK: was deleted or replaced", kn_store_writer_commit(first));
    kn_store_writer_close(first);
    OK(kn_store_writer_remove(second, 1));
    OK(kn_store_writer_commit(second));
    kn_store_writer_close(second);
    kn_store *s = opened("s");
    assert_true(!kn_store_document_removed(s, 0) && kn_store_document_removed(s, 1));
    kn_store_close(s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_type_of_keys_comes_back),
        TEST(ranges_span_segments),
        TEST(segments_lie_in_memory),
        TEST(a_full_segment_is_small),
        TEST(settings_and_counts_survive),
        TEST(a_store_may_be_empty),
        TEST(times_are_the_environments),
        TEST(names_need_not_be_utf8),
        TEST(what_is_no_store_is_refused),
        TEST(impossible_settings_are_refused),
        TEST(reading_beyond_the_end_is_refused),
        TEST(writing_out_of_turn_is_refused),
        TEST(keys_that_do_not_fit_are_refused),
        TEST(the_largest_keys_are_kept),
        TEST(an_interrupted_build_goes_on),
        TEST(what_is_not_continued_is_removed),
        TEST(what_is_unfinished_stays_so),
        TEST(what_is_unfinished_can_be_removed),
        TEST(removal_shows_at_the_next_open),
        TEST(nothing_to_commit_is_no_commit),
        TEST(states_are_told_apart),
        TEST(compacted_is_as_built_afresh),
        TEST(compacting_what_is_compact_changes_nothing),
        TEST(segments_before_the_first_change_stay),
        TEST(a_stopped_compaction_changes_nothing),
        TEST(a_snapshot_outlives_its_files),
        TEST(damage_is_not_copied),
        TEST(a_damaged_last_document_can_go),
        TEST(one_writes_at_a_time),
        TEST(counters_do_not_overflow),
        TEST(links_are_not_followed),
        TEST(a_writer_without_its_lock_does_not_commit),
        TEST(debris_is_swept_up),
        TEST(a_new_store_takes_no_ones_place),
        TEST(what_is_not_committed_is_gone),
        TEST(tuned_values_survive),
        TEST(tuned_values_know_what_was_seen),
        TEST(files_can_be_attached),
        TEST(what_cannot_be_attached_is_refused),
        TEST(another_model_is_refused_by_name),
        TEST(manifests_print_and_parse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
