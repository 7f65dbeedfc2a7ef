// Models through llama.cpp: how much of its own speed is left. Both sides read the same windows in turn, in
// one process, by the same library; the peer is llama.cpp called directly, as its own tools call it.
#include "harness.h"

#include "base/file.h"
#include "base/threads.h"
#include "build/build.h"
#include "lm/llama/library.h"

#include <math.h>

#define USAGE                                                                                                \
    "bench_llama MODEL TEXT STORE THREADS ROUNDS    (STORE is deleted; THREADS 0: one per core)\n"           \
    "a line a contender and round: its name, window tokens per second (those named after steps: tokens per " \
    "second\nof texts that go on one token at a time); then what was read, and how far apart both sides' "   \
    "log-probabilities are\n"

enum { BATCH = 8192 }; // window tokens a call, as the reader gathers them

// ---------------------------------------------------------------- the windows of a build

typedef struct text {
    int32_t *stream; // start token, then the tokens
    size_t tokens, width;
    kn_window *windows;
    size_t count, read; // windows; tokens in all of them
} text;

// Cut here by hand: as many targets as fit first, then half a window at a time.
static void cut(text *t) {
    size_t score = t->width - t->width / 2;
    t->windows = bench_need(kn_alloc(t->tokens / score + 2, sizeof *t->windows));
    for (size_t done = 0, n; done < t->tokens; done += n) {
        size_t before = done ? t->width - score : 0;
        const int32_t *inputs = t->stream + done - before;
        n = kn_min(t->tokens - done, t->width - before);
        t->windows[t->count++] = (kn_window){.inputs = inputs,
                                             .targets = inputs + 1,
                                             .length = (int32_t)(before + n),
                                             .first = (int32_t)before};
        t->read += before + n;
    }
}

static text text_load(kn_lm *lm, const char *path) {
    kn_tokens tokens = {0};
    char *data;
    size_t size;
    bench_check(kn_file_read(path, &data, &size));
    bench_check(kn_tokens_push(&tokens, kn_tokenizer_start(kn_lm_tokenizer(lm)), 0));
    bench_check(kn_tokenizer_encode(kn_lm_tokenizer(lm), data, size, &tokens));
    free(data);
    text t = {.stream = tokens.ids, .tokens = tokens.count - 1, .width = (size_t)kn_lm_describe(lm)->window};
    if (t.tokens == 0) bench_check(kn_fail(KNNLM_EINVAL, "%s: no tokens", path));
    cut(&t);
    return t;
}

static size_t scored(const kn_window *w) {
    return (size_t)(w->length - w->first);
}

// ---------------------------------------------------------------- the peer

// A context of llama.cpp's.
typedef struct peer {
    const kn_llama_library *api;
    struct llama_context *ctx;
    struct llama_batch batch;
    size_t sequences; // windows at a time
} peer;

typedef struct bench {
    kn_lm *lm;
    text t;
    const char *path, *store;
    float *keys, *ours, *theirs; // keys of a call; log-probabilities of all targets
    struct llama_model *model;   // the peer's own
    peer alone, beside, steps;
} bench;

// rows 0: by default, 2048 tokens in a call and 512 through the graph at a time.
static peer peer_open(const bench *b, const kn_llama_library *api, size_t sequences, size_t rows) {
    struct llama_context_params p = api->llama_context_default_params();
    peer out = {.api = api, .sequences = sequences};
    size_t cells = (b->t.width + 255) / 256 * 256; // llama.cpp rounds each sequence's up to this
    p.n_ctx = (uint32_t)(sequences * cells);
    p.n_seq_max = (uint32_t)sequences;
    p.n_threads = p.n_threads_batch = kn_threads();
    if (rows) p.n_batch = p.n_ubatch = (uint32_t)rows;
    out.ctx = api->llama_init_from_model(b->model, p);
    if (!out.ctx) bench_check(kn_fail(KNNLM_ENOMEM, "llama.cpp makes no context: %s", kn_llama_complaint()));
    out.batch = api->llama_batch_init((int32_t)(sequences * b->t.width), 0, 1);
    return out;
}

static void peer_close(peer *p) {
    p->api->llama_batch_free(p->batch);
    p->api->llama_free(p->ctx);
}

