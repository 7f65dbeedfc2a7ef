// Behind the door of generate.h: what a sequence is made of. Only this room includes it.
#ifndef KN_GENERATE_SEQUENCE_H
#define KN_GENERATE_SEQUENCE_H

#include "generate/generate.h"
#include "generate/text.h"

// A token's part in its source.
typedef struct kn_carried {
    uint64_t position; // of the entry taken, in its document
    double share;
    size_t text_size; // of the source's text, this token included
} kn_carried;

struct kn_sequence {
    kn_lm *lm;
    kn_session *session;
    kn_generate_options options; // but for the stops
    kn_stops stops;
    kn_random random;
    int32_t *history;  // prompt and text
    kn_history learnt; // what the text has shown of the stores
    size_t prompt, count, history_capacity;
    size_t next; // of the history: the first that the model has not read
    bool cut, stepping;
    knnlm_finish finish;
    kn_text text;
    size_t text_final, tokens_final;
    kn_generated *tokens; // (count - prompt)
    size_t token_capacity;
    kn_generated end; // the token that ended the text
    bool ended;       // there was one
    kn_source *sources;
    size_t source_count, source_capacity;
    kn_carried *carried; // (count - prompt), where sources are wanted
    size_t carried_capacity;
};

// What one step knows of a sequence.
typedef struct kn_step {
    const kn_mixture *mixture;
    const kn_row_neighbors *found; // in each of the mixture's stores
    const kn_distribution *distribution;
} kn_step;

// The next token has been chosen: takes it, its numbers and its source, and finds out what is final now.
// KNNLM_ENOMEM; else as kn_origin_read.
knnlm_status kn_sequence_take(kn_sequence *s, int32_t token, const kn_step *step);

// Finds out which passage carried the newest token; its number goes to the token.
knnlm_status kn_sources_note(kn_sequence *s, const kn_step *step);
// The text ended before tokens that had been noted: `count` are left.
knnlm_status kn_sources_trim(kn_sequence *s, size_t count);
void kn_sources_free(kn_sequence *s);

#endif
