// A model and a store that remembers a short text, by the public header alone.
#ifndef KN_TESTS_REMEMBERED_H
#define KN_TESTS_REMEMBERED_H

#include "expect.h"

#include <stdio.h>
#include <stdlib.h>

#define MODEL KN_SOURCE_DIR "/models/small.gguf"
static const char remembered[] =
    "The nearest neighbours of a context are the contexts that were followed by similar words. "
    "A store remembers every context, and the word that followed it.\n",
                  asked[] = "A store remembers the word that followed every context of a text.\n";

typedef struct fixture {
    char folder[64], text[96], store[96];
    knnlm_model *model;
    knnlm_model_info info;
    int32_t *tokens;
    size_t count;
} fixture;

static inline int fixture_open(void **state) {
    fixture *d = calloc(1, sizeof *d);
    test_folder(d->folder, sizeof d->folder);
    snprintf(d->text, sizeof d->text, "%s/text.txt", d->folder);
    snprintf(d->store, sizeof d->store, "%s/text.store", d->folder);
    FILE *f = fopen(d->text, "w");
    assert_non_null(f);
    fputs(remembered, f);
    fclose(f);
    OK(knnlm_model_open(
        MODEL, &(knnlm_model_options){.size = sizeof(knnlm_model_options), .precision = KNNLM_PRECISION_F32},
        &d->model));
    const char *texts[] = {d->text};
    knnlm_build_options o = knnlm_build_options_default();
    o.keys = KNNLM_KEYS_F32;
    OK(knnlm_build(d->model, d->store, texts, 1, &o, NULL));
    knnlm_model_describe(d->model, &d->info);
    OK(knnlm_model_encode(d->model, asked, strlen(asked), &d->tokens, &d->count));
    *state = d;
    return 0;
}

static inline int fixture_close(void **state) {
    fixture *d = *state;
    char command[128];
    knnlm_free(d->tokens);
    knnlm_model_close(d->model);
    snprintf(command, sizeof command, "rm -rf %s", d->folder);
    int code = system(command);
    free(d);
    return code;
}

static inline knnlm_mixture_options options_of(fixture *d, const char **store) {
    knnlm_mixture_options o = knnlm_mixture_options_default();
    *store = d->store;
    o.stores = store;
    o.store_count = 1;
    o.temperature = 20;
    return o;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

#endif
