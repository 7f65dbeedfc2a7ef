// A search of many queries under way. Not a door: only this room includes it.
//
// Lists go one by one, each against the queries that look at it (search_lists.c); what lies outside lists,
// against all queries (search_flat.c for squared L2, else as a list). Both hand what is near enough to the
// queries' tops (search_gather.c).
#ifndef KN_INDEX_SEARCH_PARTS_H
#define KN_INDEX_SEARCH_PARTS_H

#include "base/threads.h"
#include "index/view.h"
#include "math/top.h"

// Products of norms q and x are off by less than this part of q + x: which rows are looked at must not depend
// on what was found before, so what is near enough but for that is looked at too.
#define KN_ROUNDING 4e-6f

typedef struct kn_search_batch {
    const kn_index *x;
    const kn_search_options *o;
    const float *queries; // (n, d) as the index measures them
    const int16_t *whole; // (n, stride) the same as integers, and what they bring to distances; or NULL
    const kn_integer_query *terms;
    size_t n, k;
    size_t first;            // number of the first query among all, for o->exclude; or
    const uint32_t *numbers; // of each query, when they do not follow each other
    kn_top *tops;            // one per query
    bool guessing;           // limits may be guessed: whoever then finds too few is asked again without
} kn_search_batch;

// The number of a query of the batch among all.
static inline size_t kn_batch_number(const kn_search_batch *b, uint32_t query) {
    return b->numbers ? b->numbers[query] : b->first + query;
}

// ---------------------------------------------------------------- gathering

enum {
    KN_GROUP = 4 * KN_CELL, // queries that meet rows together: packed, they stay in the L2 cache
    KN_GATHERED = 64,       // survivors of a query that gather before they are handed over
};

// Some queries: where their survivors gather, and what is still near enough.
typedef struct kn_gathering {
    float limits[KN_GROUP];
    uint32_t counts[KN_GROUP];
    kn_item items[KN_GROUP][KN_GATHERED + KN_CELL + 8];
    const uint32_t *queries; // their numbers in the batch; NULL: from `first` on
    size_t first, n;
    const kn_run *run;
    bool rough;    // distances are bounds: whatever is handed over is measured first
    size_t stride; // places from row to row; above 1: a sample, of which distances alone count. 0: as 1
} kn_gathering;

// The gathering's queries, n, run and roughness are set.
void kn_gather_begin(kn_search_batch *b, kn_gathering *g);
// Query q of the gathering met 32 rows of the run from `place` on (a stride apart), at these distances.
// `mask`: those that may be near enough; `doubted`: those of them that are to be measured straight from the
// row.
void kn_gather(kn_search_batch *b, kn_gathering *g, size_t q, size_t place, float *distances, uint32_t mask,
               uint32_t doubted);
// The same of rows that are ranked already: `count` items were put at the end of the query's, whose ids are
// entries.
void kn_gather_ranked(kn_search_batch *b, kn_gathering *g, size_t q, size_t count);
void kn_gather_end(kn_search_batch *b, kn_gathering *g);

// ---------------------------------------------------------------- rows

// Some rows of a run, and what they meet.
typedef struct kn_stretch {
    const kn_run *run;
    uint32_t list;
    uint32_t queries;   // of them
    size_t first_query; // in the numbers of the queries of lists
    size_t from, to;    // places in the run
} kn_stretch;

// Calls `run` for all stretches, some at a time, and looks to the files and the progress in between.
knnlm_status kn_batch_run(const kn_search_batch *b, const kn_stretch *stretches, size_t count,
                          kn_parallel_task *run, void *context);

// Where keys are integers: up to 32 of the batch's queries into a left panel, and their terms.
void kn_integer_pack(const kn_search_batch *b, const uint32_t *members, size_t n, int16_t *panel,
                     kn_integer_query *terms);
// n <= 32 rows of a run from `place` on, a stride apart, against the queries of a gathering, which are packed
// in `lhs`. `panel` is room for a right panel.
void kn_integer_scan(kn_search_batch *b, kn_gathering *g, const int16_t *lhs, const kn_integer_query *terms,
                     int16_t *panel, size_t place, size_t n);

// The lists near each query: probed (n, probes).
knnlm_status kn_batch_probe(const kn_search_batch *b, uint32_t probes, uint32_t *probed);
knnlm_status kn_batch_search_lists(kn_search_batch *b, uint32_t probes);
// After the lists, whose number of probes this is.
knnlm_status kn_batch_search_flat(kn_search_batch *b, uint32_t probes);

// ---------------------------------------------------------------- guessing limits

// While a query has met few rows, all that it meets is near enough: of 10,000 rows some 4600 would pass
// through the top of 1024. So a sample is met first: the distance at a rank a little above what its share of
// the k would be is a limit that the k-th neighbour is likely to keep. Where it did not, which the number of
// neighbours within it tells, the query is asked again without a limit.

// The rank in a sample of 1 in `step` rows, so that one query in a thousand is asked again.
size_t kn_guess_rank(size_t k, double step, double deviations);
// Tops of the queries for ranks of a sample: *sample is the batch with them. Free sample->tops.
knnlm_status kn_guess_begin(const kn_search_batch *b, size_t rank, kn_search_batch *sample);
// Limits from what the sample found.
void kn_guess_end(kn_search_batch *b, kn_search_batch *sample);
// Queries that found fewer than they want within a limit: how many, and those once more, without one.
size_t kn_guess_missing(kn_search_batch *b);
typedef knnlm_status kn_batch_search(kn_search_batch *b, uint32_t probes);
knnlm_status kn_guess_again(kn_search_batch *b, size_t missing, kn_batch_search *search, uint32_t probes);

#endif
