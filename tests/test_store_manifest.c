// The manifest of a store: what it prints it parses, tuned settings and attached files survive, counters end.
#include "store_steps.h"

#include "store/tuned.h"

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
    t.bins.distances = KN_BINS_MAX;
    t.bins.entropies = 3;
    for (int i = 0; i < KN_BINS_MAX - 1; i++) t.bins.distance_edges[i] = i - 3.3;
    t.bins.entropy_edges[0] = 1.0 / 3;
    t.bins.entropy_edges[1] = 5;
    for (int i = 0; i < 3 * KN_BINS_MAX; i++) t.bins.lambdas[i] = i / 47.0;
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
    if (what == 8) t.bins.entropies = KN_BINS_MAX + 1;
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
    knnlm_compact_result c;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store_writer *w = writing("s");
    kn_store_writer_tune(w, &tuned);
    OK(kn_store_writer_remove(w, 3));
    commit_and_close(w);
    OK(kn_store_compact("s", false, NULL, NULL, &c));
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
    knnlm_compact_result c;
    char *path;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    attach("tokenizer.gguf", "a tokenizer");
    attach("notes", "");
    attach("notes", "some"); // again: the last one counts
    kn_store_writer *w = writing("s");
    OK(kn_store_writer_remove(w, 3));
    commit_and_close(w);
    OK(kn_store_compact("s", false, NULL, NULL, &c));
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
    const uint64_t max = KN_MANIFEST_COUNTER_MAX, wrong[] = {max + 1, INT64_MAX};
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
            set_counters(which ? 1 : max, which ? max : 100); // can be read, but not be written any more
            kn_store_close(opened("s"));
            OK(kn_store_write("s", &w));
            OK(kn_store_writer_remove(w, 0));
            FAILS(KNNLM_EDATA, "no more numbers", kn_store_writer_commit(w));
            kn_store_writer_close(w);
            kn_store_close(opened("s"));
            kit_delete("s");
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(counters_do_not_overflow),           TEST(tuned_values_survive),
        TEST(tuned_values_know_what_was_seen),    TEST(files_can_be_attached),
        TEST(what_cannot_be_attached_is_refused), TEST(manifests_print_and_parse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
