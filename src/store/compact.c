// Compaction: what is left is written again, from the first segment that is not as a fresh build would leave
// it. One commit at the end replaces the old segments by the new.
#include "store/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct compaction {
    kn_store_writer *w;
    const kn_store *base;
    const kn_progress *progress;
    size_t first;    // segment to write again
    uint64_t *kept;  // a bit per entry
    uint32_t *ranks; // of every 512th
    kn_annex annex;  // of what is kept
} compaction;

// ---------------------------------------------------------------- what to write again

static size_t first_changed(const kn_store *s) {
    size_t count = s->manifest.segment_count, first = count;
    for (size_t i = 0; i + 1 < count && first == count && !s->manifest.annex.arranged; i++)
        if (s->segments[i].entry.entries < s->manifest.settings.segment) first = i;
    for (uint64_t d = 0; s->removed_bits && d < s->manifest.documents; d++) {
        if (!kn_store_document_removed(s, d)) continue;
        return kn_min(first, kn_store_find_document_segment(s, d));
    }
    return first;
}

static knnlm_status check_space(const kn_store *s, size_t first, bool force) {
    uint64_t bytes = 0, free_bytes;
    if (force) return KNNLM_OK;
    for (size_t i = first; i < s->manifest.segment_count; i++)
        bytes += s->segments[i].text.size + s->segments[i].keys.size;
    for (size_t i = 0; i < s->manifest.annex.count; i++) bytes += s->annex[i].size;
    double left =
        s->manifest.entries ? 1 - (double)s->manifest.removed.entries / (double)s->manifest.entries : 1;
    uint64_t needed = (uint64_t)((double)bytes * left);
    char *inside = kn_store_file(s->path, KN_STORE_MANIFEST); // the store may be a file system of its own
    knnlm_status status = inside ? kn_disk_free(inside, &free_bytes) : KNNLM_ENOMEM;
    free(inside);
    KN_TRY(status);
    if (needed <= free_bytes) return KNNLM_OK;
    return kn_fail(KNNLM_EIO,
                   "%s: the copy takes up to %" PRIu64 " bytes, %" PRIu64 " are free (`force` tries anyway)",
                   s->path, needed, free_bytes);
}

// ---------------------------------------------------------------- copying: only what is intact

static knnlm_status copy_segment(compaction *c, size_t i) {
    const kn_segment *g = &c->base->segments[i];
    const kn_segment_entry *e = &g->entry;
    if (e->continued && !kn_store_document_removed(c->base, e->first_document - 1))
        KN_TRY(kn_writer_copy(c->w, i, 0, e->continued));
    for (uint64_t d = e->first_document; d < e->first_document + e->documents; d++)
        if (!kn_store_document_removed(c->base, d)) KN_TRY(kn_writer_copy_begun(c->w, i, d));
    kn_map_release(&g->keys, 0, g->keys.size);
    if (kn_progress_report(c->progress, "compacting", e->first_entry + e->entries, c->base->manifest.entries,
                           "entries"))
        return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "stopped: %s is as it was", c->base->path);
}

// ---------------------------------------------------------------- the annex

enum { RANKED = 512 }; // entries

uint64_t kn_renumbering_of(const kn_renumbering *n, uint64_t id) {
    uint64_t rank = n->ranks[id / RANKED], word = id / RANKED * (RANKED / 64);
    for (; word < id / 64; word++) rank += (uint64_t)__builtin_popcountll(n->kept[word]);
    uint64_t before = ((uint64_t)1 << id % 64) - 1;
    return before ? rank + (uint64_t)__builtin_popcountll(n->kept[id / 64] & before) : rank;
}

static void drop_entries(compaction *c, uint64_t first, uint64_t count) {
    for (uint64_t id = first; id < first + count; id++) c->kept[id / 64] &= ~((uint64_t)1 << id % 64);
}

static knnlm_status renumber(compaction *c, kn_renumbering *out) {
    const kn_manifest *m = &c->base->manifest;
    size_t words = (size_t)(m->entries / 64 + 1), ranks = (size_t)(m->entries / RANKED + 1);
    c->kept = kn_alloc(words, sizeof *c->kept);
    c->ranks = kn_alloc(ranks, sizeof *c->ranks);
    if (!c->kept || !c->ranks) return KNNLM_ENOMEM;
    for (uint64_t id = 0; id < m->entries; id++) c->kept[id / 64] |= (uint64_t)1 << id % 64;
    for (uint64_t i = 0; i < m->documents; i++) {
        kn_store_document d;
        if (kn_store_document_removed(c->base, i) && kn_store_document_at(c->base, i, &d) == KNNLM_OK)
            drop_entries(c, d.first, d.count);
    }
    for (size_t word = 0, rank = 0; word < words; word++) {
        if (word % (RANKED / 64) == 0) c->ranks[word / (RANKED / 64)] = (uint32_t)rank;
        rank += (size_t)__builtin_popcountll(c->kept[word]);
    }
    *out = (kn_renumbering){.entries = m->entries, .kept = c->kept, .ranks = c->ranks};
    return KNNLM_OK;
}

