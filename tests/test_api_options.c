// The public structs of options: how a library reads those of older and newer callers.
#include "expect.h"

#include "api/api.h"

#include <stdlib.h>
#include <string.h>

// Options as a library has them now, and as a caller of long ago has them.
typedef struct options {
    size_t size;
    int32_t first;
    double second;
} options;
typedef struct old_options {
    size_t size;
    int32_t first;
} old_options;

static const options defaults = {sizeof(options), 1, 2.5};

static void assert_same(const options *a, const options *b) {
    assert_true(a->size == b->size && a->first == b->first && a->second == b->second);
}

static void test_older_callers(void **state) {
    options out = defaults;
    (void)state;
    OK(api_take("options", NULL, &out, sizeof out));
    assert_same(&out, &defaults);
    OK(api_take("options", &(options){sizeof(options), 7, 8}, &out, sizeof out));
    assert_true(out.first == 7 && out.second == 8 && out.size == sizeof(options));
    out = defaults;
    size_t up_to_first = offsetof(old_options, first) + sizeof(int32_t);
    OK(api_take("options", &(old_options){up_to_first, 9}, &out, sizeof out));
    assert_true(out.first == 9 && out.second == 2.5 && out.size == sizeof(options));
}

static void test_wrong_sizes(void **state) {
    options out = defaults;
    const size_t wrong[] = {0, sizeof(size_t) - 1, sizeof(options) + 1, SIZE_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        FAILS(KNNLM_EINVAL, "options: its size",
              api_take("options", &(options){wrong[i], 7, 8}, &out, sizeof out));
        assert_same(&out, &defaults);
    }
}

// Defaults go into a caller's struct and no further; what a newer caller has beyond ours is 0.
static void test_room_of_callers(void **state) {
    unsigned char room[sizeof(options) + 16];
    options out;
    (void)state;
    memset(room, 7, sizeof room);
    api_give(&defaults, sizeof defaults, room, sizeof(old_options));
    memcpy(&out, room, sizeof out);
    assert_true(out.size == sizeof(old_options) && out.first == 1);
    for (size_t i = sizeof(old_options); i < sizeof room; i++) assert_int_equal(room[i], 7);
    api_give(&defaults, sizeof defaults, room, sizeof room);
    memcpy(&out, room, sizeof out);
    assert_true(out.size == sizeof room && out.first == 1 && out.second == 2.5);
    for (size_t i = sizeof out; i < sizeof room; i++) assert_int_equal(room[i], 0);
    knnlm_text_options text = {0};
    knnlm_text_options_init(&text, offsetof(knnlm_text_options, top_k));
    assert_true(text.size == offsetof(knnlm_text_options, top_k) && text.tokens == 128 && text.top_k == 0);
}

