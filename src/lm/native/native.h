// The native engine's model: weights and the workspace of its forward pass.
#ifndef KN_LM_NATIVE_H
#define KN_LM_NATIVE_H

#include "lm/engine.h"
#include "lm/native/head.h"

// Rows (tokens) of a sub-batch: enough for the weights to be read once for many, little enough for the
// caches.
enum { KN_NATIVE_ROWS = 2048 };

// Tokens of a window with a past. A multiple of 32, so that blocks of keys lie alike in every window; the
// past then has whole blocks.
enum { KN_NATIVE_STREAM = 512 };

// Keys and values of each layer that positions to come still see: (kept, 2 width).
typedef struct kn_native_past {
    kn_past past;
    float **kept;    // a layer: room for kn_past_max() rows
    size_t begin;    // the first position that was read
    size_t position; // of the next token
    size_t rows;     // kept: those before it, from a multiple of 32 on
} kn_native_past;

// The first position that has to be kept when `position` comes next.
static inline size_t kn_past_first(const kn_config *c, size_t position) {
    size_t unseen = position + 1 > (size_t)c->window ? position + 1 - (size_t)c->window : 0;
    return unseen / KN_CELL * KN_CELL;
}
// Rows that are kept at most.
static inline size_t kn_past_max(const kn_config *c) {
    return (size_t)c->window + KN_CELL;
}

// Activations of one layer, reused by all.
typedef struct kn_workspace {
    kn_scratch s;
    size_t rows;
    float *x;        // (rows, width): residual stream
    float *qkv;      // (rows, 3 width)
    float *attended; // (rows, width)
    float *hidden;   // (rows, hidden)
    float *copy;     // (rows, width): a tapped norm, final states
    float *scored;   // (rows, width): residual stream of the scored rows
} kn_workspace;
knnlm_status kn_workspace_init(kn_workspace *ws, const kn_config *c, const kn_kernels *k, size_t rows,
                               size_t keys);
void kn_workspace_free(kn_workspace *ws);

typedef struct kn_native {
    kn_lm lm;
    kn_gguf *file;
    kn_weights w;
    kn_workspace ws; // grown as windows ask for it
    size_t ws_keys;
} kn_native;

// One pass over some sequences: what is wanted, and where it goes.
typedef struct kn_pass {
    const kn_weights *w;
    kn_workspace *ws;
    kn_batch batch;
    const size_t *first;    // of each sequence: rows below are context only
    const int32_t *targets; // one a scored row, or NULL
    size_t scored;          // rows
    kn_tap tap;
    kn_lm_output out; // rows of this pass
    // Sessions: of each sequence the keys and values of each layer, (room, 2 width), and the position of the
    // first of them. NULL: windows.
    float *const *const *caches;
    const size_t *cached_from; // NULL: 0
    // Windows: what each goes on from, or NULL. NULL: none has a past.
    kn_native_past *const *pasts;
} kn_pass;
knnlm_status kn_pass_run(kn_pass *p);

extern const kn_engine kn_native_engine;
knnlm_status kn_native_past_open(kn_lm *lm, size_t position, kn_past **out);
void kn_native_past_close(kn_past *past);
// The past takes over the new rows of a layer; then, once for all layers, it moves on by `rows`.
void kn_native_past_keep(kn_native_past *past, const kn_config *c, int32_t layer, const float *qkv,
                         size_t rows);
void kn_native_past_move(kn_native_past *past, const kn_config *c, size_t rows);
knnlm_status kn_native_session_open(kn_lm *lm, kn_session **out);
void kn_native_session_close(kn_session *s);
knnlm_status kn_native_session_feed(kn_session *s, const int32_t *tokens, const int32_t *targets,
                                    size_t count, kn_tap tap, const kn_lm_output *out);
knnlm_status kn_native_sessions_feed(kn_session *const *sessions, size_t count, const int32_t *tokens,
                                     kn_tap tap, const kn_lm_output *out);
size_t kn_native_session_length(const kn_session *s);
void kn_native_session_cut(kn_session *s, size_t length);

#endif
