// llama.cpp's library, opened when the first model asks for it.
//
// It is not linked: a native model never needs it, and a machine without it still runs everything else. The
// functions are those of the headers that this was built with; a library of another release is refused,
// because its structures may be laid out otherwise.
#ifndef KN_LM_LLAMA_LIBRARY_H
#define KN_LM_LLAMA_LIBRARY_H

#include "lm/lm.h"

#include <ggml-backend.h>
#include <llama.h>

// Every function that is called.
#define KN_LLAMA_FUNCTIONS(X)                                                                                \
    X(ggml_backend_load_all_from_path)                                                                       \
    X(ggml_backend_tensor_get)                                                                               \
    X(ggml_set_abort_callback)                                                                               \
    X(llama_backend_init)                                                                                    \
    X(llama_batch_free)                                                                                      \
    X(llama_batch_init)                                                                                      \
    X(llama_chat_apply_template)                                                                             \
    X(llama_context_default_params)                                                                          \
    X(llama_decode)                                                                                          \
    X(llama_free)                                                                                            \
    X(llama_get_logits)                                                                                      \
    X(llama_get_memory)                                                                                      \
    X(llama_init_from_model)                                                                                 \
    X(llama_log_set)                                                                                         \
    X(llama_memory_clear)                                                                                    \
    X(llama_memory_seq_cp)                                                                                   \
    X(llama_memory_seq_rm)                                                                                   \
    X(llama_model_chat_template)                                                                             \
    X(llama_model_default_params)                                                                            \
    X(llama_model_free)                                                                                      \
    X(llama_model_get_vocab)                                                                                 \
    X(llama_model_has_encoder)                                                                               \
    X(llama_model_is_diffusion)                                                                              \
    X(llama_model_is_hybrid)                                                                                 \
    X(llama_model_is_recurrent)                                                                              \
    X(llama_model_load_from_file)                                                                            \
    X(llama_model_meta_val_str)                                                                              \
    X(llama_model_n_ctx_train)                                                                               \
    X(llama_model_n_embd)                                                                                    \
    X(llama_model_n_head)                                                                                    \
    X(llama_model_n_head_kv)                                                                                 \
    X(llama_model_n_layer)                                                                                   \
    X(llama_model_n_params)                                                                                  \
    X(llama_set_n_threads)                                                                                   \
    X(llama_token_to_piece)                                                                                  \
    X(llama_tokenize)                                                                                        \
    X(llama_version)                                                                                         \
    X(llama_vocab_bos)                                                                                       \
    X(llama_vocab_eos)                                                                                       \
    X(llama_vocab_eot)                                                                                       \
    X(llama_vocab_get_attr)                                                                                  \
    X(llama_vocab_get_score)                                                                                 \
    X(llama_vocab_get_text)                                                                                  \
    X(llama_vocab_is_eog)                                                                                    \
    X(llama_vocab_n_tokens)                                                                                  \
    X(llama_vocab_type)

typedef struct kn_llama_library {
#define X(name) __typeof__(name) *name;
    KN_LLAMA_FUNCTIONS(X)
#undef X
} kn_llama_library;

// The library, opened once for the process; `log` (may be NULL) is told what it says from now on.
// KNNLM_ENOTSUP: not there, or another release.
knnlm_status kn_llama_library_open(kn_lm_log *log, const kn_llama_library **out);

// Of what llama.cpp complained in this thread since the last call of _forget: its first line after ": ", or
// "" where it was silent. Until that call nobody hears what it says after _mute.
const char *kn_llama_complaint(void);
void kn_llama_forget(void);
void kn_llama_mute(void);

#endif
