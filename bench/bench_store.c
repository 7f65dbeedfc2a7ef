// The store: how much of the model's speed a build keeps, and how long a large store takes to open.
#include "harness.h"

#include "base/file.h"
#include "build/build.h"

#include <unistd.h>

#define USAGE                                                                                                \
    "bench_store rate MODEL TEXT STORE REPEATS   a line a repeat: entries/s of the bare model by windows,\n" \
    "                                            of a build, of a build by windows where it was a stream\n"  \
    "bench_store make STORE ENTRIES DIMENSION    a synthetic store (dimension 0: without keys)\n"            \
    "bench_store open STORE REPEATS              a line a repeat: milliseconds; then resident bytes\n"

enum { BATCH = 8192 }; // window tokens a call, as the reader gathers them

// ---------------------------------------------------------------- rate

typedef struct text {
    int32_t *stream; // start token, then the tokens
    size_t tokens;
    kn_window *windows;
    size_t count;
} text;

// The windows of a build, cut here by hand: as many targets as fit first, then half a context at a time.
static void cut(text *t, size_t context) {
    size_t half = context - context / 2;
    t->windows = bench_need(kn_alloc(t->tokens / half + 2, sizeof *t->windows));
    for (size_t done = 0, n; done < t->tokens; done += n) {
        size_t before = done ? context - half : 0;
        n = kn_min(t->tokens - done, context - before);
        t->windows[t->count++] = (kn_window){
            .inputs = t->stream + done - before, .length = (int32_t)(before + n), .first = (int32_t)before};
    }
}

static text load(kn_lm *lm, const char *path) {
    kn_tokens tokens = {0};
    char *data;
    size_t size;
    bench_check(kn_file_read(path, &data, &size));
    bench_check(kn_tokens_push(&tokens, kn_tokenizer_start(kn_lm_tokenizer(lm)), 0));
    bench_check(kn_tokenizer_encode(kn_lm_tokenizer(lm), data, size, &tokens));
    free(data);
    text t = {.stream = tokens.ids, .tokens = tokens.count - 1};
    cut(&t, (size_t)kn_lm_describe(lm)->window);
    return t;
}

static double bare(kn_lm *lm, const text *t, float *keys) {
    double start = kn_seconds();
    for (size_t i = 0, n; i < t->count; i += n) {
        size_t tokens = 0;
        for (n = 0; i + n < t->count && tokens < BATCH; n++) tokens += (size_t)t->windows[i + n].length;
        bench_check(kn_lm_run(lm, t->windows + i, n, KN_TAP_DEFAULT, &(kn_lm_output){.keys = keys}));
    }
    return (double)t->tokens / (kn_seconds() - start);
}

static void delete_store(const char *path) {
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) bench_check(kn_fail(KNNLM_EIO, "%s: cannot delete", path));
}

// As a user builds: file in, store on disk, synced. `min_context`: negative for the default.
static double build(kn_lm *lm, const char *path, const char *store, int32_t min_context) {
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    o.min_context = min_context;
    delete_store(store);
    bench_check(kn_build(lm, store, &path, 1, &o, NULL, &r));
    // r.seconds counts from the creation of the store to the last commit: the estimate comes before.
    return (double)r.entries_added / r.seconds;
}

static int rate(const char *model, const char *path, const char *store, int repeats) {
    kn_lm *lm;
    bench_check(kn_lm_open(model, NULL, &lm));
    text t = load(lm, path);
    size_t max = BATCH + (size_t)kn_lm_describe(lm)->window;
    float *keys = bench_need(kn_alloc(max, (size_t)kn_lm_describe(lm)->key_width * sizeof *keys));
    bare(lm, &t, keys); // touches all memory
    for (int i = 0; i < repeats; i++) {
        printf("%.1f", bare(lm, &t, keys));
        printf(" %.1f", build(lm, path, store, -1));
        // A given context is what turns streams off.
        if (kn_lm_describe(lm)->stream)
            printf(" %.1f", build(lm, path, store, kn_lm_describe(lm)->window / 2));
        printf("\n");
    }
    delete_store(store);
    free(keys);
    free(t.windows);
    free(t.stream);
    kn_lm_close(lm);
    return 0;
}

// ---------------------------------------------------------------- a large store

enum { DOCUMENT = 800 }; // tokens, as an article of Wikipedia has

static void add_document(kn_store_writer *w, uint64_t number, uint64_t tokens, kn_random *random,
                         size_t dimension) {
    static int32_t ids[DOCUMENT];
    static uint64_t offsets[DOCUMENT];
    static float keys[DOCUMENT * 256];
    char name[64];
    for (size_t i = 0; i < tokens; i++) {
        ids[i] = (int32_t)kn_random_below(random, 50000);
        offsets[i] = 4 * i;
    }
    for (size_t i = 0; i < tokens * dimension; i++) keys[i] = (float)kn_random_unit(random);
    int size = snprintf(name, sizeof name, "synthetic.txt#%llu", (unsigned long long)number);
    kn_store_document d = {.name = name,
                           .path = "synthetic.txt",
                           .name_size = (size_t)size,
                           .path_size = 13,
                           .bytes = 4 * tokens,
                           .tokens = tokens,
                           .hash = {kn_mix64(number + 1), number},
                           .has_offsets = true};
    bench_check(kn_store_writer_document(w, &d));
    bench_check(kn_store_writer_append(w, ids, offsets, dimension ? keys : NULL, tokens));
}

static int make(const char *path, uint64_t entries, int32_t dimension) {
    kn_store_settings s = {.vocabulary = 50000,
                           .key_type = dimension ? KNNLM_KEYS_INT8 : KNNLM_KEYS_NONE,
                           .dimension = dimension ? dimension : 1,
                           .model_dimension = dimension ? dimension : 1,
                           .segment = KN_STORE_SEGMENT_DEFAULT};
    kn_store_writer *w;
    kn_random random = {1};
    if (dimension > 256) return bench_usage(USAGE);
    bench_check(kn_store_create(path, &s, &w));
    for (uint64_t done = 0, number = 0; done < entries; number++) {
        uint64_t n = entries - done < DOCUMENT ? entries - done : DOCUMENT;
        add_document(w, number, n, &random, (size_t)dimension);
        done += n;
    }
    bench_check(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    return 0;
}

// Open, and one entry from the middle: what a program does before its first answer.
static int open_store(const char *path, int repeats) {
    uint64_t resident = 0;
    for (int i = 0; i < repeats; i++) {
        kn_store *store;
        kn_store_entry e;
        uint64_t before = kn_memory_resident();
        double start = kn_seconds();
        bench_check(kn_store_open(path, &store));
        bench_check(kn_store_entry_at(store, kn_store_describe(store)->entries / 2, &e));
        printf("%.3f\n", 1e3 * (kn_seconds() - start));
        uint64_t after = kn_memory_resident();
        if (after - before > resident) resident = after - before;
        kn_store_close(store);
    }
    printf("resident %llu %llu\n", (unsigned long long)resident, (unsigned long long)kn_memory_peak());
    return 0;
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    if (argc == 6 && strcmp(verb, "rate") == 0) return rate(argv[2], argv[3], argv[4], atoi(argv[5]));
    if (argc == 5 && strcmp(verb, "make") == 0)
        return make(argv[2], strtoull(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 4 && strcmp(verb, "open") == 0) return open_store(argv[2], atoi(argv[3]));
    return bench_usage(USAGE);
}