static void push(struct llama_batch *batch, int32_t token, int32_t position, size_t sequence, bool wanted) {
    int32_t i = batch->n_tokens++;
    batch->token[i] = token;
    batch->pos[i] = position;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = (llama_seq_id)sequence;
    batch->logits[i] = wanted;
}

// `all`: logits of every target, else of the last token of a window alone.
static void decode(peer *p, const kn_window *windows, size_t count, bool all) {
    p->api->llama_memory_clear(p->api->llama_get_memory(p->ctx), false);
    p->batch.n_tokens = 0;
    for (size_t s = 0; s < count; s++) {
        const kn_window *w = &windows[s];
        for (int32_t i = 0; i < w->length; i++)
            push(&p->batch, w->inputs[i], i, s, i + 1 == w->length || (all && i >= w->first));
    }
    int code = p->api->llama_decode(p->ctx, p->batch);
    if (code != 0)
        bench_check(kn_fail(KNNLM_ENOTSUP, "llama.cpp fails (%d): %s", code, kn_llama_complaint()));
}

// Windows from `at` on that go side by side: llama.cpp cuts a batch of sequences that differ in length into
// pieces.
static size_t equal(const peer *p, const text *t, size_t at) {
    size_t n = 1;
    while (n < p->sequences && at + n < t->count && t->windows[at + n].length == t->windows[at].length) n++;
    return n;
}

// Prompt processing, as llama-bench has it.
static void prompts(peer *p, const text *t) {
    for (size_t i = 0, n; i < t->count; i += n) {
        n = equal(p, t, i);
        decode(p, t->windows + i, n, false);
        p->api->llama_get_logits(p->ctx); // waits for what is computed
    }
}

typedef struct scoring {
    const float *logits;
    const int32_t **targets;
    float *out;
    size_t vocabulary;
} scoring;

// The log-softmax of llama-perplexity: plain C, rows spread over the threads.
static void score_row(void *context, size_t row, int worker) {
    const scoring *s = context;
    const float *x = s->logits + row * s->vocabulary;
    float max = x[0];
    double sum = 0;
    (void)worker;
    for (size_t i = 1; i < s->vocabulary; i++) max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < s->vocabulary; i++) sum += (double)expf(x[i] - max);
    s->out[row] = (float)((double)(x[*s->targets[row]] - max) - log(sum));
}

static void evaluate(peer *p, const bench *b) {
    const int32_t **targets = bench_need(kn_alloc(p->sequences * b->t.width, sizeof *targets));
    float *out = b->theirs;
    for (size_t i = 0, n; i < b->t.count; i += n) {
        size_t rows = 0;
        n = equal(p, &b->t, i);
        decode(p, b->t.windows + i, n, true);
        for (size_t j = i; j < i + n; j++)
            for (int32_t k = b->t.windows[j].first; k < b->t.windows[j].length; k++)
                targets[rows++] = b->t.windows[j].targets + k;
        scoring s = {p->api->llama_get_logits(p->ctx), targets, out,
                     (size_t)kn_lm_describe(b->lm)->vocabulary};
        kn_parallel(rows, score_row, &s);
        out += rows;
    }
    free(targets);
}

// ---------------------------------------------------------------- ours

static void run_ours(const bench *b, bool keys, bool logprobs) {
    size_t row = 0;
    for (size_t i = 0, n; i < b->t.count; i += n) {
        size_t tokens = 0, rows = 0;
        for (n = 0; i + n < b->t.count && tokens < BATCH; n++) {
            tokens += (size_t)b->t.windows[i + n].length;
            rows += scored(&b->t.windows[i + n]);
        }
        kn_lm_output out = {.logprobs = logprobs ? b->ours + row : NULL, .keys = keys ? b->keys : NULL};
        bench_check(kn_lm_run(b->lm, b->t.windows + i, n, KN_TAP_DEFAULT, &out));
        row += rows;
    }
}

static void delete_store(const char *path) {
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) bench_check(kn_fail(KNNLM_EIO, "%s: cannot delete", path));
}

