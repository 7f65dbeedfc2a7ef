// Models through llama.cpp: a file to a model and its description.
#include "lm/llama/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void close_llama(kn_lm *lm) {
    kn_llama *m = (kn_llama *)lm;
    kn_llama_context_close(m->shared);
    kn_tokenizer_free(m->lm.tokenizer);
    if (m->model) m->api->llama_model_free(m->model);
    free((char *)m->lm.info.path);
    free(m->architecture);
    free(m);
}

static bool ends(const kn_lm *lm, int32_t token) {
    const kn_llama *m = (const kn_llama *)lm;
    return m->api->llama_vocab_is_eog(m->vocab, token);
}

static const kn_engine llama_engine = {
    .close = close_llama,
    .run = kn_llama_run_windows,
    .session_open = kn_llama_session_open,
    .session_close = kn_llama_session_close,
    .session_feed = kn_llama_session_feed,
    .sessions_feed = kn_llama_sessions_feed,
    .ends = ends,
    .chat_template = kn_llama_chat_template,
    .chat = kn_llama_chat,
    .session_length = kn_llama_session_length,
    .session_cut = kn_llama_session_cut,
};

typedef struct loading {
    const kn_progress *progress;
    uint64_t bytes;
    bool stopped;
} loading;

static bool report(float done, void *context) {
    loading *l = context;
    uint64_t bytes = (uint64_t)((double)done * (double)l->bytes);
    l->stopped = !kn_progress_report(l->progress, "loading", bytes, l->bytes, "B");
    return !l->stopped;
}

static knnlm_status load(kn_llama *m, const char *path, const kn_progress *progress) {
    struct llama_model_params p = m->api->llama_model_default_params();
    loading l = {.progress = progress, .bytes = m->lm.info.file_bytes};
    p.progress_callback = report;
    p.progress_callback_user_data = &l;
    kn_llama_forget();
    m->model = m->api->llama_model_load_from_file(path, p);
    if (m->model) return KNNLM_OK;
    if (l.stopped) return kn_fail(KNNLM_ESTOPPED, "%s: stopped while loading", path);
    return kn_fail(KNNLM_ENOTSUP, "%s: llama.cpp cannot load it%s", path, kn_llama_complaint());
}

// The text of a value of the file; "" when it has none.
static void value_of(const kn_llama *m, const char *key, char *out, size_t size) {
    if (m->api->llama_model_meta_val_str(m->model, key, out, size) < 0) *out = 0;
}

int32_t kn_llama_number(const kn_llama *m, const char *name) {
    char key[128], text[32];
    snprintf(key, sizeof key, "%s.%s", m->architecture, name);
    value_of(m, key, text, sizeof text);
    return atoi(text);
}

// Models that read both ways, or turn noise into text, have no probability of the next word.
static knnlm_status check_causal(const kn_llama *m, const char *path) {
    char key[128], causal[16];
    snprintf(key, sizeof key, "%s.attention.causal", m->architecture);
    value_of(m, key, causal, sizeof causal);
    if (strcmp(causal, "false") != 0 && !m->api->llama_model_has_encoder(m->model) &&
        !m->api->llama_model_is_diffusion(m->model))
        return KNNLM_OK;
    return kn_fail(KNNLM_ENOTSUP, "%s: architecture \"%s\" does not predict the next token from those before",
                   path, m->architecture);
}

// Contexts of some models are longer than anybody's patience: half of a window is read only to predict the
// other half, and attention costs more the longer it is.
enum { LONGEST_WINDOW = 1024 };

// As `knnlm train` noted it, so that a model is read alike whichever engine runs it.
static int32_t window_of(const kn_llama *m, int32_t context) {
    char text[32];
    value_of(m, "knnlm.train.length", text, sizeof text);
    long trained = strtol(text, NULL, 10);
    if (trained >= 1 && trained <= context) return (int32_t)trained;
    return context < LONGEST_WINDOW ? context : LONGEST_WINDOW;
}

static knnlm_status describe(kn_llama *m, const char *path) {
    const kn_llama_library *api = m->api;
    kn_lm_info *info = &m->lm.info;
    char architecture[64];
    value_of(m, "general.architecture", architecture, sizeof architecture);
    m->architecture = kn_strdup(architecture);
    info->path = kn_strdup(path);
    if (!m->architecture || !info->path) return KNNLM_ENOMEM;
    info->architecture = m->architecture;
    info->engine = "llama";
    info->kernels = "llama.cpp " KN_LLAMA_RELEASE;
    info->vocabulary = api->llama_vocab_n_tokens(m->vocab);
    info->width = info->key_width = api->llama_model_n_embd(m->model);
    info->layers = api->llama_model_n_layer(m->model);
    info->heads = api->llama_model_n_head(m->model);
    info->ffn = kn_llama_number(m, "feed_forward_length");
    info->context = api->llama_model_n_ctx_train(m->model);
    info->window = window_of(m, info->context);
    info->parameters = api->llama_model_n_params(m->model);
    if (info->vocabulary < 1 || info->width < 1 || info->layers < 1 || info->context < 1)
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: not a language model (vocabulary %d, width %d, layers %d, context %d)", path,
                       info->vocabulary, info->width, info->layers, info->context);
    return check_causal(m, path);
}

static knnlm_status open_file(kn_llama *m, const char *path, const kn_lm_options *options) {
    if (options->precision == KNNLM_PRECISION_BF16 || options->precision == KNNLM_PRECISION_INT16)
        return kn_fail(KNNLM_EINVAL,
                       "%s: runs through llama.cpp, whose products are neither bf16 nor int16 of ours: "
                       "leave out the precision, or f32 for keys and values in f32",
                       path);
    KN_TRY(kn_lm_identify(path, options->progress, &m->lm.info));
    KN_TRY(kn_llama_library_open(options->log, &m->api));
    m->kernels = kn_math_kernels(KNNLM_PRECISION_F32);
    m->full = options->precision == KNNLM_PRECISION_F32;
    KN_TRY(load(m, path, options->progress));
    m->vocab = m->api->llama_model_get_vocab(m->model);
    m->sequential = m->api->llama_model_is_recurrent(m->model) || m->api->llama_model_is_hybrid(m->model);
    KN_TRY(describe(m, path));
    return kn_llama_tokenizer(m, path, &m->lm.tokenizer);
}

knnlm_status kn_llama_open(const char *path, const kn_lm_options *options, kn_lm **out) {
    kn_llama *m = kn_alloc(1, sizeof *m);
    if (!m) return KNNLM_ENOMEM;
    m->lm.engine = &llama_engine;
    knnlm_status status = open_file(m, path, options);
    if (status == KNNLM_OK)
        *out = &m->lm;
    else
        close_llama(&m->lm);
    return status;
}
