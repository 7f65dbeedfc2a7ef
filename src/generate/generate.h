// Words that follow a prompt, one token after another, by the model and its neighbours; and which passages
// of the stores they came from.
//
// A sequence is one text that grows. A generator lets many of them take a step together. Sequences and
// generators of one model are used by one thread at a time, as the model is.
#ifndef KN_GENERATE_H
#define KN_GENERATE_H

#include "generate/sampler.h"

typedef struct kn_generate_options {
    kn_sampling sampling;
    uint64_t seed;            // same seed, same text
    size_t tokens;            // at most
    const char *const *stops; // the text ends before any of these; copied
    size_t stop_count;
    const kn_logit_bias *biases; // copied
    size_t bias_count;
    size_t top;            // alternatives noted for each token
    bool sources;          // find out which passages the tokens stand in
    size_t around;         // tokens of text on both sides of a source
    bool ignore_end;       // goes on after a token that ends the text
    bool no_carry;         // neighbours do not carry a word through that they began
    bool begin_with_space; // the first token does
} kn_generate_options;

// The CLI's: kn_sampling_default, seed 0, 128 tokens, 12 tokens around sources, nothing else.
kn_generate_options kn_generate_options_default(void);

typedef struct kn_generated {
    int32_t token;
    double p, lm, knn;               // log p, log p_LM, log p_kNN (NAN: no stores), before any sampling
    double lambda, nearest, entropy; // nearest: NAN without neighbours
    size_t source;                   // number of the source that it stands in, from 1; 0: none
    size_t offset, size; // bytes in the sequence's text. Of a character that several tokens make up, the last
                         // has the bytes
    const int32_t *top;  // (top_count): the most probable tokens, and log p of each
    const double *top_p;
    size_t top_count;
} kn_generated;

// A passage of a store that consecutive tokens stand in, at least one of which was carried by the neighbours:
// they had more of its probability than the model. passages.c has the rule. All of it is in whole words, in
// the text and in the document.
typedef struct kn_source {
    size_t footnote;             // from 1; 0: it is a single word, which is not worth one
    size_t store;                // its number in the mixture
    char *store_path, *document; // as the store has them; NUL added
    size_t document_size;
    uint64_t entry, position, offset; // of the first token taken: in the store, in its document, its byte
    uint64_t length;                  // tokens of the document, to the last one taken
    char *before, *text, *after; // the passage from the first to the last token taken, and what is around it;
                                 // NUL added
    size_t before_size, text_size, after_size;
    bool begins, ends;    // what is around it begins, ends where the document does
    size_t first, tokens; // the sequence's tokens [first, first + tokens)
    size_t differ;        // of those: other ones than the document has there
    double share;         // mean part of their probability that came from this document, 0 to 1
} kn_source;

// ---------------------------------------------------------------- a text that grows

typedef struct kn_sequence kn_sequence;

// Begins after the model's start token and `prompt` (count, without the start token; copied), of which the
// model sees as much as its context holds beside the tokens to come. Options are copied. The model must stay
// open as long. KNNLM_EINVAL: a token (of a bias, too) out of range, settings that make no sense, a stop that
// is empty or not UTF-8; KNNLM_ENOMEM; else as kn_session_open.
knnlm_status kn_sequence_open(kn_lm *lm, const kn_generate_options *options, const int32_t *prompt,
                              size_t count, kn_sequence **out);
void kn_sequence_close(kn_sequence *sequence); // NULL: nothing happens
knnlm_finish kn_sequence_finish(const kn_sequence *sequence);

// What is final so far: text that may turn out to be the beginning of a stop, or of a character, is held back
// until that is known (at the end, what is no character becomes U+FFFD); where sources are wanted, so are
// tokens that may yet get one, about 8 of them. Text is UTF-8, NUL added. Both only grow. A token is there
// when all its text is. Pointers are valid until the next step.
const kn_generated *kn_sequence_tokens(const kn_sequence *sequence, size_t *count);
const char *kn_sequence_text(const kn_sequence *sequence, size_t *size);
// The token that ended the text, which is not among the tokens; NULL: none has.
const kn_generated *kn_sequence_end(const kn_sequence *sequence);
// Those of the tokens above, in the order of `first`. The last one may still grow.
const kn_source *kn_sequence_sources(const kn_sequence *sequence, size_t *count);
size_t kn_sequence_sources_ended(const kn_sequence *sequence); // how many of them will not
size_t kn_sequence_generated(const kn_sequence *sequence);     // tokens in all, final or not
// Whether the model has seen less than the whole of the prompt, or has forgotten some of it since.
bool kn_sequence_cut(const kn_sequence *sequence);

// ---------------------------------------------------------------- steps

typedef struct kn_generator kn_generator;

// The buffers for steps of up to `max` sequences. KNNLM_ENOMEM.
knnlm_status kn_generator_open(kn_lm *lm, size_t max, kn_generator **out);
void kn_generator_close(kn_generator *generator); // NULL: nothing happens

// One step of every sequence, none of which is finished: the next token of those that have read their prompt
// but for 512 tokens; the others read 512 more of it, so that long prompts do not hold up the rest.
//
// Sequence i is mixed by *mixtures[i], which may be another view than in the step before. All of a
// step have one tap, or no stores. Numbers are those that each sequence would have alone. Where a mixture has
// a cache, it is of prompt and text; such a prompt is read at once, and once more for its states.
//
// KNNLM_EINVAL: more sequences than `max`, a finished one, one that is there twice, unequal taps, or the
// model's numbers are not numbers; KNNLM_ENOMEM; else as kn_sessions_feed, kn_datastore_search and
// kn_datastore_tokens. After a failure the sequences are only to be closed.
knnlm_status kn_generator_step(kn_generator *generator, kn_sequence *const *sequences,
                               const kn_mixture *const *mixtures, size_t count);

// Where the time of all steps went.
typedef struct kn_generator_times {
    double model, search, rest; // seconds; rest: mixing, drawing, sources, text
} kn_generator_times;
kn_generator_times kn_generator_spent(const kn_generator *generator);

#endif
