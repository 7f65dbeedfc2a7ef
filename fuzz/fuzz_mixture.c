// A store, its index and its tuned settings, made of any bytes, with a tiny model: what opens is searched and
// mixed, and what comes out is a distribution.
//
// An input is: a byte of flags (below), the JSON of a manifest, a NUL, and bytes that fill the files which
// the manifest names, as of fuzz_store.
#include "base/threads.h"
#include "eval/score_batch.h"
#include "knn/next.h"
#include "store_files.h"

#include <math.h>

enum { SEALED = 1, FALLBACK = 2, CODES = 4, EXACT = 8, SINGLE_WEIGHT = 16, SELF = 32 }; // flags
enum { TOKENS = 5, VOCABULARY_MAX = 64, ENTRIES_MAX = 1 << 12 };

static kn_lm *lm;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    if (kn_threads_set(1) != KNNLM_OK ||
        kn_lm_open(KN_SOURCE_DIR "/fuzz/corpus/model/plain.gguf", NULL, &lm) != KNNLM_OK)
        die("no model");
    folder_enter();
    return 0;
}

static void expect_log(double log, const char *what) {
    if (!(log <= 1e-6)) die(what);
}

// The text is scored, with the most probable tokens of every place.
static void score(const kn_mixture *m, const int32_t *tokens) {
    enum { TOP = 3 };
    kn_score_result results[TOKENS];
    int32_t ranked[(TOKENS + 1) * TOP];
    double ranked_p[(TOKENS + 1) * TOP], own_p[TOKENS];
    kn_score_text a = {.tokens = tokens,
                       .count = TOKENS,
                       .mixture = m,
                       .results = results,
                       .top = TOP,
                       .ranked = ranked,
                       .ranked_p = ranked_p,
                       .own_p = own_p,
                       .next_mixture = m};
    if (kn_score_batch(lm, &a, 1, NULL, NULL) != KNNLM_OK)
        return; // a tap that the model lacks, a damaged list
    for (int i = 0; i < TOKENS; i++) {
        expect_log(results[i].p, "a probability above 1");
        expect_log(own_p[i], "a probability above 1");
        expect_log(ranked_p[i * TOP], "a probability above 1");
        if (ranked_p[i * TOP] < own_p[i] - 1e-9) die("not the most probable token");
        if (!(results[i].lambda >= 0 && results[i].lambda <= 1 + 1e-9)) die("a weight beyond 0 and 1");
    }
}

static void predict_next(const kn_mixture *m, const int32_t *tokens) {
    kn_nexts *nexts;
    double sum = 0;
    if (kn_nexts_open(lm, &(kn_context){tokens, TOKENS, m}, 1, &nexts) != KNNLM_OK) return;
    const kn_distribution *next = &kn_nexts_at(nexts, 0)->distribution;
    for (int32_t t = 0; t < kn_lm_describe(lm)->vocabulary; t++) sum += kn_distribution_probability(next, t);
    if (!(fabs(sum - 1) < 1e-4)) die("the probabilities are not 1 in sum");
    kn_nexts_close(nexts);
}

static void use(uint8_t flags) {
    static const int32_t tokens[TOKENS] = {1, 3, 2, 4, 1};
    kn_mixture *m;
    kn_store_choice choice = {
        .path = folder, .weight = flags & SINGLE_WEIGHT ? .5 : NAN, .temperature = NAN, .k = 7};
    kn_mixture_options o = {.stores = &choice,
                            .store_count = 1,
                            .lambda = NAN,
                            .temperature = NAN,
                            .codes = flags & CODES,
                            .exact = !(flags & CODES) && flags & EXACT,
                            .distance = -1,
                            .fallback = flags & FALLBACK,
                            .include_self = flags & SELF,
                            .cache_lambda = NAN,
                            .cache_temperature = NAN};
    if (kn_mixture_open(lm, &o, &m) != KNNLM_OK) return;
    score(m, tokens);
    predict_next(m, tokens);
    kn_mixture_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_manifest m;
    input files;
    if (!size) return 0;
    const uint8_t *end = cut_input(data + 1, size - 1, &files);
    if (!parse_manifest(data + 1, (size_t)(end - data) - 1, &m)) return 0;
    bool written =
        m.entries <= ENTRIES_MAX && write_files(&files, &m, data[0] & SEALED) && write_manifest(&m);
    kn_manifest_free(&m);
    if (written) use(data[0]);
    remove_files();
    return 0;
}
