// Makes a store of points in the plane, sorts them into lists, and asks which lie nearest to some places.
//   cc -std=c17 neighbors.c -o neighbors $(pkg-config --cflags --libs knnlm)
//   ./neighbors points.store
#include <knnlm.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { RINGS = 5, POINTS = 360, NEAREST = 3, QUERIES = 2 };

static int failed(void) {
    fprintf(stderr, "neighbors: %s\n", knnlm_message());
    return 1;
}

// A document for every ring, named by its radius: a key is a point on it, its value the degrees.
static knnlm_status write_ring(knnlm_writer *writer, int ring) {
    int32_t tokens[POINTS];
    float keys[POINTS][2];
    char name[32];
    knnlm_document d = {.name = name, .tokens = POINTS};
    d.name_size = (size_t)snprintf(name, sizeof name, "ring %d", ring);
    for (int i = 0; i < POINTS; i++) {
        double angle = 3.14159265358979 * i / 180;
        tokens[i] = i;
        keys[i][0] = (float)(ring * cos(angle));
        keys[i][1] = (float)(ring * sin(angle));
    }
    knnlm_status status = knnlm_writer_begin(writer, &d);
    return status == KNNLM_OK ? knnlm_writer_append(writer, tokens, NULL, keys[0], POINTS) : status;
}

static knnlm_status write_store(const char *path) {
    knnlm_store_settings settings = knnlm_store_settings_default();
    knnlm_writer *writer;
    settings.dimension = 2;
    settings.keys = KNNLM_KEYS_F32;
    knnlm_status status = knnlm_writer_create(path, &settings, &writer);
    if (status != KNNLM_OK) return status;
    for (int ring = 1; ring <= RINGS && status == KNNLM_OK; ring++) status = write_ring(writer, ring);
    if (status == KNNLM_OK) status = knnlm_writer_commit(writer);
    knnlm_writer_close(writer);
    return status;
}

static knnlm_status show(const knnlm_store *store, uint32_t id, float distance) {
    knnlm_entry e;
    knnlm_document d;
    knnlm_status status = knnlm_store_entry(store, id, &e);
    if (status == KNNLM_OK) status = knnlm_store_document(store, e.document, &d);
    if (status == KNNLM_OK)
        printf("  %.*s at %" PRId32 " degrees, squared distance %.4f\n", (int)d.name_size, d.name, e.token,
               (double)distance);
    return status;
}

static knnlm_status search(const knnlm_store *store, const knnlm_search_options *options) {
    const float queries[QUERIES][2] = {{1.1f, 1.1f}, {-3.4f, 0.01f}};
    uint32_t ids[QUERIES][NEAREST], counts[QUERIES];
    float distances[QUERIES][NEAREST];
    knnlm_status status =
        knnlm_store_search(store, queries[0], QUERIES, options, ids[0], distances[0], counts);
    for (int q = 0; q < QUERIES && status == KNNLM_OK; q++) {
        printf("nearest to (%g, %g)\n", (double)queries[q][0], (double)queries[q][1]);
        for (uint32_t i = 0; i < counts[q] && status == KNNLM_OK; i++)
            status = show(store, ids[q][i], distances[q][i]);
    }
    return status;
}

int main(int argc, char **argv) {
    knnlm_index_result result;
    knnlm_store *store;
    knnlm_search_options options = knnlm_search_options_default();
    const uint64_t inner[] = {0, 1};
    if (argc != 2) {
        fprintf(stderr, "usage: neighbors STORE\n");
        return 2;
    }
    if (write_store(argv[1]) != KNNLM_OK || knnlm_index(NULL, argv[1], NULL, &result) != KNNLM_OK ||
        knnlm_store_open(argv[1], &store) != KNNLM_OK)
        return failed();
    printf("%" PRIu64 " entries in %" PRIu32 " lists, of which searches look at %" PRIu32 "\n",
           result.index.listed, result.index.lists, result.index.probes);
    options.k = NEAREST;
    knnlm_status status = search(store, &options);
    options.documents = inner;
    options.document_count = 2;
    puts("and of the two inner rings alone");
    if (status == KNNLM_OK) status = search(store, &options);
    knnlm_store_close(store);
    return status == KNNLM_OK ? 0 : failed();
}
