// Presets of native models, their limits, and their configuration in GGUF files.
#include "lm/native/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAPER .positions = KNNLM_POSITIONS_SINUSOIDAL, .epsilon = 1e-5f, .bands = 1, .band_factor = 4
#define CPU PAPER, .activation = KNNLM_ACTIVATION_GELU, .final_norm = true
#define GPT2                                                                                                 \
    .positions = KNNLM_POSITIONS_LEARNED, .activation = KNNLM_ACTIVATION_GELU, .final_norm = true,           \
    .epsilon = 1e-5f, .embedding_scale = 1, .bands = 1, .band_factor = 4

// As Transformers are built since the paper, and read as a stream (experiments/bundled compares its parts).
#define STREAM                                                                                               \
    .positions = KNNLM_POSITIONS_ROTARY, .norm = KNNLM_NORM_RMS, .activation = KNNLM_ACTIVATION_SWIGLU,      \
    .no_bias = true, .qk_norm = true, .final_norm = true, .rope_base = 10000, .epsilon = 1e-5f, .bands = 1,  \
    .band_factor = 4

static const struct {
    const char *name;
    kn_config config;
} presets[] = {
    {"tiny", {CPU, .width = 128, .layers = 4, .heads = 4, .ffn = 512, .context = 256}},
    {"small", {CPU, .width = 256, .layers = 8, .heads = 4, .ffn = 1024, .context = 512}},
    {"base", {CPU, .width = 512, .layers = 8, .heads = 8, .ffn = 2048, .context = 1024}},
    {"stream", {STREAM, .width = 256, .layers = 10, .heads = 4, .ffn = 704, .context = 512, .window = 256}},
    {"stream-tiny",
     {STREAM, .width = 128, .layers = 4, .heads = 2, .ffn = 352, .context = 256, .window = 128}},
    {"gpt2-tiny", {GPT2, .width = 64, .layers = 2, .heads = 2, .ffn = 256, .context = 128}},
    {"gpt2", {GPT2, .width = 768, .layers = 12, .heads = 12, .ffn = 3072, .context = 1024}},
    {"paper-bpe", {PAPER, .width = 1024, .layers = 16, .heads = 16, .ffn = 4096, .context = 1024}},
    {"wiki103",
     {.positions = KNNLM_POSITIONS_SINUSOIDAL,
      .epsilon = 1e-5f,
      .width = 1024,
      .layers = 16,
      .heads = 16,
      .ffn = 4096,
      .context = 3072,
      .bands = 3,
      .band_end = {20000, 60000},
      .band_factor = 4}},
};

knnlm_status kn_config_preset(const char *name, kn_config *out) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(name, presets[i].name) != 0) continue;
        *out = presets[i].config;
        if (out->embedding_scale == 0) out->embedding_scale = sqrtf((float)out->width);
        return KNNLM_OK;
    }
    return kn_fail(KNNLM_EINVAL, "`preset` %s: one of %s", name, kn_config_preset_names());
}

const char *kn_config_preset_names(void) {
    return "tiny, small, base, stream, stream-tiny, gpt2-tiny, gpt2, paper-bpe, wiki103";
}

void kn_config_set_vocabulary(kn_config *c, int32_t vocabulary) {
    c->vocabulary = vocabulary;
    while (c->bands > 1 && c->band_end[c->bands - 2] >= vocabulary) c->bands--;
    c->band_end[c->bands - 1] = vocabulary;
}

static bool within(int32_t value, int32_t low, int32_t high) {
    return value >= low && value <= high;
}

