// Runs batches of tokens through a llama.cpp context.
#include "base/cpus.h"
#include "base/pace.h"
#include "base/threads.h"
#include "lm/llama/engine.h"

#include <pthread.h>
#include <stdlib.h>

static struct llama_context_params parameters(const kn_llama *m, const kn_llama_context *c) {
    struct llama_context_params p = m->api->llama_context_default_params();
    p.n_ctx = (uint32_t)(c->sequences * c->length);
    p.n_batch = p.n_ubatch = (uint32_t)c->rows;
    p.n_seq_max = (uint32_t)c->sequences;
    p.n_threads = p.n_threads_batch = kn_threads();
    p.cb_eval = kn_observe;
    p.cb_eval_user_data = (void *)&c->observer;
    p.abort_callback = kn_observe_abort;
    p.abort_callback_data = (void *)&c->observer;
    p.kv_unified = false; // a sequence attends to its own cells only
    p.no_perf = true;
    if (m->full) p.type_k = p.type_v = GGML_TYPE_F32;
    // Of a single row it rounds by the number of threads; in f32 it is not f32.
    if (m->full || c->lasting) p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return p;
}

// llama.cpp rounds every sequence's cells up to this.
static size_t whole_cells(size_t length) {
    return (length + 255) / 256 * 256;
}

// Bytes of a token's keys and values in every layer, about.
static double cell_bytes(const kn_llama *m) {
    const kn_lm_info *info = &m->lm.info;
    double keys = kn_llama_number(m, "attention.key_length"),
           values = kn_llama_number(m, "attention.value_length");
    double usual = (double)info->width / (double)kn_max((size_t)info->heads, 1);
    double heads = (double)m->api->llama_model_n_head_kv(m->model);
    return (double)info->layers * heads * ((keys > 0 ? keys : usual) + (values > 0 ? values : usual)) *
           (m->full ? 4 : 2);
}

// Memory is promised by the system whether it is there or not: what surely cannot fit is refused before it is
// touched.
static knnlm_status check_memory(const kn_llama_context *c) {
    const kn_lm_info *info = &c->m->lm.info;
    double logits = 2 * (double)c->rows * (double)info->vocabulary * sizeof(float);
    double scores = (double)info->heads * (double)c->rows * (double)c->length * sizeof(float);
    double needed = scores + cell_bytes(c->m) * (double)(c->sequences * c->length) + logits,
           total = (double)kn_memory_total();
    if (total <= 0 || needed < total) return KNNLM_OK;
    return kn_fail(
        KNNLM_ENOMEM,
        "%s: %zu sequences of %zu tokens take about %.1f GB, and the machine has %.1f: read shorter "
        "windows",
        info->path, c->sequences, c->length, needed / 1e9, total / 1e9);
}

static knnlm_status init(kn_llama_context *c) {
    kn_llama *m = c->m;
    const kn_llama_library *api = m->api;
    KN_TRY(check_memory(c));
    c->wanted = kn_alloc(c->rows, sizeof *c->wanted);
    c->places = kn_alloc(c->rows, sizeof *c->places);
    c->results = kn_alloc(c->rows, sizeof *c->results);
    if (!c->wanted || !c->places || !c->results) return KNNLM_ENOMEM;
    kn_llama_forget();
    c->ctx = api->llama_init_from_model(m->model, parameters(m, c));
    if (!c->ctx)
        return kn_fail(KNNLM_ENOMEM, "%s: llama.cpp has no room for %zu sequences of %zu tokens%s",
                       m->lm.info.path, c->sequences, c->length, kn_llama_complaint());
    c->batch = api->llama_batch_init((int32_t)c->rows, 0, 1);
    if (!c->batch.token || !c->batch.seq_id) return kn_fail(KNNLM_ENOMEM, "out of memory");
    return KNNLM_OK;
}

knnlm_status kn_llama_context_open(kn_llama *m, size_t sequences, size_t length, bool lasting,
                                   kn_llama_context **out) {
    size_t vocabulary = (size_t)m->lm.info.vocabulary, heads = kn_max((size_t)m->lm.info.heads, 1);
    kn_llama_context *c = kn_alloc(1, sizeof *c);
    if (!c) return KNNLM_ENOMEM;
    *c =
        (kn_llama_context){.m = m, .sequences = sequences, .length = whole_cells(length), .lasting = lasting};
    c->rows = kn_min(KN_LLAMA_ROWS, kn_max(KN_LLAMA_LOGITS / vocabulary, 64));
    c->rows = kn_min(c->rows, kn_max(KN_LLAMA_SCORES / heads / c->length, 64));
    c->rows = kn_min(c->rows, c->sequences * c->length) / KN_LLAMA_CELL * KN_LLAMA_CELL;
    c->observer = (kn_observer){.api = m->api};
    knnlm_status status = init(c);
    if (status == KNNLM_OK)
        *out = c;
    else
        kn_llama_context_close(c);
    return status;
}

