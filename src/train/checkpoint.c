// Saves and loads checkpoints, and checks that a run may go on from one.
#include "train/checkpoint.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FROM_KEY "knnlm.train.from"
#define VALID_KEY "knnlm.train.valid_hash"
#define WARMUP_KEY "knnlm.train.warmup"

// Tensor names carry a prefix here: longer than a parameter's own.
typedef char tensor_name[KN_GGUF_NAME_MAX + 8];

static knnlm_status announce(kn_gguf_writer *w, const kn_layout *layout, const char *prefix) {
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        int64_t dims[2] = {(int64_t)p->columns, (int64_t)p->rows};
        tensor_name name;
        snprintf(name, sizeof name, "%s%s", prefix, p->name);
        KN_TRY(kn_gguf_put_tensor(w, name, KN_GGUF_F32, 2, dims));
    }
    return KNNLM_OK;
}

static knnlm_status put_all(kn_gguf_writer *w, const kn_layout *layout, const float *values) {
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        KN_TRY(kn_gguf_put_data_f32(w, values + p->offset, p->rows * p->columns));
    }
    return KNNLM_OK;
}

// What must be the same for a run to go on as if it had not stopped.
typedef struct setting {
    const char *key, *what;
    uint64_t value;
} setting;

static size_t settings_of(const kn_train_options *o, setting out[8]) {
    size_t n = 0;
    // 63 bits of it: integers of a GGUF are read as signed.
    out[n++] = (setting){"knnlm.train.corpus_hash", "text", o->corpus->hash >> 1};
    out[n++] = (setting){"knnlm.train.seed", "seed", o->seed};
    out[n++] = (setting){"knnlm.train.length", "window length", o->length};
    out[n++] = (setting){"knnlm.train.batch", "batch size", o->batch};
    return n;
}

// What the best loss is of: the validation text, and how much of it. 63 bits.
static uint64_t hash_valid(const kn_train_options *o) {
    return o->valid ? kn_mix64(o->valid->hash ^ kn_mix64(o->valid_tokens)) >> 1 : 0;
}

static knnlm_status write_checkpoint(kn_gguf_writer *w, const kn_train_options *o, const kn_layout *layout,
                                     const kn_train_state *state) {
    setting settings[8];
    size_t n = settings_of(o, settings);
    bool adam = state->optimizer.second != NULL;
    KN_TRY(kn_config_save(&o->config, w));
    KN_TRY(kn_tokenizer_save_gguf(o->tokenizer, w));
    if (o->start) KN_TRY(kn_gguf_put_string(w, FROM_KEY, o->start->fingerprint));
    for (size_t i = 0; i < n; i++) KN_TRY(kn_gguf_put_u64(w, settings[i].key, settings[i].value));
    KN_TRY(kn_gguf_put_u64(w, KN_KEY_STEP, (uint64_t)state->step));
    KN_TRY(kn_gguf_put_u64(w, "knnlm.train.steps", (uint64_t)o->steps));
    KN_TRY(kn_gguf_put_u64(w, WARMUP_KEY, (uint64_t)o->schedule.warmup));
    KN_TRY(kn_gguf_put_u64(w, VALID_KEY, hash_valid(o)));
    KN_TRY(kn_gguf_put_u64(w, "knnlm.train.updates", (uint64_t)state->optimizer.updates));
    KN_TRY(kn_gguf_put_f64(w, "knnlm.train.last_rate", state->optimizer.last_rate));
    KN_TRY(kn_gguf_put_f64(w, "knnlm.train.best", state->best));
    KN_TRY(announce(w, layout, ""));
    KN_TRY(announce(w, layout, "m."));
    if (adam) KN_TRY(announce(w, layout, "v."));
    KN_TRY(put_all(w, layout, state->params));
    KN_TRY(put_all(w, layout, state->optimizer.first));
    return adam ? put_all(w, layout, state->optimizer.second) : KNNLM_OK;
}