knnlm_status kn_config_validate(const kn_config *c, const char *where) {
    if (!within(c->vocabulary, 2, 1 << 24))
        return kn_fail(KNNLM_EDATA, "%s: vocabulary of %d", where, c->vocabulary);
    if (!within(c->width, 4, 1 << 15) || c->width % 2)
        return kn_fail(KNNLM_EDATA, "%s: width of %d (even, 4 to 32768)", where, c->width);
    if (!within(c->layers, 1, KN_LAYERS_MAX)) return kn_fail(KNNLM_EDATA, "%s: %d layers", where, c->layers);
    if (!within(c->heads, 1, c->width) || c->width % c->heads)
        return kn_fail(KNNLM_EDATA, "%s: %d heads do not divide a width of %d", where, c->heads, c->width);
    if (!within(c->ffn, 1, 1 << 17))
        return kn_fail(KNNLM_EDATA, "%s: feed-forward width of %d", where, c->ffn);
    if (!within(c->context, 1, (1 << 24) / c->width))
        return kn_fail(KNNLM_EDATA, "%s: context of %d", where, c->context);
    if (!(c->epsilon >= 0 && c->epsilon < 1) || !isfinite(c->embedding_scale))
        return kn_fail(KNNLM_EDATA, "%s: LayerNorm epsilon or embedding scale out of range", where);
    bool rotary = c->positions == KNNLM_POSITIONS_ROTARY;
    if (rotary && (kn_config_head_width(c) % 2 || kn_config_head_width(c) > KN_HEAD_WIDTH_MAX ||
                   !(c->rope_base >= 1 && c->rope_base <= 1e9f)))
        return kn_fail(KNNLM_EDATA,
                       "%s: rotary positions of heads %zu wide (even, up to 1024), base %g (1 to 1e9)", where,
                       kn_config_head_width(c), (double)c->rope_base);
    if (!rotary && (c->qk_norm || c->window))
        return kn_fail(KNNLM_EDATA,
                       "%s: norms of queries and keys, and a sliding window, need rotary positions", where);
    if (c->window < 0 || c->window / 16 > c->context) // what is kept of a past is in proportion to it
        return kn_fail(KNNLM_EDATA, "%s: attention over %d positions, of a context of %d", where, c->window,
                       c->context);
    if (!within(c->bands, 1, KN_BANDS_MAX) || (c->bands > 1 && !within(c->band_factor, 1, 64)))
        return kn_fail(KNNLM_EDATA, "%s: %d vocabulary bands by a factor of %d", where, c->bands,
                       c->band_factor);
    for (int32_t b = 0; b < c->bands; b++)
        if (kn_band_size(c, b) < 1 || kn_band_width(c, b) < 1)
            return kn_fail(KNNLM_EDATA, "%s: vocabulary band %d is empty or has no width", where, b);
    if (c->band_end[c->bands - 1] != c->vocabulary)
        return kn_fail(KNNLM_EDATA, "%s: bands end at %d, the vocabulary at %d", where,
                       c->band_end[c->bands - 1], c->vocabulary);
    return KNNLM_OK;
}

static bool is_gpt2(const kn_config *c) {
    return c->positions == KNNLM_POSITIONS_LEARNED && c->activation == KNNLM_ACTIVATION_GELU &&
           c->final_norm && c->bands == 1 && c->embedding_scale == 1 && c->norm == KNNLM_NORM_LAYER &&
           !c->no_bias && !c->window;
}

// Whatever the scale of the embeddings: written, it is folded into them and into the final norm.
static bool is_llama(const kn_config *c) {
    return c->positions == KNNLM_POSITIONS_ROTARY && c->activation == KNNLM_ACTIVATION_SWIGLU &&
           c->final_norm && c->bands == 1 && c->norm == KNNLM_NORM_RMS && c->no_bias;
}

const char *kn_config_architecture(const kn_config *c) {
    return is_gpt2(c) ? "gpt2" : !is_llama(c) ? "knnlm" : c->qk_norm ? "qwen3" : "llama";
}

int32_t kn_band_width(const kn_config *c, int32_t band) {
    int32_t width = c->width;
    for (int32_t i = 0; i < band; i++) width /= c->band_factor;
    return width;
}

int32_t kn_band_of(const kn_config *c, int32_t token) {
    int32_t band = 0;
    while (token >= c->band_end[band]) band++;
    return band;
}

// ---------------------------------------------------------------- in the file

static const char *const position_names[] = {"sinusoidal", "learned", "rotary", NULL};
static const char *const activation_names[] = {"relu", "gelu", "relu2", "swiglu", NULL};
static const char *const norm_names[] = {"layer", "rms", NULL};

typedef struct key_reader {
    const kn_gguf *file;
    const char *prefix;
    char key[128];
} key_reader;

static const char *full_key(key_reader *r, const char *name) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->prefix, name);
    return r->key;
}

static knnlm_status missing(const key_reader *r) {
    return kn_fail(KNNLM_EDATA, "%s: no \"%s\"", kn_gguf_path(r->file), r->key);
}

static knnlm_status read_int(key_reader *r, const char *name, int32_t *out) {
    int64_t value = 0;
    bool found;
    KN_TRY(kn_gguf_get_i64(r->file, full_key(r, name), &value, &found));
    if (!found) return missing(r);
    if (value < 0 || value > INT32_MAX)
        return kn_fail(KNNLM_EDATA, "%s: \"%s\" is %lld", kn_gguf_path(r->file), r->key, (long long)value);
    *out = (int32_t)value;
    return KNNLM_OK;
}

