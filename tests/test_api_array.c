// NumPy's arrays, the tokenizer of a store, prompts that end with a space, and filters by name: by the public
// header.
#include "remembered.h"

#include <math.h>

static void arrays_come_back(void **state) {
    const float data[] = {1, -2.5f, 0, 1e30f, 5, INFINITY};
    fixture *d = *state;
    char path[512];
    float *back;
    size_t rows, columns;
    snprintf(path, sizeof path, "%s.npy", d->store);
    OK(knnlm_array_write(path, KNNLM_ARRAY_F32, data, 2, 3));
    OK(knnlm_array_read(path, NULL, &back, &rows, &columns));
    assert_true(rows == 2 && columns == 3 && memcmp(back, data, sizeof data) == 0);
    knnlm_free(back);
    OK(knnlm_array_write(path, KNNLM_ARRAY_INT64, (const int64_t[]){1, 2}, 1, 2));
    FAILS(KNNLM_ENOTSUP, "int64", knnlm_array_read(path, NULL, &back, &rows, &columns));
    assert_null(back);
    FAILS(KNNLM_EINVAL, "no type", knnlm_array_write(path, KNNLM_ARRAY_ANY, data, 2, 3));
    FAILS(KNNLM_EINVAL, "no type", knnlm_array_write(path, (knnlm_array_type)99, data, 2, 3));
    FAILS(KNNLM_EIO, "nowhere", knnlm_array_read("nowhere.npy", NULL, &back, &rows, &columns));
    FAILS(KNNLM_EIO, "nowhere", knnlm_array_write("nowhere/a.npy", KNNLM_ARRAY_F32, data, 2, 3));
    assert_int_equal(unlink(path), 0);
}

static void a_store_has_its_tokenizer(void **state) {
    fixture *d = *state;
    knnlm_store *store;
    int32_t *by_model, *by_store;
    size_t count, same, size;
    char *text;
    OK(knnlm_store_open(d->store, &store));
    OK(knnlm_model_encode(d->model, remembered, strlen(remembered), &by_model, &count));
    OK(knnlm_store_encode(store, remembered, strlen(remembered), &by_store, &same));
    assert_int_equal(same, count);
    assert_memory_equal(by_store, by_model, count * sizeof *by_model);
    OK(knnlm_store_decode(store, by_store, same, &text, &size));
    assert_string_equal(text, remembered);
    knnlm_free(text);
    knnlm_free(by_model);
    knnlm_free(by_store);
    knnlm_store_close(store);
}

static void the_last_space_is_the_next_words(void **state) {
    static const struct {
        const char *text, *encoded;
        bool space;
    } cases[] = {{"The word ", "The word", true},
                 {"The word", "The word", false},
                 {"The  ", "The ", true},
                 {" ", " ", false},
                 {"", "", false},
                 {"a\n", "a\n", false}};
    fixture *d = *state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int32_t *prompt, *plain;
        size_t count, same;
        bool space;
        OK(knnlm_model_encode_prompt(d->model, cases[i].text, strlen(cases[i].text), &prompt, &count,
                                     &space));
        OK(knnlm_model_encode(d->model, cases[i].encoded, strlen(cases[i].encoded), &plain, &same));
        assert_int_equal(space, cases[i].space);
        assert_int_equal(count, same);
        if (count) assert_memory_equal(prompt, plain, count * sizeof *plain);
        knnlm_free(prompt);
        knnlm_free(plain);
    }
}

static void names_choose_documents(void **state) {
    fixture *d = *state;
    const char *all[] = {"*"}, *none[] = {"nobody"};
    knnlm_search_options o = knnlm_search_options_default();
    knnlm_store *store;
    knnlm_store_info info;
    uint32_t ids[4], count;
    float distances[4];
    OK(knnlm_store_open(d->store, &store));
    knnlm_store_describe(store, &info);
    float *query = test_alloc((size_t)info.dimension, sizeof *query);
    o.k = 4;
    o.only = all;
    o.only_count = 1;
    OK(knnlm_store_search(store, query, 1, &o, ids, distances, &count));
    assert_int_equal(count, 4);
    o.except = all;
    o.except_count = 1;
    FAILS(KNNLM_EINVAL, "leave none", knnlm_store_search(store, query, 1, &o, ids, distances, &count));
    o.except = none;
    OK(knnlm_store_search(store, query, 1, &o, ids, distances, &count));
    o.only = none;
    FAILS(KNNLM_EINVAL, "leave none", knnlm_store_search(store, query, 1, &o, ids, distances, &count));
    o.documents = (const uint64_t[]){0};
    o.document_count = 1;
    FAILS(KNNLM_EINVAL, "one at a time", knnlm_store_search(store, query, 1, &o, ids, distances, &count));
    free(query);
    knnlm_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(arrays_come_back),
        TEST(a_store_has_its_tokenizer),
        TEST(the_last_space_is_the_next_words),
        TEST(names_choose_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
