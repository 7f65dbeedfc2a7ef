// The public functions about ranks: what a job of many processes does.
#include "ranks/ranks.h"
#include "api/api.h"
#include "knn/pieces.h"
#include "lm/shared.h"
#include "store/shards.h"

// All that rank 0 may ask of another.
static const kn_service *const services[] = {
    &kn_service_lm_open,      &kn_service_lm_close,      &kn_service_lm_run,      &kn_service_lm_stream,
    &kn_service_store_open,   &kn_service_store_close,   &kn_service_store_entry, &kn_service_store_range,
    &kn_service_store_keys,   &kn_service_store_current, &kn_service_store_tune,  &kn_service_store_remove,
    &kn_service_store_verify, &kn_service_build,         &kn_service_index,       &kn_service_learnt,
    &kn_service_compact,      &kn_service_kmeans,        &kn_service_knn_open,    &kn_service_knn_close,
    &kn_service_knn_search,
};

const char *knnlm_mpi(void) {
    return kn_ranks_library();
}

knnlm_status knnlm_ranks_begin(void) {
    return kn_ranks_begin();
}

int knnlm_rank(void) {
    return kn_rank();
}

int knnlm_rank_count(void) {
    return kn_rank_count();
}

int knnlm_ranks_serve(void) {
    return kn_ranks_serve(services, sizeof services / sizeof *services);
}

int knnlm_ranks_end(int code) {
    return kn_ranks_end(code);
}

void knnlm_shards_asked(uint64_t *queries, uint64_t *bytes) {
    kn_pieces_asked(queries, bytes);
}
