// Opens llama.cpp's shared library, finds its functions, and turns its log into our messages.
#include "lm/llama/library.h"

#include <dlfcn.h>
#include <limits.h>
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
    char line[LINE];
    bool complaining, idle; // idle: for those who debug llama.cpp itself
} logged = {.lock = PTHREAD_MUTEX_INITIALIZER};
// It complains in the thread that called it.
static _Thread_local char complaint[LINE];
static _Thread_local bool muted;

// "llama_model_load: error loading model: missing tensor": whose function found it out is of no use.
static const char *without_function(const char *line) {
    const char *colon = strstr(line, ": "), *space = strchr(line, ' ');
    return colon && space == colon + 1 ? colon + 2 : line;
}

static void end_line(void) {
    const char *text = without_function(logged.line);
    if (logged.log && !muted) logged.log(logged.line, false);
    if (logged.complaining && !*complaint) snprintf(complaint, LINE, ": %s", text);
    *logged.line = 0;
}

static void take_text(const char *text) {
    for (size_t n = strlen(logged.line); *text; text++) {
        if (*text == '\n') {
            end_line();
            n = 0;
        } else if (n + 1 < LINE) {
            logged.line[n++] = *text;
            logged.line[n] = 0;
        }
    }
}

static void hear(enum ggml_log_level level, const char *text, void *context) {
    (void)context;
    pthread_mutex_lock(&logged.lock);
    if (level != GGML_LOG_LEVEL_CONT) {
        logged.complaining = level == GGML_LOG_LEVEL_ERROR;
        logged.idle = level == GGML_LOG_LEVEL_DEBUG;
    }
    if (!logged.idle) take_text(text);
    pthread_mutex_unlock(&logged.lock);
}

static kn_lm_log *listener(void) {
    pthread_mutex_lock(&logged.lock);
    kn_lm_log *log = logged.log;
    pthread_mutex_unlock(&logged.lock);
    return log;
}

// A broken promise inside llama.cpp: it ends the process after this.
static void hear_last_words(const char *text) {
    kn_lm_log *log = listener();
    if (log) log(text, true);
}

// An exception that llama.cpp did not catch: C cannot, and the process ends here too. What it was is told by
// the C++ library that llama.cpp brought along (as the Itanium ABI has it, which is that of all our systems).
typedef struct exception_type {
    const void *table;
    const char *name;
} exception_type;
static const exception_type *(*current_exception)(void);

static void hear_exception(void) {
    const exception_type *type = current_exception ? current_exception() : NULL;
    const char *name = type ? type->name : "of unknown type";
    char text[LINE];
    if (strstr(name, "bad_alloc"))
        snprintf(text, sizeof text, "memory ran out");
    else
        snprintf(text, sizeof text, "an exception (%s)", name);
    hear_last_words(text);
    abort();
}

const char *kn_llama_complaint(void) {
    return complaint;
}

void kn_llama_forget(void) {
    *complaint = 0;
    muted = false;
}

void kn_llama_mute(void) {
    muted = true;
}

// ---------------------------------------------------------------- opening

#define LIBRARY "libllama.so"

// False when it does not fit.
static bool join(const char *directory, const char *name, char out[PATH_MAX]) {
    int n = snprintf(out, PATH_MAX, "%s/%s", directory, name);
    return n >= 0 && n < PATH_MAX;
}

static bool holds_library(const char *directory) {
    char path[PATH_MAX];
    return join(directory, LIBRARY, path) && access(path, R_OK) == 0;
}

// Where installing puts it, seen from the command: a tree that was moved keeps it.
static bool beside_command(char out[PATH_MAX]) {
    char command[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", command, sizeof command - 1);
    if (n < 0) return false;
    command[n] = 0;
    char *slash = strrchr(command, '/');
    if (slash) *slash = 0;
    return join(command, "../" KN_LLAMA_INSTALLED, out) && holds_library(out);
}

// The same seen from the shared library, whose program may be anywhere (Python's).
static bool beside_library(char out[PATH_MAX]) {
    static const char here = 0;
    char library[PATH_MAX];
    Dl_info us;
    if (!dladdr(&here, &us) || !us.dli_fname || !realpath(us.dli_fname, library)) return false;
    char *slash = strrchr(library, '/');
    if (slash) *slash = 0;
    return join(library, "knnlm/llama", out) && holds_library(out);
}

// What the user says, what was installed along with us, what we were built with.
static const char *find_folder(void) {
    static char beside[PATH_MAX];
    const char *given = getenv("KNNLM_LLAMA");
    if (given && *given) return holds_library(given) ? given : NULL;
    if (beside_command(beside) || beside_library(beside)) return beside;
    if (holds_library(KN_LLAMA_PREFIX "/" KN_LLAMA_INSTALLED)) return KN_LLAMA_PREFIX "/" KN_LLAMA_INSTALLED;
    return holds_library(KN_LLAMA_FOLDER) ? KN_LLAMA_FOLDER : NULL;
}

const char *kn_llama_folder(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    const char *folder = find_folder();
    pthread_mutex_unlock(&lock);
    return folder;
}

static knnlm_status explain_missing(void) {
    const char *given = getenv("KNNLM_LLAMA");
    if (given && *given)
        return kn_fail(
            KNNLM_ENOTSUP,
            "KNNLM_LLAMA=%s: there is no " LIBRARY " in it: unset it, or name the folder that has it", given);
    return kn_fail(KNNLM_ENOTSUP,
                   "llama.cpp's library is missing (" LIBRARY
                   ", looked for in %s): run scripts/get-llama, or name its folder in KNNLM_LLAMA",
                   KN_LLAMA_FOLDER);
}

// Libraries that it needs stand beside it, where the loader does not look unless the builder said so: what is
// open already is not looked for.
static void open_companions(const char *directory) {
    static const char *const names[] = {"libggml-base.so", "libggml-cpu.so", "libggml.so"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (join(directory, names[i], path)) dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static knnlm_status find(void **handle, const char **directory) {
    char path[PATH_MAX];
    *directory = kn_llama_folder();
    if (!*directory) return explain_missing();
    open_companions(*directory);
    *handle = join(*directory, LIBRARY, path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    return *handle ? KNNLM_OK : kn_fail(KNNLM_ENOTSUP, "llama.cpp cannot be loaded: %s", dlerror());
}

// What dlsym gives is for any function: ISO C has no cast from it.
static bool find_function(void *handle, const char *name, void *slot) {
    void *function = dlsym(handle, name);
    memcpy(slot, &function, sizeof function);
    return function != NULL;
}

// Builds between two releases call themselves "0.5.0-dev", the pinned one among them: they cannot be told
// apart.
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

static void hear_exceptions(void *handle) {
    void *(*set_handler)(void (*)(void)); // std::set_terminate
    find_function(handle, "__cxa_current_exception_type", &current_exception);
    if (find_function(handle, "_ZSt13set_terminatePFvvE", &set_handler)) set_handler(hear_exception);
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
    hear_exceptions(handle);
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
    pthread_mutex_lock(&logged.lock);
    logged.log = log;
    pthread_mutex_unlock(&logged.lock);
    pthread_mutex_lock(&lock);
    knnlm_status status = loaded ? KNNLM_OK : load(&library);
    loaded = loaded || status == KNNLM_OK;
    pthread_mutex_unlock(&lock);
    *out = &library;
    return status;
}
