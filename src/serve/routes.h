// The endpoints: one table, which everything that knows the set of them reads. To add one: a row, an
// answer_*.c, its test, docs/protocol.md. Not a door: only this room includes it.
#ifndef KN_SERVE_ROUTES_H
#define KN_SERVE_ROUTES_H

#include "serve/exchange.h"

// What a request must have before it is answered.
enum {
    KN_NEEDS_KEY = 1,    // the API key, where the server has one (401)
    KN_NEEDS_MODEL = 2,  // the model, which may still be being opened (503)
    KN_NEEDS_BODY = 4,   // a JSON object, which becomes x->request (400)
    KN_TAKES_LINES = 16, // or JSON lines, which stay x->body; x->request is NULL then
    KN_NEEDS_WRITE = 8,  // leave to change stores: rows without it have none (403 where nobody has)
};

typedef enum MHD_Result kn_answer(kn_exchange *x);

typedef struct kn_route {
    const char *method;
    const char *path; // "*": any one segment, "**": all that are left; NULL: the files of the page
    kn_answer *answer;
    const char *label; // in the metrics
    unsigned needs;
} kn_route;

// The row of what matches no other: it has no answer.
const kn_route *kn_route_none(void);
// The row; the last one where none matches, with the methods that the path has in *allowed.
const kn_route *kn_route_find(kn_exchange *x, const char *method, char *allowed, size_t size);
// Decodes the segments that stars stand for, in place; false: not properly percent-encoded.
bool kn_route_decode(kn_exchange *x);
// Its number in the metrics: rows of one label have that of the first.
size_t kn_route_number(const kn_route *route);
// The label of each number; `out` has KN_METRIC_ENDPOINTS places.
size_t kn_route_labels(const char **out);
// All methods of the table: "GET, POST, DELETE".
void kn_route_methods(char *out, size_t size);

kn_answer kn_answer_completions, kn_answer_chat, kn_answer_embeddings, kn_answer_score, kn_answer_explain,
    kn_answer_stores, kn_answer_store, kn_answer_documents, kn_answer_add_document, kn_answer_document,
    kn_answer_remove_document, kn_answer_add_later, kn_answer_compact, kn_answer_tune, kn_answer_verify,
    kn_answer_jobs, kn_answer_job, kn_answer_cancel_job, kn_answer_entry, kn_answer_models, kn_answer_model,
    kn_answer_tokenize, kn_answer_detokenize, kn_answer_tokenizer_info, kn_answer_health, kn_answer_metrics,
    kn_answer_page, kn_answer_version, kn_answer_openapi;

#endif
