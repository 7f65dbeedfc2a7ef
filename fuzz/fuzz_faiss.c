// Any bytes as an IVFPQ index of FAISS: what can be read becomes a store, which is searched, and exported
// again with the same content.
#include "folder.h"
#include "index/faiss.h"
#include "index/index.h"
#include "memory_file.h"
#include "store/writer.h"

enum { FLOATS_MAX = 1 << 16, NEAREST = 8 }; // larger ones are only read

static char file[96];

static void die(const char *what) {
    fprintf(stderr, "fuzz_faiss: %s: %s\n", what, knnlm_message());
    abort();
}

static void discard(const char *name) {
    char *own = kn_store_file(folder, name);
    unlink(own);
    free(own);
}

static void empty(void) {
    unlink(file);
    kn_store_sweep(folder, NULL);
    discard(KN_STORE_MANIFEST);
    discard(KN_STORE_LOCK);
}

static void search(const kn_store *store, size_t d) {
    uint32_t ids[NEAREST], count;
    float distances[NEAREST], *query = calloc(d, sizeof *query);
    kn_search_options o = {.k = NEAREST};
    kn_neighbors out = {ids, distances, &count};
    kn_index *index;
    if (!query) abort();
    query[d / 2] = 1;
    if (kn_index_open(store, &index) != KNNLM_OK) die("imported, and cannot be opened");
    if (kn_index_search(index, query, 1, &o, &out) != KNNLM_OK) die("imported, and cannot be searched");
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] >= kn_store_describe(store)->entries) die("a neighbour that is not there");
    kn_index_close(index);
    free(query);
}

static bool same(const kn_faiss_file *a, const kn_faiss_file *b) {
    return a->d == b->d && a->lists == b->lists && a->probes == b->probes && a->entries == b->entries &&
           a->code_parts == b->code_parts && a->code_bits == b->code_bits && a->distance == b->distance &&
           a->residuals == b->residuals &&
           memcmp(a->centroids, b->centroids, a->lists * a->d * sizeof(float)) == 0 &&
           memcmp(a->code_centroids, b->code_centroids, (a->d << a->code_bits) * sizeof(float)) == 0 &&
           memcmp(a->sizes, b->sizes, a->lists * sizeof *a->sizes) == 0 &&
           memcmp(a->content, b->content, a->entries * (a->code_bytes + sizeof(int64_t))) == 0;
}

static void write_again(const kn_store *store, const kn_faiss_file *f) {
    kn_faiss_file again;
    kn_faiss_totals totals;
    if (kn_faiss_export(store, file, true, NULL, &totals) != KNNLM_OK)
        die("imported, and cannot be exported");
    if (kn_faiss_open(file, &again) != KNNLM_OK) die("exported, and cannot be read");
    if (!same(f, &again)) die("is another now");
    kn_faiss_close(&again);
}

static void import(const kn_faiss_file *f, const uint8_t *data, size_t size) {
    kn_faiss_import_options o = {.settings = {.model = "",
                                              .model_fingerprint = "",
                                              .tokenizer = "",
                                              .tokenizer_fingerprint = "",
                                              .tap = "",
                                              .split = ""}};
    kn_faiss_totals totals;
    kn_store *store;
    memory_file bytes = memory_file_open(data, size);
    knnlm_status status = kn_faiss_import(bytes.path, &o, folder, NULL, &totals);
    memory_file_close(&bytes);
    if (status == KNNLM_EDATA) return;
    if (status != KNNLM_OK) die("read, and cannot be imported");
    if (kn_store_open(folder, &store) != KNNLM_OK) die("imported, and no store");
    search(store, f->d);
    write_again(store, f);
    kn_store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_faiss_file f;
    folder_enter();
    snprintf(file, sizeof file, "%s/again", folder);
    if (kn_faiss_parse("fuzz", data, size, &f) != KNNLM_OK) return 0;
    if (f.lists * f.d + (f.d << f.code_bits) <= FLOATS_MAX) import(&f, data, size);
    kn_faiss_close(&f);
    empty();
    return 0;
}
