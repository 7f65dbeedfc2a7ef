// Learning an index: how many lists, and where they are, from a sample of the keys.
#include "index/kmeans.h"
#include "index/making.h"

#include "base/random.h"
#include "store/shards.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRAIN_A_LIST = 64,        // keys to learn from
    TRAIN_A_LIST_GROUPS = 32, // where lists lie in groups
    ENTRIES_A_LIST = 30,      // fewer are not worth a list
    LISTS_MIN = 16,
    LISTS_MAX = 1 << 18,
    LIST_ENTRIES = 192, // of a list of a large store, at most
    PROBES = 32,        // the paper's
    PROBES_MANY = 64,   // of more than 16384 lists
    MANY_LISTS = 16384,
    CODE_TRAIN_MAX = 65536, // keys that codes are learnt from
    CODES_MAX = 64,         // bytes of a code, as the paper's
    CODES_MIN = 16,
    KEYS_TO_CODES = 8,  // bytes of a key to those of its code, at least
    GATHERED = 1 << 16, // keys of shards asked for at a time
};

// ---------------------------------------------------------------- the recipe

// A power of two. Up to a million entries four times the root of their number: searching the centroids then
// costs about as much as searching 32 lists. Beyond that lists are in groups, and finding them costs little:
// they stay short, so that the time of a search hardly grows with the store (experiments/scale).
uint32_t kn_recipe_lists(uint64_t entries) {
    uint32_t lists = LISTS_MIN;
    while (lists < 4096 && (double)lists * 1.5 < 4 * sqrt((double)entries)) lists *= 2;
    while (lists < LISTS_MAX && lists >= 4096 && (uint64_t)lists * LIST_ENTRIES < entries) lists *= 2;
    return lists;
}

// A search for one query reads the lists' codes rather than their keys: worth their room where keys would
// have to come from the disk, and are many times as long.
static uint32_t codes_for(const kn_making *m) {
    const kn_store_info *info = kn_store_describe(m->store);
    uint64_t keys = info->entries * kn_key_bytes(info->settings.key_type, m->d);
    uint64_t memory = m->recipe->memory ? m->recipe->memory : kn_memory_total();
    uint32_t parts = CODES_MAX;
    if (keys <= memory / 2) return 0;
    while (m->d % parts) parts--;
    if (kn_key_row_bytes(info->settings.key_type, m->d) < KEYS_TO_CODES * parts) return 0;
    return parts >= CODES_MIN || parts == m->d ? parts : 0; // too few would tell nothing
}

// Keys to learn from, within half of the memory.
static knnlm_status choose_sample(kn_making *m) {
    uint64_t entries = kn_store_describe(m->store)->entries, memory = m->recipe->memory;
    size_t key = m->d * sizeof(float);
    kn_index_note *n = &m->note;
    uint64_t each = n->groups ? TRAIN_A_LIST_GROUPS : TRAIN_A_LIST;
    n->trained = m->recipe->train ? m->recipe->train : each * n->lists;
    if (n->trained > entries) n->trained = entries;
    if (!memory && !m->recipe->train) memory = kn_memory_total() / 2;
    if (!memory || n->trained * key <= memory / 2) return KNNLM_OK;
    n->trained = memory / 2 / key;
    if (n->trained >= n->lists) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "memory of %" PRIu64 " bytes is too little: %" PRIu32 " lists need %" PRIu64,
                   memory, n->lists, 2 * (uint64_t)n->lists * key);
}

knnlm_status kn_making_resolve(kn_making *m) {
    const kn_store_info *info = kn_store_describe(m->store);
    const kn_recipe *r = m->recipe;
    kn_index_note *n = &m->note;
    n->lists = r->lists ? r->lists : kn_recipe_lists(info->entries);
    if (n->lists > KN_INDEX_LISTS_MAX)
        return kn_fail(KNNLM_EINVAL, "%" PRIu32 " lists: at most %d", n->lists, KN_INDEX_LISTS_MAX);
    uint64_t max = info->entries / ENTRIES_A_LIST;
    if (!r->lists && n->lists > max) n->lists = max ? (uint32_t)max : 1;
    n->groups = r->groups ? r->groups : n->lists >= KN_GROUPS_FROM ? n->lists / KN_GROUP_LISTS : 0;
    if (n->groups > n->lists)
        return kn_fail(KNNLM_EINVAL, "%" PRIu32 " groups of %" PRIu32 " lists", n->groups, n->lists);
    n->probes = r->probes ? r->probes : n->lists > MANY_LISTS ? PROBES_MANY : PROBES;
    if (n->probes > n->lists) n->probes = n->lists;
    n->code_parts = !r->code_parts && r->auto_codes ? codes_for(m) : r->code_parts;
    n->code_bits = n->code_parts ? (r->code_bits ? r->code_bits : 8) : 0;
    // The note is in JSON, whose numbers are signed.
    if (r->seed > INT64_MAX) return kn_fail(KNNLM_EINVAL, "seed %" PRIu64 ": not below 2^63", r->seed);
    n->seed = r->seed;
    KN_TRY(choose_sample(m));
    if (info->settings.key_type == KNNLM_KEYS_NONE && (!r->source || !n->code_parts))
        return kn_fail(KNNLM_ENOTSUP, "%s: keeps no keys: its model and codes (`codes`) are needed",
                       info->path);
    return info->entries ? KNNLM_OK : kn_fail(KNNLM_EINVAL, "%s: has no entries to index", info->path);
}

// ---------------------------------------------------------------- learning