// Entries of records that cannot be read are nobody's: what they are renumbered to would be another's.
static void count_lost(void *context, uint64_t first, uint64_t count) {
    (void)first;
    *(uint64_t *)context += count;
}

// *kept: whether there is an annex of what is left.
static knnlm_status rearrange(compaction *c, kn_rearrange *with, bool *kept) {
    kn_renumbering n;
    kn_annex_writer *a;
    char *note = NULL;
    uint64_t arranged = 0, lost = 0;
    *kept = false;
    kn_store_find_lost(c->base, count_lost, &lost);
    if (!with || !c->base->manifest.annex.note || lost) return KNNLM_OK;
    KN_TRY(renumber(c, &n));
    KN_TRY(kn_annex_open(c->w, 0, &a));
    knnlm_status status = with(c->base, &n, a, c->progress, &note, &arranged);
    if (status != KNNLM_OK) {
        kn_annex_abort(a);
        free(note);
        return status == KNNLM_EDATA ? KNNLM_OK : status;
    }
    kn_annex_take(a, note, arranged, &c->annex);
    *kept = true;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the whole

// The manifest as if the segments from `first` on had never been.
static void cut_manifest(compaction *c) {
    kn_store_writer *w = c->w;
    kn_manifest *m = &w->manifest;
    if (c->first < m->segment_count) {
        m->entries = m->segments[c->first].first_entry;
        m->documents = m->segments[c->first].first_document;
    }
    m->segment_count = c->first;
    m->removed = (kn_removed_entry){0};
    kn_annex_free(&m->annex); // entries get other numbers
    m->annex = c->annex;
    c->annex = (kn_annex){0};
    w->arranged_to = m->annex.arranged;
    w->entries = m->entries;
    w->documents = m->documents;
}

static knnlm_status rewrite(compaction *c, kn_rearrange *with, bool force) {
    kn_store_writer *w = c->w;
    bool kept;
    knnlm_status known = kn_store_writer_recover(w);
    if (known != KNNLM_OK && known != KNNLM_EDATA) return known; // what cannot be found may have been removed
    KN_TRY(rearrange(c, with, &kept));
    const kn_manifest *base = &c->base->manifest;
    if (!kept && base->settings.key_type == KNNLM_KEYS_NONE && base->annex.note && !force)
        return kn_fail(KNNLM_EINVAL,
                       "%s: keeps no keys, and compaction drops its index: only the model could make it anew "
                       "(`force` compacts all the same)",
                       w->base->path);
    if (!kept && base->annex.arranged) c->first = 0; // keys go back to their segments
    cut_manifest(c);
    w->hold = true;
    for (size_t i = c->first; i < base->segment_count; i++) KN_TRY(copy_segment(c, i));
    w->hold = false;
    KN_TRY(kn_writer_queue_commit(w, base->complete));
    return kn_spool_drain(w->spool);
}

static void compaction_free(compaction *c) {
    free(c->kept);
    free(c->ranks);
    kn_annex_free(&c->annex);
}

// By the manifest that is on disk now, whichever it is.
static void sweep_now(const char *path) {
    kn_store *now;
    if (kn_store_open(path, &now) != KNNLM_OK) return;
    kn_store_sweep(path, &now->manifest);
    kn_store_close(now);
}

static knnlm_status compact(kn_store_writer *w, bool force, kn_rearrange *with, const kn_progress *progress,
                            knnlm_compact_result *out) {
    compaction c = {.w = w, .base = w->base, .progress = progress, .first = first_changed(w->base)};
    const kn_store_info *before = kn_store_describe(w->base);
    *out = (knnlm_compact_result){.bytes_before = before->bytes,
                                  .bytes_after = before->bytes,
                                  .segments_before = before->segments,
                                  .segments_after = before->segments};
    if (c.first == w->base->manifest.segment_count) return KNNLM_OK;
    KN_TRY(check_space(w->base, c.first, force));
    knnlm_status status = rewrite(&c, with, force);
    compaction_free(&c);
    if (status != KNNLM_OK) return status;
    out->entries_dropped = before->removed_entries;
    out->documents_dropped = before->removed_documents;
    return KNNLM_OK;
}

static void measure(const char *path, knnlm_compact_result *out) {
    kn_store *after;
    if (kn_store_open(path, &after) != KNNLM_OK) return; // it was committed all the same
    out->bytes_after = kn_store_describe(after)->bytes;
    out->segments_after = kn_store_describe(after)->segments;
    kn_store_close(after);
}

knnlm_status kn_store_compact(const char *path, bool force, kn_rearrange *with, const kn_progress *progress,
                              knnlm_compact_result *out) {
    kn_store_writer *w;
    *out = (knnlm_compact_result){0};
    KN_TRY(kn_store_write(path, &w));
    knnlm_status status = compact(w, force, with, progress, out);
    char *message = status == KNNLM_OK ? NULL : strdup(knnlm_message());
    if (kn_spool_drain(w->spool) == KNNLM_OK || status != KNNLM_OK) sweep_now(path);
    if (message) kn_fail(status, "%s", message); // of the cause, not of the sweeping
    free(message);
    kn_store_writer_close(w);
    if (status == KNNLM_OK) measure(path, out);
    return status;
}
