// knnlm: nearest-neighbour language models. The one installed header.
//
// Conventions: every function that can fail returns a knnlm_status; 0 is done, and otherwise knnlm_message()
// has one line for people. Handles are opaque; what _open gives, _close takes back. The library never prints
// and never exits.
#ifndef KNNLM_H
#define KNNLM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KNNLM_VERSION "0.1.0"

// ---------------------------------------------------------------- status

typedef enum knnlm_status {
    KNNLM_OK = 0,
    KNNLM_EINVAL,   // an argument or an option is wrong
    KNNLM_EIO,      // a file or a device failed
    KNNLM_EDATA,    // a file's content is malformed
    KNNLM_ENOMEM,   // memory could not be had
    KNNLM_ENOTSUP,  // well formed, but not something this build can do
    KNNLM_ESTOPPED, // interrupted by the user; what could be kept was kept
} knnlm_status;

// The message of the last failure in the calling thread; valid until the next failure in it. Never NULL.
const char *knnlm_message(void);
// A few words for a status; a constant. Any thread.
const char *knnlm_status_name(knnlm_status status);
// The version of the library linked, as KNNLM_VERSION. Any thread.
const char *knnlm_version(void);

// Memory that the library handed out.
void knnlm_free(void *memory);

// Worker threads of the process; 0: one a core. Not while another call is under way.
// KNNLM_EINVAL: negative or above 256.
knnlm_status knnlm_threads_set(int threads);

// ---------------------------------------------------------------- model

// A language model with its tokenizer. One thread at a time may use a model; different models may be used by
// different threads.
typedef struct knnlm_model knnlm_model;

typedef enum knnlm_precision {
    KNNLM_PRECISION_AUTO, // bf16 products where the CPU has them, else f32
    KNNLM_PRECISION_F32,
    KNNLM_PRECISION_BF16,
} knnlm_precision;

typedef struct knnlm_model_options {
    knnlm_precision precision;
} knnlm_model_options;

typedef struct knnlm_model_info {
    const char *path, *architecture, *engine, *kernels; // owned by the model
    int32_t vocabulary, width, layers, heads, ffn, context, key_width;
    uint64_t parameters, file_bytes;
    char fingerprint[33]; // of the file: 128 bits in hexadecimal
} knnlm_model_info;

knnlm_model_options knnlm_model_options_default(void);

// Opens a model file (GGUF: architectures knnlm and gpt2). `options` may be NULL.
// KNNLM_EIO: cannot be read; KNNLM_EDATA: malformed; KNNLM_ENOTSUP: another architecture or tensor type;
// KNNLM_ENOMEM.
knnlm_status knnlm_model_open(const char *path, const knnlm_model_options *options, knnlm_model **out);
// NULL is allowed.
void knnlm_model_close(knnlm_model *model);
// Any thread, while the model is open.
void knnlm_model_describe(const knnlm_model *model, knnlm_model_info *out);

// Text to tokens; *tokens is the caller's, released with knnlm_free. Any thread.
// KNNLM_EDATA: not UTF-8 (word and WordPiece tokenizers; byte-level BPE takes any bytes); KNNLM_ENOMEM.
knnlm_status knnlm_model_encode(const knnlm_model *model, const char *text, size_t size, int32_t **tokens,
                                size_t *count);
// Tokens to text with a NUL added; *text is the caller's, released with knnlm_free. Any thread.
// KNNLM_EINVAL: a token is not in the vocabulary; KNNLM_ENOMEM.
knnlm_status knnlm_model_decode(const knnlm_model *model, const int32_t *tokens, size_t count, char **text,
                                size_t *size);

// How a text is read: `score` tokens at a time, each time after up to `context` tokens before them.
typedef struct knnlm_score_options {
    int32_t score;   // 0: half of the model's context, at most 512
    int32_t context; // negative: what is left of the model's context
} knnlm_score_options;

knnlm_score_options knnlm_score_options_default(void);

// Natural logarithm of the probability of every token of one document, each given those before it.
// `logprobs` has room for `count`; `options` may be NULL.
// KNNLM_EINVAL: a token is not in the vocabulary, or score and context exceed the model's; KNNLM_ENOMEM.
knnlm_status knnlm_model_score(knnlm_model *model, const int32_t *tokens, size_t count,
                               const knnlm_score_options *options, float *logprobs);

#ifdef __cplusplus
}
#endif

#endif
