// Indexes stores of shards: lists are learnt from all of them, and every rank puts its entries into them.
#include "build/lists.h"
#include "build/shards.h"

#include <stdlib.h>

// ---------------------------------------------------------------- what a rank does

static knnlm_status take_recipe(kn_message *in, kn_recipe *out) {
    *out = (kn_recipe){.memory = kn_message_take_number(in)};
    out->force = kn_message_take_number(in);
    return kn_message_read(in);
}

static knnlm_status run_index(kn_message *in, kn_message *out, const kn_progress *progress) {
    const char *path = kn_message_take_text(in);
    kn_recipe recipe;
    kn_learnt *learnt;
    kn_index_result result = {0};
    KN_TRY(take_recipe(in, &recipe));
    bool anew = kn_message_take_number(in);
    KN_TRY(kn_learnt_take(in, &learnt));
    bool extends = false;
    kn_store *store;
    knnlm_status status = kn_store_open(path, &store);
    if (status == KNNLM_OK) {
        extends = !anew && kn_store_annex_note(store);
        kn_store_close(store);
    }
    if (status == KNNLM_OK)
        status = extends ? kn_index_extend(path, &recipe, progress, &result)
                         : kn_index_build_as(path, learnt, &recipe, progress, &result);
    kn_learnt_free(learnt);
    if (status == KNNLM_OK) kn_message_put(out, &result, sizeof result);
    return status;
}
const kn_service kn_service_index = {"index", run_index};

// Of the index that the first shard with one has: for shards that had no entries when it was made.
static knnlm_status run_learnt(kn_message *in, kn_message *out, const kn_progress *progress) {
    const char *path = kn_message_take_text(in);
    kn_store *store;
    kn_learnt *learnt;
    (void)progress;
    KN_TRY(kn_message_read(in));
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = kn_learnt_of(store, &learnt);
    if (status == KNNLM_OK) {
        kn_learnt_put(learnt, out);
        kn_learnt_free(learnt);
    }
    kn_store_close(store);
    return status;
}
const kn_service kn_service_learnt = {"learnt", run_learnt};

// ---------------------------------------------------------------- the driver

static knnlm_status recall_lists(const kn_store *store, kn_learnt **out) {
    for (size_t i = 0; i < kn_store_shards(store); i++) {
        kn_store_shard shard = kn_store_shard_at(store, i);
        kn_call call = {.rank = shard.rank, .service = &kn_service_learnt};
        if (!shard.note) continue;
        kn_message_put_text(&call.in, shard.path);
        knnlm_status status = kn_ranks_call(&call, 1, NULL);
        if (status == KNNLM_OK) status = kn_learnt_take(&call.out, out);
        kn_calls_free(&call, 1);
        return status;
    }
    return kn_fail(KNNLM_EINVAL, "%s: has no index to extend", kn_store_describe(store)->path);
}

typedef struct indexing {
    const kn_recipe *recipe;
    bool anew;
    const kn_learnt *learnt;
    kn_index_result *all;
} indexing;

static void put_index(void *context, size_t shard, kn_message *in) {
    const indexing *x = context;
    (void)shard;
    kn_message_put_number(in, x->recipe->memory);
    kn_message_put_number(in, x->recipe->force);
    kn_message_put_number(in, x->anew);
    kn_learnt_put(x->learnt, in);
}

// Times are those of the slowest, sizes are sums.
static void add_result(kn_index_result *all, const kn_index_result *one) {
    double entries = (double)(all->info.listed + one->info.listed);
    if (!one->info.lists) return; // of no entries
    if (entries > 0)
        all->objective =
            (all->objective * (double)all->info.listed + one->objective * (double)one->info.listed) / entries;
    kn_index_info sum = one->info;
    sum.listed += all->info.listed;
    sum.flat += all->info.flat;
    sum.bytes += all->info.bytes;
    if (all->info.imbalance > sum.imbalance) sum.imbalance = all->info.imbalance;
    if (all->info.drift > sum.drift) sum.drift = all->info.drift;
    all->info = sum;
    if (one->assign_seconds > all->assign_seconds) all->assign_seconds = one->assign_seconds;
    if (one->write_seconds > all->write_seconds) all->write_seconds = one->write_seconds;
}

