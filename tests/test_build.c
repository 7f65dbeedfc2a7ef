// Building: every token of every document is an entry, its key that of a window cut here by hand; what is
// known is left alone, what changed is replaced; and the public functions give the same.
#include "golden_model.h"

#include "base/convert.h"
#include "base/file.h"
#include "base/threads.h"
#include "build/build.h"
#include "build/source.h"
#include "index/projection.h"

#include <sys/stat.h>
#include <unistd.h>

enum { CONTEXT = 80, WIDTH = 32, DOCUMENTS = 4, PATHS = 160 };
// Nothing but white space; one token; more than a window; more than what the reader gathers at a time.
static const size_t lengths[DOCUMENTS] = {0, 1, 300, 9000};

typedef struct fixture {
    kn_lm *lm;
    char model[GOLDEN_PATH], folder[64], store[PATHS];
    char paths[DOCUMENTS][PATHS];
    const char *names[DOCUMENTS];
    kn_tokens tokens[DOCUMENTS];
} fixture;

// ---------------------------------------------------------------- material

static void write_file(const char *path, const char *text, size_t size) {
    kn_file_writer *w;
    OK(kn_file_writer_open(path, &w));
    OK(kn_file_writer_put(w, text, size));
    OK(kn_file_writer_commit(w));
}

static void write_document(fixture *d, size_t document, size_t seed) {
    const kn_tokenizer *t = kn_lm_tokenizer(d->lm);
    char *text = test_alloc(16 * lengths[document] + 2, 1);
    size_t size = 0;
    for (size_t i = 0; i < lengths[document]; i++)
        size += (size_t)sprintf(
            text + size, "%s%s",
            kn_tokenizer_piece(t, (int32_t)(2 + (i * i + seed) % (size_t)(kn_tokenizer_size(t) - 2))),
            i % 7 == 6 ? "  " : " ");
    if (!size) size = (size_t)sprintf(text, " ");
    write_file(d->paths[document], text, size);
    kn_tokens_free(&d->tokens[document]);
    d->tokens[document].with_offsets = true;
    OK(kn_tokenizer_encode(t, text, size, &d->tokens[document]));
    free(text);
}

static int fixture_open(void **state) {
    fixture *d = test_alloc(1, sizeof *d);
    snprintf(d->model, sizeof d->model, "%s/tests/golden/adaptive.model.gguf", KN_SOURCE_DIR);
    test_folder(d->folder, sizeof d->folder);
    snprintf(d->store, sizeof d->store, "%s/s.store", d->folder);
    setenv("SOURCE_DATE_EPOCH", "1700000000", 1);
    OK(kn_threads_set(2));
    OK(kn_lm_open(d->model, &(kn_lm_options){.precision = KNNLM_PRECISION_F32}, &d->lm));
    for (size_t i = 0; i < DOCUMENTS; i++) {
        snprintf(d->paths[i], sizeof d->paths[i], "%s/%zu.txt", d->folder, i);
        d->names[i] = d->paths[i];
        write_document(d, i, i);
    }
    *state = d;
    return 0;
}

static int fixture_close(void **state) {
    fixture *d = *state;
    char command[128];
    for (size_t i = 0; i < DOCUMENTS; i++) kn_tokens_free(&d->tokens[i]);
    kn_lm_close(d->lm);
    snprintf(command, sizeof command, "rm -rf '%s'", d->folder);
    assert_int_equal(system(command), 0);
    free(d);
    return 0;
}

static kn_build_result build(fixture *d, const kn_build_options *o) {
    kn_build_result r;
    OK(kn_build(d->lm, d->store, d->names, DOCUMENTS, o, NULL, &r));
    return r;
}

static kn_store *open_store(fixture *d) {
    kn_store *s;
    OK(kn_store_open(d->store, &s));
    return s;
}

// ---------------------------------------------------------------- keys