static knnlm_status read_float(key_reader *r, const char *name, float *out) {
    double value = 0;
    bool found;
    KN_TRY(kn_gguf_get_f64(r->file, full_key(r, name), &value, &found));
    if (!found) return missing(r);
    *out = (float)value;
    return KNNLM_OK;
}

static knnlm_status read_choice(key_reader *r, const char *name, const char *const *names, int *out) {
    const char *value = NULL;
    bool found;
    KN_TRY(kn_gguf_get_string(r->file, full_key(r, name), &value, &found));
    if (!found) return missing(r);
    for (*out = 0; names[*out]; ++*out)
        if (strcmp(value, names[*out]) == 0) return KNNLM_OK;
    return kn_fail(KNNLM_ENOTSUP, "%s: \"%s\" is \"%s\": not known here", kn_gguf_path(r->file), r->key,
                   value);
}

static knnlm_status read_bands(key_reader *r, kn_config *c) {
    size_t count = 0;
    bool found;
    c->bands = 1;
    c->band_factor = 4;
    KN_TRY(kn_gguf_get_array(r->file, full_key(r, "band_ends"), &count, &found));
    if (!found) return KNNLM_OK;
    if (count < 1 || count > KN_BANDS_MAX)
        return kn_fail(KNNLM_EDATA, "%s: %zu vocabulary bands", kn_gguf_path(r->file), count);
    c->bands = (int32_t)count;
    for (size_t i = 0; i < count; i++) {
        int64_t end;
        KN_TRY(kn_gguf_array_i64(r->file, full_key(r, "band_ends"), i, &end));
        if (end < 0 || end > c->vocabulary)
            return kn_fail(KNNLM_EDATA, "%s: vocabulary band ends at %lld", kn_gguf_path(r->file),
                           (long long)end);
        c->band_end[i] = (int32_t)end;
    }
    return read_int(r, "band_factor", &c->band_factor);
}

// Keys of what models had not at first: without them they are as those were.
static knnlm_status read_later_keys(key_reader *r, kn_config *c) {
    int norm = KNNLM_NORM_LAYER;
    bool found;
    const char *ignored;
    KN_TRY(kn_gguf_get_string(r->file, full_key(r, "norm"), &ignored, &found));
    if (found) KN_TRY(read_choice(r, "norm", norm_names, &norm));
    c->norm = (knnlm_norm)norm;
    KN_TRY(kn_gguf_get_bool(r->file, full_key(r, "no_bias"), &c->no_bias, &found));
    return kn_gguf_get_bool(r->file, full_key(r, "qk_norm"), &c->qk_norm, &found);
}

static knnlm_status read_own_keys(key_reader *r, kn_config *c) {
    int positions, activation;
    bool found;
    KN_TRY(read_choice(r, "positions", position_names, &positions));
    KN_TRY(read_choice(r, "activation", activation_names, &activation));
    KN_TRY(read_float(r, "embedding_scale", &c->embedding_scale));
    KN_TRY(kn_gguf_get_bool(r->file, full_key(r, "final_norm"), &c->final_norm, &found));
    if (!found) return missing(r);
    c->positions = (knnlm_positions)positions;
    c->activation = (knnlm_activation)activation;
    KN_TRY(read_later_keys(r, c));
    return read_bands(r, c);
}

// What a Llama or Qwen3 may have and ours have not.
static knnlm_status refuse_foreign(key_reader *r, const kn_config *c) {
    static const char *const absent[] = {"expert_count", "rope.scaling.type", "rope.scaling.factor",
                                         "attention.sliding_window"};
    struct {
        const char *name;
        int32_t expected;
    } same[] = {{"attention.head_count_kv", c->heads},
                {"attention.key_length", c->width / c->heads},
                {"attention.value_length", c->width / c->heads},
                {"rope.dimension_count", c->width / c->heads}};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (kn_gguf_has(r->file, full_key(r, absent[i])))
            return kn_fail(KNNLM_ENOTSUP, "%s: \"%s\" is not native", kn_gguf_path(r->file), r->key);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        int32_t value;
        if (!kn_gguf_has(r->file, full_key(r, same[i].name))) continue;
        KN_TRY(read_int(r, same[i].name, &value));
        if (value != same[i].expected)
            return kn_fail(KNNLM_ENOTSUP, "%s: \"%s\" is %d (%d is native)", kn_gguf_path(r->file), r->key,
                           value, same[i].expected);
    }
    return KNNLM_OK;
}

