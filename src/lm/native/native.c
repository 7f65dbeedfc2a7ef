// The native engine: model files of our own and GPT-2's shape.
#include "lm/native/native.h"

#include <stdlib.h>
#include <string.h>

static void close_native(kn_lm *lm) {
    kn_native *m = (kn_native *)lm;
    kn_workspace_free(&m->ws);
    kn_weights_free(&m->w);
    kn_tokenizer_free(m->lm.tokenizer);
    kn_gguf_close(m->file);
    free(m);
}

// Every tensor is checked before anything is allocated for it: a hostile configuration then asks for no more
// memory than the file is large.
static knnlm_status check_tensors(const kn_gguf *file, const kn_layout *layout) {
    for (size_t i = 0; i < layout->count; i++) {
        const kn_gguf_tensor *tensor;
        KN_TRY(kn_model_tensor(file, &layout->params[i], &tensor));
    }
    return KNNLM_OK;
}

// GPT-2 files may hold an output matrix of their own, mostly a copy of the embeddings. One that differs is
// another model.
static knnlm_status check_tied(const kn_gguf *file) {
    const kn_gguf_tensor *in = kn_gguf_tensor_find(file, "token_embd.weight");
    const kn_gguf_tensor *out = kn_gguf_tensor_find(file, "output.weight");
    if (!in || !out) return KNNLM_OK;
    if (in->type == out->type && in->size == out->size && memcmp(in->data, out->data, in->size) == 0)
        return KNNLM_OK;
    return kn_fail(
        KNNLM_ENOTSUP,
        "%s: \"output.weight\" is not \"token_embd.weight\" again (only tied embeddings are native)",
        kn_gguf_path(file));
}

static knnlm_status load(kn_native *m, const kn_config *c, const kn_kernels *k) {
    kn_layout layout;
    KN_TRY(kn_layout_init(c, &layout));
    m->lm.info.parameters = layout.total;
    knnlm_status status = check_tensors(m->file, &layout);
    if (status == KNNLM_OK) status = check_tied(m->file);
    if (status == KNNLM_OK) status = kn_weights_init(c, k, &m->w);
    if (status == KNNLM_OK) status = kn_weights_load(&m->w, &layout, m->file);
    kn_layout_free(&layout);
    return status;
}

// Each layer looks a window back, at what the layer before it made of the positions there.
static int32_t reach_of(const kn_config *c) {
    int64_t reach = (int64_t)c->layers * (c->window - 1);
    return reach > INT32_MAX ? INT32_MAX : (int32_t)reach;
}

static knnlm_status open_file(kn_native *m, const char *path, const kn_lm_options *options) {
    kn_config c;
    kn_lm_info *info = &m->lm.info;
    KN_TRY(kn_gguf_open(path, &m->file));
    KN_TRY(kn_config_load(m->file, &c));
    KN_TRY(kn_tokenizer_load_gguf(m->file, &m->lm.tokenizer));
    if (kn_tokenizer_size(m->lm.tokenizer) != c.vocabulary)
        return kn_fail(KNNLM_EDATA, "%s: tokenizer of %d tokens for a vocabulary of %d", path,
                       kn_tokenizer_size(m->lm.tokenizer), c.vocabulary);
    if (kn_model_folded(m->file)) c.embedding_scale = 1; // its tensors have it
    const kn_kernels *k = kn_math_kernels(options->precision);
    KN_TRY(load(m, &c, k));
    info->path = kn_gguf_path(m->file);
    info->architecture = kn_config_architecture(&c);
    info->engine = "native";
    info->kernels = k->name;
    info->vocabulary = c.vocabulary;
    info->width = info->key_width = c.width;
    info->layers = c.layers;
    info->heads = c.heads;
    info->ffn = c.ffn;
    info->context = c.context;
    KN_TRY(kn_model_length(m->file, &c, &info->window));
    info->stream = c.window ? KN_NATIVE_STREAM : 0;
    info->reach = c.window ? reach_of(&c) : 0;
    return kn_lm_identify(path, options->progress, info);
}

knnlm_status kn_native_open(const char *path, const kn_lm_options *options, kn_lm **out) {
    kn_native *m = kn_alloc(1, sizeof *m);
    if (!m) return KNNLM_ENOMEM;
    m->lm.engine = &kn_native_engine;
    knnlm_status status = open_file(m, path, options);
    if (status == KNNLM_OK)
        *out = &m->lm;
    else
        close_native(&m->lm);
    return status;
}

// ---------------------------------------------------------------- windows

static knnlm_status make_room(kn_native *m, size_t rows, size_t keys) {
    if (m->ws.rows >= rows && m->ws_keys >= keys) return KNNLM_OK;
    rows = kn_max(rows, m->ws.rows); // what it had stays: batches of many and of long windows may alternate
    keys = kn_max(keys, m->ws_keys);
    kn_workspace_free(&m->ws);
    m->ws_keys = keys;
    return kn_workspace_init(&m->ws, &m->w.config, m->w.k, rows, keys);
}