// The key of target `at` by the definition: its window begins `min_context` tokens before a multiple of the
// stride (the first window is the whole context), the model is run on that window alone.
static void expected_key(fixture *d, const kn_tokens *t, size_t at, size_t min_context, float key[WIDTH]) {
    int32_t inputs[CONTEXT];
    float rows[CONTEXT * WIDTH];
    size_t stride = CONTEXT - min_context;
    size_t targets = at < CONTEXT ? 0 : CONTEXT + (at - CONTEXT) / stride * stride; // first of its window
    size_t before = targets < min_context ? targets : min_context, from = targets - before, n = at + 1 - from;
    for (size_t i = 0; i < n; i++)
        inputs[i] = from + i ? t->ids[from + i - 1] : kn_tokenizer_start(kn_lm_tokenizer(d->lm));
    kn_window w = {.inputs = inputs, .length = (int32_t)n, .first = 0};
    OK(kn_lm_run(d->lm, &w, 1, KN_TAP_DEFAULT, &(kn_lm_output){.keys = rows}));
    memcpy(key, rows + (n - 1) * WIDTH, WIDTH * sizeof *key);
}

// The name that a file has as a document.
static const char *called(const char *path) {
    return strrchr(path, '/') + 1;
}

static void check_document(fixture *d, const kn_store *s, uint64_t number, size_t document,
                           size_t min_context) {
    const kn_tokens *t = &d->tokens[document];
    kn_store_document r;
    OK(kn_store_document_at(s, number, &r));
    assert_int_equal(r.tokens, t->count);
    assert_int_equal(r.count, t->count);
    assert_int_equal(r.name_size, strlen(called(d->names[document])));
    assert_memory_equal(r.name, called(d->names[document]), r.name_size);
    for (size_t i = 0; i < t->count; i++) {
        kn_store_entry e;
        float key[WIDTH], want[WIDTH];
        OK(kn_store_entry_at(s, r.first + i, &e));
        assert_int_equal(e.token, t->ids[i]);
        assert_int_equal(e.position, i);
        assert_int_equal(e.offset, t->offsets[i]);
        // Every key near the borders of windows and of the document, and one in seven elsewhere.
        if (i % (CONTEXT - min_context) > 1 && i + 2 < t->count && i % 7) continue;
        expected_key(d, t, i, min_context, want);
        OK(kn_store_keys(s, e.id, 1, key));
        for (size_t j = 0; j < WIDTH; j++)
            assert_true(fabsf(key[j] - want[j]) <= 2e-6f * (1 + fabsf(want[j])));
    }
}

static void every_token_is_an_entry(void **state) {
    fixture *d = *state;
    const int32_t contexts[] = {-1, 0, 7, CONTEXT - 1};
    for (size_t c = 0; c < 4; c++) {
        kn_build_options o = kn_build_options_default();
        o.keys = KNNLM_KEYS_F32;
        o.segment = 777;
        o.min_context = contexts[c];
        // The longest only where windows are cheap.
        size_t count = contexts[c] == CONTEXT - 1 ? 3 : DOCUMENTS;
        snprintf(d->store, sizeof d->store, "%s/%zu.store", d->folder, c);
        kn_build_result r;
        OK(kn_build(d->lm, d->store, d->names, count, &o, NULL, &r));
        kn_store *s = open_store(d);
        size_t total = 0;
        for (size_t i = 0; i < count; i++) total += d->tokens[i].count;
        assert_int_equal(r.entries_added, total);
        assert_int_equal(kn_store_describe(s)->entries, total);
        assert_int_equal(kn_store_describe(s)->documents, count);
        assert_true(kn_store_describe(s)->complete);
        for (size_t i = 0; i < count; i++)
            check_document(d, s, i, i, contexts[c] < 0 ? CONTEXT / 2 : (size_t)contexts[c]);
        kn_store_close(s);
    }
}

// ---------------------------------------------------------------- the same bytes

// Part and manifest files as one hash.
static uint64_t digest(const char *store) {
    char command[256], line[64] = "";
    snprintf(command, sizeof command, "cd '%s' && cat $(ls | grep -v LOCK) | sha256sum", store);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(line, sizeof line, pipe));
    assert_int_equal(pclose(pipe), 0);
    line[16] = 0;
    return strtoull(line, NULL, 16);
}

static void threads_do_not_matter(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    o.segment = 1000;
    o.project = 8;
    uint64_t digests[3];
    for (int i = 0; i < 3; i++) {
        OK(kn_threads_set(i + 1));
        snprintf(d->store, sizeof d->store, "%s/%d.store", d->folder, i);
        build(d, &o);
        digests[i] = digest(d->store);
    }
    assert_int_equal(digests[0], digests[1]);
    assert_int_equal(digests[0], digests[2]);
}