knnlm_status kn_checkpoint_save(const char *path, const kn_train_options *o, const kn_layout *layout,
                                const kn_train_state *state) {
    kn_gguf_writer *w;
    KN_TRY(kn_gguf_writer_open(path, &w));
    knnlm_status status = write_checkpoint(w, o, layout, state);
    if (status == KNNLM_OK) return kn_gguf_writer_commit(w);
    kn_gguf_writer_abort(w);
    return status;
}

static knnlm_status load_all(const kn_gguf *file, const kn_layout *layout, const char *prefix,
                             float *values) {
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        const kn_gguf_tensor *t;
        tensor_name name;
        snprintf(name, sizeof name, "%s%s", prefix, p->name);
        t = kn_gguf_tensor_find(file, name);
        if (!t || t->dims[0] != (int64_t)p->columns || t->dims[1] != (int64_t)p->rows ||
            t->type != KN_GGUF_F32)
            return kn_fail(KNNLM_EDATA,
                           "%s: no tensor \"%s\" of this model: the checkpoint is of another one",
                           kn_gguf_path(file), name);
        KN_TRY(kn_gguf_tensor_f32(t, 0, p->rows * p->columns, values + p->offset));
    }
    return KNNLM_OK;
}

static knnlm_status get_integer(const kn_gguf *file, const char *key, int64_t *value) {
    bool found;
    KN_TRY(kn_gguf_get_i64(file, key, value, &found));
    return found ? KNNLM_OK
                 : kn_fail(KNNLM_EDATA, "%s: no \"%s\": not a checkpoint", kn_gguf_path(file), key);
}

static knnlm_status get_number(const kn_gguf *file, const char *key, double *value) {
    bool found;
    KN_TRY(kn_gguf_get_f64(file, key, value, &found));
    return found ? KNNLM_OK
                 : kn_fail(KNNLM_EDATA, "%s: no \"%s\": not a checkpoint", kn_gguf_path(file), key);
}

static knnlm_status other_model(const kn_gguf *file, const char *what) {
    return kn_fail(KNNLM_EINVAL, "%s: made with another %s: resume with the model the run began with",
                   kn_gguf_path(file), what);
}

// Tensors of the same shape are not yet the same model: heads, activation or a layer less leave no trace in
// them.
static knnlm_status check_model(const kn_gguf *file, const kn_config *asked) {
    kn_config made;
    KN_TRY(kn_config_load(file, &made));
    const struct {
        const char *what;
        double made, asked;
    } counts[] = {{"`width`", made.width, asked->width},
                  {"`layers`", made.layers, asked->layers},
                  {"`heads`", made.heads, asked->heads},
                  {"`ffn`", made.ffn, asked->ffn},
                  {"`context`", made.context, asked->context},
                  {"vocabulary", made.vocabulary, asked->vocabulary}},
      kinds[] = {
          {"`positions`", made.positions, asked->positions},
          {"`activation`", made.activation, asked->activation},
          {"`norm`", made.norm, asked->norm},
          {"`no_bias`", made.no_bias, asked->no_bias},
          {"`qk_norm`", made.qk_norm, asked->qk_norm},
          {"`window`", made.window, asked->window},
          {"rotary base", made.rope_base, asked->rope_base},
          {"final norm", made.final_norm, asked->final_norm},
          {"epsilon", made.epsilon, asked->epsilon},
          {"embedding scale", made.embedding_scale, asked->embedding_scale},
          {"number of `bands`", made.bands, asked->bands},
          {"band factor", made.bands > 1 ? made.band_factor : 0, made.bands > 1 ? asked->band_factor : 0}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].made != counts[i].asked)
            return kn_fail(KNNLM_EINVAL,
                           "%s: made with %s %.0f, not %.0f: resume with the model the run began with",
                           kn_gguf_path(file), counts[i].what, counts[i].made, counts[i].asked);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].made != kinds[i].asked) return other_model(file, kinds[i].what);
    for (int32_t b = 0; b < made.bands; b++)
        if (made.band_end[b] != asked->band_end[b]) return other_model(file, "`bands`");
    return KNNLM_OK;
}

