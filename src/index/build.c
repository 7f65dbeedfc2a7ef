// Making an index: learn the lists from a sample, find every entry's list, write the entries in list order.
#include "index/arrange.h"
#include "index/kmeans.h"
#include "index/open.h"

#include "base/file.h"
#include "base/random.h"

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
    KEYS_TO_CODES = 8, // bytes of a key to those of its code, at least
    RUN = 1 << 20,     // entries per commit, when keys come from a source
    // Runs at the end that are at most so much longer than what follows them are merged with it, as in a
    // log-structured merge tree: few are left, and an entry is written again only as often as its run has
    // grown by half. Longer ones stay as they are: an addition must not take minutes.
    MERGE_RATIO = 2,
    MERGE_MAX = 1 << 20,
};

typedef struct making {
    const kn_recipe *recipe;
    kn_index_note note;
    kn_store_writer *w;
    const kn_store *store;
    size_t d;
    float *centroids;
    uint32_t *group_ends;    // (groups + 1): of lists; NULL: no groups
    kn_quantizer *quantizer; // squared L2, also where searches use another
    kn_groups *groups;
    kn_pq pq;
    bool has_pq;
    const kn_progress *progress;
    kn_index_result *out;
    const kn_index *before; // what the next run is merged with; NULL: nothing
    size_t kept;            // its runs that stay as they are
} making;

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
static uint32_t codes_for(const making *m) {
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
static knnlm_status choose_sample(making *m) {
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

static knnlm_status resolve(making *m) {
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

static knnlm_status check_space(const making *m) {
    const kn_store_info *info = kn_store_describe(m->store);
    size_t code = m->note.code_parts * m->note.code_bits / 8;
    uint64_t each = kn_key_bytes(info->settings.key_type, m->d) + sizeof(uint32_t) + code, free_bytes;
    uint64_t needed = info->entries * each + (uint64_t)m->note.lists * (m->d * sizeof(float) + 8);
    KN_TRY(kn_disk_free(info->path, &free_bytes));
    if (m->recipe->force || needed <= free_bytes) return KNNLM_OK;
    return kn_fail(KNNLM_EIO, "%s: the index needs %.1f GB of disk, %.1f GB are free (`force` tries anyway)",
                   info->path, (double)needed / 1e9, (double)free_bytes / 1e9);
}

// ---------------------------------------------------------------- learning

// Keys from everywhere in the store: some from each of many equal stretches.
static knnlm_status sample(making *m, uint64_t count, uint64_t seed, float *out) {
    uint64_t entries = kn_store_describe(m->store)->entries;
    uint64_t together = m->recipe->source ? m->recipe->source->stretch : 1,
             parts = (count + together - 1) / together;
    kn_random random = {seed};
    kn_resident resident = {.store = m->store, .max = m->recipe->memory};
    for (uint64_t i = 0, done = 0; i < parts; i++) {
        uint64_t from = (uint64_t)((unsigned __int128)i * entries / parts);
        uint64_t to = (uint64_t)((unsigned __int128)(i + 1) * entries / parts);
        uint64_t n = kn_min(kn_min((size_t)together, (size_t)(to - from)), (size_t)(count - done));
        uint64_t first = from + kn_random_below(&random, to - from - n + 1);
        KN_TRY(kn_arrange_keys(m->store, m->recipe->source, first, n, out + done * m->d));
        done += n;
        kn_resident_touch(&resident, kn_arrange_touched(m->store, to - from));
        if (!kn_progress_report(m->progress, "sampling", done, count, "keys"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while sampling: the store is as it was");
    }
    return KNNLM_OK;
}

static knnlm_status learn_lists(making *m, const float *keys) {
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
static knnlm_status learn_codes(making *m, float *keys) {
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

static knnlm_status learn(making *m) {
    double start = kn_seconds();
    float *keys = kn_alloc_aligned((size_t)m->note.trained, m->d * sizeof *keys);
    knnlm_status status = keys ? sample(m, m->note.trained, m->note.seed, keys) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = learn_lists(m, keys);
    if (status == KNNLM_OK && m->note.code_parts) status = learn_codes(m, keys);
    kn_free_aligned(keys);
    m->out->train_seconds = kn_seconds() - start;
    return status;
}

// ---------------------------------------------------------------- writing

static knnlm_status write_lists(making *m, kn_annex_writer *a) {
    KN_TRY(kn_annex_begin(a, "lists"));
    KN_TRY(kn_annex_put(a, m->centroids, m->note.lists * m->d * sizeof *m->centroids));
    KN_TRY(kn_annex_pad(a));
    if (m->has_pq)
        KN_TRY(kn_annex_put(a, m->pq.centroids, ((size_t)1 << m->note.code_bits) * m->d * sizeof(float)));
    if (m->has_pq) KN_TRY(kn_annex_pad(a));
    if (m->note.groups) KN_TRY(kn_annex_put(a, m->group_ends, (m->note.groups + 1) * sizeof *m->group_ends));
    return kn_annex_seal(a, m->note.lists);
}

static double merged_objective(const making *m) {
    double sum = 0, count = 0;
    for (size_t i = m->kept; i < m->note.run_count; i++) {
        sum += m->note.runs[i].objective * (double)m->note.runs[i].entries;
        count += (double)m->note.runs[i].entries;
    }
    return count > 0 ? sum / count : 0;
}

static knnlm_status write_run(making *m, kn_annex_writer *a, uint64_t first, uint64_t end) {
    kn_arrangement run = {.store = m->store,
                          .quantizer = m->quantizer,
                          .groups = m->groups,
                          .pq = m->has_pq ? &m->pq : NULL,
                          .first = first,
                          .count = (size_t)(end - first),
                          .source = m->recipe->source,
                          .memory = m->recipe->memory,
                          .resident = {.store = m->store, .max = m->recipe->memory},
                          .progress = m->progress,
                          .before = m->before,
                          .merged = m->kept,
                          .merged_objective = merged_objective(m)};
    double start = kn_seconds();
    knnlm_status status = kn_arrange_assign(&run);
    m->out->assign_seconds += kn_seconds() - start;
    start = kn_seconds();
    if (status == KNNLM_OK) status = kn_arrange_write(&run, a);
    m->out->write_seconds += kn_seconds() - start;
    m->out->objective = run.objective;
    kn_arrange_free(&run);
    if (status != KNNLM_OK) return status;
    if (!first && !m->note.run_count) m->note.objective = run.objective, m->note.learnt = run.count;
    m->note.run_count = kn_min(m->note.run_count, m->kept);
    m->kept = m->note.run_count + 1;
    m->before = NULL; // its runs are merged
    return kn_index_note_add_run(&m->note, &(kn_run_note){first, run.count, run.objective});
}

static knnlm_status publish(making *m, kn_annex_writer *a) {
    char *note;
    knnlm_status status = kn_index_note_print(&m->note, &note);
    if (status != KNNLM_OK) {
        kn_annex_abort(a);
        return status;
    }
    bool keys = kn_store_describe(m->store)->settings.key_type != KNNLM_KEYS_NONE;
    const kn_run_note *last = &m->note.runs[m->note.run_count - 1];
    status = kn_annex_commit(a, note, keys ? last->first + last->entries : 0);
    free(note);
    return status;
}

// Parts of the annex that belong to the first `runs` runs.
static size_t parts_of(const making *m, size_t runs) {
    bool keys = kn_store_describe(m->store)->settings.key_type != KNNLM_KEYS_NONE;
    return m->note.run_count ? 1 + runs * (1 + (keys ? 2 : 0) + (m->has_pq ? 1 : 0)) : 0;
}

static knnlm_status write_part(making *m, uint64_t first, uint64_t end) {
    kn_annex_writer *a;
    size_t keep = parts_of(m, m->kept);
    KN_TRY(kn_annex_open(m->w, keep, &a));
    knnlm_status status = keep ? KNNLM_OK : write_lists(m, a);
    if (status == KNNLM_OK) status = write_run(m, a, first, end);
    if (status == KNNLM_OK) return publish(m, a);
    kn_annex_abort(a);
    return status;
}

// Keys that cost a model's work are committed as they come; those of the store all at once, so that lists are
// in one piece.
static knnlm_status write(making *m, uint64_t first) {
    uint64_t entries = kn_store_describe(m->store)->entries, step = m->recipe->source ? RUN : entries;
    if (m->note.groups && entries - first >= m->note.groups)
        KN_TRY(kn_groups_make(m->quantizer, m->group_ends, m->note.groups, &m->groups));
    for (; first < entries; first += step)
        KN_TRY(write_part(m, first, first + kn_min((size_t)step, (size_t)(entries - first))));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the doors

static void making_free(making *m) {
    kn_index_note_free(&m->note);
    kn_groups_free(m->groups);
    kn_quantizer_free(m->quantizer);
    kn_free_aligned(m->centroids);
    free(m->group_ends);
    if (m->has_pq) kn_pq_free(&m->pq);
    kn_store_writer_close(m->w);
}

static knnlm_status describe(const char *path, kn_index_result *out) {
    kn_store *store;
    kn_index *index;
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = kn_index_open(store, &index);
    if (status == KNNLM_OK) {
        out->info = *kn_index_describe(index);
        kn_index_close(index);
    }
    kn_store_close(store);
    return status;
}

static knnlm_status begin(making *m, const char *path, const kn_recipe *recipe, const kn_progress *progress,
                          kn_index_result *out) {
    *m = (making){.recipe = recipe, .progress = progress, .out = out};
    *out = (kn_index_result){0};
    KN_TRY(kn_store_write(path, &m->w));
    m->store = kn_store_writer_base(m->w);
    m->d = (size_t)kn_store_describe(m->store)->settings.dimension;
    return KNNLM_OK;
}

knnlm_status kn_index_build(const char *path, const kn_recipe *recipe, const kn_progress *progress,
                            kn_index_result *out) {
    making m;
    knnlm_status status = begin(&m, path, recipe, progress, out);
    if (status == KNNLM_OK) status = resolve(&m);
    if (status == KNNLM_OK) status = check_space(&m);
    if (status == KNNLM_OK) status = kn_store_writer_recover(m.w);
    if (status == KNNLM_OK) status = learn(&m);
    if (status == KNNLM_OK) status = write(&m, 0);
    making_free(&m);
    return status == KNNLM_OK ? describe(path, out) : status;
}

// The centroids and codes of the present index.
static knnlm_status reuse(making *m, const kn_index *x) {
    KN_TRY(kn_index_note_parse(kn_store_describe(m->store)->path, kn_store_annex_note(m->store), &m->note));
    KN_TRY(kn_quantizer_make(x->centres, m->note.lists, m->d, KN_QUANTIZER_L2, &m->quantizer));
    if (m->note.groups) {
        m->group_ends = kn_alloc(m->note.groups + 1, sizeof *m->group_ends);
        if (!m->group_ends) return KNNLM_ENOMEM;
        memcpy(m->group_ends, x->group_ends, (m->note.groups + 1) * sizeof *m->group_ends);
    }
    if (!x->has_pq) return KNNLM_OK;
    KN_TRY(kn_pq_init(&m->pq, m->d, m->note.code_parts, m->note.code_bits));
    m->has_pq = true;
    memcpy(m->pq.centroids, x->pq.centroids, ((size_t)1 << m->note.code_bits) * m->d * sizeof(float));
    kn_pq_prepare(&m->pq);
    return KNNLM_OK;
}

// How many of the present runs stay when `added` entries join them.
static size_t runs_kept(const making *m, uint64_t added) {
    const kn_store_info *info = kn_store_describe(m->store);
    const kn_run_note *runs = m->note.runs;
    size_t n = m->note.run_count;
    bool keys = info->settings.key_type != KNNLM_KEYS_NONE;
    if (keys && info->arranged < info->entries - added) return 0; // of version 1, which had them twice
    if (!keys && added > RUN) return n;
    while (n && runs[n - 1].entries <= MERGE_RATIO * added && added + runs[n - 1].entries <= MERGE_MAX)
        added += runs[--n].entries;
    return n;
}

static knnlm_status extend_by(making *m, const kn_index *x, uint64_t first) {
    KN_TRY(reuse(m, x));
    m->kept = runs_kept(m, kn_store_describe(m->store)->entries - first);
    m->before = x;
    if (m->kept < m->note.run_count) first = m->note.runs[m->kept].first;
    return write(m, first);
}

static knnlm_status extend(making *m) {
    kn_index *x;
    if (!kn_store_annex_note(m->store))
        return kn_fail(KNNLM_EINVAL, "%s: has no index to extend", kn_store_describe(m->store)->path);
    KN_TRY(kn_index_open(m->store, &x));
    uint64_t first = x->info.listed;
    bool more = first < kn_store_describe(m->store)->entries;
    knnlm_status status = more ? extend_by(m, x, first) : KNNLM_OK;
    kn_index_close(x);
    return status;
}

knnlm_status kn_index_extend(const char *path, const kn_recipe *recipe, const kn_progress *progress,
                             kn_index_result *out) {
    making m;
    knnlm_status status = begin(&m, path, recipe, progress, out);
    if (status == KNNLM_OK) status = extend(&m);
    making_free(&m);
    return status == KNNLM_OK ? describe(path, out) : status;
}
