// The index of what compaction keeps: the same lists without what was removed, under new numbers.
#include "index/note.h"
#include "index/pq_stream.h"
#include "index/view.h"

#include <stdlib.h>
#include <string.h>

typedef struct rearranging {
    const kn_index *x;
    const kn_renumbering *n;
    kn_annex_writer *a;
    const kn_progress *progress;
    kn_index_note note;
} rearranging;

// One section of a run: what is put for each place that is kept.
typedef knnlm_status put_place(rearranging *m, const kn_run *r, size_t place, void *context);

static knnlm_status for_places(rearranging *m, const kn_run *r, put_place *put, void *context) {
    for (size_t place = 0; place < r->count; place++) {
        if (kn_renumbering_keeps(m->n, r->ids[place])) KN_TRY(put(m, r, place, context));
        if (place % (1 << 16)) continue;
        if (!kn_progress_report(m->progress, "compacting the index", place, r->count, "entries"))
            return kn_fail(KNNLM_ESTOPPED, "stopped: %s is as it was", kn_store_describe(m->x->store)->path);
    }
    return KNNLM_OK;
}

static knnlm_status put_id(rearranging *m, const kn_run *r, size_t place, void *context) {
    uint32_t id = (uint32_t)kn_renumbering_of(m->n, r->ids[place]);
    (void)context;
    return kn_annex_put(m->a, &id, sizeof id);
}

// What is left is checked as it is copied: damage that was removed is no obstacle.
static knnlm_status put_row(rearranging *m, const kn_run *r, size_t place, void *context) {
    (void)context;
    KN_TRY(kn_run_check_rows(m->x, r, place, place + 1));
    return kn_annex_put(m->a, r->rows + place * m->x->row_bytes, m->x->row_bytes);
}

static knnlm_status put_scale(rearranging *m, const kn_run *r, size_t place, void *context) {
    (void)context;
    return kn_annex_put(m->a, &r->scales[place], sizeof *r->scales);
}

static knnlm_status put_code(rearranging *m, const kn_run *r, size_t place, void *context) {
    uint8_t code[KN_PQ_PARTS_MAX];
    KN_TRY(kn_run_check_codes(m->x, r, place, place + 1));
    kn_pq_deinterleave(r->codes, place, 1, m->x->info.code_bytes, code);
    return kn_pq_stream_put(context, code, 1);
}

// ---------------------------------------------------------------- the parts of a run

static knnlm_status write_order(rearranging *m, const kn_run *r, const uint64_t *ends) {
    size_t lists = m->x->info.lists;
    KN_TRY(kn_annex_begin(m->a, "order"));
    KN_TRY(kn_annex_put(m->a, ends, (lists + 1) * sizeof *ends));
    KN_TRY(kn_annex_pad(m->a));
    KN_TRY(for_places(m, r, put_id, NULL));
    return kn_annex_seal(m->a, ends[lists]);
}

static knnlm_status write_rows(rearranging *m, const kn_run *r, uint64_t count) {
    if (!r->rows) return KNNLM_OK;
    KN_TRY(kn_annex_begin(m->a, "rows"));
    KN_TRY(for_places(m, r, put_row, NULL));
    KN_TRY(kn_annex_pad(m->a));
    if (r->scales) KN_TRY(for_places(m, r, put_scale, NULL));
    return kn_annex_seal(m->a, count);
}

static knnlm_status write_codes(rearranging *m, const kn_run *r, uint64_t count) {
    kn_pq_stream blocks;
    if (!m->x->has_pq) return KNNLM_OK;
    KN_TRY(kn_annex_begin(m->a, "codes"));
    KN_TRY(kn_pq_stream_init(&blocks, m->a, m->x->info.code_bytes));
    knnlm_status status = for_places(m, r, put_code, &blocks);
    if (status == KNNLM_OK) status = kn_pq_stream_end(&blocks);
    kn_pq_stream_free(&blocks);
    return status == KNNLM_OK ? kn_annex_seal(m->a, count) : status;
}

static knnlm_status write_listed(rearranging *m, const kn_run *r, uint64_t first, uint64_t count) {
    size_t bytes = kn_annex_list_bytes(m->x->info.lists);
    if (!r->rows) return KNNLM_OK;
    uint8_t *lists = kn_alloc((size_t)count, bytes);
    if (!lists) return KNNLM_ENOMEM;
    for (uint32_t l = 0; l < m->x->info.lists; l++)
        for (uint64_t place = r->ends[l]; place < r->ends[l + 1]; place++) {
            if (!kn_renumbering_keeps(m->n, r->ids[place])) continue;
            uint64_t index = kn_renumbering_of(m->n, r->ids[place]) - first;
            memcpy(lists + index * bytes, &l, bytes);
        }
    knnlm_status status = kn_annex_begin(m->a, "listed");
    if (status == KNNLM_OK) status = kn_annex_put(m->a, lists, (size_t)count * bytes);
    free(lists);
    return status == KNNLM_OK ? kn_annex_seal(m->a, count) : status;
}

