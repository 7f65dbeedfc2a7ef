// What the manifest of a store says about its index. Not a door: only this room includes it.
//
//   note   {"version": 3, "lists": L, "groups": G, "probes": P, "code_parts": m, "code_bits": b,
//           "plain_codes": whether codes are of keys, not of residuals, "trained": n, "seed": s,
//           "objective": mean squared distance to the centroid when it was learnt, of
//           "learnt": entries,
//           "runs": [{"first": e, "entries": n, "objective": x}, ...]}
//   parts  NNNNNN.lists   centroids f32[L][d]; then, with codes, their centroids f32[m][2^b][d/m]; then, with
//                         groups, u32[G + 1]: group g has lists [ends[g], ends[g + 1])
//          and for each run, entries [first, first + n) in the order of the lists:
//          NNNNNN.order   ends u64[L + 1]: list l is [ends[l], ends[l + 1]); then entries u32[n]
//          NNNNNN.rows    with keys: as the store's segments have them; then, of int8, scales f32[n]
//          NNNNNN.codes   with codes: of the residual from the centroid, in blocks (index/pq.h)
//                         u8[ceil(n / 64)][code bytes][64]
//          NNNNNN.listed  with keys: the list of each entry, u16[n] (above 65536 lists u32[n])
// Sections are padded to 64 bytes. Version 2 had no groups. Version 1 had codes one after the other: with
// codes it is refused, without it is the same.
#ifndef KN_INDEX_NOTE_H
#define KN_INDEX_NOTE_H

#include "index/index.h"

enum {
    KN_INDEX_VERSION = 3,
    KN_INDEX_VERSION_BLOCKS = 2, // the first whose codes lie in blocks
    KN_INDEX_LISTS_MAX = 1 << 24,
    KN_INDEX_RUNS_MAX = 4096
};

typedef struct kn_run_note {
    uint64_t first, entries;
    double objective;
} kn_run_note;

typedef struct kn_index_note {
    uint32_t lists, probes, code_parts, code_bits;
    uint32_t groups;  // of lists; 0: none
    bool plain_codes; // codes are of keys, not of residuals
    uint64_t trained, seed;
    double objective; // of what was there when it was learnt: so many entries
    uint64_t learnt;
    kn_run_note *runs;
    size_t run_count, run_capacity;
} kn_index_note;

// `path` is used in messages. KNNLM_EDATA: malformed; KNNLM_ENOTSUP: of a newer version, or of an older
// one that is not read any more.
knnlm_status kn_index_note_parse(const char *path, const char *text, kn_index_note *out);
knnlm_status kn_index_note_print(const kn_index_note *note, char **text); // released with free()
void kn_index_note_free(kn_index_note *note);
knnlm_status kn_index_note_add_run(kn_index_note *note, const kn_run_note *run);

#endif
