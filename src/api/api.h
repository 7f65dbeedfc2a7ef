// What the public functions share. Not a door: only this room includes it.
#ifndef KN_API_H
#define KN_API_H

#include "build/build.h"
#include "knn/mixture.h"
#include "knn/origin.h"

#include <pthread.h>

// Searchers that nobody uses now, kept for the next search: opening one takes longer than some searches.
enum { API_SEARCHERS = 16 };
typedef struct api_searcher {
    kn_searcher *searcher;
    const kn_index *index;
    size_t k; // neighbours that it has room for
} api_searcher;

struct knnlm_store {
    kn_store *store;
    pthread_mutex_t mutex; // of the rest, each of which is loaded when first asked for
    kn_tokenizer *tokenizer;
    kn_index *index, *flat; // with the store's lists, and without them
    api_searcher pool[API_SEARCHERS];
    size_t idle; // of them
};

struct knnlm_mixture {
    kn_lm *lm;
    kn_mixture *mixture;
};

// The store is const to its readers; what it loads when asked is all that it learns while it is open.
static inline knnlm_store *api_lock(const knnlm_store *constant) {
    knnlm_store *s = (knnlm_store *)(uintptr_t)constant;
    pthread_mutex_lock(&s->mutex);
    return s;
}
static inline void api_unlock(knnlm_store *s) {
    pthread_mutex_unlock(&s->mutex);
}

// What public options of a mixture mean inside; `choices` is the memory of *out.
knnlm_status api_mixture_options(const knnlm_mixture_options *options, kn_store_choice choices[KN_STORES_MAX],
                                 kn_mixture_options *out);
// What a store remembers, as the public header has it.
knnlm_tuned api_tuned(const kn_store_tuned *tuned);

// The tokens of a text; *tokens is the caller's.
knnlm_status api_encode(const kn_tokenizer *t, const char *text, size_t size, int32_t **tokens,
                        size_t *count);
// How texts are read: what was given (NULL: nothing) over the defaults, cut as `split` says.
knnlm_status api_take_texts(const knnlm_input_options *given, knnlm_split split, kn_text_options *out);

// A document as the public header has it; strings are the store's.
knnlm_document api_document(const kn_store_document *d);
knnlm_entry api_entry(const kn_store_entry *e);
// An origin likewise; its texts are the new one's.
knnlm_origin api_origin(const kn_origin *o);

// Defaults into a caller's struct of that size: an older caller's is shorter, and what a newer one's has
// beyond ours is 0. Its `size` is set.
void api_give(const void *defaults, size_t ours, void *out, size_t size);
// Defines what KNNLM_DEFAULTS of the public header declares: what is not named is 0.
#define API_DEFAULTS(type, ...)                                                                              \
    void type##_init(type *options, size_t size) {                                                           \
        const type defaults = {.size = sizeof defaults, __VA_ARGS__};                                        \
        api_give(&defaults, sizeof defaults, options, size);                                                 \
    }

// Options that were given (NULL: none) over the defaults that *out holds: an older caller's, shorter ones up
// to their own size. KNNLM_EINVAL, naming the struct: no size, or one above `size`.
knnlm_status api_take(const char *name, const void *given, void *out, size_t size);
// The type's defaults, and over them what was given.
#define API_TAKE(type, given, out) (*(out) = type##_default(), api_take(#type, given, out, sizeof *(out)))

#endif
