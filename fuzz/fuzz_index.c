// Any note and any parts as the index of a small store: one that opens is searched, both ways.
//
// Input: u16 bytes of the note, the note; then parts: u8 kind, u16 count, u16 bytes, the bytes. What the
// input does not say is zero. The store writes them itself, so that checksums are right and only their
// meaning is wild.
#include "base/threads.h"
#include "index/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES = 40, DIMENSION = 4, K = 6, PARTS = 8 };
static char folder[64], path[96];

static const char *const kinds[] = {"lists", "order", "rows", "codes"};

// Room for the store: in memory where the system has such a place.
static void make_folder(void) {
    snprintf(folder, sizeof folder, "/dev/shm/knnlm-fuzz-index-XXXXXX");
    if (!mkdtemp(folder)) {
        snprintf(folder, sizeof folder, "/tmp/knnlm-fuzz-index-XXXXXX");
        if (!mkdtemp(folder)) abort();
    }
    snprintf(path, sizeof path, "%s/s", folder);
}

static void delete_folder(void) {
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    kn_store_settings s = {
        .key_type = KN_KEYS_F32, .dimension = DIMENSION, .model_dimension = DIMENSION, .segment = 16};
    kn_store_document d = {.name = "d", .name_size = 1, .tokens = ENTRIES};
    int32_t tokens[ENTRIES] = {0};
    float keys[ENTRIES * DIMENSION];
    kn_store_writer *w;
    (void)argc;
    (void)argv;
    if (kn_threads_set(1) != KNNLM_OK) abort();
    make_folder();
    atexit(delete_folder);
    for (int i = 0; i < ENTRIES * DIMENSION; i++) keys[i] = (float)(i * 7 % 23);
    if (kn_store_create(path, &s, &w) != KNNLM_OK || kn_store_writer_document(w, &d) != KNNLM_OK ||
        kn_store_writer_append(w, tokens, NULL, keys, ENTRIES) != KNNLM_OK ||
        kn_store_writer_commit(w) != KNNLM_OK)
        abort();
    kn_store_writer_close(w);
    return 0;
}

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

static uint32_t take_number(input *in, size_t bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes && in->size; i++, in->data++, in->size--)
        value |= (uint32_t)*in->data << 8 * i;
    return value;
}

static const uint8_t *take_bytes(input *in, size_t *size) {
    const uint8_t *at = in->data;
    if (*size > in->size) *size = in->size;
    in->data += *size;
    in->size -= *size;
    return at;
}

// False: the note is no JSON object, which the store refuses.
static bool write_index(input *in) {
    kn_store_writer *w;
    kn_annex_writer *a;
    size_t size = take_number(in, 2);
    const uint8_t *bytes = take_bytes(in, &size);
    char *note = kn_strndup((const char *)bytes, size);
    if (!note || kn_store_write(path, &w) != KNNLM_OK || kn_annex_open(w, false, &a) != KNNLM_OK) abort();
    for (int i = 0; i < PARTS && in->size; i++) {
        const char *kind = kinds[take_number(in, 1) % 4];
        uint32_t count = take_number(in, 2);
        size = take_number(in, 2);
        bytes = take_bytes(in, &size);
        if (kn_annex_begin(a, kind) != KNNLM_OK || kn_annex_put(a, bytes, size) != KNNLM_OK ||
            kn_annex_seal(a, count) != KNNLM_OK)
            abort();
    }
    bool written = kn_annex_commit(a, note) == KNNLM_OK;
    kn_store_writer_close(w);
    free(note);
    return written;
}

static void search(const kn_index *x) {
    float query[DIMENSION] = {1, 2, 3, 4}, distances[K];
    uint32_t ids[K], count;
    kn_neighbors out = {ids, distances, &count};
    kn_search_options o = {.k = K, .probes = 3};
    kn_searcher *s;
    if (kn_index_search(x, query, 1, &o, &out) == KNNLM_EINVAL) abort();
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] >= ENTRIES) abort();
    if (kn_searcher_open(x, K, &s) != KNNLM_OK) return;
    for (o.k = K; o.k; o.k = o.k > 2 ? 2 : 0) { // of so few, codes are looked at first
        count = 0;
        if (kn_searcher_find(s, query, &o, &out) == KNNLM_EINVAL) abort();
        for (uint32_t i = 0; i < count; i++)
            if (ids[i] >= ENTRIES) abort();
    }
    kn_searcher_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size};
    kn_store *store;
    kn_index *index;
    if (!write_index(&in) || kn_store_open(path, &store) != KNNLM_OK) return 0;
    if (kn_index_open(store, &index) == KNNLM_OK) {
        search(index);
        kn_index_close(index);
    }
    kn_store_close(store);
    return 0;
}
