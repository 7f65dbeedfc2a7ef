// Pieces of the texts, spread evenly over them. Not a door: only this room includes it.
#ifndef KN_BUILD_SAMPLE_H
#define KN_BUILD_SAMPLE_H

#include "text/documents.h"

// A piece, and the document that it is of.
typedef knnlm_status kn_sample_sink(void *context, const kn_document *document, const char *text,
                                    size_t size);

typedef struct kn_sample_totals {
    uint64_t documents, bytes;      // of text that was seen
    uint64_t largest;               // document
    uint64_t disk_read, disk_total; // bytes of the files; disk_total 0: standard input is among them
} kn_sample_totals;

// How much is wanted.
typedef struct kn_sample_plan {
    size_t pieces, size; // up to so many, of up to so many bytes each
    uint64_t max;        // bytes of text that are looked at; 0: all
    double seconds;      // after which no further document is read; 0: however long it takes
} kn_sample_plan;

// What is skipped on the way is not told: who reads the texts afterwards tells it.
knnlm_status kn_sample_texts(const char *const *paths, size_t count, const kn_text_options *options,
                             const kn_sample_plan *plan, kn_sample_sink *sink, void *context,
                             kn_sample_totals *out);

#endif