static knnlm_status take_indexed(void *context, size_t shard, kn_message *out) {
    const indexing *x = context;
    kn_index_result one;
    (void)shard;
    kn_message_take(out, &one, sizeof one);
    KN_TRY(kn_message_read(out));
    add_result(x->all, &one);
    return KNNLM_OK;
}

// Whether there is anything to do, and whether by lists that are learnt anew.
static knnlm_status decide(const kn_store *store, bool wanted, bool *anew, bool *done) {
    uint32_t lists;
    uint64_t entries = kn_store_describe(store)->entries, listed;
    knnlm_status status = kn_index_outline(store, &lists, &listed);
    if (*anew) {
        *done = true;
        return KNNLM_OK;
    }
    KN_TRY(status);
    *anew = wanted || !lists;
    *done = *anew ? kn_lists_worth(entries) || wanted : kn_lists_worth_extending(entries - listed);
    return KNNLM_OK;
}

knnlm_status kn_shards_index(const char *path, const kn_recipe *recipe, bool wanted, bool anew,
                             const kn_progress *progress, bool *done, kn_index_result *out) {
    kn_store *store;
    kn_learnt *learnt = NULL;
    double seconds = 0;
    *out = (kn_index_result){0};
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = kn_store_describe(store)->entries ? decide(store, wanted, &anew, done) : KNNLM_OK;
    if (!kn_store_describe(store)->entries) *done = false;
    if (status == KNNLM_OK && *done)
        status =
            anew ? kn_learnt_make(store, recipe, progress, &seconds, &learnt) : recall_lists(store, &learnt);
    kn_store_close(store);
    indexing how = {recipe, anew, learnt, out};
    if (status == KNNLM_OK && *done)
        status = kn_shards_call_at(path, &(kn_shard_job){&kn_service_index, put_index, take_indexed, &how},
                                   progress);
    out->train_seconds = seconds;
    kn_learnt_free(learnt);
    return status;
}

// ---------------------------------------------------------------- compacting

static knnlm_status run_compact(kn_message *in, kn_message *out, const kn_progress *progress) {
    const char *path = kn_message_take_text(in);
    bool force = kn_message_take_number(in);
    knnlm_compact_result result;
    KN_TRY(kn_message_read(in));
    KN_TRY(kn_build_compact(path, force, progress, &result));
    kn_message_put(out, &result, sizeof result);
    return KNNLM_OK;
}
const kn_service kn_service_compact = {"compact", run_compact};

static void add_compacted(knnlm_compact_result *all, const knnlm_compact_result *one) {
    all->entries_dropped += one->entries_dropped;
    all->documents_dropped += one->documents_dropped;
    all->bytes_before += one->bytes_before;
    all->bytes_after += one->bytes_after;
    all->segments_before += one->segments_before;
    all->segments_after += one->segments_after;
}

typedef struct compacting {
    bool force;
    knnlm_compact_result *all;
} compacting;

static void put_force(void *context, size_t shard, kn_message *in) {
    const compacting *x = context;
    (void)shard;
    kn_message_put_number(in, x->force);
}

static knnlm_status take_compacted(void *context, size_t shard, kn_message *out) {
    const compacting *x = context;
    knnlm_compact_result one;
    (void)shard;
    kn_message_take(out, &one, sizeof one);
    KN_TRY(kn_message_read(out));
    add_compacted(x->all, &one);
    return KNNLM_OK;
}

knnlm_status kn_shards_compact(const char *path, bool force, const kn_progress *progress,
                               knnlm_compact_result *out) {
    compacting x = {force, out};
    *out = (knnlm_compact_result){0};
    return kn_shards_call_at(path, &(kn_shard_job){&kn_service_compact, put_force, take_compacted, &x},
                             progress);
}