// Llama's shape, or Qwen3's.
static knnlm_status read_llama_keys(key_reader *r, kn_config *c) {
    c->positions = KNNLM_POSITIONS_ROTARY;
    c->activation = KNNLM_ACTIVATION_SWIGLU;
    c->norm = KNNLM_NORM_RMS;
    c->no_bias = c->final_norm = true;
    c->qk_norm = strcmp(r->prefix, "qwen3") == 0;
    c->bands = 1;
    c->band_factor = 4;
    double scale = 1;
    bool found;
    KN_TRY(kn_gguf_get_f64(r->file, KN_KEY_SCALE, &scale, &found));
    c->embedding_scale = (float)scale;
    if (!(c->embedding_scale > 0))
        return kn_fail(KNNLM_EDATA, "%s: \"%s\" is %g", kn_gguf_path(r->file), KN_KEY_SCALE, scale);
    KN_TRY(read_float(r, "attention.layer_norm_rms_epsilon", &c->epsilon));
    return refuse_foreign(r, c);
}

static knnlm_status read_gpt2_keys(key_reader *r, kn_config *c) {
    c->positions = KNNLM_POSITIONS_LEARNED;
    c->activation = KNNLM_ACTIVATION_GELU;
    c->final_norm = true;
    c->embedding_scale = 1;
    c->bands = 1;
    c->band_factor = 4;
    return read_float(r, "attention.layer_norm_epsilon", &c->epsilon);
}

// An optional key of our own; *out stays where it is not there.
static knnlm_status read_optional(key_reader *r, const char *key, int32_t *out) {
    int64_t value = *out;
    bool found;
    KN_TRY(kn_gguf_get_i64(r->file, key, &value, &found));
    if (value < 0 || value > INT32_MAX)
        return kn_fail(KNNLM_EDATA, "%s: \"%s\" is %lld", kn_gguf_path(r->file), key, (long long)value);
    *out = (int32_t)value;
    return KNNLM_OK;
}

static knnlm_status read_rotary(key_reader *r, kn_config *c) {
    double base = 10000;
    bool found;
    if (c->positions != KNNLM_POSITIONS_ROTARY) return KNNLM_OK;
    KN_TRY(kn_gguf_get_f64(r->file, full_key(r, "rope.freq_base"), &base, &found));
    c->rope_base = (float)base;
    KN_TRY(read_optional(r, KN_KEY_CONTEXT, &c->context));
    return read_optional(r, KN_KEY_WINDOW, &c->window);
}

static knnlm_status read_knnlm_keys(key_reader *r, kn_config *c) {
    KN_TRY(read_float(r, "attention.layer_norm_epsilon", &c->epsilon));
    return read_own_keys(r, c);
}

typedef knnlm_status key_rules(key_reader *r, kn_config *c);

// NULL: not native.
static key_rules *rules_of(const char *architecture) {
    static const struct {
        const char *architecture;
        key_rules *rules;
    } native[] = {{"knnlm", read_knnlm_keys},
                  {"gpt2", read_gpt2_keys},
                  {"llama", read_llama_keys},
                  {"qwen3", read_llama_keys}};
    for (size_t i = 0; i < sizeof native / sizeof *native; i++)
        if (strcmp(architecture, native[i].architecture) == 0) return native[i].rules;
    return NULL;
}

knnlm_status kn_config_load(const kn_gguf *file, kn_config *out) {
    key_reader r = {.file = file};
    size_t tokens = 0;
    bool found;
    *out = (kn_config){0};
    KN_TRY(kn_gguf_get_string(file, "general.architecture", &r.prefix, &found));
    if (!found) return kn_fail(KNNLM_EDATA, "%s: no \"general.architecture\"", kn_gguf_path(file));
    key_rules *read_keys = rules_of(r.prefix);
    if (!read_keys)
        return kn_fail(KNNLM_ENOTSUP, "%s: architecture \"%s\" (knnlm, gpt2, llama and qwen3 are native)",
                       kn_gguf_path(file), r.prefix);
    KN_TRY(read_int(&r, "context_length", &out->context));
    KN_TRY(read_int(&r, "embedding_length", &out->width));
    KN_TRY(read_int(&r, "block_count", &out->layers));
    KN_TRY(read_int(&r, "feed_forward_length", &out->ffn));
    KN_TRY(read_int(&r, "attention.head_count", &out->heads));
    if (out->heads < 1) return kn_fail(KNNLM_EDATA, "%s: %d attention heads", kn_gguf_path(file), out->heads);
    KN_TRY(kn_gguf_get_array(file, "tokenizer.ggml.tokens", &tokens, &found));
    if (!found || tokens > INT32_MAX) return kn_fail(KNNLM_EDATA, "%s: no vocabulary", kn_gguf_path(file));
    out->vocabulary = (int32_t)tokens;
    KN_TRY(read_keys(&r, out));
    KN_TRY(read_rotary(&r, out));
    if (out->bands == 1) out->band_end[0] = out->vocabulary;
    return kn_config_validate(out, kn_gguf_path(file));
}

