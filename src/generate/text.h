// The text of a sequence as it grows: UTF-8 out of tokens that may end inside a character, and the strings
// before which it ends.
#ifndef KN_GENERATE_TEXT_H
#define KN_GENERATE_TEXT_H

#include "base/memory.h"
#include "text/tokenizer.h"

// Zero-initialise.
typedef struct kn_text {
    char *data; // UTF-8, NUL added
    size_t size, capacity;
    char begun[4]; // a character that is not whole yet
    size_t begun_size;
} kn_text;

// What can be no character becomes U+FFFD. KNNLM_ENOMEM.
knnlm_status kn_text_append(kn_text *text, const char *bytes, size_t size);
// Nothing more comes: a character that was begun is none.
knnlm_status kn_text_end(kn_text *text);
void kn_text_free(kn_text *text);

typedef struct kn_stops {
    char **items;
    size_t count;
} kn_stops;

// Copies. KNNLM_EINVAL: one that is empty or not UTF-8; KNNLM_ENOMEM. To be freed whatever it returns.
knnlm_status kn_stops_init(kn_stops *stops, const char *const *items, size_t count);
void kn_stops_free(kn_stops *stops);
// Where the first of them begins, at `from` or later; SIZE_MAX: there is none.
size_t kn_stops_find(const kn_stops *stops, const kn_text *text, size_t from);
// How many bytes at the end may be the beginning of one.
size_t kn_stops_begun(const kn_stops *stops, const kn_text *text);

// What `token` adds to a text after `previous` (negative: at its beginning); released with free(), NUL added.
// KNNLM_ENOMEM; KNNLM_EINVAL: a token out of range.
knnlm_status kn_piece_after(const kn_tokenizer *t, int32_t previous, int32_t token, char **piece,
                            size_t *size);

#endif