// Stops after some reports, as Ctrl-C does.
static bool stop_after(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    int *left = context;
    (void)what;
    (void)done;
    (void)total;
    (void)unit;
    return --*left > 0;
}

static void a_stopped_build_goes_on(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    o.segment = 500; // commits fall inside documents and inside windows
    build(d, &o);
    uint64_t whole = digest(d->store);
    for (int stop = 1; stop <= 4; stop++) {
        int left = stop, stops = 0;
        snprintf(d->store, sizeof d->store, "%s/stopped%d.store", d->folder, stop);
        for (;; left = stop, stops++) {
            kn_progress progress = {stop_after, &left};
            knnlm_status status = kn_build(d->lm, d->store, d->names, DOCUMENTS, &o, &progress, &r);
            if (status == KNNLM_OK) break;
            assert_int_equal(status, KNNLM_ESTOPPED);
            if (stops > 20) break; // always stopped before its first commit
        }
        if (stops > 20) build(d, &o);
        assert_int_equal(digest(d->store), whole);
    }
}

// ---------------------------------------------------------------- adding

static kn_build_result add(fixture *d, const char *const *names, size_t count) {
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    OK(kn_build_add(d->lm, d->store, names, count, &o, NULL, &r));
    return r;
}

static void known_documents_are_left_alone(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    build(d, &o);
    uint64_t before = digest(d->store);
    kn_build_result r = build(d, &o);
    assert_int_equal(r.documents_unchanged, DOCUMENTS);
    assert_int_equal(r.entries_added, 0);
    r = add(d, d->names, DOCUMENTS);
    assert_int_equal(r.documents_unchanged, DOCUMENTS);
    assert_int_equal(digest(d->store), before);
}

// The one live document of a name.
static uint64_t number_of(const kn_store *s, const char *name) {
    uint64_t found = UINT64_MAX;
    for (uint64_t i = 0; i < kn_store_describe(s)->documents; i++) {
        kn_store_document d;
        OK(kn_store_document_at(s, i, &d));
        if (d.removed || d.name_size != strlen(name) || memcmp(d.name, name, d.name_size) != 0) continue;
        assert_int_equal(found, UINT64_MAX);
        found = i;
    }
    assert_int_not_equal(found, UINT64_MAX);
    return found;
}

// What `from` held comes under the name of `to`, and the other way round if both are wanted.
static void give_text(fixture *d, size_t from, size_t to, bool both) {
    char *a, *b;
    size_t sizes[2];
    OK(kn_file_read(d->paths[from], &a, &sizes[0]));
    OK(kn_file_read(d->paths[to], &b, &sizes[1]));
    write_file(d->paths[to], a, sizes[0]);
    if (both) write_file(d->paths[from], b, sizes[1]);
    free(a);
    free(b);
}

static void check_named(fixture *d, const kn_store *s, size_t name, size_t content) {
    const char *own = d->names[content];
    uint64_t number = number_of(s, called(d->names[name]));
    d->names[content] = d->names[name]; // as check_document expects it
    check_document(d, s, number, content, CONTEXT / 2);
    d->names[content] = own;
}

static void a_name_has_the_content_last_given(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    uint64_t removed;
    knnlm_writer *w;
    o.keys = KNNLM_KEYS_F32;
    o.segment = 700;
    build(d, &o);
    give_text(d, 3, 2, false); // the text of 3 under both names
    kn_build_result r = add(d, d->names + 2, 1);
    assert_int_equal(r.documents_added, 1);
    assert_int_equal(r.documents_replaced, 1);
    assert_int_equal(r.entries_added, d->tokens[3].count);
    assert_int_equal(r.documents, DOCUMENTS);
    kn_store *s = open_store(d);
    check_named(d, s, 2, 3);
    check_named(d, s, 3, 3);
    kn_store_close(s);
    r = add(d, d->names, DOCUMENTS);
    assert_int_equal(r.documents_unchanged, DOCUMENTS);
    OK(knnlm_writer_open(d->store, &w)); // one of the names goes, the other stays
    OK(knnlm_writer_remove(w, called(d->names[3]), &removed));
    assert_int_equal(removed, 1);
    OK(knnlm_writer_commit(w));
    knnlm_writer_close(w);
    s = open_store(d);
    check_named(d, s, 2, 3);
    kn_store_close(s);
}

