// Model and text to one record a token: the windows and batches of the paper, the same for building and for
// scoring.
//
// A document of tokens t[0..n) is read after the tokenizer's start token, so that every token has a context:
// t[i] is predicted from start, t[0..i). Targets are taken `score` at a time; each window has up to `context`
// tokens before the first of them. Windows never cross documents.
//
// A model with a sliding window reads a document as a stream instead, `stream` tokens at a time, each of them
// once: what was before comes along (kn_past). Targets are then taken `score` = `stream` at a time and
// `context` is 0.
#ifndef KN_READ_H
#define KN_READ_H

#include "base/progress.h"
#include "lm/lm.h"
#include "text/documents.h"

typedef struct kn_read_options {
    bool stream;     // as a stream; set where neither of the next two is given and the model can
    int32_t score;   // targets of a window; 0: half of the model's usual window, at most 512
    int32_t context; // tokens before them; negative: what is left of that window
    kn_text_options texts;
    kn_tap tap;
    bool logprobs, entropies, keys; // what is wanted
    // The first window of a document takes as many targets as fit: no room is needed for what is before them.
    // Fewer windows, and every target still has at least `context` tokens before it where there are any. The
    // paper's evaluation does not do it.
    bool long_start;
    size_t gather; // tokens that go to the model at a time, about; 0: thousands, as is fastest
} kn_read_options;

// Consecutive tokens of one document; arrays are valid during the call. Unwanted ones are NULL.
typedef struct kn_records {
    size_t document;  // 0, 1, … in reading order
    const char *name; // of the document
    uint64_t tokens_in_document;
    uint64_t position; // of the first token in its document
    size_t count;
    const int32_t *tokens;
    const uint64_t *offsets; // byte at which each token begins in its document
    const float *logprobs, *entropies, *keys;
} kn_records;

// Asked for each document before it is read: *skip of its first tokens are not wanted (UINT64_MAX: none of
// it is, and it is not counted). Documents are numbered with those that were skipped.
typedef knnlm_status kn_record_choice(void *context, const kn_document *document, size_t number,
                                      uint64_t *skip);

// What was read in all.
typedef struct kn_read_totals {
    uint64_t documents, tokens, bytes, words, lines; // words: runs of non-space bytes
    double seconds;
} kn_read_totals;

// Called in order, for every token once. Anything but KNNLM_OK ends the reading with it.
typedef knnlm_status kn_record_sink(void *context, const kn_records *records);

// The one cutting of windows: targets of the window that begins with target `done` of a document of `tokens`,
// and that window. `stream` is the document's start token and tokens. Options were resolved.
static inline size_t kn_read_targets(const kn_read_options *o, size_t tokens, size_t done) {
    size_t max = (size_t)o->score + (done == 0 && o->long_start ? (size_t)o->context : 0);
    return tokens - done < max ? tokens - done : max;
}
static inline kn_window kn_read_window(const kn_read_options *o, const int32_t *stream, size_t done,
                                       size_t targets, kn_past *past) {
    size_t before = done < (size_t)o->context ? done : (size_t)o->context;
    const int32_t *inputs = stream + done - before;
    return (kn_window){inputs, inputs + 1, (int32_t)(before + targets), (int32_t)before, past};
}

// Fills in defaults and checks them against the model.
knnlm_status kn_read_resolve(const kn_lm *lm, kn_read_options *options);

// `choose` may be NULL: everything is read.
knnlm_status kn_read_texts(kn_lm *lm, const char *const *paths, size_t count, const kn_read_options *options,
                           const kn_progress *progress, kn_record_choice *choose, kn_record_sink *sink,
                           void *context, kn_read_totals *totals);
// The same for the documents of a source, whatever the options' texts.
knnlm_status kn_read_source(kn_lm *lm, kn_documents *source, const kn_read_options *options,
                            const kn_progress *progress, kn_record_choice *choose, kn_record_sink *sink,
                            void *context, kn_read_totals *totals);
// The same for texts in memory, each a document; progress is told in tokens.
typedef struct kn_read_text {
    const int32_t *tokens;
    size_t count;
} kn_read_text;
knnlm_status kn_read_many(kn_lm *lm, const kn_read_text *texts, size_t count, const kn_read_options *options,
                          const kn_progress *progress, kn_record_sink *sink, void *context);
// The same for one of them.
knnlm_status kn_read_tokens(kn_lm *lm, const int32_t *tokens, size_t count, const kn_read_options *options,
                            kn_record_sink *sink, void *context);

#endif