// AdamW and Muon may take over from each other; Nesterov's momentum is in other units and has no second
// moments.
static knnlm_status check_moments(const kn_gguf *file, const kn_layout *layout, const kn_train_state *state) {
    tensor_name name;
    snprintf(name, sizeof name, "v.%s", layout->params[0].name);
    bool has = kn_gguf_tensor_find(file, name) != NULL;
    if (has == (state->optimizer.second != NULL)) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: made with %s: resume with the optimizer the run began with",
                   kn_gguf_path(file), has ? "adamw or muon" : "nesterov");
}

knnlm_status kn_checkpoint_from(const kn_gguf *file, char out[KN_FINGERPRINT]) {
    const char *text = "";
    bool found;
    KN_TRY(kn_gguf_get_string(file, FROM_KEY, &text, &found));
    snprintf(out, KN_FINGERPRINT, "%s", found ? text : "");
    return KNNLM_OK;
}

static knnlm_status check_start(const kn_gguf *file, const kn_start *start) {
    char made[KN_FINGERPRINT];
    KN_TRY(kn_checkpoint_from(file, made));
    return strcmp(made, start ? start->fingerprint : "") == 0 ? KNNLM_OK
                                                              : other_model(file, "model to begin from");
}

// The best loss, unless it is of another text than this run validates on.
static knnlm_status read_best(const kn_gguf *file, const kn_train_options *o, double *best) {
    int64_t hash;
    bool found;
    KN_TRY(get_number(file, "knnlm.train.best", best));
    KN_TRY(kn_gguf_get_i64(file, VALID_KEY, &hash, &found));
    if (found && (uint64_t)hash != hash_valid(o)) *best = INFINITY;
    return KNNLM_OK;
}

static knnlm_status read_checkpoint(const kn_gguf *file, const kn_train_options *o, const kn_layout *layout,
                                    kn_train_state *state) {
    setting settings[8];
    size_t n = settings_of(o, settings);
    KN_TRY(check_start(file, o->start));
    KN_TRY(check_model(file, &o->config));
    for (size_t i = 0; i < n; i++) {
        int64_t value;
        KN_TRY(get_integer(file, settings[i].key, &value));
        if ((uint64_t)value != settings[i].value)
            return kn_fail(KNNLM_EINVAL,
                           "%s: made with another %s: resume with the settings the run began with",
                           kn_gguf_path(file), settings[i].what);
    }
    KN_TRY(check_moments(file, layout, state));
    KN_TRY(get_integer(file, KN_KEY_STEP, &state->step));
    KN_TRY(get_integer(file, "knnlm.train.updates", &state->optimizer.updates));
    if (state->step < 0 || state->optimizer.updates < 0)
        return kn_fail(KNNLM_EDATA, "%s: at step %lld", kn_gguf_path(file), (long long)state->step);
    KN_TRY(get_number(file, "knnlm.train.last_rate", &state->optimizer.last_rate));
    KN_TRY(read_best(file, o, &state->best));
    KN_TRY(load_all(file, layout, "", state->params));
    KN_TRY(load_all(file, layout, "m.", state->optimizer.first));
    return state->optimizer.second ? load_all(file, layout, "v.", state->optimizer.second) : KNNLM_OK;
}

knnlm_status kn_checkpoint_schedule(const char *path, int64_t *steps, int64_t *warmup) {
    kn_gguf *file;
    int64_t said;
    bool found = false;
    KN_TRY(kn_gguf_open(path, &file));
    knnlm_status status = get_integer(file, "knnlm.train.steps", steps);
    if (status == KNNLM_OK) status = kn_gguf_get_i64(file, WARMUP_KEY, &said, &found);
    if (status == KNNLM_OK && found) *warmup = said;
    kn_gguf_close(file);
    return status;
}

knnlm_status kn_checkpoint_load(const char *path, const kn_train_options *o, const kn_layout *layout,
                                kn_train_state *state) {
    kn_gguf *file;
    KN_TRY(kn_gguf_open(path, &file));
    knnlm_status status = read_checkpoint(file, o, layout, state);
    kn_gguf_close(file);
    return status;
}
