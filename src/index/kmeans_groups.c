// K-means in two levels, for very many centroids: points into groups, then each group into lists of its own.
// The work grows with the number of points, not with that times the number of centroids.
#include "index/kmeans.h"

#include "base/random.h"
#include "base/threads.h"
#include "index/quantizer.h"

#include <stdlib.h>
#include <string.h>

enum {
    POINTS_A_GROUP = 256, // that the groups are learnt from
    TOGETHER = 64,        // groups between two looks at the progress
};

typedef struct learning {
    const float *points;
    size_t count, d, groups;
    const kn_kmeans_options *o;
    uint32_t *group;   // of each point
    uint32_t *members; // points by group
    size_t *starts;    // (groups + 1), in members
    uint32_t *ends;    // (groups + 1), of lists
    float *centroids;
    float *centres;        // of groups
    size_t first;          // group of the first task
    knnlm_status *results; // (groups)
} learning;

// ---------------------------------------------------------------- groups

static knnlm_status find_centres(const learning *l, const kn_progress *progress) {
    size_t n = kn_min(l->count, POINTS_A_GROUP * l->groups), d = l->d;
    float *some = kn_alloc_aligned(n, d * sizeof *some);
    kn_kmeans_options o = *l->o;
    if (!some) return KNNLM_ENOMEM;
    for (size_t i = 0; i < n; i++)
        memcpy(some + i * d, l->points + (size_t)((unsigned __int128)i * l->count / n) * d, d * sizeof *some);
    o.clusters = l->groups;
    knnlm_status status = kn_kmeans_learn(some, n, d, &o, progress, l->centres, NULL);
    kn_free_aligned(some);
    return status;
}

static knnlm_status divide(learning *l, const kn_progress *progress) {
    kn_quantizer *q;
    KN_TRY(find_centres(l, progress));
    KN_TRY(kn_quantizer_make(l->centres, l->groups, l->d, KN_QUANTIZER_L2, &q));
    knnlm_status status = kn_quantizer_assign(q, l->points, l->count, l->group, NULL);
    kn_quantizer_free(q);
    return status;
}

static void sort_members(learning *l) {
    for (size_t i = 0; i < l->count; i++) l->starts[l->group[i] + 1]++;
    for (size_t g = 0; g < l->groups; g++) l->starts[g + 1] += l->starts[g];
    for (size_t i = l->count; i-- > 0;) l->members[--l->starts[l->group[i] + 1]] = (uint32_t)i;
    for (size_t g = 0; g < l->groups; g++) l->starts[g] = l->starts[g + 1];
    l->starts[l->groups] = l->count;
}

// One each, so that no group leads nowhere, and the rest in proportion to the points, so that lists are about
// equally long.
static void share_lists(learning *l) {
    size_t rest = l->o->clusters - l->groups;
    for (size_t g = 0; g < l->groups; g++)
        l->ends[g + 1] = (uint32_t)(g + 1 + (unsigned __int128)l->starts[g + 1] * rest / l->count);
}

// ---------------------------------------------------------------- lists

// Fewer points than lists: each is one, and the group's centre the others.
static void take_points(const learning *l, size_t g, const float *points, size_t n) {
    float *out = l->centroids + l->ends[g] * l->d;
    size_t row = l->d * sizeof *out, clusters = l->ends[g + 1] - l->ends[g];
    for (size_t i = 0; i < clusters; i++)
        memcpy(out + i * l->d, i < n ? points + i * l->d : l->centres + g * l->d, row);
}

static void learn_group(void *context, size_t task, int worker) {
    const learning *l = context;
    size_t g = l->first + task, n = l->starts[g + 1] - l->starts[g], d = l->d;
    kn_kmeans_options o = *l->o;
    (void)worker;
    o.clusters = l->ends[g + 1] - l->ends[g];
    o.seed = kn_mix64(l->o->seed + g);
    l->results[g] = KNNLM_OK;
    float *points = kn_alloc_aligned(n, d * sizeof *points);
    for (size_t i = 0; points && i < n; i++)
        memcpy(points + i * d, l->points + l->members[l->starts[g] + i] * d, d * sizeof *points);
    if (!points)
        l->results[g] = KNNLM_ENOMEM;
    else if (n < o.clusters)
        take_points(l, g, points, n);
    else
        l->results[g] = kn_kmeans_learn(points, n, d, &o, NULL, l->centroids + l->ends[g] * d, NULL);
    kn_free_aligned(points);
}

static knnlm_status learn_lists(learning *l, const kn_progress *progress) {
    for (l->first = 0; l->first < l->groups; l->first += TOGETHER) {
        size_t n = kn_min(TOGETHER, l->groups - l->first);
        kn_parallel(n, learn_group, l);
        for (size_t i = 0; i < n; i++)
            if (l->results[l->first + i] != KNNLM_OK)
                return kn_fail(l->results[l->first + i], "the lists of a group could not be learnt");
        if (!kn_progress_report(progress, "learning lists", l->first + n, l->groups, "groups"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while learning: the store is as it was");
    }
    return KNNLM_OK;
}

knnlm_status kn_kmeans_learn_groups(const float *points, size_t count, size_t d, size_t groups,
                                    const kn_kmeans_options *o, const kn_progress *progress, float *centroids,
                                    uint32_t *ends) {
    learning l = {points, count, d, groups, o, .ends = ends, .centroids = centroids};
    l.group = kn_alloc(count, sizeof *l.group);
    l.members = kn_alloc(count, sizeof *l.members);
    l.starts = kn_alloc(groups + 2, sizeof *l.starts);
    l.results = kn_alloc(groups, sizeof *l.results);
    l.centres = kn_alloc_aligned(groups, d * sizeof *l.centres);
    bool room = l.group && l.members && l.starts && l.results && l.centres;
    knnlm_status status = room ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = divide(&l, progress);
    if (status == KNNLM_OK) {
        sort_members(&l);
        share_lists(&l);
        status = learn_lists(&l, progress);
    }
    free(l.group);
    free(l.members);
    free(l.starts);
    free(l.results);
    kn_free_aligned(l.centres);
    return status;
}