static void names_change_places(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    const knnlm_keys types[] = {KNNLM_KEYS_F32, KNNLM_KEYS_INT8, KNNLM_KEYS_NONE};
    for (size_t i = 0; i < 3; i++) {
        snprintf(d->store, sizeof d->store, "%s/swap%zu.store", d->folder, i);
        o.keys = types[i];
        build(d, &o);
        give_text(d, 2, 3, true);
        kn_build_result r = add(d, d->names, DOCUMENTS);
        assert_int_equal(r.documents_added, 2);
        assert_int_equal(r.documents_replaced, 2);
        assert_int_equal(r.documents, DOCUMENTS);
        kn_store *s = open_store(d);
        for (size_t x = 2; types[i] == KNNLM_KEYS_F32 && x < 4; x++) check_named(d, s, x, 5 - x);
        for (size_t x = 2; types[i] != KNNLM_KEYS_F32 && x < 4; x++) {
            kn_store_document was, is;
            float a[WIDTH], b[WIDTH];
            OK(kn_store_document_at(s, 5 - x, &was)); // removed, but not yet compacted
            OK(kn_store_document_at(s, number_of(s, called(d->names[x])), &is));
            assert_int_equal(is.count, d->tokens[5 - x].count);
            for (uint64_t e = 0; types[i] == KNNLM_KEYS_INT8 && e < is.count; e++) {
                OK(kn_store_keys(s, was.first + e, 1, a));
                OK(kn_store_keys(s, is.first + e, 1, b));
                assert_memory_equal(a, b, sizeof a); // copied, not rounded again
            }
        }
        kn_store_close(s);
        give_text(d, 2, 3, true);
    }
}

static void changed_documents_are_replaced(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    o.keys = KNNLM_KEYS_F32;
    o.segment = 400;
    build(d, &o);
    write_document(d, 2, 99);
    kn_build_result r = add(d, d->names, DOCUMENTS);
    assert_int_equal(r.documents_added, 1);
    assert_int_equal(r.documents_replaced, 1);
    assert_int_equal(r.documents_unchanged, DOCUMENTS - 1);
    assert_int_equal(r.documents, DOCUMENTS);
    kn_store *s = open_store(d);
    assert_true(kn_store_document_removed(s, 2));
    check_document(d, s, DOCUMENTS, 2, CONTEXT / 2);
    kn_store_close(s);
}

static uint64_t commits(fixture *d) {
    kn_store *store = open_store(d);
    uint64_t generation = kn_store_describe(store)->generation;
    kn_store_close(store);
    return generation;
}

// A document in memory, of many segments: what its file would have given, and before it is whole, nothing.
static void one_document_is_added_whole_or_not_at_all(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    size_t size;
    char *text;
    o.segment = 500;
    o.keys = KNNLM_KEYS_F32;
    OK(kn_build(d->lm, d->store, d->names, DOCUMENTS - 1, &o, NULL, &r));
    uint64_t before = commits(d);
    OK(kn_file_read(d->paths[3], &text, &size));
    kn_document document = {.name = called(d->names[3]), .path = d->names[3], .text = text, .size = size};
    for (int stop = 1; stop <= 8; stop++) {
        int left = stop;
        kn_progress progress = {stop_after, &left};
        assert_int_equal(kn_build_add_one(d->lm, d->store, &document, 500, &progress, &r), KNNLM_ESTOPPED);
        assert_int_equal(commits(d), before);
    }
    OK(kn_build_add_one(d->lm, d->store, &document, 500, NULL, &r));
    assert_int_equal(r.documents_added, 1);
    assert_int_equal(r.entries_added, d->tokens[3].count);
    kn_store *store = open_store(d);
    assert_int_equal(kn_store_describe(store)->documents, DOCUMENTS);
    check_document(d, store, DOCUMENTS - 1, DOCUMENTS - 1, CONTEXT / 2);
    kn_store_close(store);
    text[0] = (char)0xff;
    assert_int_equal(kn_build_add_one(d->lm, d->store, &document, 500, NULL, &r), KNNLM_EDATA);
    assert_int_equal(commits(d), before + 1);
    free(text);
}

static void a_file_given_twice_is_one_document(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    const char *twice[] = {d->paths[2], d->paths[2], d->paths[1]};
    OK(kn_build(d->lm, d->store, twice, 3, &o, NULL, &r));
    assert_int_equal(r.documents_added, 2);
    assert_int_equal(r.documents_unchanged, 1);
    assert_int_equal(r.entries, d->tokens[2].count + d->tokens[1].count);
    OK(kn_build(d->lm, d->store, twice, 3, &o, NULL, &r));
    assert_int_equal(r.documents_unchanged, 3);
    r = add(d, twice, 2);
    assert_int_equal(r.documents_unchanged, 2);
}

