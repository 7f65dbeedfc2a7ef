// Making an index: learn the lists from a sample, find every entry's list, write the entries in list order.
#include "index/making.h"
#include "index/open.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum {
    RUN = 1 << 20, // entries per commit, when keys come from a source
    // Runs at the end that are at most so much longer than what follows them are merged with it, as in a
    // log-structured merge tree: few are left, and an entry is written again only as often as its run has
    // grown by half. Longer ones stay as they are: an addition must not take minutes.
    MERGE_RATIO = 2,
    MERGE_MAX = 1 << 20,
};

knnlm_status kn_making_check_space(const kn_making *m) {
    const kn_store_info *info = kn_store_describe(m->store);
    size_t code = m->note.code_parts * m->note.code_bits / 8;
    uint64_t each = kn_key_bytes(info->settings.key_type, m->d) + sizeof(uint32_t) + code, free_bytes;
    uint64_t needed = info->entries * each + (uint64_t)m->note.lists * (m->d * sizeof(float) + 8);
    KN_TRY(kn_disk_free(info->path, &free_bytes));
    if (m->recipe->force || needed <= free_bytes) return KNNLM_OK;
    return kn_fail(KNNLM_EIO, "%s: the index needs %.1f GB of disk, %.1f GB are free (`force` tries anyway)",
                   info->path, (double)needed / 1e9, (double)free_bytes / 1e9);
}

// ---------------------------------------------------------------- writing

static knnlm_status write_lists(kn_making *m, kn_annex_writer *a) {
    KN_TRY(kn_annex_begin(a, "lists"));
    KN_TRY(kn_annex_put(a, m->centroids, m->note.lists * m->d * sizeof *m->centroids));
    KN_TRY(kn_annex_pad(a));
    if (m->has_pq)
        KN_TRY(kn_annex_put(a, m->pq.centroids, ((size_t)1 << m->note.code_bits) * m->d * sizeof(float)));
    if (m->has_pq) KN_TRY(kn_annex_pad(a));
    if (m->note.groups) KN_TRY(kn_annex_put(a, m->group_ends, (m->note.groups + 1) * sizeof *m->group_ends));
    return kn_annex_seal(a, m->note.lists);
}

static double merged_objective(const kn_making *m) {
    double sum = 0, count = 0;
    for (size_t i = m->kept; i < m->note.run_count; i++) {
        sum += m->note.runs[i].objective * (double)m->note.runs[i].entries;
        count += (double)m->note.runs[i].entries;
    }
    return count > 0 ? sum / count : 0;
}

static knnlm_status write_run(kn_making *m, kn_annex_writer *a, uint64_t first, uint64_t end) {
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

static knnlm_status publish(kn_making *m, kn_annex_writer *a) {
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
static size_t parts_of(const kn_making *m, size_t runs) {
    bool keys = kn_store_describe(m->store)->settings.key_type != KNNLM_KEYS_NONE;
    return m->note.run_count ? 1 + runs * (1 + (keys ? 2 : 0) + (m->has_pq ? 1 : 0)) : 0;
}

static knnlm_status write_part(kn_making *m, uint64_t first, uint64_t end) {
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
knnlm_status kn_making_write(kn_making *m, uint64_t first) {
    uint64_t entries = kn_store_describe(m->store)->entries, step = m->recipe->source ? RUN : entries;
    if (m->note.groups && entries - first >= m->note.groups)
        KN_TRY(kn_groups_make(m->quantizer, m->group_ends, m->note.groups, &m->groups));
    for (; first < entries; first += step)
        KN_TRY(write_part(m, first, first + kn_min((size_t)step, (size_t)(entries - first))));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the doors

void kn_making_free(kn_making *m) {
    kn_index_note_free(&m->note);
    kn_groups_free(m->groups);
    kn_quantizer_free(m->quantizer);
    kn_free_aligned(m->centroids);
    free(m->group_ends);
    if (m->has_pq) kn_pq_free(&m->pq);
    kn_store_writer_close(m->w);
}

knnlm_status kn_making_describe(const char *path, kn_index_result *out) {
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

knnlm_status kn_making_begin(kn_making *m, const char *path, const kn_recipe *recipe,
                             const kn_progress *progress, kn_index_result *out) {
    *m = (kn_making){.recipe = recipe, .progress = progress, .out = out};
    *out = (kn_index_result){0};
    KN_TRY(kn_store_write(path, &m->w));
    m->store = kn_store_writer_base(m->w);
    m->d = (size_t)kn_store_describe(m->store)->settings.dimension;
    return KNNLM_OK;
}

knnlm_status kn_index_build(const char *path, const kn_recipe *recipe, const kn_progress *progress,
                            kn_index_result *out) {
    kn_making m;
    knnlm_status status = kn_making_begin(&m, path, recipe, progress, out);
    if (status == KNNLM_OK) status = kn_making_resolve(&m);
    if (status == KNNLM_OK) status = kn_making_check_space(&m);
    if (status == KNNLM_OK) status = kn_store_writer_recover(m.w);
    if (status == KNNLM_OK) status = kn_making_learn(&m);
    if (status == KNNLM_OK) status = kn_making_write(&m, 0);
    kn_making_free(&m);
    return status == KNNLM_OK ? kn_making_describe(path, out) : status;
}

// The centroids and codes of the present index.
knnlm_status kn_making_reuse(kn_making *m, const kn_index *x) {
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
static size_t runs_kept(const kn_making *m, uint64_t added) {
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

static knnlm_status extend_by(kn_making *m, const kn_index *x, uint64_t first) {
    KN_TRY(kn_making_reuse(m, x));
    m->kept = runs_kept(m, kn_store_describe(m->store)->entries - first);
    m->before = x;
    if (m->kept < m->note.run_count) first = m->note.runs[m->kept].first;
    return kn_making_write(m, first);
}

static knnlm_status extend(kn_making *m) {
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
    kn_making m;
    knnlm_status status = kn_making_begin(&m, path, recipe, progress, out);
    if (status == KNNLM_OK) status = extend(&m);
    kn_making_free(&m);
    return status == KNNLM_OK ? kn_making_describe(path, out) : status;
}
