// Damaged indexes: parts that are overwritten, forged, cut short or gone are told by name and cost no
// document; lists can be learnt anew.
#include "search_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Both searches of everything there is; the status of the batch, which the other must share.
static knnlm_status search_all(const fixture *t, bool codes) {
    kn_search_options o = {.k = 50, .probes = 1000, .codes = codes};
    answers a = answers_make(o.k);
    kn_store *s;
    kn_index *x;
    kn_searcher *searcher;
    OK(kn_store_open(t->path, &s));
    knnlm_status status = kn_index_open(s, &x);
    if (status == KNNLM_OK) {
        OK(kn_searcher_open(x, o.k, &searcher));
        status = kn_index_search(x, t->queries, QUERIES, &o, &a.n);
        kn_store_close(s); // another state: the searcher is to find the damage by itself
        kn_searcher_close(searcher);
        kn_index_close(x);
        OK(kn_store_open(t->path, &s));
        OK(kn_index_open(s, &x));
        OK(kn_searcher_open(x, o.k, &searcher));
        assert_int_equal(kn_searcher_find(searcher, t->queries, &o, &a.n), status);
        o.spread = true;
        assert_int_equal(kn_searcher_find(searcher, t->queries, &o, &a.n), status);
        kn_searcher_close(searcher);
        kn_index_close(x);
    }
    kn_store_close(s);
    answers_free(&a);
    return status;
}

static void part_path(const fixture *t, const char *kind, char path[160]) {
    char command[256];
    snprintf(command, sizeof command, "ls %s/*.%s | head -n 1", t->path, kind);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(path, 160, pipe));
    pclose(pipe);
    path[strcspn(path, "\n")] = 0;
}

// Other bytes at `at` of a file; `kept` is what was there.
static void exchange(const char *path, long at, const void *bytes, size_t size, void *kept) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fread(kept, 1, size, f), size);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void check_told(const fixture *t, const char *kind, bool codes) {
    char ending[16];
    snprintf(ending, sizeof ending, ".%s", kind);
    assert_int_equal(search_all(t, codes), KNNLM_EDATA);
    assert_non_null(strstr(knnlm_message(), ending));
    assert_null(strchr(knnlm_message(), '\n'));
}

// Zeros in the middle of every part, and at its beginning.
static void damaged_parts_are_errors(void **state) {
    static const char *const kinds[] = {"lists", "order", "rows", "codes", "keys"};
    const knnlm_keys types[] = {KNNLM_KEYS_F32, KNNLM_KEYS_F16, KNNLM_KEYS_INT8};
    static const char zeros[64];
    (void)state;
    for (size_t type = 0; type < 3; type++) {
        fixture t = fixture_make(16, types[type], KNNLM_DISTANCE_L2);
        kn_store_writer *w;
        make_lists(&t, 4, 8);
        OK(kn_store_write(t.path, &w));
        add_documents(&t, w, 1); // outside the lists
        for (size_t i = 0; i < 5; i++) {
            char path[160], kept[64];
            bool own = strcmp(kinds[i], "keys") == 0; // the newest, which no list has
            part_path(&t, kinds[i], path);
            if (own) {
                char command[256];
                snprintf(command, sizeof command, "ls %s/*.keys | tail -n 1", t.path);
                FILE *pipe = popen(command, "r");
                assert_non_null(fgets(path, sizeof path, pipe));
                pclose(pipe);
                path[strcspn(path, "\n")] = 0;
            }
            const long places[] = {0, 64, 700};
            for (size_t p = 0; p < 3; p++) {
                exchange(path, places[p], zeros, sizeof zeros, kept);
                check_told(&t, kinds[i], strcmp(kinds[i], "codes") == 0);
                exchange(path, places[p], kept, sizeof kept, (char[64]){0});
                OK(search_all(&t, false));
            }
        }
        fixture_free(&t);
    }
}

