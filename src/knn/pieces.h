// What ranks do for a datastore of shards: each opens and searches those that it has.
#ifndef KN_KNN_PIECES_H
#define KN_KNN_PIECES_H

#include "ranks/ranks.h"

// How often a shard was asked for one state's neighbours so far, and bytes of questions and answers.
void kn_pieces_asked(uint64_t *queries, uint64_t *bytes);

extern const kn_service kn_service_knn_open, kn_service_knn_close, kn_service_knn_search;

#endif
