// The report: one HTML page that holds its data and needs nothing else, written while the tokens come.
//
// The page is web/report.html, with the data in place of its line @KNNLM_DATA@: one JSON object,
//   1. "tokens": a row a token, [lm, knn, cache, mixed, lambda, nearest, entropy, neighbours, text];
//      a number in between is a document (a number of "names") that begins there
//      neighbours: rows of [before, word, after, document, position, share, distance, hit]: document is a
//      number of "names" or null, hit 0 or 1
//   2. "names": of documents, each once
//   3. "title", "rows": [[label, value], ...]
//   4. "curves": [{"title", "x_label", "y_label", "log_x", "marked_x", "x": [...], "y": [...]}, ...]
//   5. "scored": the tokens that were scored, of which those of 1. are the first
// Numbers have 5 significant digits; NaN is null, the infinities are "inf" and "-inf" (JSON has neither).
// Text is whatever users' files hold: bytes that are no UTF-8 become U+FFFD, and what HTML would understand,
// or dislike, is written as \uXXXX. A character that several tokens make up stands in the last of them.
#ifndef KN_EVAL_REPORT_H
#define KN_EVAL_REPORT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kn_report kn_report;

// Strings may be NULL: the same as empty, and a neighbour's document is then not known.
typedef struct kn_report_neighbor {
    const char *before, *word, *after; // of its text; parts of a character where it was cut are left out
    const char *document;              // its name
    uint64_t position;                 // in its document
    double share;                      // of p_kNN
    double distance;
    bool hit; // its value is the target
} kn_report_neighbor;

typedef struct kn_report_token {
    const char *text; // its bytes, the space before it included: the page puts tokens side by side
    size_t size;
    double lm, knn, cache, mixed;        // natural logarithms; NAN: there is none
    double lambda, nearest, entropy;     // NAN: not known
    const kn_report_neighbor *neighbors; // the nearest few, all stores together
    size_t neighbor_count;
} kn_report_token;

typedef struct kn_report_row {
    const char *label, *value;
} kn_report_row;

typedef struct kn_report_curve {
    const char *title, *x_label, *y_label;
    bool log_x;
    const double *x, *y;
    size_t count;
    double marked_x; // the value used; NAN: none
} kn_report_curve;

typedef struct kn_report_summary {
    const char *title;
    const kn_report_row *rows;
    size_t row_count;
    const kn_report_curve *curves;
    size_t curve_count;
    uint64_t tokens_scored; // the page says so when it has only the first of them
} kn_report_summary;

// One thread at a time may use a report; what calls are given stays the caller's and is not kept. `path` is
// replaced by commit, whole or not at all. KNNLM_EIO: cannot be written; KNNLM_EINVAL: an empty path;
// KNNLM_ENOMEM.
knnlm_status kn_report_open(const char *path, kn_report **out);
// The tokens that follow are of this document. KNNLM_EIO, KNNLM_ENOMEM.
knnlm_status kn_report_document(kn_report *r, const char *name);
// KNNLM_EIO, KNNLM_ENOMEM.
knnlm_status kn_report_add(kn_report *r, const kn_report_token *token);
// Those added so far.
uint64_t kn_report_tokens(const kn_report *r);
// Both release the report, whatever they return. KNNLM_EIO. Abort leaves no file; NULL is allowed there.
knnlm_status kn_report_commit(kn_report *r, const kn_report_summary *summary);
void kn_report_abort(kn_report *r);

#endif
