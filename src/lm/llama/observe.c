// The paper's taps, read while the graph is computed: its tensors have the same names in every architecture
// that has them at all.
//
// The scheduler asks about every tensor beforehand, and computes in one go up to the next that is wanted:
// what is not asked for costs nothing.
#include "lm/llama/engine.h"

#include <stdio.h>
#include <string.h>

// What goes into a norm is found by way of the norm: it has many names (scaled, with positions, of one branch
// or of both), or the name is another tensor's.
static bool is_raw(kn_tap_point point) {
    return point == KN_TAP_FFN_INPUT_RAW || point == KN_TAP_ATTENTION_RAW;
}

static void name_tap(const kn_llama *m, kn_tap tap, char out[KN_TENSOR_NAME]) {
    static const char *const formats[] = {
        [KN_TAP_FFN_INPUT] = "ffn_norm-%d",    [KN_TAP_FFN_INPUT_RAW] = "ffn_norm-%d",
        [KN_TAP_ATTENTION] = "attn_norm-%d",   [KN_TAP_ATTENTION_RAW] = "attn_norm-%d",
        [KN_TAP_OUTPUT_NORM] = "attn_norm-%d", [KN_TAP_OUTPUT] = "l_out-%d",
    };
    bool last = tap.layer == m->lm.info.layers - 1;
    if (tap.point == KN_TAP_OUTPUT_NORM && last)
        snprintf(out, KN_TENSOR_NAME, "result_norm");
    else
        snprintf(out, KN_TENSOR_NAME, formats[tap.point],
                 tap.layer + (tap.point == KN_TAP_OUTPUT_NORM)); // the norm of the layer after it
}

void kn_observer_aim(kn_observer *o, const kn_llama *m, kn_tap tap) {
    name_tap(m, tap, o->name);
    o->input = is_raw(tap.point);
    o->width = (size_t)m->lm.info.key_width;
}

// What a norm, with its weight and bias, is taken of. It is still there: the layer adds to it later.
static const struct ggml_tensor *input_of_norm(const struct ggml_tensor *t) {
    for (int steps = 0; t && steps < 4; steps++, t = t->src[0])
        if (t->op == GGML_OP_NORM || t->op == GGML_OP_RMS_NORM) return t->src[0];
    return NULL;
}

static bool is_usual(const kn_observer *o, const struct ggml_tensor *t, size_t rows) {
    size_t bytes = o->width * sizeof(float);
    return t->type == GGML_TYPE_F32 && (size_t)t->ne[0] == o->width && t->nb[1] == bytes &&
           t->nb[2] == bytes * (size_t)t->ne[1] && t->nb[3] == t->nb[2] * (size_t)t->ne[2] &&
           (rows == o->tokens || rows == o->outputs);
}

// Rows of tensors of the last layer are those of the tokens whose results come out, in other layers those of
// all tokens.
static void take_rows(kn_observer *o, const struct ggml_tensor *t) {
    size_t rows = t ? (size_t)(t->ne[1] * t->ne[2] * t->ne[3]) : 0, bytes = o->width * sizeof(float);
    const int32_t *places = rows == o->tokens ? o->rows : o->places;
    o->shape[0] = t ? t->ne[0] : 0;
    o->shape[1] = (int64_t)rows;
    o->unusual = !t || !is_usual(o, t, rows);
    if (o->unusual) return;
    o->taken = o->wanted;
    for (size_t i = 0, n; i < o->wanted; i += n) { // runs of rows
        for (n = 1; i + n < o->wanted && places[i + n] == places[i] + (int32_t)n &&
                    o->results[i + n] == o->results[i] + (int64_t)n;)
            n++;
        o->api->ggml_backend_tensor_get(t, o->keys + (size_t)o->results[i] * o->width,
                                        (size_t)places[i] * bytes, n * bytes);
    }
}

// Stopping by the callback leaves the graph's results as they are, and llama.cpp then copies logits that were
// not computed, a vocabulary for every row. Aborting spares that, but drops what the batch put into the
// memory: it is for the last batch of a sequence.
bool kn_observe(struct ggml_tensor *t, bool ask, void *observer) {
    kn_observer *o = observer;
    if (ask && o->seen) o->seen(o->context, t->name, t->ne[0]);
    if (ask) return *o->name && strcmp(t->name, o->name) == 0;
    take_rows(o, o->input ? input_of_norm(t) : t);
    if (!o->stop || o->keep) return !o->stop;
    o->aborting = true;
    kn_llama_mute(); // of which it would complain
    return true;
}

bool kn_observe_abort(void *observer) {
    return ((const kn_observer *)observer)->aborting;
}

// ---------------------------------------------------------------- a model without the tap

typedef struct inventory {
    const kn_llama *m;
    int32_t layer;
    bool has[KN_TAP_OUTPUT + 1];
} inventory;

static void note_tensor(void *context, const char *name, int64_t width) {
    inventory *v = context;
    char wanted[KN_TENSOR_NAME];
    for (int point = 0; point <= KN_TAP_OUTPUT; point++) {
        name_tap(v->m, (kn_tap){(kn_tap_point)point, v->layer}, wanted);
        if (strcmp(name, wanted) == 0 && width == v->m->lm.info.key_width) v->has[point] = true;
    }
}

// One token through the model, with every tensor's name noted.
static knnlm_status take_inventory(kn_llama *m, inventory *v) {
    kn_llama_context *c;
    KN_TRY(kn_llama_context_open(m, 1, 1, false, &c));
    kn_llama_begin(c);
    kn_llama_push(c, kn_tokenizer_start(m->lm.tokenizer), 0, 0, 0);
    c->observer.seen = note_tensor;
    c->observer.context = v;
    knnlm_status status = kn_llama_run(c, KN_TAP_DEFAULT, NULL, false, &(kn_lm_output){0});
    kn_llama_context_close(c);
    return status;
}

knnlm_status kn_llama_no_tap(kn_llama *m, kn_tap tap) {
    inventory v = {.m = m, .layer = tap.layer};
    char names[128] = "";
    KN_TRY(take_inventory(m, &v));
    for (int point = 0; point <= KN_TAP_OUTPUT; point++)
        if (v.has[point]) {
            size_t n = strlen(names);
            snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", kn_tap_name((kn_tap_point)point));
        }
    return kn_fail(
        KNNLM_ENOTSUP, "%s: a model of architecture \"%s\" has no tap \"%s\" at layer %d: it has %s",
        m->lm.info.path, m->architecture, kn_tap_name(tap.point), tap.layer, *names ? names : "none");
}

knnlm_status kn_llama_odd_tap(const kn_llama *m, kn_tap tap, const kn_observer *o) {
    return kn_fail(KNNLM_ENOTSUP,
                   "%s: its tap \"%s\" at layer %d is %lld values wide in %lld rows, not %zu in %zu",
                   m->lm.info.path, kn_tap_name(tap.point), tap.layer, (long long)o->shape[0],
                   (long long)o->shape[1], o->width, o->wanted);
}