// The windows of one sub-batch, laid one after another.
typedef struct laid {
    int32_t *tokens, *targets;
    size_t *start, *first, *positions;
    kn_native_past **pasts;
    size_t rows, scored;
} laid;

static void lay(const kn_window *windows, size_t count, laid *l) {
    l->rows = l->scored = 0;
    for (size_t i = 0; i < count; i++) {
        const kn_window *w = &windows[i];
        size_t n = (size_t)w->length, first = (size_t)w->first;
        memcpy(l->tokens + l->rows, w->inputs, n * sizeof *l->tokens);
        if (w->targets) memcpy(l->targets + l->scored, w->targets + first, (n - first) * sizeof *l->targets);
        l->start[i] = l->rows;
        l->first[i] = first;
        l->pasts[i] = (kn_native_past *)w->past;
        l->positions[i] = l->pasts[i] ? l->pasts[i]->position : 0;
        l->rows += n;
        l->scored += n - first;
    }
    l->start[count] = l->rows;
}

// Whether the last of the windows goes on from one of the others.
static bool goes_on(const kn_window *windows, size_t count) {
    const kn_past *past = windows[count - 1].past;
    for (size_t i = 0; past && i + 1 < count; i++)
        if (windows[i].past == past) return true;
    return false;
}

// How many of the windows make the next sub-batch: none of them goes on from another.
static size_t sub_batch(const kn_window *windows, size_t count) {
    size_t n = 0, rows = 0;
    while (n < count &&
           (n == 0 || (rows + (size_t)windows[n].length <= KN_NATIVE_ROWS && !goes_on(windows, n + 1))))
        rows += (size_t)windows[n++].length;
    return n;
}

static void move_pasts(const kn_native *m, const laid *l, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (l->pasts[i]) kn_native_past_move(l->pasts[i], &m->w.config, l->start[i + 1] - l->start[i]);
}

static knnlm_status run_laid(kn_native *m, const kn_window *windows, size_t count, kn_tap tap,
                             const kn_lm_output *out, laid *l) {
    kn_lm_output rest = *out;
    for (size_t done = 0; done < count;) {
        size_t n = sub_batch(windows + done, count - done);
        lay(windows + done, n, l);
        kn_pass p = {.w = &m->w,
                     .ws = &m->ws,
                     .batch = {.tokens = l->tokens,
                               .start = l->start,
                               .count = n,
                               .rows = l->rows,
                               .positions = l->positions},
                     .first = l->first,
                     .pasts = l->pasts,
                     .targets = windows[done].targets ? l->targets : NULL,
                     .scored = l->scored,
                     .tap = tap,
                     .out = rest};
        KN_TRY(kn_pass_run(&p));
        move_pasts(m, l, n);
        kn_lm_output_advance(&m->lm, &rest, l->scored);
        done += n;
    }
    return KNNLM_OK;
}

static knnlm_status run_native(kn_lm *lm, const kn_window *windows, size_t count, kn_tap tap,
                               const kn_lm_output *out) {
    kn_native *m = (kn_native *)lm;
    size_t longest = 0, rows = 0;
    for (size_t done = 0; done < count;) {
        size_t n = sub_batch(windows + done, count - done), sum = 0;
        for (size_t i = done; i < done + n; i++) {
            sum += (size_t)windows[i].length;
            size_t keys = (size_t)windows[i].length + (windows[i].past ? kn_past_max(&m->w.config) : 0);
            if (keys > longest) longest = keys;
        }
        if (sum > rows) rows = sum;
        done += n;
    }
    KN_TRY(make_room(m, rows, longest));
    laid l = {.tokens = kn_alloc(rows, sizeof *l.tokens),
              .targets = kn_alloc(rows, sizeof *l.targets),
              .start = kn_alloc(count + 1, sizeof *l.start),
              .first = kn_alloc(count, sizeof *l.first),
              .positions = kn_alloc(count, sizeof *l.positions),
              .pasts = kn_alloc(count, sizeof *l.pasts)};
    bool had = l.tokens && l.targets && l.start && l.first && l.positions && l.pasts;
    knnlm_status status = had ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = run_laid(m, windows, count, tap, out, &l);
    free(l.tokens);
    free(l.targets);
    free(l.start);
    free(l.first);
    free(l.positions);
    free(l.pasts);
    return status;
}

const kn_engine kn_native_engine = {
    .close = close_native,
    .run = run_native,
    .past_open = kn_native_past_open,
    .past_close = kn_native_past_close,
    .session_open = kn_native_session_open,
    .session_close = kn_native_session_close,
    .session_feed = kn_native_session_feed,
    .sessions_feed = kn_native_sessions_feed,
    .session_length = kn_native_session_length,
    .session_cut = kn_native_session_cut,
};