void kn_llama_context_close(kn_llama_context *c) {
    if (!c) return;
    if (c->batch.token) c->m->api->llama_batch_free(c->batch);
    if (c->ctx) c->m->api->llama_free(c->ctx);
    free(c->wanted);
    free(c->places);
    free(c->results);
    free(c);
}

// ---------------------------------------------------------------- a batch

void kn_llama_begin(kn_llama_context *c) {
    c->batch.n_tokens = 0;
    c->count = 0;
}

void kn_llama_push(kn_llama_context *c, int32_t token, size_t sequence, size_t position, int64_t result) {
    int32_t i = c->batch.n_tokens++;
    bool wanted = result != KN_LLAMA_UNWANTED;
    c->batch.token[i] = token;
    c->batch.pos[i] = (llama_pos)position;
    c->batch.n_seq_id[i] = 1;
    c->batch.seq_id[i][0] = (llama_seq_id)sequence;
    c->batch.logits[i] = wanted;
    if (!wanted) return;
    c->results[c->count] = result;
    c->wanted[c->count++] = i;
}

void kn_llama_clear(kn_llama_context *c) {
    c->m->api->llama_memory_clear(c->m->api->llama_get_memory(c->ctx), false);
}

// Lets further rows come out until they are whole cells, and finds the wanted ones among them.
static void fill_outputs(kn_llama_context *c) {
    int8_t *out = c->batch.logits;
    c->outputs = c->count;
    for (int32_t i = c->batch.n_tokens; i-- > 0 && c->outputs % KN_LLAMA_CELL;) {
        c->outputs += !out[i];
        out[i] = 1;
    }
    int32_t place = 0;
    for (int32_t i = 0, n = 0; i < c->batch.n_tokens; i++) {
        if ((size_t)n < c->count && c->wanted[n] == i) c->places[n++] = place;
        place += out[i];
    }
}

static bool scores(const kn_lm_output *out) {
    return out->logprobs || out->entropies || out->distribution;
}

static void prepare(kn_llama_context *c, kn_tap tap, bool more, const kn_lm_output *out) {
    kn_observer *o = &c->observer;
    bool keys = out->keys && c->count;
    *o->name = 0;
    o->input = o->aborting = o->unusual = false;
    o->taken = 0;
    if (keys) kn_observer_aim(o, c->m, tap);
    o->stop = keys && !scores(out) && !c->lasting;
    o->keep = more;
    o->rows = c->wanted;
    o->places = c->places;
    o->results = c->results;
    o->wanted = c->count;
    o->outputs = c->outputs;
    o->tokens = (size_t)c->batch.n_tokens;
    o->keys = out->keys;
}

static knnlm_status explain_failure(const kn_llama_context *c, int code) {
    return kn_fail(code == -2 ? KNNLM_ENOMEM : KNNLM_ENOTSUP, "%s: llama.cpp failed on %d tokens (%d)%s",
                   c->m->lm.info.path, c->batch.n_tokens, code, kn_llama_complaint());
}

// The batch through the graph, on as many threads as pay at present: the machine is the same for all models.
static int decode(kn_llama_context *c) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static kn_pace pace = {.idle = kn_cpus_idle};
    const kn_llama_library *api = c->m->api;
    int max = kn_threads();
    pthread_mutex_lock(&lock);
    int threads = kn_pace_threads(&pace, max);
    pthread_mutex_unlock(&lock);
    double wall = kn_seconds(), cpu = kn_cpu_seconds();
    api->llama_set_n_threads(c->ctx, threads, threads);
    int code = api->llama_decode(c->ctx, c->batch);
    pthread_mutex_lock(&lock);
    kn_pace_note(&pace, max, kn_seconds() - wall, kn_cpu_seconds() - cpu);
    pthread_mutex_unlock(&lock);
    return code;
}

knnlm_status kn_llama_run(kn_llama_context *c, kn_tap tap, const int32_t *targets, bool more,
                          const kn_lm_output *out) {
    const kn_llama_library *api = c->m->api;
    kn_observer *o = &c->observer;
    enum { DONE = 0, ABORTED = 2 };
    fill_outputs(c);
    prepare(c, tap, more, out);
    kn_llama_forget();
    int code = decode(c);
    if (code != DONE && !(code == ABORTED && o->aborting)) return explain_failure(c, code);
    if (o->unusual) return kn_llama_odd_tap(c->m, tap, o);
    if (*o->name && o->taken == 0) return kn_llama_no_tap(c->m, tap);
    if (scores(out) && c->count) kn_llama_score(c, api->llama_get_logits(c->ctx), targets, out);
    return KNNLM_OK;
}
