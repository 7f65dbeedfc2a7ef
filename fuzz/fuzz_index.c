// Any note and any parts as the index of a small store: one that opens is searched, both ways.
//
// Input: u16 bytes of the note, the note; then parts: u8 kind, u16 count, u16 bytes, the bytes. What the
// input does not say is zero. The files are written here rather than by the store's writer, which would take
// ten times as long; their checksums are right, and only their meaning is wild.
#include "base/threads.h"
#include "index/index.h"
#include "store_files.h"

enum { ENTRIES = 40, DIMENSION = 4, K = 6, PARTS = 8 };

static const char *const kinds[] = {"lists", "order", "rows", "codes"};
static kn_manifest base; // of the store without an index

static void write_store(void) {
    kn_store_settings s = {
        .key_type = KNNLM_KEYS_F32, .dimension = DIMENSION, .model_dimension = DIMENSION, .segment = 16};
    kn_store_document d = {.name = "d", .name_size = 1, .tokens = ENTRIES};
    int32_t tokens[ENTRIES] = {0};
    float keys[ENTRIES * DIMENSION];
    kn_store_writer *w;
    for (int i = 0; i < ENTRIES * DIMENSION; i++) keys[i] = (float)(i * 7 % 23);
    if (kn_store_create(folder, &s, &w) != KNNLM_OK || kn_store_writer_document(w, &d) != KNNLM_OK ||
        kn_store_writer_append(w, tokens, NULL, keys, ENTRIES) != KNNLM_OK ||
        kn_store_writer_commit(w) != KNNLM_OK)
        die("no store");
    kn_store_writer_close(w);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    char path[160];
    kn_map map;
    (void)argc;
    (void)argv;
    if (kn_threads_set(1) != KNNLM_OK) abort();
    folder_enter();
    write_store();
    snprintf(path, sizeof path, "%s/" KN_STORE_MANIFEST, folder);
    if (kn_map_open(path, &map) != KNNLM_OK ||
        kn_manifest_parse(path, (const char *)map.data, map.size, &base) != KNNLM_OK)
        die("no manifest");
    kn_map_close(&map);
    return 0;
}

static uint32_t take_number(input *in, size_t bytes) {
    uint8_t digits[4] = {0};
    take(in, digits, bytes);
    return digits[0] | (uint32_t)digits[1] << 8;
}

static bool write_index_part(input *in, kn_manifest *m) {
    kn_annex_part p = {.file = m->next_file++, .payload = KN_PART_HEADER};
    strcpy(p.kind, kinds[take_number(in, 1) % 4]);
    p.count = take_number(in, 2);
    size_t size = take_number(in, 2);
    if (size > in->size) size = in->size;
    input bytes = {in->data, size};
    in->data += size;
    in->size -= size;
    return kn_part_extend(&p.payload, size, 1) &&
           write_part(&bytes, p.file, p.kind, KN_PART_ANNEX, p.count, p.payload, true, &p.seal) &&
           kn_annex_add(&m->annex, &p) == KNNLM_OK;
}

// False: the note is no JSON object, which the store refuses.
static bool write_index(input *in) {
    kn_manifest m;
    size_t size = take_number(in, 2);
    if (size > in->size) size = in->size;
    if (kn_manifest_copy(&base, &m) != KNNLM_OK) die("cannot be copied");
    m.annex.note = kn_strndup((const char *)in->data, size);
    in->data += size;
    in->size -= size;
    bool written = true;
    for (int i = 0; i < PARTS && in->size && written; i++) written = write_index_part(in, &m);
    written = written && write_manifest(&m);
    kn_manifest_free(&m);
    return written;
}

// Damage is an error, after which nothing is known of the results; never the caller's fault.
static void judge(knnlm_status status, const uint32_t *ids, uint32_t count) {
    if (status == KNNLM_EINVAL) abort();
    for (uint32_t i = 0; status == KNNLM_OK && i < count; i++)
        if (ids[i] >= ENTRIES) abort();
}

static void search(const kn_index *x) {
    float query[DIMENSION] = {1, 2, 3, 4}, distances[K];
    uint32_t ids[K], count = 0;
    kn_neighbors out = {ids, distances, &count};
    kn_search_options o = {.k = K, .probes = 3};
    kn_searcher *s;
    knnlm_status found = kn_index_search(x, query, 1, &o, &out);
    judge(found, ids, count);
    if (kn_searcher_open(x, K, &s) != KNNLM_OK) return;
    for (o.k = K; o.k; o.k = o.k > 2 ? 2 : 0) { // of so few, codes are looked at first
        knnlm_status status = kn_searcher_find(s, query, &o, &out);
        judge(status, ids, count);
    }
    kn_searcher_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size};
    kn_store *store;
    kn_index *index;
    if (!write_index(&in) || kn_store_open(folder, &store) != KNNLM_OK) return 0;
    if (kn_index_open(store, &index) == KNNLM_OK) {
        search(index);
        kn_index_close(index);
    }
    kn_store_close(store);
    return 0;
}