static void an_unfinished_document_that_changed_is_read_anew(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    int left = 2;
    kn_progress progress = {stop_after, &left};
    o.keys = KNNLM_KEYS_F32;
    o.segment = 300;
    assert_int_equal(kn_build(d->lm, d->store, &d->names[3], 1, &o, &progress, &r), KNNLM_ESTOPPED);
    kn_store *s = open_store(d);
    assert_false(kn_store_describe(s)->complete);
    assert_in_range(kn_store_describe(s)->entries, 300, d->tokens[3].count - 1);
    kn_store_close(s);
    write_document(d, 3, 1234);
    OK(kn_build(d->lm, d->store, &d->names[3], 1, &o, NULL, &r));
    assert_int_equal(r.documents, 1);
    assert_int_equal(r.entries, d->tokens[3].count);
    s = open_store(d);
    check_document(d, s, 1, 3, CONTEXT / 2);
    kn_store_close(s);
}

// ---------------------------------------------------------------- types of keys

static void keys_are_rounded_as_said(void **state) {
    fixture *d = *state;
    const knnlm_keys types[] = {KNNLM_KEYS_F16, KNNLM_KEYS_INT8};
    size_t n = d->tokens[2].count;
    float *exact = test_alloc(n * WIDTH, sizeof *exact), *kept = test_alloc(n * WIDTH, sizeof *kept);
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    o.keys = KNNLM_KEYS_F32;
    OK(kn_build(d->lm, d->store, &d->names[2], 1, &o, NULL, &r));
    kn_store *s = open_store(d);
    OK(kn_store_keys(s, 0, n, exact));
    kn_store_close(s);
    for (int i = 0; i < 2; i++) {
        snprintf(d->store, sizeof d->store, "%s/type%d.store", d->folder, i);
        o.keys = types[i];
        OK(kn_build(d->lm, d->store, &d->names[2], 1, &o, NULL, &r));
        s = open_store(d);
        OK(kn_store_keys(s, 0, n, kept));
        for (size_t j = 0; j < n * WIDTH; j++) {
            float largest = 0;
            for (size_t k = 0; k < WIDTH; k++) largest = fmaxf(largest, fabsf(exact[j / WIDTH * WIDTH + k]));
            if (types[i] == KNNLM_KEYS_F16)
                assert_true(kept[j] == kn_f16_to_f32(kn_f32_to_f16(exact[j])));
            else
                assert_true(fabsf(kept[j] - exact[j]) <= 0.5001f * largest / 127);
        }
        kn_store_close(s);
    }
    free(exact);
    free(kept);
}

static void no_keys_no_model(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    float key[WIDTH];
    o.keys = KNNLM_KEYS_NONE;
    build(d, &o);
    kn_store *s = open_store(d);
    assert_int_equal(kn_store_describe(s)->entries, 1 + 300 + 9000 + 0);
    assert_int_equal(kn_store_keys(s, 0, 1, key), KNNLM_ENOTSUP);
    kn_store_close(s);
}

// What the model reads again from the tokens of a store without keys is what a store with keys holds, bit for
// bit.
static void the_model_reads_keys_again(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    kn_store *with, *without;
    kn_model_source *source;
    float *want = test_alloc(9301 * WIDTH, sizeof *want), *got = test_alloc(9301 * WIDTH, sizeof *got);
    o.keys = KNNLM_KEYS_F32;
    build(d, &o);
    with = open_store(d);
    OK(kn_store_keys(with, 0, 9301, want));
    snprintf(d->store, sizeof d->store, "%s/none.store", d->folder);
    o.keys = KNNLM_KEYS_NONE;
    build(d, &o);
    without = open_store(d);
    OK(kn_model_source_open(d->lm, without, &source));
    kn_key_source keys = kn_model_source_keys(source);
    const size_t ranges[][2] = {{0, 9301}, {0, 1}, {1, 300}, {250, 100}, {301, 80}, {400, 4000}, {9300, 1}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        OK(keys.read(keys.context, ranges[i][0], ranges[i][1], got));
        assert_memory_equal(got, want + ranges[i][0] * WIDTH, ranges[i][1] * WIDTH * sizeof *got);
    }
    assert_int_equal(keys.read(keys.context, 9301, 1, got), KNNLM_EINVAL);
    kn_model_source_close(source);
    kn_store_close(with);
    kn_store_close(without);
    free(want);
    free(got);
}

