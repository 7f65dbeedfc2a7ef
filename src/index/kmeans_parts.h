// K-means under way. Not a door: others include kmeans.h.
#ifndef KN_INDEX_KMEANS_PARTS_H
#define KN_INDEX_KMEANS_PARTS_H

#include "base/random.h"
#include "index/kmeans.h"

typedef struct kn_clustering {
    const float *x; // (n, d)
    size_t n, d, clusters;
    bool spherical;
    float *centroids; // (clusters, d), the caller's
    kn_random random;
    uint32_t *lists;  // of each point, UINT32_MAX before the first assignment
    float *distances; // squared, to the centroid of its list when that was assigned
    uint32_t *order;  // points sorted by list, then by number
    size_t *starts;   // clusters + 1: where in `order` each list begins
    double *tallies;  // one a cluster
    double objective;
    size_t changed; // points, in the last assignment
    size_t reseeded;
} kn_clustering;

// Sets what x, n, d, clusters, spherical, centroids and random leave to be set. Close in any case.
knnlm_status kn_clustering_open(kn_clustering *c);
void kn_clustering_close(kn_clustering *c);

// Puts the centroids on points.
knnlm_status kn_clustering_start(kn_clustering *c, bool plusplus);

// Each point to its nearest centroid.
knnlm_status kn_clustering_assign(kn_clustering *c);
// Each point to the nearest among the centroids nearest to its present one; after an update.
knnlm_status kn_clustering_assign_near(kn_clustering *c);
// Sorts the points by list and moves the centroids to the means of their points; `objective` is then of these
// lists and centroids. Centroids without points go to points far from theirs.
knnlm_status kn_clustering_update(kn_clustering *c);

// y (n, p) = x (n, d) in the directions in which a sample of x spreads most: distances shrink, near stays
// near.
knnlm_status kn_kmeans_project(const float *x, size_t n, size_t d, size_t p, kn_random *random, float *y);

// `count` different numbers below n, in random order, into out; n <= UINT32_MAX.
knnlm_status kn_kmeans_draw(kn_random *random, size_t n, size_t count, uint32_t *out);
// The first number at which the running sums (n of them) exceed `target`; the last when none does.
size_t kn_kmeans_find(const double *sums, size_t n, double target);
// out (count, d) = rows `numbers` of x
void kn_kmeans_gather(const float *x, size_t d, const uint32_t *numbers, size_t count, float *out);

// ---------------------------------------------------------------- groups

// Centroids (clusters, d) of a group, from its points (count, d); with fewer points than clusters these are
// the points, and the group's centre.
typedef struct kn_kmeans_task {
    const float *points, *centre;
    size_t count, clusters;
    uint64_t seed;
    float *centroids;
} kn_kmeans_task;
knnlm_status kn_kmeans_learn_task(const kn_kmeans_task *task, size_t d, const kn_kmeans_options *o);
// All tasks, by all ranks. Points of task i are asked for as those of group first + i.
typedef void kn_kmeans_points_of(const void *context, size_t group, float *out);
knnlm_status kn_kmeans_deal(const kn_kmeans_task *tasks, size_t count, size_t d, const kn_kmeans_options *o,
                            kn_kmeans_points_of *gather, const void *context, size_t first);

#endif
