// The native engine's model: weights and the workspace of its forward pass.
#ifndef KN_LM_NATIVE_H
#define KN_LM_NATIVE_H

#include "lm/engine.h"
#include "lm/native/head.h"

// Rows (tokens) of a sub-batch: enough for the weights to be read once for many, little enough for the
// caches.
enum { KN_NATIVE_ROWS = 2048 };

// Activations of one layer, reused by all.
typedef struct kn_workspace {
    kn_scratch s;
    size_t rows;
    float *x;        // (rows, width): residual stream
    float *qkv;      // (rows, 3 width)
    float *attended; // (rows, width)
    float *hidden;   // (rows, ffn)
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
    // Sessions: of each sequence the keys and values of each layer, (context, 2 width). NULL: windows.
    float *const *const *caches;
} kn_pass;
knnlm_status kn_pass_run(kn_pass *p);

extern const kn_engine kn_native_engine;
knnlm_status kn_native_session_open(kn_lm *lm, kn_session **out);
void kn_native_session_close(kn_session *s);
knnlm_status kn_native_session_feed(kn_session *s, const int32_t *tokens, size_t count, kn_tap tap,
                                    const kn_lm_output *out);
knnlm_status kn_native_sessions_feed(kn_session *const *sessions, size_t count, const int32_t *tokens,
                                     kn_tap tap, const kn_lm_output *out);
size_t kn_native_session_length(const kn_session *s);
void kn_native_session_cut(kn_session *s, size_t length);

#endif
