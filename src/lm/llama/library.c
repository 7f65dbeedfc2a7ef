#include "lm/llama/library.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *kn_llama_release(void) {
    return KN_LLAMA_RELEASE;
}

// ---------------------------------------------------------------- what it says

enum { LINE = 512 };

// llama.cpp has one log for the process, and its threads may write to it at any time.
static struct {
    pthread_mutex_t lock;
    kn_lm_log *log;
    char line[LINE], complaint[LINE];
    bool complaining;
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

// "llama_model_load: error loading model: missing tensor": whose function found it out is of no use.
static const char *without_function(const char *line) {
    const char *colon = strstr(line, ": "), *space = strchr(line, ' ');
    return colon && space == colon + 1 ? colon + 2 : line;
}

static void end_line(void) {
    const char *text = without_function(said.line);
    if (said.log) said.log(said.line, false);
    if (said.complaining && !*said.complaint) snprintf(said.complaint, LINE, "%s", text);
    *said.line = 0;
}

static void take_text(const char *text) {
    for (size_t n = strlen(said.line); *text; text++) {
        if (*text == '\n') {
            end_line();
            n = 0;
        } else if (n + 1 < LINE) {
            said.line[n++] = *text;
            said.line[n] = 0;
        }
    }
}

static void hear(enum ggml_log_level level, const char *text, void *context) {
    (void)context;
    pthread_mutex_lock(&said.lock);
    if (level != GGML_LOG_LEVEL_CONT) said.complaining = level == GGML_LOG_LEVEL_ERROR;
    take_text(text);
    pthread_mutex_unlock(&said.lock);
}

// A broken promise inside llama.cpp: it ends the process after this.
static void hear_last_words(const char *text) {
    if (said.log) said.log(text, true);
}

const char *kn_llama_complaint(void) {
    return said.complaint;
}

void kn_llama_forget(void) {
    pthread_mutex_lock(&said.lock);
    *said.complaint = 0;
    pthread_mutex_unlock(&said.lock);
}

// ---------------------------------------------------------------- opening

// Folders that may hold it, in order: what the user says, what was installed along with us, what we were
// built with.
static const char *folder(size_t i) {
    static const char *const built[] = {KN_LLAMA_INSTALLED, KN_LLAMA_FOLDER};
    return i == 0 ? getenv("KNNLM_LLAMA") : built[i - 1];
}
enum { FOLDERS = 3 };

static char *library_in(const char *directory) {
    size_t size = strlen(directory) + sizeof "/libllama.so";
    char *path = kn_alloc(size, 1);
    if (path) snprintf(path, size, "%s/libllama.so", directory);
    return path;
}

static void *open_in(const char *directory, bool *present) {
    char *path = library_in(directory);
    if (!path) return NULL;
    *present = access(path, R_OK) == 0;
    void *handle = *present ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    free(path);
    return handle;
}

static knnlm_status find(void **handle, const char **directory) {
    for (size_t i = 0; i < FOLDERS; i++) {
        bool present;
        *directory = folder(i);
        if (!*directory || !**directory) continue;
        *handle = open_in(*directory, &present);
        if (*handle) return KNNLM_OK;
        if (present) return kn_fail(KNNLM_ENOTSUP, "llama.cpp cannot be loaded: %s", dlerror());
        if (i == 0)
            return kn_fail(KNNLM_ENOTSUP, "KNNLM_LLAMA=%s: there is no libllama.so in it", *directory);
    }
    return kn_fail(
        KNNLM_ENOTSUP,
        "llama.cpp's library is missing (libllama.so, looked for in %s): run scripts/get-llama, or "
        "name its folder in KNNLM_LLAMA",
        KN_LLAMA_FOLDER);
}

// What dlsym gives is for any function: ISO C has no cast from it.
static bool find_function(void *handle, const char *name, void *slot) {
    void *function = dlsym(handle, name);
    memcpy(slot, &function, sizeof function);
    return function != NULL;
}

// "0.5.0" and "0.5.0-dev" are laid out alike.
static bool same_release(const char *a, const char *b) {
    size_t n = strcspn(a, "-");
    return n == strcspn(b, "-") && strncmp(a, b, n) == 0;
}

static knnlm_status find_functions(void *handle, const char *directory, kn_llama_library *l) {
#define X(name)                                                                                              \
    if (!find_function(handle, #name, &l->name))                                                             \
        return kn_fail(KNNLM_ENOTSUP, "%s: llama.cpp of another release than %s: it has no %s", directory,   \
                       KN_LLAMA_RELEASE, #name);
    KN_LLAMA_FUNCTIONS(X)
#undef X
    if (same_release(l->llama_version(), KN_LLAMA_RELEASE)) return KNNLM_OK;
    return kn_fail(KNNLM_ENOTSUP, "%s: llama.cpp %s, but this was built for %s: build again", directory,
                   l->llama_version(), KN_LLAMA_RELEASE);
}

static knnlm_status load(kn_llama_library *l) {
    void *handle;
    const char *directory;
    KN_TRY(find(&handle, &directory));
    knnlm_status status = find_functions(handle, directory, l);
    if (status != KNNLM_OK) {
        dlclose(handle);
        return status;
    }
    l->llama_log_set(hear, NULL);
    l->ggml_set_abort_callback(hear_last_words);
    l->ggml_backend_load_all_from_path(directory);
    l->llama_backend_init();
    return KNNLM_OK;
}

knnlm_status kn_llama_library_open(kn_lm_log *log, const kn_llama_library **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static kn_llama_library library;
    static bool loaded;
    pthread_mutex_lock(&lock);
    said.log = log;
    knnlm_status status = loaded ? KNNLM_OK : load(&library);
    loaded = loaded || status == KNNLM_OK;
    pthread_mutex_unlock(&lock);
    *out = &library;
    return status;
}
