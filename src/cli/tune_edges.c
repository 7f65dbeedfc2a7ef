// Tells where the best of tuned settings lies at the edge of what was tried.
#include "cli/tune_edges.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef struct tried {
    size_t max_k;
    double coldest, hottest;
    uint32_t min_probes, max_probes;
} tried;

// Ways to search one store are told apart by their probes, 0: every entry.
static tried look_at(const knnlm_tune_result *r, const knnlm_tune_point *best) {
    tried t = {0, INFINITY, 0, UINT32_MAX, 0};
    for (size_t i = 0; i < r->point_count; i++) {
        const knnlm_tune_point *p = &r->points[i];
        uint32_t probes = p->probes ? p->probes : UINT32_MAX;
        if (probes < t.min_probes) t.min_probes = probes;
        if (probes > t.max_probes) t.max_probes = probes;
        if (p->store != best->store) continue;
        if (p->k > t.max_k) t.max_k = p->k;
        t.coldest = fmin(t.coldest, p->temperature);
        t.hottest = fmax(t.hottest, p->temperature);
    }
    return t;
}

cli_tune_edges cli_tune_edges_of(const knnlm_tune_result *r, size_t store, size_t k, bool given) {
    const knnlm_tune_point *best = &r->stores[store].best;
    tried t = look_at(r, best);
    cli_tune_edges e = {.best = *best};
    e.k = best->k == t.max_k && t.max_k >= k;
    e.coldest = !given && best->temperature == t.coldest;
    e.hottest = !given && best->temperature == t.hottest;
    if (r->store_count > 1 || t.min_probes == t.max_probes || !best->probes) return e;
    e.probes_few = best->probes == t.min_probes && best->probes > 1;
    e.probes_all = best->probes == t.max_probes;
    return e;
}

void cli_tune_edges_print(const cli_tune_edges *e) {
    const knnlm_tune_point *b = &e->best;
    if (e->k) printf("at the edge      k %zu is the most that was tried: try -k %zu\n", b->k, 2 * b->k);
    if (e->coldest)
        printf("at the edge      temperature %.4g is the lowest that was tried\n", b->temperature);
    if (e->hottest)
        printf("at the edge      temperature %.4g is the highest that was tried\n", b->temperature);
    if (e->probes_few || e->probes_all)
        printf("at the edge      %" PRIu32 " lists are the %s that were tried: try --probes %" PRIu32 "\n",
               b->probes, e->probes_few ? "fewest" : "most", e->probes_few ? b->probes / 2 : 2 * b->probes);
}

json_t *cli_tune_edges_json(const cli_tune_edges *e) {
    json_t *list = json_array();
    if (e->k) json_array_append_new(list, json_string("k max"));
    if (e->coldest) json_array_append_new(list, json_string("temperature min"));
    if (e->hottest) json_array_append_new(list, json_string("temperature max"));
    if (e->probes_few) json_array_append_new(list, json_string("probes min"));
    if (e->probes_all) json_array_append_new(list, json_string("probes max"));
    return list;
}