// Ends of the lists when what is removed is gone. The ids are checked here, for all that follows.
static knnlm_status count_kept(rearranging *m, const kn_run *r, const kn_run_note *note, uint64_t *ends) {
    KN_TRY(kn_run_check_ids(m->x, r, 0, r->count));
    for (size_t l = 0; l < m->x->info.lists; l++) {
        ends[l + 1] = ends[l];
        for (uint64_t place = r->ends[l]; place < r->ends[l + 1]; place++) {
            if (r->ids[place] - note->first >= note->entries)
                return kn_fail(KNNLM_EDATA, "%s: its index is damaged: a run has an entry of another",
                               kn_store_describe(m->x->store)->path);
            ends[l + 1] += kn_renumbering_keeps(m->n, r->ids[place]);
        }
    }
    return KNNLM_OK;
}

static knnlm_status write_run(rearranging *m, size_t number, const kn_run_note *note, uint64_t *ends) {
    const kn_run *r = &m->x->listed[number];
    uint64_t first = kn_renumbering_of(m->n, note->first);
    memset(ends, 0, (m->x->info.lists + 1) * sizeof *ends);
    KN_TRY(count_kept(m, r, note, ends));
    uint64_t count = ends[m->x->info.lists];
    if (!count) return KNNLM_OK;
    if (count != kn_renumbering_of(m->n, note->first + note->entries) - first)
        return kn_fail(KNNLM_EDATA, "%s: its index is damaged: a run has an entry twice",
                       kn_store_describe(m->x->store)->path);
    KN_TRY(write_order(m, r, ends));
    KN_TRY(write_rows(m, r, count));
    KN_TRY(write_codes(m, r, count));
    KN_TRY(write_listed(m, r, first, count));
    return kn_index_note_add_run(&m->note, &(kn_run_note){first, count, note->objective});
}

// ---------------------------------------------------------------- the whole

static knnlm_status copy_lists(rearranging *m) {
    kn_store_annex_part lists = kn_store_annex_at(m->x->store, 0);
    KN_TRY(kn_annex_begin(m->a, "lists"));
    KN_TRY(kn_annex_put(m->a, lists.data, lists.size));
    return kn_annex_seal(m->a, lists.count);
}

static knnlm_status write_runs(rearranging *m, const kn_index_note *note) {
    uint64_t *ends = kn_alloc(note->lists + 1, sizeof *ends);
    knnlm_status status = ends ? copy_lists(m) : KNNLM_ENOMEM;
    for (size_t i = 0; i < note->run_count && status == KNNLM_OK; i++)
        status = write_run(m, i, &note->runs[i], ends);
    free(ends);
    return status;
}

static knnlm_status rearrange(rearranging *m, const kn_store *base, char **text, uint64_t *arranged) {
    kn_index_note note;
    KN_TRY(kn_index_note_parse(kn_store_describe(base)->path, kn_store_annex_note(base), &note));
    m->note = note;
    m->note.runs = NULL;
    m->note.run_count = m->note.run_capacity = 0;
    m->note.learnt = kn_renumbering_of(m->n, note.learnt < m->n->entries ? note.learnt : m->n->entries);
    knnlm_status status = write_runs(m, &note);
    if (status == KNNLM_OK && !m->note.run_count) status = kn_fail(KNNLM_EDATA, "nothing is left to index");
    if (status == KNNLM_OK) status = kn_index_note_print(&m->note, text);
    if (status == KNNLM_OK && m->x->info.has_keys) {
        const kn_run_note *last = &m->note.runs[m->note.run_count - 1];
        *arranged = last->first + last->entries;
    }
    kn_index_note_free(&m->note);
    kn_index_note_free(&note);
    return status;
}

knnlm_status kn_index_rearrange(const kn_store *base, const kn_renumbering *n, kn_annex_writer *a,
                                const kn_progress *progress, char **note, uint64_t *arranged) {
    kn_index *x;
    const kn_store_info *info = kn_store_describe(base);
    KN_TRY(kn_index_open(base, &x));
    rearranging m = {.x = x, .n = n, .a = a, .progress = progress};
    // Of version 1, whose index has copies of the keys: made anew, with the keys once.
    bool once = info->settings.key_type == KNNLM_KEYS_NONE || info->arranged == x->info.listed;
    knnlm_status status = once ? rearrange(&m, base, note, arranged)
                               : kn_fail(KNNLM_EDATA, "%s: its keys are there twice", info->path);
    kn_index_close(x);
    return status;
}
