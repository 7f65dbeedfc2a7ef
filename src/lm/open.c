// Which engine serves a model file, and the file's identity.
#include "base/file.h"
#include "lm/engine.h"
#include "lm/native/config.h"
#include "lm/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

// ---------------------------------------------------------------- identity

// A hash under way over the files of a model.
typedef struct hashing {
    XXH3_state_t *state;
    uint64_t bytes, total; // so far; 0: not known
    const kn_progress *progress;
} hashing;

static knnlm_status hash_file(const char *path, hashing *h) {
    enum { STEP = 64 << 20 };
    knnlm_status status = KNNLM_OK;
    kn_map map;
    KN_TRY(kn_map_open(path, &map));
    for (size_t at = 0, n; at < map.size && status == KNNLM_OK; at += n) {
        n = kn_min(map.size - at, STEP);
        XXH3_128bits_update(h->state, map.data + at, n);
        h->bytes += n;
        if (!kn_progress_report(h->progress, "reading the model", h->bytes, h->total, "B"))
            status = kn_fail(KNNLM_ESTOPPED, "%s: stopped while reading", path);
    }
    kn_map_close(&map);
    return status;
}

// "model-00001-of-00003.gguf" is the first of three; what is no such name is a model in one file.
static int parts_of(const char *path, size_t *prefix) {
    size_t length = strlen(path), tail = strlen("-00001-of-00003.gguf");
    int parts = 0, read = 0;
    if (length <= tail) return 1;
    *prefix = length - tail;
    if (sscanf(path + *prefix, "-00001-of-%5d.gguf%n", &parts, &read) != 1 || read != (int)tail) return 1;
    return parts > 0 ? parts : 1;
}

static uint64_t size_of(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 ? (uint64_t)about.st_size : 0;
}

static knnlm_status hash_parts(const char *path, hashing *h) {
    size_t prefix = 0, size = strlen(path) + 1;
    int parts = parts_of(path, &prefix);
    if (parts == 1) h->total = size_of(path);
    KN_TRY(hash_file(path, h));
    char *name = kn_alloc(size, 1);
    if (!name) return KNNLM_ENOMEM;
    knnlm_status status = KNNLM_OK;
    for (int part = 2; part <= parts && status == KNNLM_OK; part++) {
        snprintf(name, size, "%.*s-%05d-of-%05d.gguf", (int)prefix, path, part, parts);
        status = hash_file(name, h);
    }
    free(name);
    return status;
}

knnlm_status kn_lm_identify(const char *path, const kn_progress *progress, kn_lm_info *info) {
    hashing h = {.state = XXH3_createState(), .progress = progress};
    if (!h.state) return kn_fail(KNNLM_ENOMEM, "out of memory");
    XXH3_128bits_reset(h.state);
    knnlm_status status = hash_parts(path, &h);
    XXH128_hash_t hash = XXH3_128bits_digest(h.state);
    XXH3_freeState(h.state);
    info->file_bytes = h.bytes;
    kn_fingerprint_print(hash.high64, hash.low64, info->fingerprint);
    return status;
}

// ---------------------------------------------------------------- recognition

typedef enum file_kind { OURS, SHARED, FOREIGN } file_kind; // SHARED: both engines may serve it

static knnlm_status recognise(const char *path, file_kind *out) {
    kn_gguf *file;
    const char *architecture = "";
    bool found;
    KN_TRY(kn_gguf_open(path, &file));
    knnlm_status status = kn_gguf_get_string(file, "general.architecture", &architecture, &found);
    if (status == KNNLM_OK && !found) status = kn_fail(KNNLM_EDATA, "%s: no \"general.architecture\"", path);
    // A Llama or Qwen3 is native where we made it: others may have what ours have not.
    bool ours = strcmp(architecture, "knnlm") == 0 || kn_gguf_has(file, KN_KEY_SCALE);
    *out = ours ? OURS : strcmp(architecture, "gpt2") == 0 ? SHARED : FOREIGN;
    kn_gguf_close(file);
    return status;
}

// GPT-2's shape is native where its tensors' types are known to us; llama.cpp knows more of them.
static knnlm_status open_recognised(const char *path, file_kind kind, const kn_lm_options *o, kn_lm **out) {
    if (kind == FOREIGN) return kn_llama_open(path, o, out);
    knnlm_status status = kn_native_open(path, o, out);
    bool other = status == KNNLM_ENOTSUP && kind == SHARED && kn_llama_release();
    return other ? kn_llama_open(path, o, out) : status;
}

knnlm_status kn_lm_open(const char *path, const kn_lm_options *options, kn_lm **out) {
    kn_lm_options o = options ? *options : (kn_lm_options){0};
    file_kind kind;
    KN_TRY(recognise(path, &kind));
    knnlm_status status = o.engine == KNNLM_ENGINE_NATIVE  ? kn_native_open(path, &o, out)
                          : o.engine == KNNLM_ENGINE_LLAMA ? kn_llama_open(path, &o, out)
                                                           : open_recognised(path, kind, &o, out);
    if (status != KNNLM_OK) return status;
    (*out)->info.vouched = o.vouched;
    status = kn_lm_share(*out, &o);
    if (status != KNNLM_OK) kn_lm_close(*out);
    return status;
}
