// Vectors and values of one's own, without a model or a text: p_kNN of what follows a point. Usage: vectors
// STORE
#include <knnlm.h>

#include <math.h>
#include <stdio.h>

enum { POINTS = 360, PARTS = 4 };

// Points on a circle; the value of each is the quarter that it lies in.
static knnlm_status write_store(const char *path) {
    float keys[POINTS][2];
    int32_t values[POINTS];
    knnlm_store_settings settings = knnlm_store_settings_default();
    knnlm_writer *writer;
    settings.dimension = 2;
    settings.vocabulary = PARTS;
    settings.keys = KNNLM_KEYS_F32;
    for (int i = 0; i < POINTS; i++) {
        double angle = i * 3.14159265358979 / 180;
        keys[i][0] = (float)cos(angle);
        keys[i][1] = (float)sin(angle);
        values[i] = i / (POINTS / PARTS);
    }
    knnlm_status status = knnlm_writer_create(path, &settings, &writer);
    if (status != KNNLM_OK) return status;
    status =
        knnlm_writer_begin(writer, &(knnlm_document){.name = "circle", .name_size = 6, .tokens = POINTS});
    if (status == KNNLM_OK) status = knnlm_writer_append(writer, values, NULL, keys[0], POINTS);
    if (status == KNNLM_OK) status = knnlm_writer_commit(writer);
    knnlm_writer_close(writer);
    return status;
}

// Near the border of two quarters both are probable; one query by itself, which is soonest.
static knnlm_status ask(const knnlm_store *store) {
    const float query[2] = {0.02f, 1};
    double p[PARTS];
    knnlm_search_options options = knnlm_search_options_default();
    options.k = 16;
    options.singly = true;
    knnlm_status status = knnlm_store_knn(store, query, 1, &options, 0.01, p);
    for (int i = 0; status == KNNLM_OK && i < PARTS; i++) printf("quarter %d: %.3f\n", i, p[i]);
    return status;
}

int main(int argc, char **argv) {
    knnlm_store *store;
    if (argc != 2) return 2;
    knnlm_status status = write_store(argv[1]);
    if (status == KNNLM_OK) status = knnlm_store_open(argv[1], &store);
    if (status == KNNLM_OK) {
        status = ask(store);
        knnlm_store_close(store);
    }
    if (status != KNNLM_OK) fprintf(stderr, "%s\n", knnlm_message());
    return status == KNNLM_OK ? 0 : 1;
}
