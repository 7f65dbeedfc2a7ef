// A chunk of a generated text: what a sequence has to tell since the chunk before. Engines make them, answers
// take and free them. Not a door: only this room includes it.
#ifndef KN_SERVE_CHUNK_H
#define KN_SERVE_CHUNK_H

#include "generate/generate.h"

typedef struct kn_chunk_token {
    kn_generated generated; // `top` and `top_p` are the chunk's
    size_t chars;           // characters of the generated text before it
} kn_chunk_token;

// All of it belongs to the chunk.
typedef struct kn_chunk {
    struct kn_chunk *next;
    char *text; // whole characters, NUL added
    size_t size;
    knnlm_finish finish;
    kn_chunk_token *tokens; // where wanted
    size_t token_count;
    bool ended; // by the token `end`, which is none of the text's; where tokens are wanted
    kn_chunk_token end;
    // Where wanted: new ones and those that ended, from number first_source + 1 on; in the last chunk all of
    // them.
    kn_source *sources;
    size_t first_source, source_count;
} kn_chunk;

// How much of a sequence the chunks so far have.
typedef struct kn_chunk_cursor {
    size_t text, tokens, sources, ended; // sources that were told, and told as they ended
    size_t counted_bytes, counted_chars; // of the text
} kn_chunk_cursor;

// What is new since `cursor`, which goes on; *out NULL: nothing. KNNLM_ENOMEM: a chunk without what there was
// no memory for would be a wrong answer.
knnlm_status kn_chunk_make(const kn_sequence *sequence, bool tokens, bool sources, kn_chunk_cursor *cursor,
                           kn_chunk **out);
// A text of one token; NULL: no memory. Takes `text` (released with free()) either way.
kn_chunk *kn_chunk_of_token(const kn_generated *token, char *text, size_t size, knnlm_finish finish);
void kn_chunk_free(kn_chunk *chunk); // NULL: nothing happens

// ---------------------------------------------------------------- in order

typedef struct kn_chunk_queue {
    kn_chunk *first, *last;
} kn_chunk_queue;

void kn_chunk_queue_put(kn_chunk_queue *queue, kn_chunk *take);
// The first, the caller's; NULL: none.
kn_chunk *kn_chunk_queue_take(kn_chunk_queue *queue);
void kn_chunk_queue_free(kn_chunk_queue *queue);

#endif