// Codes alone: found by both searches, and near to what the keys would give.
static void codes_without_keys(void **state) {
    fixture *d = *state;
    enum { K = 20, QUERIES = 30 };
    kn_build_options o = kn_build_options_default();
    kn_recipe recipe = {.lists = 8, .code_parts = 16, .code_bits = 8, .probes = 8, .seed = 1};
    kn_index_result r;
    kn_index *x;
    kn_searcher *one;
    bool done;
    uint32_t ids[QUERIES * K], single[K], counts[QUERIES];
    float distances[QUERIES * K], nearer[K], *queries = test_alloc(QUERIES * WIDTH, sizeof *queries);
    o.keys = KNNLM_KEYS_F32;
    build(d, &o);
    kn_store *s = open_store(d);
    for (size_t i = 0; i < QUERIES; i++) OK(kn_store_keys(s, i * 311, 1, queries + i * WIDTH));
    kn_store_close(s);
    snprintf(d->store, sizeof d->store, "%s/codes.store", d->folder);
    o.keys = KNNLM_KEYS_NONE;
    build(d, &o);
    OK(kn_build_index(d->store, &recipe, true, d->lm, NULL, &done, &r));
    assert_true(done);
    assert_int_equal(r.info.listed, 9301);
    assert_false(r.info.has_keys);
    OK(kn_build_index(d->store, &recipe, true, d->lm, NULL, &done, &r));
    assert_false(done);
    s = open_store(d);
    OK(kn_index_open(s, &x));
    OK(kn_searcher_open(x, K, &one));
    kn_search_options so = {.k = K};
    OK(kn_index_search(x, queries, QUERIES, &so, &(kn_neighbors){ids, distances, counts}));
    size_t found = 0;
    for (size_t q = 0; q < QUERIES; q++) {
        for (size_t i = 0; i < K; i++) found += ids[q * K + i] == q * 311;
        OK(kn_searcher_find(one, queries + q * WIDTH, &so, &(kn_neighbors){single, nearer, counts}));
        for (size_t i = 0; i < K; i++)
            assert_true(fabsf(nearer[i] - distances[q * K + i]) <= 1e-4f * (1 + distances[q * K + i]));
    }
    assert_true(found >= QUERIES * 9 / 10); // each query is an entry
    kn_searcher_close(one);
    kn_index_close(x);
    kn_store_close(s);
    free(queries);
}

static void projected_keys_are_projections(void **state) {
    fixture *d = *state;
    enum { OUT = 6 };
    size_t n = d->tokens[3].count;
    float *exact = test_alloc(n * WIDTH, sizeof *exact), *kept = test_alloc(n * OUT, sizeof *kept);
    float *want = test_alloc(n * OUT, sizeof *want);
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    kn_pca pca;
    char *path;
    o.keys = KNNLM_KEYS_F32;
    OK(kn_build(d->lm, d->store, &d->names[3], 1, &o, NULL, &r));
    kn_store *s = open_store(d);
    OK(kn_store_keys(s, 0, n, exact));
    kn_store_close(s);
    snprintf(d->store, sizeof d->store, "%s/pca.store", d->folder);
    o.project = OUT;
    OK(kn_build(d->lm, d->store, &d->names[3], 1, &o, NULL, &r));
    s = open_store(d);
    OK(kn_store_keys(s, 0, n, kept));
    OK(kn_store_attachment(s, "projection.gguf", &path));
    OK(kn_projection_open(path, &pca));
    kn_pca_apply(&pca, exact, n, want);
    for (size_t i = 0; i < n * OUT; i++)
        assert_true(fabsf(kept[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i])));
    kn_pca_free(&pca);
    free(path);
    kn_store_close(s);
    free(exact);
    free(kept);
    free(want);
}

// ---------------------------------------------------------------- refusals

static void expect_refusal(fixture *d, const kn_build_options *o, knnlm_status want, const char *word) {
    kn_build_result r;
    assert_int_equal(kn_build(d->lm, d->store, d->names, DOCUMENTS, o, NULL, &r), want);
    if (!strstr(knnlm_message(), word)) fail_msg("\"%s\" does not say \"%s\"", knnlm_message(), word);
    assert_null(strchr(knnlm_message(), '\n'));
}

