// Remembers a text in a store and shows some of its entries: key, value, origin.
//   cc -std=c17 remember.c -o remember $(pkg-config --cflags --libs knnlm)
//   ./remember models/small.gguf notes.store notes.txt
#include <knnlm.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(void) {
    fprintf(stderr, "remember: %s\n", knnlm_message());
    return 1;
}

// One entry with a few tokens of text before it.
static knnlm_status show(const knnlm_store *store, const knnlm_entry *e, float *key, int32_t dimension) {
    knnlm_document d;
    char *before, *value;
    size_t size, context = e->position < 8 ? (size_t)e->position : 8;
    knnlm_status status = knnlm_store_document(store, e->document, &d);
    if (status == KNNLM_OK) status = knnlm_store_keys(store, e->id, 1, key);
    if (status == KNNLM_OK) status = knnlm_store_text(store, e->id - context, context, &before, &size);
    if (status != KNNLM_OK) return status;
    status = knnlm_store_text(store, e->id, 1, &value, &size);
    if (status == KNNLM_OK) {
        printf("%.*s, byte %" PRIu64 ": \"%s\" -> \"%s\"  key (%g, %g, ... %d numbers)\n", (int)d.name_size,
               d.name, e->offset, before, value, key[0], key[dimension - 1], dimension);
        knnlm_free(value);
    }
    knnlm_free(before);
    return status;
}

static knnlm_status show_some(const knnlm_store *store) {
    knnlm_store_info info;
    knnlm_entry e;
    bool found = true;
    knnlm_status status = KNNLM_OK;
    knnlm_store_describe(store, &info);
    float *key = malloc((size_t)info.dimension * sizeof *key);
    printf("%" PRIu64 " entries in %" PRIu64 " bytes\n", info.entries, info.bytes);
    // A tenth of the way each time.
    for (uint64_t id = 0; key && status == KNNLM_OK && found; id = e.id + info.entries / 10 + 1) {
        status = knnlm_store_next(store, id, &e, &found);
        if (status == KNNLM_OK && found) status = show(store, &e, key, info.dimension);
    }
    free(key);
    return status;
}

int main(int argc, char **argv) {
    knnlm_model *model;
    knnlm_store *store;
    if (argc < 4) {
        fprintf(stderr, "usage: remember MODEL STORE TEXT...\n");
        return 2;
    }
    if (knnlm_model_open(argv[1], NULL, &model) != KNNLM_OK) return failed();
    knnlm_status status =
        knnlm_build(model, argv[2], (const char *const *)argv + 3, (size_t)argc - 3, NULL, NULL);
    knnlm_model_close(model);
    if (status != KNNLM_OK || knnlm_store_open(argv[2], &store) != KNNLM_OK) return failed();
    status = show_some(store);
    knnlm_store_close(store);
    return status == KNNLM_OK ? 0 : failed();
}
