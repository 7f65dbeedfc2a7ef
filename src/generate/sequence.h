// Behind the door of generate.h: what a sequence is made of. Only this room includes it.
#ifndef KN_GENERATE_SEQUENCE_H
#define KN_GENERATE_SEQUENCE_H

#include "generate/generate.h"
#include "generate/states.h"
#include "generate/text.h"

// A neighbour that has the token which was drawn: the entry of a store, and its share of the token's
// probability.
typedef struct kn_place {
    size_t store;
    uint64_t id;
    double share; // 0 to 1
} kn_place;

// What is known of a generated token's origin.
typedef struct kn_note {
    kn_place *places; // let go once no passage can reach back to it
    size_t place_count;
    bool carried;      // the stores have more of its probability than all the rest
    bool stands;       // in its passage, at:
    uint64_t position; // in the document
    double share;      // of its probability that came from this document
} kn_note;

// The passage that may still grow.
typedef struct kn_taking {
    bool open;
    size_t store;
    uint32_t document;
    uint64_t entry, count; // of the document: its first, how many
    size_t first, end;     // tokens of the text; the last of them stands in the document at
    uint64_t last;
    size_t source; // its number; 0: not told yet
} kn_taking;

// The entry after one that gave the last token, where the two are of one word.
typedef struct kn_follower {
    size_t store;
    uint64_t id;
    int32_t token;
    double weight; // the last token's probability that the one before it gave
} kn_follower;

struct kn_sequence {
    kn_lm *lm;
    kn_session *session;
    kn_generate_options options; // but for stops and biases
    kn_stops stops;
    kn_logit_bias *biases; // (options.bias_count)
    kn_random random;
    int32_t *history;    // prompt and text
    kn_history learnt;   // what the text has shown of the stores
    size_t learnt_count; // of the history's tokens
    size_t prompt, count, history_capacity;
    size_t next; // of the history: the first that the model has not read
    bool cut, stepping;
    knnlm_finish finish;
    kn_text text;
    size_t text_sure, tokens_sure;   // that no stop and no character can change any more
    size_t text_final, tokens_final; // of those: whose sources are known
    kn_generated *tokens;            // (count - prompt)
    size_t token_capacity;
    kn_generated end; // the token that ended the text
    bool ended;       // there was one
    uint64_t seal;    // of the stores' states at the last step: numbers of entries are theirs
    // Where sources are wanted.
    kn_source *sources;
    size_t source_count, source_capacity;
    kn_note *notes; // (count - prompt)
    size_t note_count, note_capacity;
    kn_taking taking;
    size_t looked, passed; // tokens before which no passage can begin; to which none can reach back
    // Of the last token: neighbours that gave it and go on with its word; what those gave whose word ends
    // here.
    kn_follower *followers;
    size_t follower_count;
    double ending;
    double kept;      // of the last mixing: what followers leave of what the stores say
    kn_states states; // of the text itself, where the mixture has a cache
};

// What one step knows of a sequence.
typedef struct kn_step {
    const kn_mixture *mixture;
    const kn_row_neighbors *found; // in each of the mixture's stores
    const kn_distribution *distribution;
    uint8_t *begins; // (vocabulary): what follow.c knows of tokens; 0 at first. Not needed with no_carry
} kn_step;

// The next token has been chosen: takes it, its numbers and its source, and finds out what is final now.
// KNNLM_ENOMEM; else as kn_datastore_tokens.
knnlm_status kn_sequence_take(kn_sequence *s, int32_t token, const kn_step *step);

// Before a step: where the stores are not those of the last step, what was known of entries is forgotten.
void kn_sequence_check_stores(kn_sequence *s, const kn_mixture *m);

// ---------------------------------------------------------------- words that neighbours began (follow.c)

// Who gave the last token, and goes on with its word, has its say.
knnlm_status kn_follow_mix(kn_sequence *s, kn_distribution *g);
// Tokens that go on with a word which has ended where it comes from.
knnlm_status kn_follow_end(const kn_sequence *s, const kn_distribution *g, uint8_t *begins, kn_rarer *out);
// Finds out who speaks next, after the newest token, whose places these are.
knnlm_status kn_follow_take(kn_sequence *s, const kn_step *step, const kn_place *places, size_t count);

// Whether the text ends in a letter, or within a character.
knnlm_status kn_is_within_word(const kn_sequence *s, bool *out);
// Whether a token after letters begins another word; `begins` remembers.
knnlm_status kn_begins_word(const kn_sequence *s, uint8_t *begins, int32_t token, bool *out);

// ---------------------------------------------------------------- what was said before (dry.c)

// Tokens that would repeat more of prompt and text become rarer; words are ended as they were begun.
knnlm_status kn_dry_add(const kn_sequence *s, uint8_t *begins, kn_rarer *out);

// ---------------------------------------------------------------- where a token stands (places.c)

// The followers and neighbours that have the newest token: *places is the caller's.
knnlm_status kn_places_find(const kn_sequence *s, const kn_step *step, kn_place **places, size_t *count);

// ---------------------------------------------------------------- passages (passages.c)

// Takes the places of the newest token.
knnlm_status kn_passages_note(kn_sequence *s, kn_place *places, size_t count);
// Looks at the tokens that became sure.
knnlm_status kn_passages_advance(kn_sequence *s, const kn_mixture *m);
// Tokens whose source no later one can change.
size_t kn_passages_settled(const kn_sequence *s);
// The stores are others now: what may still grow ends.
void kn_passages_break(kn_sequence *s);
void kn_passages_free(kn_sequence *s);

// ---------------------------------------------------------------- its text (excerpt.c)

enum { KN_BORDER_CONTEXT = 6 }; // tokens on both sides that a border is judged by

// Whether no word goes on from tokens[left - 1] to tokens[left]; true at both ends.
knnlm_status kn_tokens_border(const kn_tokenizer *t, const int32_t *tokens, size_t left, size_t count,
                              bool *border);
// The same before position `at` of a document of `count` entries from `entry` on.
knnlm_status kn_document_border(const kn_tokenizer *t, const kn_datastore *store, uint64_t entry,
                                uint64_t count, uint64_t at, bool *border);

// Positions [from, to) of a document of `count` entries from `entry` on.
typedef struct kn_excerpt {
    uint64_t entry, count, from, to;
    size_t around; // tokens
} kn_excerpt;
// Its text, and what is around it, into the source.
knnlm_status kn_excerpt_read(const kn_tokenizer *t, const kn_datastore *store, const kn_excerpt *excerpt,
                             kn_source *out);

#endif