static void other_settings_are_refused(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default(), other = o;
    build(d, &o);
    uint64_t before = digest(d->store);
    other.keys = KNNLM_KEYS_INT8;
    expect_refusal(d, &other, KNNLM_EINVAL, "`keys` f16, not int8");
    other = o;
    other.min_context = 3;
    expect_refusal(d, &other, KNNLM_EINVAL, "`min_context` 40, not 3");
    other = o;
    other.tap.point = KN_TAP_OUTPUT;
    expect_refusal(d, &other, KNNLM_EINVAL, "`tap` ffn@1, not output@1");
    other = o;
    other.texts.split = KNNLM_SPLIT_WIKI;
    expect_refusal(d, &other, KNNLM_EINVAL, "`split` file, not wiki");
    other = o;
    other.project = 5;
    expect_refusal(d, &other, KNNLM_EINVAL, "`project` none, not pca:5");
    other = o;
    other.tap.layer = 7;
    expect_refusal(d, &other, KNNLM_EINVAL, "layer 7");
    other = o;
    other.memory = 1;
    expect_refusal(d, &other, KNNLM_ENOMEM, "`memory`");
    other = o;
    other.min_context = CONTEXT;
    expect_refusal(d, &other, KNNLM_EINVAL, "`min_context` 80");
    assert_int_equal(digest(d->store), before);
}

static void another_model_is_refused(void **state) {
    fixture *d = *state;
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    char path[GOLDEN_PATH];
    build(d, &o);
    kn_lm *mine = d->lm;
    snprintf(path, sizeof path, "%s/tests/golden/gpt2.model.gguf", KN_SOURCE_DIR);
    OK(kn_lm_open(path, NULL, &d->lm));
    expect_refusal(d, &o, KNNLM_EINVAL, "adaptive.model.gguf");
    expect_refusal(d, &o, KNNLM_EINVAL, "gpt2.model.gguf");
    assert_int_equal(kn_build_add(d->lm, d->store, d->names, 1, &o, NULL, &r), KNNLM_EINVAL);
    kn_lm_close(d->lm);
    d->lm = mine;
}

// ---------------------------------------------------------------- the public functions

static bool count_progress(void *context, const char *phase, uint64_t done, uint64_t total,
                           const char *unit) {
    assert_true(*phase && *unit && (!total || done <= total));
    ++*(int *)context;
    return true;
}

static void check_public_entries(fixture *d, const knnlm_store *store) {
    size_t seen = 0;
    knnlm_entry e;
    knnlm_document doc;
    bool found = true;
    for (uint64_t id = 0;; id = e.id + 1) {
        OK(knnlm_store_next(store, id, &e, &found));
        if (!found) break;
        OK(knnlm_store_document(store, e.document, &doc));
        assert_int_equal(e.token, d->tokens[e.document].ids[e.position]);
        assert_int_equal(e.offset, d->tokens[e.document].offsets[e.position]);
        seen++;
    }
    assert_int_equal(seen, 9301);
    assert_int_equal(knnlm_store_entry(store, 9301, &e), KNNLM_EINVAL);
    assert_int_equal(knnlm_store_document(store, DOCUMENTS, &doc), KNNLM_EINVAL);
}

static void check_public_text(fixture *d, const knnlm_store *store) {
    knnlm_document doc;
    char *text, *want;
    size_t size, want_size;
    OK(knnlm_store_document(store, 2, &doc));
    OK(knnlm_store_text(store, doc.first, doc.entries, &text, &size));
    OK(kn_tokenizer_decode(kn_lm_tokenizer(d->lm), d->tokens[2].ids, d->tokens[2].count, &want, &want_size));
    assert_string_equal(text, want);
    free(want);
    knnlm_free(text);
    assert_int_equal(knnlm_store_text(store, doc.first, 1 << 20, &text, &size), KNNLM_EINVAL);
}

