// Prompts of requests as tokens. Not a door: only this room includes it.
#ifndef KN_SERVE_PROMPT_H
#define KN_SERVE_PROMPT_H

#include "serve/exchange.h"

// A prompt as tokens, and as text where that is wanted.
typedef struct kn_read_prompt {
    int32_t *tokens; // without the start token
    size_t count;
    bool own_start; // it brought the start token along
    bool space;     // there was one at its end, which the first word is to bring
    char *text;     // NULL: not asked for
    size_t size;
    uint64_t *offsets; // (count): bytes at which tokens begin in the text
} kn_read_prompt;

// What is wanted of a prompt.
enum {
    KN_PROMPT_TEXT = 1,      // its text and offsets
    KN_PROMPT_CONTINUED = 2, // a space at its end is left to the word that comes, as most tokens bring theirs
};
bool kn_prompt_read(kn_exchange *x, const kn_prompt *p, int wanted, const char *param, kn_read_prompt *out,
                    kn_http_error *err);
// Whether there are no more tokens than a prompt may have.
bool kn_prompt_check(const kn_exchange *x, size_t tokens, const char *param, kn_http_error *err);
// Whether the ids are in the vocabulary, and there is memory for `copies` of their text.
bool kn_ids_check(kn_exchange *x, const kn_prompt *p, const char *param, size_t copies, kn_http_error *err);
void kn_read_prompt_free(kn_read_prompt *p);

#endif
