// K-means of many groups by all ranks: each group is learnt from its own points, by whoever gets it.
#include "index/index.h"
#include "index/kmeans_parts.h"

#include "base/threads.h"

#include <stdlib.h>

// ---------------------------------------------------------------- asking

typedef struct dealing {
    const kn_kmeans_task *tasks;
    size_t count, d, first;
    const kn_kmeans_options *o;
    kn_kmeans_points_of *gather;
    const void *context;
} dealing;

static void put_task(const dealing *x, size_t i, kn_message *in) {
    const kn_kmeans_task *t = &x->tasks[i];
    kn_message_put_number(in, t->count);
    kn_message_put_number(in, t->clusters);
    kn_message_put_number(in, t->seed);
    kn_message_put_padded(in, t->centre, x->d * sizeof *t->centre);
    float *points = kn_message_room_padded(in, t->count * x->d * sizeof *points);
    if (points) x->gather(x->context, x->first + i, points);
}

// Groups of about as many points for each rank: `ends` (ranks).
static void cut(const dealing *x, size_t ranks, size_t *ends) {
    size_t all = 0, done = 0, rank = 0;
    for (size_t i = 0; i < x->count; i++) all += x->tasks[i].count;
    for (size_t i = 0; i < x->count; i++) {
        done += x->tasks[i].count;
        while (rank + 1 < ranks && done * ranks >= all * (rank + 1)) ends[rank++] = i + 1;
    }
    for (; rank < ranks; rank++) ends[rank] = x->count;
}

static knnlm_status call_all(const dealing *x, size_t ranks, const size_t *ends, kn_call *calls) {
    for (size_t r = 0, first = 0; r < ranks; first = ends[r++]) {
        calls[r] = (kn_call){.rank = (int)r, .service = &kn_service_kmeans};
        kn_message_put(&calls[r].in, x->o, sizeof *x->o);
        kn_message_put_number(&calls[r].in, x->d);
        kn_message_put_number(&calls[r].in, ends[r] - first);
        for (size_t i = first; i < ends[r]; i++) put_task(x, i, &calls[r].in);
    }
    KN_TRY(kn_ranks_call(calls, ranks, NULL));
    for (size_t r = 0, i = 0; r < ranks; r++) {
        for (; i < ends[r]; i++)
            kn_message_take(&calls[r].out, x->tasks[i].centroids,
                            x->tasks[i].clusters * x->d * sizeof *x->tasks[i].centroids);
        KN_TRY(kn_message_read(&calls[r].out));
    }
    return KNNLM_OK;
}

knnlm_status kn_kmeans_deal(const kn_kmeans_task *tasks, size_t count, size_t d, const kn_kmeans_options *o,
                            kn_kmeans_points_of *gather, const void *context, size_t first) {
    dealing x = {tasks, count, d, first, o, gather, context};
    size_t ranks = (size_t)kn_rank_count(), *ends = kn_alloc(ranks, sizeof *ends);
    kn_call *calls = kn_alloc(ranks, sizeof *calls);
    knnlm_status status = ends && calls ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        cut(&x, ranks, ends);
        status = call_all(&x, ranks, ends, calls);
    }
    kn_calls_free(calls, calls ? ranks : 0);
    free(calls);
    free(ends);
    return status;
}

// ---------------------------------------------------------------- answering

typedef struct learning {
    kn_kmeans_task *tasks;
    knnlm_status *results;
    size_t d;
    kn_kmeans_options o;
} learning;

static void learn(void *context, size_t i, int worker) {
    const learning *l = context;
    (void)worker;
    l->results[i] = kn_kmeans_learn_task(&l->tasks[i], l->d, &l->o);
}

static knnlm_status take_tasks(kn_message *in, learning *l, size_t count, size_t *clusters) {
    *clusters = 0;
    for (size_t i = 0; i < count; i++) {
        kn_kmeans_task *t = &l->tasks[i];
        size_t bytes = 0;
        t->count = (size_t)kn_message_take_number(in);
        t->clusters = (size_t)kn_message_take_number(in);
        t->seed = kn_message_take_number(in);
        t->centre = kn_message_view_padded(in, l->d * sizeof *t->centre);
        if (!kn_mul(t->count * l->d, sizeof *t->points, &bytes)) in->failed = true;
        t->points = kn_message_view_padded(in, bytes);
        KN_TRY(kn_message_read(in));
        *clusters += t->clusters;
    }
    return KNNLM_OK;
}

static knnlm_status learn_all(learning *l, size_t count, size_t clusters, kn_message *out) {
    float *room = kn_message_room(out, clusters * l->d * sizeof *room);
    KN_TRY(kn_message_sent(out));
    for (size_t i = 0; i < count; i++) {
        l->tasks[i].centroids = room;
        room += l->tasks[i].clusters * l->d;
    }
    kn_parallel(count, learn, l);
    for (size_t i = 0; i < count; i++)
        if (l->results[i] != KNNLM_OK)
            return kn_fail(l->results[i], "the lists of a group could not be learnt");
    return KNNLM_OK;
}

static knnlm_status run_kmeans(kn_message *in, kn_message *out, const kn_progress *progress) {
    learning l = {0};
    size_t clusters;
    (void)progress;
    kn_message_take(in, &l.o, sizeof l.o);
    l.d = (size_t)kn_message_take_number(in);
    size_t count = (size_t)kn_message_take_number(in);
    if (count > in->size) in->failed = true;
    KN_TRY(kn_message_read(in));
    l.tasks = kn_alloc(count + 1, sizeof *l.tasks);
    l.results = kn_alloc(count + 1, sizeof *l.results);
    knnlm_status status = l.tasks && l.results ? take_tasks(in, &l, count, &clusters) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = learn_all(&l, count, clusters, out);
    free(l.tasks);
    free(l.results);
    return status;
}
const kn_service kn_service_kmeans = {"k-means", run_kmeans};