// As a user builds, --no-index: file in, store on disk, synced. Its own seconds are from the creation of the
// store to the last commit; the estimate before that lets the model read for a second, whatever the text.
static double build(const bench *b) {
    kn_build_options o = kn_build_options_default();
    kn_build_result r;
    delete_store(b->store);
    bench_check(kn_build(b->lm, b->store, &b->path, 1, &o, NULL, &r));
    if (r.entries_added != b->t.tokens)
        bench_check(kn_fail(KNNLM_EINVAL, "the build read other tokens: %llu, not %zu",
                            (unsigned long long)r.entries_added, b->t.tokens));
    return r.seconds;
}

// ---------------------------------------------------------------- one token after another

// Texts that begin with BEGIN tokens of the text and go on with the next ones.
enum { TEXTS = 8, BEGIN = 32, STEPS = 64 };

static const int32_t *text_at(const bench *b, size_t i) {
    return b->t.stream + i * (BEGIN + STEPS);
}

// Seconds of STEPS tokens of each, the prompts left out; as generation has it, with distributions and keys.
static double step_ours(const bench *b, size_t count) {
    kn_session *sessions[TEXTS];
    int32_t tokens[TEXTS];
    size_t vocabulary = (size_t)kn_lm_describe(b->lm)->vocabulary;
    float *distributions = bench_need(kn_alloc(count * vocabulary, sizeof *distributions));
    kn_lm_output out = {.distribution = distributions, .keys = b->keys};
    for (size_t i = 0; i < count; i++) bench_check(kn_session_open(b->lm, &sessions[i]));
    for (size_t i = 0; i < count; i++)
        bench_check(kn_session_feed(sessions[i], text_at(b, i), BEGIN, KN_TAP_DEFAULT, &(kn_lm_output){0}));
    double start = kn_seconds();
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < count; i++) tokens[i] = text_at(b, i)[BEGIN + step];
        bench_check(kn_sessions_feed(sessions, count, tokens, KN_TAP_DEFAULT, &out));
    }
    double took = kn_seconds() - start;
    for (size_t i = 0; i < count; i++) kn_session_close(sessions[i]);
    free(distributions);
    return took;
}

// Logits alone.
static double step_theirs(peer *p, const bench *b, size_t count) {
    kn_window prompts[TEXTS];
    for (size_t i = 0; i < count; i++) prompts[i] = (kn_window){.inputs = text_at(b, i), .length = BEGIN};
    decode(p, prompts, count, false);
    double start = kn_seconds();
    for (int32_t step = 0; step < STEPS; step++) {
        p->batch.n_tokens = 0;
        for (size_t i = 0; i < count; i++)
            push(&p->batch, text_at(b, i)[BEGIN + step], BEGIN + step, i, true);
        if (p->api->llama_decode(p->ctx, p->batch) != 0)
            bench_check(kn_fail(KNNLM_ENOTSUP, "llama.cpp fails: %s", kn_llama_complaint()));
        p->api->llama_get_logits(p->ctx); // waits for what is computed
    }
    return kn_seconds() - start;
}

static void print_steps(const char *name, size_t count, double took) {
    printf("%s %.1f\n", name, (double)(count * STEPS) / took);
    fflush(stdout);
}

static void run_steps(bench *b) {
    if (b->t.tokens < TEXTS * (BEGIN + STEPS)) return;
    print_steps("steps_of_1", 1, step_ours(b, 1));
    print_steps("steps_of_8", TEXTS, step_ours(b, TEXTS));
    print_steps("peer_steps_of_1", 1, step_theirs(&b->alone, b, 1));
    print_steps("peer_steps_of_8", TEXTS, step_theirs(&b->steps, b, TEXTS));
}

// ---------------------------------------------------------------- in turn

typedef enum contender {
    BUILD,     // knnlm build
    PROMPT,    // llama.cpp, a window at a time
    KEYS,      // what the model does of a build
    BESIDE,    // llama.cpp, windows side by side
    LOGPROBS,  // what eval does
    BOTH,      // and with a store
    PERPLEXITY // llama.cpp, windows side by side, a log-softmax of every target
} contender;

static const char *const names[] = {"build", "prompt", "keys", "beside", "logprobs", "both", "perplexity"};
enum { CONTENDERS = sizeof names / sizeof *names };