// Of `count` keys from everywhere in the store, some from each of many equal stretches: *first to *first + *n
// come from stretch i of `parts`.
static void choose_stretch(const kn_making *m, uint64_t i, uint64_t parts, uint64_t left, kn_random *random,
                           uint64_t *first, uint64_t *n, uint64_t *apart) {
    uint64_t entries = kn_store_describe(m->store)->entries;
    uint64_t together = m->recipe->source ? m->recipe->source->stretch : 1;
    uint64_t from = (uint64_t)((unsigned __int128)i * entries / parts);
    uint64_t to = (uint64_t)((unsigned __int128)(i + 1) * entries / parts);
    *n = kn_min(kn_min((size_t)together, (size_t)(to - from)), (size_t)left);
    *first = from + kn_random_below(random, to - from - *n + 1);
    *apart = to - from;
}

static knnlm_status tell_sampled(const kn_making *m, uint64_t done, uint64_t count) {
    if (kn_progress_report(m->progress, "sampling", done, count, "keys")) return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "stopped while sampling: the store is as it was");
}

// The same keys of a store of shards, many at a time.
static knnlm_status sample_shards(kn_making *m, uint64_t count, uint64_t seed, float *out) {
    kn_random random = {seed};
    uint64_t *ids = kn_alloc(GATHERED, sizeof *ids), n, apart;
    knnlm_status status = ids ? KNNLM_OK : KNNLM_ENOMEM;
    for (uint64_t done = 0; done < count && status == KNNLM_OK;) {
        size_t some = kn_min(GATHERED, (size_t)(count - done));
        for (size_t i = 0; i < some; i++)
            choose_stretch(m, done + i, count, count - done - i, &random, &ids[i], &n, &apart);
        status = kn_store_keys_of(m->store, ids, some, out + done * m->d);
        if (status == KNNLM_OK) kn_arrange_keys_as_seen(m->store, some, out + done * m->d);
        done += some;
        if (status == KNNLM_OK) status = tell_sampled(m, done, count);
    }
    free(ids);
    return status;
}

static knnlm_status sample(kn_making *m, uint64_t count, uint64_t seed, float *out) {
    uint64_t together = m->recipe->source ? m->recipe->source->stretch : 1,
             parts = (count + together - 1) / together, first, n, apart;
    kn_random random = {seed};
    kn_resident resident = {.store = m->store, .max = m->recipe->memory};
    if (kn_store_shards(m->store)) return sample_shards(m, count, seed, out);
    for (uint64_t i = 0, done = 0; i < parts; i++) {
        choose_stretch(m, i, parts, count - done, &random, &first, &n, &apart);
        KN_TRY(kn_arrange_keys(m->store, m->recipe->source, first, n, out + done * m->d));
        done += n;
        kn_resident_touch(&resident, kn_arrange_touched(m->store, apart));
        KN_TRY(tell_sampled(m, done, count));
    }
    return KNNLM_OK;
}

static knnlm_status learn_lists(kn_making *m, const float *keys) {
    kn_kmeans_options o = kn_kmeans_defaults(m->note.lists);
    kn_kmeans_result r;
    o.seed = m->note.seed;
    o.spherical = kn_distance_form_of(kn_store_describe(m->store)->settings.distance)->unit;
    if (m->recipe->iterations) o.iterations = (int)m->recipe->iterations;
    m->centroids = kn_alloc_aligned(m->note.lists, m->d * sizeof *m->centroids);
    m->group_ends = kn_alloc(m->note.groups + 1, sizeof *m->group_ends);
    if (!m->centroids || !m->group_ends) return KNNLM_ENOMEM;
    KN_TRY(m->note.groups ? kn_kmeans_learn_groups(keys, m->note.trained, m->d, m->note.groups, &o,
                                                   m->progress, m->centroids, m->group_ends)
                          : kn_kmeans_learn(keys, m->note.trained, m->d, &o, m->progress, m->centroids, &r));
    return kn_quantizer_make(m->centroids, m->note.lists, m->d, KN_QUANTIZER_L2, &m->quantizer);
}

// Codes are of residuals: what is left of a key when its list is known.
static knnlm_status learn_codes(kn_making *m, float *keys) {
    size_t n = (size_t)(m->note.trained < CODE_TRAIN_MAX ? m->note.trained : CODE_TRAIN_MAX);
    uint32_t *lists = kn_alloc(n, sizeof *lists);
    if (!lists) return KNNLM_ENOMEM;
    // Spread over the sample, moved to its front.
    for (size_t i = 0; i < n; i++)
        memmove(keys + i * m->d, keys + (size_t)((double)i * (double)m->note.trained / (double)n) * m->d,
                m->d * sizeof *keys);
    knnlm_status status = kn_quantizer_assign(m->quantizer, keys, n, lists, NULL);
    for (size_t i = 0; i < n && status == KNNLM_OK; i++)
        for (size_t j = 0; j < m->d; j++) keys[i * m->d + j] -= m->centroids[lists[i] * m->d + j];
    free(lists);
    if (status == KNNLM_OK)
        status = kn_pq_learn(keys, n, m->d, m->note.code_parts, m->note.code_bits, m->note.seed, m->progress,
                             &m->pq);
    m->has_pq = status == KNNLM_OK;
    return status;
}

knnlm_status kn_making_learn(kn_making *m) {
    double start = kn_seconds();
    float *keys = kn_alloc_aligned((size_t)m->note.trained, m->d * sizeof *keys);
    knnlm_status status = keys ? sample(m, m->note.trained, m->note.seed, keys) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = learn_lists(m, keys);
    if (status == KNNLM_OK && m->note.code_parts) status = learn_codes(m, keys);
    kn_free_aligned(keys);
    m->out->train_seconds = kn_seconds() - start;
    return status;
}