static knnlm_status put_int(kn_gguf_writer *file, const char *prefix, const char *name, int32_t value) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", prefix, name);
    return kn_gguf_put_u32(file, key, (uint32_t)value);
}

static knnlm_status put_float(kn_gguf_writer *file, const char *prefix, const char *name, float value) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", prefix, name);
    return kn_gguf_put_f32(file, key, value);
}

static knnlm_status put_own_keys(const kn_config *c, kn_gguf_writer *file) {
    KN_TRY(kn_gguf_put_string(file, "knnlm.positions", position_names[c->positions]));
    KN_TRY(kn_gguf_put_string(file, "knnlm.activation", activation_names[c->activation]));
    KN_TRY(kn_gguf_put_f32(file, "knnlm.embedding_scale", c->embedding_scale));
    KN_TRY(kn_gguf_put_bool(file, "knnlm.final_norm", c->final_norm));
    // What models had not at first is written where it is used: older readers then read the others.
    if (c->norm != KNNLM_NORM_LAYER) KN_TRY(kn_gguf_put_string(file, "knnlm.norm", norm_names[c->norm]));
    if (c->no_bias) KN_TRY(kn_gguf_put_bool(file, "knnlm.no_bias", true));
    if (c->qk_norm) KN_TRY(kn_gguf_put_bool(file, "knnlm.qk_norm", true));
    if (c->bands == 1) return KNNLM_OK;
    KN_TRY(kn_gguf_put_i32s(file, "knnlm.band_ends", c->band_end, (size_t)c->bands));
    return put_int(file, "knnlm", "band_factor", c->band_factor);
}

static knnlm_status put_llama_keys(const kn_config *c, kn_gguf_writer *file, const char *prefix) {
    int32_t head = c->width / c->heads;
    KN_TRY(put_int(file, prefix, "attention.head_count_kv", c->heads));
    KN_TRY(put_int(file, prefix, "attention.key_length", head));
    KN_TRY(put_int(file, prefix, "attention.value_length", head));
    KN_TRY(put_int(file, prefix, "rope.dimension_count", head));
    KN_TRY(put_int(file, prefix, "vocab_size", c->vocabulary));
    return kn_gguf_put_f32(file, KN_KEY_SCALE, c->embedding_scale);
}

knnlm_status kn_config_save(const kn_config *c, kn_gguf_writer *file) {
    const char *prefix = kn_config_architecture(c);
    KN_TRY(kn_gguf_put_string(file, "general.architecture", prefix));
    // llama.cpp knows no sliding window: what it may see is no more than that.
    KN_TRY(put_int(file, prefix, "context_length",
                   c->window && c->window < c->context ? c->window : c->context));
    KN_TRY(put_int(file, prefix, "embedding_length", c->width));
    KN_TRY(put_int(file, prefix, "block_count", c->layers));
    KN_TRY(put_int(file, prefix, "feed_forward_length", c->ffn));
    KN_TRY(put_int(file, prefix, "attention.head_count", c->heads));
    KN_TRY(put_float(file, prefix,
                     is_llama(c) ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
                     c->epsilon));
    if (c->positions == KNNLM_POSITIONS_ROTARY)
        KN_TRY(put_float(file, prefix, "rope.freq_base", c->rope_base));
    if (c->window) {
        KN_TRY(kn_gguf_put_u32(file, KN_KEY_WINDOW, (uint32_t)c->window));
        KN_TRY(kn_gguf_put_u32(file, KN_KEY_CONTEXT, (uint32_t)c->context));
    }
    if (is_llama(c)) return put_llama_keys(c, file, prefix);
    return is_gpt2(c) ? KNNLM_OK : put_own_keys(c, file);
}