static double seconds(bench *b, contender who) {
    double start = kn_seconds();
    switch (who) {
    case BUILD:
        return build(b);
    case PROMPT:
        prompts(&b->alone, &b->t);
        break;
    case KEYS:
        run_ours(b, true, false);
        break;
    case BESIDE:
        prompts(&b->beside, &b->t);
        break;
    case LOGPROBS:
        run_ours(b, false, true);
        break;
    case BOTH:
        run_ours(b, true, true);
        break;
    case PERPLEXITY:
        evaluate(&b->beside, b);
        break;
    }
    return kn_seconds() - start;
}

// The contexts are made, and all memory is touched.
static void warm_up(bench *b) {
    text all = b->t;
    b->t.count = kn_min(all.count, BATCH / all.width + 1);
    for (int who = PROMPT; who < CONTENDERS; who++) seconds(b, (contender)who);
    b->t = all;
}

static void compare(const bench *b) {
    double apart = 0, ours = 0, theirs = 0;
    for (size_t i = 0; i < b->t.tokens; i++) {
        apart = fmax(apart, fabs((double)(b->ours[i] - b->theirs[i])));
        ours += (double)b->ours[i];
        theirs += (double)b->theirs[i];
    }
    double n = (double)b->t.tokens;
    printf("apart %.6f\nour_ppl %.4f\ntheir_ppl %.4f\n", apart, exp(-ours / n), exp(-theirs / n));
    if (!(fabs(ours - theirs) <= 1e-3 * n))
        bench_check(kn_fail(KNNLM_EDATA, "both sides' log-probabilities differ, by %.6f at most", apart));
}

// As the engine does it: some 1024 tokens at a time, whole windows.
static bench bench_open(const char *model, const char *path, const char *store) {
    enum { ROWS = 1024, SEQUENCES_MAX = 16 };
    bench b = {.path = path, .store = store};
    const kn_llama_library *api;
    bench_check(kn_lm_open(model, &(kn_lm_options){.engine = KNNLM_ENGINE_LLAMA}, &b.lm));
    bench_check(kn_llama_library_open(NULL, &api));
    b.model = api->llama_model_load_from_file(model, api->llama_model_default_params());
    if (!b.model) bench_check(kn_fail(KNNLM_ENOTSUP, "%s: %s", model, kn_llama_complaint()));
    b.t = text_load(b.lm, path);
    size_t width = (size_t)kn_lm_describe(b.lm)->key_width;
    b.keys = bench_need(kn_alloc(BATCH + b.t.width, width * sizeof *b.keys));
    b.ours = bench_need(kn_alloc(b.t.tokens, sizeof *b.ours));
    b.theirs = bench_need(kn_alloc(b.t.tokens, sizeof *b.theirs));
    b.alone = peer_open(&b, api, 1, 0);
    b.beside = peer_open(&b, api, kn_min(kn_max(ROWS / b.t.width, 1), SEQUENCES_MAX), ROWS);
    b.steps = peer_open(&b, api, TEXTS, 0);
    return b;
}

static void bench_close(bench *b) {
    const kn_llama_library *api = b->alone.api;
    delete_store(b->store);
    peer_close(&b->alone);
    peer_close(&b->beside);
    peer_close(&b->steps);
    api->llama_model_free(b->model);
    free(b->keys);
    free(b->ours);
    free(b->theirs);
    free(b->t.windows);
    free(b->t.stream);
    kn_lm_close(b->lm);
}

int main(int argc, char **argv) {
    if (argc != 6) return bench_usage(USAGE);
    bench_check(kn_threads_set(atoi(argv[4])));
    bench b = bench_open(argv[1], argv[2], argv[3]);
    warm_up(&b);
    for (int round = 0; round < atoi(argv[5]); round++) {
        for (int who = 0; who < CONTENDERS; who++) {
            printf("%s %.1f\n", names[who], (double)b.t.read / seconds(&b, (contender)who));
            fflush(stdout);
        }
        run_steps(&b);
    }
    printf("window %zu\nwindow_tokens %zu\ntokens %zu\n", b.t.width, b.t.read, b.t.tokens);
    compare(&b);
    bench_close(&b);
    return 0;
}