// Each function names the struct that it refuses.
#define REFUSES(type, call)                                                                                  \
    do {                                                                                                     \
        type o = type##_default();                                                                           \
        assert_int_equal(o.size, sizeof o);                                                                  \
        o.size = 0;                                                                                          \
        FAILS(KNNLM_EINVAL, #type ": its size is 0", call);                                                  \
        o.size = sizeof o + 8;                                                                               \
        FAILS(KNNLM_EINVAL, #type ": its size", call);                                                       \
    } while (0)

static void test_each_struct(void **state) {
    void *none;
    (void)state;
    REFUSES(knnlm_model_options, knnlm_model_open("no.gguf", &o, (knnlm_model **)&none));
    REFUSES(knnlm_score_options, knnlm_model_score(NULL, NULL, 0, &o, NULL));
    REFUSES(knnlm_build_options, knnlm_build(NULL, "no.store", NULL, 0, &o, NULL));
    REFUSES(knnlm_build_options, knnlm_build_add(NULL, "no.store", NULL, 0, &o, NULL));
    REFUSES(knnlm_build_options, knnlm_build_sync(NULL, "no.store", NULL, 0, &o, NULL));
    REFUSES(knnlm_build_options, knnlm_build_compare("no.store", NULL, 0, &o, NULL, NULL, NULL));
    REFUSES(knnlm_store_settings, knnlm_writer_create("no.store", &o, (knnlm_writer **)&none));
    REFUSES(knnlm_index_options, knnlm_index(NULL, "no.store", &o, NULL));
    REFUSES(knnlm_search_options, knnlm_store_search(NULL, NULL, 0, &o, NULL, NULL, NULL));
    REFUSES(knnlm_index_options, knnlm_index_update(NULL, "no.store", &o, NULL));
    REFUSES(knnlm_index_options, knnlm_index_options_check(&o));
    REFUSES(knnlm_search_options, knnlm_store_knn(NULL, NULL, 0, &o, 1, NULL));
    REFUSES(knnlm_score_options, knnlm_model_states(NULL, NULL, 0, NULL, &o, NULL));
    REFUSES(knnlm_recall_options, knnlm_store_recall(NULL, &o, NULL, NULL));
    REFUSES(knnlm_remove_options, knnlm_store_remove("no.store", &o, NULL));
    REFUSES(knnlm_compact_options, knnlm_store_compact("no.store", &o, NULL));
    REFUSES(knnlm_verify_options, knnlm_store_verify(NULL, &o, NULL));
    REFUSES(knnlm_import_options, knnlm_import("no.store", &o, NULL));
    REFUSES(knnlm_export_options, knnlm_store_export(NULL, "no", &o, NULL));
    REFUSES(knnlm_export_options, knnlm_store_export_faiss(NULL, "no", &o, NULL));
    REFUSES(knnlm_train_options, knnlm_train(NULL, 0, "no.gguf", &o, NULL));
    REFUSES(knnlm_mixture_options, knnlm_mixture_open(NULL, &o, (knnlm_mixture **)&none));
    REFUSES(knnlm_mixture_options, knnlm_eval(NULL, NULL, 1, &o, NULL, NULL));
    REFUSES(knnlm_score_options, knnlm_mixture_rows(NULL, NULL, 0, &o, NULL));
    REFUSES(knnlm_eval_options, knnlm_eval(NULL, NULL, 1, NULL, &o, NULL));
    REFUSES(knnlm_tune_options, knnlm_tune(NULL, NULL, 1, NULL, &o, NULL));
    REFUSES(knnlm_explain_options, knnlm_explain(NULL, "", &o, &(knnlm_explanation){0}));
    REFUSES(knnlm_explain_texts_options, knnlm_explain_texts(NULL, NULL, 1, &o, &(knnlm_token_gains){0}));
    REFUSES(knnlm_text_options, knnlm_text_open(NULL, NULL, 0, &o, (knnlm_text **)&none));
    REFUSES(knnlm_server_options, knnlm_server_open(&o, (knnlm_server **)&none));
}

// The struct on texts is within others.
static void test_texts_within(void **state) {
    knnlm_build_options build = knnlm_build_options_default();
    knnlm_train_options train = knnlm_train_options_default();
    knnlm_eval_options eval = knnlm_eval_options_default();
    knnlm_tune_options tune = knnlm_tune_options_default();
    (void)state;
    build.split_given = true;
    REFUSES(knnlm_input_options, (build.texts = &o, knnlm_build(NULL, "no.store", NULL, 0, &build, NULL)));
    REFUSES(knnlm_input_options, (train.texts = &o, knnlm_train(NULL, 1, "no.gguf", &train, NULL)));
    REFUSES(knnlm_input_options, (eval.texts = &o, knnlm_eval(NULL, NULL, 1, NULL, &eval, NULL)));
    REFUSES(knnlm_input_options, (tune.texts = &o, knnlm_tune(NULL, NULL, 1, NULL, &tune, NULL)));
    build.texts = NULL;
    build.split = (knnlm_split)3;
    FAILS(KNNLM_EINVAL, "`split` 3", knnlm_build(NULL, "no.store", NULL, 0, &build, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_older_callers),   cmocka_unit_test(test_wrong_sizes),
        cmocka_unit_test(test_room_of_callers), cmocka_unit_test(test_each_struct),
        cmocka_unit_test(test_texts_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