// The same parts once more, sealed as they should be, with other bytes in one of them: a forger can do that.
static void forge(const fixture *t, const char *kind, size_t at, const void *bytes, size_t size) {
    kn_store_writer *w;
    kn_annex_writer *a;
    OK(kn_store_write(t->path, &w));
    const kn_store *s = kn_store_writer_base(w);
    char *note = strdup(kn_store_annex_note(s));
    OK(kn_annex_open(w, 0, &a));
    for (size_t i = 0; i < kn_store_annex_parts(s); i++) {
        kn_store_annex_part p = kn_store_annex_at(s, i);
        uint8_t *data = test_alloc(p.size, 1);
        memcpy(data, p.data, p.size);
        if (strcmp(p.kind, kind) == 0) memcpy(data + at, bytes, size);
        OK(kn_annex_begin(a, p.kind));
        OK(kn_annex_put(a, data, p.size));
        OK(kn_annex_seal(a, p.count));
        free(data);
    }
    OK(kn_annex_commit(a, note, kn_store_describe(s)->arranged));
    kn_store_writer_close(w);
    free(note);
}

static void senseless_parts_are_errors(void **state) {
    static const struct {
        const char *kind;
        size_t at;
        uint32_t bits;
        bool lasting; // keys are lost: lists can be learnt anew, keys cannot
    } forgeries[] = {{"order", 64 + 4 * 100, ENTRIES, false},
                     {"lists", 4 * 20, 0x7fc00000, false},
                     {"rows", 4 * 777, 0x7fc00000, true}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        fixture t = fixture_make(16, KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
        kn_index_result r;
        make_lists(&t, 4, 0);
        forge(&t, forgeries[i].kind, 64, &(uint32_t){0}, 0); // nothing forged: still good
        OK(search_all(&t, false));
        forge(&t, forgeries[i].kind, forgeries[i].at, &forgeries[i].bits, sizeof forgeries[i].bits);
        check_told(&t, forgeries[i].kind, false);
        knnlm_status status = kn_index_build(t.path, &(kn_recipe){.lists = 4, .seed = 1}, NULL, &r);
        assert_int_equal(status, forgeries[i].lasting ? KNNLM_EDATA : KNNLM_OK);
        if (status == KNNLM_OK) check_index(&t, &(kn_search_options){.k = 100, .probes = 4});
        fixture_free(&t);
    }
}

// A part that is cut short or gone: the documents are all there. Where keys lie is said twice, and lists can
// be learnt anew; the keys themselves are there once.
static void a_lost_part_costs_no_document(void **state) {
    static const char *const kinds[] = {"order", "listed", "lists", "rows"};
    (void)state;
    for (int i = 0; i < 8; i++) {
        fixture t = fixture_make(16, KNNLM_KEYS_F32, KNNLM_DISTANCE_L2);
        char path[160], ending[16];
        kn_store *s;
        kn_index *x;
        kn_index_result r;
        bool lasting = i / 2 == 3;
        make_lists(&t, 4, 0);
        snprintf(ending, sizeof ending, ".%s", kinds[i / 2]);
        part_path(&t, kinds[i / 2], path);
        assert_int_equal(i % 2 ? unlink(path) : truncate(path, 100), 0);
        OK(kn_store_open(t.path, &s));
        assert_int_equal(kn_store_describe(s)->documents, ENTRIES / DOCUMENT);
        assert_int_equal(kn_index_open(s, &x), KNNLM_EDATA);
        assert_non_null(strstr(knnlm_message(), ending));
        kn_store_close(s);
        knnlm_status status = kn_index_build(t.path, &(kn_recipe){.lists = 4, .seed = 1}, NULL, &r);
        assert_int_equal(status, lasting ? KNNLM_EDATA : KNNLM_OK);
        if (!lasting) check_index(&t, &(kn_search_options){.k = 100, .probes = 4});
        fixture_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_parts_are_errors),
        cmocka_unit_test(senseless_parts_are_errors),
        cmocka_unit_test(a_lost_part_costs_no_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
