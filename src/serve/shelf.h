// The stores that are served: read by requests, changed while they are. Not a door: only this room includes
// it.
//
// A store is open in one state; a change makes a new one on disk, which is opened beside it and takes its
// place in between two batches. So who has the turn (turn.h), or reads under the shelf's lock, sees one
// state as long.
#ifndef KN_SERVE_SHELF_H
#define KN_SERVE_SHELF_H

#include "knn/mixture.h"
#include "serve/request.h"
#include "serve/turn.h"

typedef struct kn_shelf kn_shelf;
// The store's path, and a line that says what is wrong with it. Called by a thread of the shelf's.
typedef void kn_warn(const char *store, const char *message);

// `turn` is that of the model. Options are copied; KNNLM_EINVAL: two stores of one name, or as
// kn_mixture_open.
knnlm_status kn_shelf_open(kn_lm *lm, kn_turn *turn, const kn_mixture_options *options, bool writable,
                           kn_shelf **out);
void kn_shelf_close(kn_shelf *shelf);
// From now on changes that other processes make are served within a second. What cannot be opened is warned
// of, and the state before is served on.
knnlm_status kn_shelf_refresh(kn_shelf *shelf, kn_warn *warn);
size_t kn_shelf_count(const kn_shelf *shelf);
const char *kn_shelf_name(const kn_shelf *shelf, size_t number);
const char *kn_shelf_name_of(const kn_shelf *shelf, const char *path); // "": none is there
// Paths of stores in the message become their names.
void kn_shelf_hide_paths(const kn_shelf *shelf, kn_complaint *c);
uint64_t kn_shelf_entries(kn_shelf *shelf, size_t number);

// ---------------------------------------------------------------- mixing

// What of it a request wants.
typedef struct kn_selection {
    uint32_t stores;            // a bit each
    double lambda, temperature; // NAN: not said
    int64_t k;                  // 0: not said
    bool fallback;
} kn_selection;

// 400 for a name that is none.
bool kn_shelf_select(const kn_shelf *shelf, const kn_knn_request *knn, bool fallback, kn_selection *out,
                     kn_complaint *c);
// A mixture by the selection, the caller's, with *numbers (KN_STORES_MOST) of its stores on the shelf. Who
// calls has the turn. KNNLM_ENOMEM.
knnlm_status kn_shelf_view(const kn_shelf *shelf, const kn_selection *selection, kn_mixture **out,
                           size_t *numbers);

// ---------------------------------------------------------------- looking

// All return NULL with a complaint where there is no such thing.
json_t *kn_shelf_list(kn_shelf *shelf);
json_t *kn_shelf_describe(kn_shelf *shelf, const char *store, kn_complaint *c);
json_t *kn_shelf_documents(kn_shelf *shelf, const char *store, uint64_t offset, size_t limit,
                           const char *like, kn_complaint *c);
json_t *kn_shelf_passage(kn_shelf *shelf, const char *store, uint64_t entry, size_t around, kn_complaint *c);

// ---------------------------------------------------------------- changing

// On disk and seen by every request from then on, or nothing has changed (but where the new state cannot be
// opened: then it is on disk alone). `go_on` is asked now and then.
// *created: the store did not have the text before.
json_t *kn_shelf_add(kn_shelf *shelf, const char *store, const char *name, const char *text, size_t size,
                     bool (*go_on)(void *), void *context, bool *created, kn_complaint *c);
json_t *kn_shelf_remove(kn_shelf *shelf, const char *store, const char *document, size_t size,
                        bool (*go_on)(void *), void *context, kn_complaint *c);

#endif
