// What was given of a run's settings, and what follows where nothing was: negative numbers are not given.
#include "train/texts.h"

#include <math.h>

// ---------------------------------------------------------------- the model's shape

const char *kn_train_settings_shape(const knnlm_train_options *g) {
    const struct {
        const char *name;
        bool given;
    } fields[] = {{"preset", g->preset != NULL},
                  {"tokenizer", g->tokenizer >= 0},
                  {"tokenizer_file", g->tokenizer_file != NULL},
                  {"vocabulary", g->vocabulary >= 0},
                  {"vocabulary_sample", g->vocabulary_sample >= 0},
                  {"width", g->width >= 0},
                  {"layers", g->layers >= 0},
                  {"heads", g->heads >= 0},
                  {"ffn", g->ffn >= 0},
                  {"context", g->context >= 0},
                  {"positions", g->positions >= 0},
                  {"activation", g->activation >= 0},
                  {"norm", g->norm >= 0},
                  {"no_bias", g->no_bias},
                  {"qk_norm", g->qk_norm},
                  {"window", g->window >= 0},
                  {"bands", g->bands != NULL}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].given) return fields[i].name;
    return NULL;
}

static knnlm_status set_bands(const knnlm_train_options *g, kn_config *c) {
    c->bands = 1;
    for (size_t i = 0; i < g->band_count; i++) {
        if (g->bands[i] < 1 || c->bands == KN_BANDS_MAX)
            return kn_fail(KNNLM_EINVAL, "`bands`: up to %d growing numbers", KN_BANDS_MAX - 1);
        c->band_end[c->bands++ - 1] = g->bands[i];
    }
    return KNNLM_OK;
}

static void override(int32_t *value, int32_t given) {
    if (given >= 0) *value = given;
}

knnlm_status kn_train_settings_config(const knnlm_train_options *g, int32_t vocabulary, kn_config *c) {
    KN_TRY(kn_config_preset(g->preset ? g->preset : "small", c));
    bool scaled = c->embedding_scale != 1;
    override(&c->width, g->width);
    override(&c->layers, g->layers);
    override(&c->heads, g->heads);
    override(&c->context, g->context);
    c->ffn = g->ffn >= 0 ? g->ffn : g->width >= 0 ? 4 * c->width : c->ffn;
    if (g->positions >= 0) c->positions = (knnlm_positions)g->positions;
    if (g->activation >= 0) c->activation = (knnlm_activation)g->activation;
    if (g->norm >= 0) c->norm = (knnlm_norm)g->norm;
    if (g->no_bias) c->no_bias = true;
    if (g->qk_norm) c->qk_norm = true;
    override(&c->window, g->window);
    if (c->positions == KNNLM_POSITIONS_ROTARY && c->rope_base == 0) c->rope_base = 10000;
    if (g->bands) KN_TRY(set_bands(g, c));
    if (scaled) c->embedding_scale = sqrtf((float)c->width);
    kn_config_set_vocabulary(c, vocabulary);
    return kn_config_validate(c, "the model asked for");
}

// ---------------------------------------------------------------- the run

void kn_train_settings_optimizer(const knnlm_train_options *g, kn_train_options *o) {
    bool paper = g->optimizer == KNNLM_OPTIMIZER_NESTEROV;
    o->optimizer.kind = g->optimizer;
    o->optimizer.beta1 = (float)g->beta1;
    o->optimizer.beta2 = (float)g->beta2;
    o->optimizer.momentum = (float)g->momentum;
    o->optimizer.decay = g->decay >= 0 ? (float)g->decay : paper ? 0.0f : 0.05f;
    o->optimizer.clip = g->clip >= 0 ? (float)g->clip : paper ? 0.1f : 1.0f;
    o->schedule.kind = g->schedule >= 0 ? (knnlm_schedule)g->schedule
                       : paper          ? KNNLM_SCHEDULE_RESTARTS
                                        : KNNLM_SCHEDULE_COSINE;
    o->schedule.rate = g->rate >= 0 ? g->rate : paper ? 1.0 : 1e-3;
    o->schedule.floor = g->floor;
    o->schedule.tail = g->tail;
    o->schedule.steps = o->steps;
    o->schedule.warmup = g->warmup >= 0         ? g->warmup
                         : paper                ? 16000
                         : o->steps / 20 < 1000 ? o->steps / 20
                                                : 1000;
    o->schedule.warmup_from = paper ? 1e-7 : 0;
    o->schedule.period = g->period >= 0 ? g->period : 270000;
}

static kn_gguf_type tensor_type(knnlm_type type) {
    switch (type) {
    case KNNLM_TYPE_F32:
        return KN_GGUF_F32;
    case KNNLM_TYPE_F16:
        return KN_GGUF_F16;
    case KNNLM_TYPE_BF16:
        return KN_GGUF_BF16;
    case KNNLM_TYPE_Q8_0:
        return KN_GGUF_Q8_0;
    }
    return KN_GGUF_F16;
}

static void set_sizes(const knnlm_train_options *g, kn_train_options *o) {
    o->length =
        g->length >= 0 ? (size_t)g->length : (size_t)(o->start ? o->start->length : o->config.context);
    if (o->length == 0) return; // refused by the run
    o->batch = ((size_t)g->batch + o->length - 1) / o->length * o->length;
    size_t micro = g->micro >= 0 ? (size_t)g->micro : 4096;
    o->micro = micro < o->length ? o->length : micro / o->length * o->length;
    if (o->micro > o->batch) o->micro = o->batch;
}

void kn_train_settings_run(const knnlm_train_options *g, kn_train_options *o) {
    o->type = tensor_type(g->type);
    o->resume = g->resume;
    set_sizes(g, o);
    if (g->epochs >= 0)
        o->steps = (int64_t)ceil(g->epochs * (double)(o->corpus->count - 1) / (double)o->batch);
    else if (g->steps >= 0)
        o->steps = g->steps;
    o->dropout =
        (kn_dropout){(float)g->dropout, (float)g->attention_dropout, (float)g->activation_dropout, 0};
    o->seed = g->seed;
    o->precision = g->precision;
    o->valid_every = g->valid_every;
    o->save_every = g->save_every;
    o->save_seconds = g->save_seconds;
    o->report_every = g->report_every;
    o->valid_tokens = (size_t)g->valid_tokens;
}
