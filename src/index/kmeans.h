// K-means: the centroids of the lists of an index.
//
// Up to 511 clusters, and more when `exact` is asked for, it is the way of Lloyd: every round finds the
// nearest centroid of each point and moves each centroid to the mean of its points, so that no round raises
// the objective. More clusters take short cuts (kmeans.c tells which) and a fifth of the time or less;
// objectives were then between 1% lower (another start) and 2% higher than after as many exact rounds.
// Either way the result depends on points, options and the kind of CPU, and not on the threads.
#ifndef KN_INDEX_KMEANS_H
#define KN_INDEX_KMEANS_H

#include "base/memory.h"
#include "base/progress.h"

typedef struct kn_kmeans_options {
    size_t clusters;
    int iterations; // rounds over all points, at most: it ends when no point changes its cluster
    uint64_t seed;  // of the start, and of what empty clusters become
    bool plusplus;  // start: k-means++ (points drawn in proportion to their squared
                    // distance to those before), else points drawn evenly
    bool spherical; // centroids are made unit vectors
    bool exact;     // no short cuts
} kn_kmeans_options;

// iterations 10, seed 1, plusplus; the rest false.
kn_kmeans_options kn_kmeans_defaults(size_t clusters);

typedef struct kn_kmeans_result {
    double objective; // sum of squared distances from the points to the centroids of their clusters; nearer
                      // ones may exist, so the best objective of these centroids is at most this
    int iterations;   // rounds made
    size_t reseeded;  // centroids without points, each moved to a point far from its own
    double seconds;
} kn_kmeans_result;

// Learns centroids (clusters, d) from points (count, d). With no more points than clusters the centroids are
// the points in turn, from the first again when they end. Fewer different points than clusters leave some
// clusters empty, their centroids on points. Spreads over the threads; memory beside the points: about
// 8 bytes a point, 512 more when large, and a few copies of the centroids.
// KNNLM_EINVAL: nothing to do (no points, dimensions, clusters or rounds), or 2^32 points; KNNLM_EDATA: a
// point that is not finite, or too large to be squared; KNNLM_ESTOPPED: by `progress`; KNNLM_ENOMEM. `result`
// may be NULL.
knnlm_status kn_kmeans_learn(const float *points, size_t count, size_t d, const kn_kmeans_options *o,
                             const kn_progress *progress, float *centroids, kn_kmeans_result *result);

// Learns o->clusters centroids in groups: those of group g are [ends[g], ends[g + 1]), ends (groups + 1), in
// proportion to its points. A few percent farther from the points than kn_kmeans_learn would leave them, for
// a small part of its work. Fails as that does.
knnlm_status kn_kmeans_learn_groups(const float *points, size_t count, size_t d, size_t groups,
                                    const kn_kmeans_options *o, const kn_progress *progress, float *centroids,
                                    uint32_t *ends);

#endif