static void public_reading(void **state) {
    fixture *d = *state;
    int reports = 0;
    knnlm_model *model;
    knnlm_store *store;
    knnlm_store_info info;
    knnlm_build_result r;
    knnlm_build_options o = knnlm_build_options_default();
    o.keys = KNNLM_KEYS_F32;
    o.tap = "output@0";
    o.progress = (knnlm_progress){count_progress, &reports};
    OK(knnlm_model_open(d->model, NULL, &model));
    OK(knnlm_build(model, d->store, d->names, DOCUMENTS, &o, &r));
    assert_true(reports > 0);
    assert_int_equal(r.entries, 9301);
    o.tap = "nowhere";
    assert_int_equal(knnlm_build(model, d->store, d->names, DOCUMENTS, &o, &r), KNNLM_EINVAL);
    OK(knnlm_store_open(d->store, &store));
    knnlm_store_describe(store, &info);
    assert_string_equal(info.tap, "output@0");
    assert_int_equal(info.dimension, WIDTH);
    assert_int_equal(info.keys, KNNLM_KEYS_F32);
    assert_true(info.complete && !info.tuned.known && knnlm_store_is_current(store));
    OK(knnlm_store_check_model(store, model));
    check_public_entries(d, store);
    check_public_text(d, store);
    OK(knnlm_build_add(model, d->store, d->names, DOCUMENTS, NULL, &r));
    assert_int_equal(r.documents_unchanged, DOCUMENTS);
    knnlm_model_close(model);
    knnlm_store_close(store);
    assert_int_equal(knnlm_store_open(d->folder, &store), KNNLM_EDATA);
    assert_null(store);
}

static void public_writing(void **state) {
    fixture *d = *state;
    knnlm_store_settings settings = {
        .size = sizeof settings, .dimension = 2, .keys = KNNLM_KEYS_F32, .vocabulary = 10, .segment = 2};
    knnlm_document doc = {.name = "notes/a", .name_size = 7, .path = "a", .path_size = 1, .tokens = 3};
    const int32_t tokens[3] = {1, 2, 9}, bad = 10;
    const float keys[6] = {0, 1, 2, 3, 4, 5};
    knnlm_writer *w, *second;
    knnlm_store *store;
    knnlm_entry e;
    uint64_t removed;
    bool found;
    float got[6];
    OK(knnlm_writer_create(d->store, &settings, &w));
    assert_int_equal(knnlm_writer_open(d->store, &second), KNNLM_EDATA); // not committed: not there yet
    OK(knnlm_writer_begin(w, &doc));
    assert_int_equal(knnlm_writer_append(w, &bad, NULL, keys, 1), KNNLM_EINVAL);
    OK(knnlm_writer_append(w, tokens, NULL, keys, 3));
    OK(knnlm_writer_commit(w));
    assert_int_equal(knnlm_writer_open(d->store, &second), KNNLM_EBUSY);
    assert_null(second);
    knnlm_writer_close(w);
    OK(knnlm_store_open(d->store, &store));
    OK(knnlm_store_keys(store, 0, 3, got));
    assert_memory_equal(got, keys, sizeof keys);
    OK(knnlm_writer_open(d->store, &w));
    OK(knnlm_writer_remove(w, "nothing", &removed));
    assert_int_equal(removed, 0);
    OK(knnlm_writer_remove(w, "notes/*", &removed));
    assert_int_equal(removed, 1);
    OK(knnlm_writer_commit(w));
    knnlm_writer_close(w);
    assert_false(knnlm_store_is_current(store)); // and what is open stays
    OK(knnlm_store_next(store, 0, &e, &found));
    assert_true(found);
    knnlm_store_close(store);
    OK(knnlm_store_open(d->store, &store));
    OK(knnlm_store_next(store, 0, &e, &found));
    assert_false(found);
    knnlm_store_close(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_token_is_an_entry),
        TEST(threads_do_not_matter),
        TEST(a_stopped_build_goes_on),
        TEST(known_documents_are_left_alone),
        TEST(a_name_has_the_content_last_given),
        TEST(names_change_places),
        TEST(changed_documents_are_replaced),
        TEST(one_document_is_added_whole_or_not_at_all),
        TEST(a_file_given_twice_is_one_document),
        TEST(an_unfinished_document_that_changed_is_read_anew),
        TEST(keys_are_rounded_as_said),
        TEST(no_keys_no_model),
        TEST(the_model_reads_keys_again),
        TEST(codes_without_keys),
        TEST(projected_keys_are_projections),
        TEST(other_settings_are_refused),
        TEST(another_model_is_refused),
        TEST(public_reading),
        TEST(public_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
