// K-means in two levels, for very many centroids: points into groups, then each group into lists of its own.
// The work grows with the number of points, not with that times the number of centroids.
#include "index/kmeans.h"

#include "base/random.h"
#include "base/threads.h"
#include "index/kmeans_parts.h"
#include "index/quantizer.h"
#include "ranks/ranks.h"

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
static void take_points(const kn_kmeans_task *t, size_t d) {
    for (size_t i = 0; i < t->clusters; i++)
        memcpy(t->centroids + i * d, i < t->count ? t->points + i * d : t->centre, d * sizeof *t->centroids);
}

knnlm_status kn_kmeans_learn_task(const kn_kmeans_task *t, size_t d, const kn_kmeans_options *given) {
    kn_kmeans_options o = *given;
    o.clusters = t->clusters;
    o.seed = t->seed;
    if (t->count >= t->clusters) return kn_kmeans_learn(t->points, t->count, d, &o, NULL, t->centroids, NULL);
    take_points(t, d);
    return KNNLM_OK;
}

static kn_kmeans_task task_of(const learning *l, size_t g) {
    return (kn_kmeans_task){.count = l->starts[g + 1] - l->starts[g],
                            .clusters = l->ends[g + 1] - l->ends[g],
                            .seed = kn_mix64(l->o->seed + g),
                            .centre = l->centres + g * l->d,
                            .centroids = l->centroids + l->ends[g] * l->d};
}

static void gather_points(const void *context, size_t g, float *out) {
    const learning *l = context;
    for (size_t i = l->starts[g]; i < l->starts[g + 1]; i++, out += l->d)
        memcpy(out, l->points + l->members[i] * l->d, l->d * sizeof *out);
}

static void learn_group(void *context, size_t task, int worker) {
    const learning *l = context;
    size_t g = l->first + task;
    kn_kmeans_task t = task_of(l, g);
    float *points = kn_alloc_aligned(t.count, l->d * sizeof *points);
    (void)worker;
    l->results[g] = KNNLM_ENOMEM;
    if (points) {
        gather_points(l, g, points);
        t.points = points;
        l->results[g] = kn_kmeans_learn_task(&t, l->d, l->o);
    }
    kn_free_aligned(points);
}

static knnlm_status learn_here(learning *l, size_t n) {
    kn_parallel(n, learn_group, l);
    for (size_t i = 0; i < n; i++)
        if (l->results[l->first + i] != KNNLM_OK)
            return kn_fail(l->results[l->first + i], "the lists of a group could not be learnt");
    return KNNLM_OK;
}

static knnlm_status learn_by_ranks(learning *l, size_t n) {
    kn_kmeans_task *tasks = kn_alloc(n, sizeof *tasks);
    if (!tasks) return KNNLM_ENOMEM;
    for (size_t i = 0; i < n; i++) tasks[i] = task_of(l, l->first + i);
    knnlm_status status = kn_kmeans_deal(tasks, n, l->d, l->o, gather_points, l, l->first);
    free(tasks);
    return status;
}

static knnlm_status learn_lists(learning *l, const kn_progress *progress) {
    size_t ranks = kn_rank() == 0 ? (size_t)kn_rank_count() : 1, n;
    for (l->first = 0; l->first < l->groups; l->first += n) {
        n = kn_min(TOGETHER * ranks, l->groups - l->first);
        KN_TRY(ranks > 1 ? learn_by_ranks(l, n) : learn_here(l, n));
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
