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
    size_t first; // segment to write again
} compaction;

// ---------------------------------------------------------------- what to write again

static size_t first_changed(const kn_store *s) {
    size_t count = s->manifest.segment_count, first = count;
    for (size_t i = 0; i + 1 < count && first == count; i++)
        if (s->segments[i].entry.entries < s->manifest.settings.segment) first = i;
    for (uint64_t d = 0; s->removed_bits && d < s->manifest.documents; d++) {
        if (!kn_store_document_removed(s, d)) continue;
        return s->manifest.annex.arranged ? 0 : kn_min(first, kn_store_find_document_segment(s, d));
    }
    return first < count && s->manifest.annex.arranged ? 0 : first;
}

static knnlm_status check_space(const kn_store *s, size_t first, bool force) {
    uint64_t bytes = 0, free_bytes;
    if (force) return KNNLM_OK;
    for (size_t i = first; i < s->manifest.segment_count; i++)
        bytes += s->segments[i].text.size + s->segments[i].keys.size;
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

static knnlm_status copy_document(compaction *c, size_t segment, uint64_t number) {
    const kn_segment_entry *e = &c->base->segments[segment].entry;
    kn_store_document d;
    if (kn_store_document_removed(c->base, number)) return KNNLM_OK;
    KN_TRY(kn_segment_check_record(c->base, &c->base->segments[segment], number - e->first_document));
    KN_TRY(kn_store_document_at(c->base, number, &d));
    KN_TRY(kn_writer_record(c->w, &d));
    c->w->documents++;
    uint64_t from = d.first - e->first_entry;
    return kn_writer_copy(c->w, segment, from, kn_min((size_t)d.count, (size_t)(e->entries - from)));
}

static knnlm_status copy_segment(compaction *c, size_t i) {
    const kn_segment *g = &c->base->segments[i];
    const kn_segment_entry *e = &g->entry;
    if (e->continued && !kn_store_document_removed(c->base, e->first_document - 1))
        KN_TRY(kn_writer_copy(c->w, i, 0, e->continued));
    for (uint64_t d = 0; d < e->documents; d++) KN_TRY(copy_document(c, i, e->first_document + d));
    kn_map_release(&g->keys, 0, g->keys.size);
    if (kn_progress_report(c->progress, "compacting", e->first_entry + e->entries, c->base->manifest.entries,
                           "entries"))
        return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "stopped: %s is as it was", c->base->path);
}

// The manifest as if the segments from `first` on had never been.
static void cut_manifest(kn_store_writer *w, size_t first) {
    kn_manifest *m = &w->manifest;
    if (first < m->segment_count) {
        m->entries = m->segments[first].first_entry;
        m->documents = m->segments[first].first_document;
    }
    m->segment_count = first;
    m->removed = (kn_removed_entry){0};
    kn_annex_free(&m->annex); // entries get other numbers
    w->entries = m->entries;
    w->documents = m->documents;
}

static knnlm_status rewrite(compaction *c) {
    kn_store_writer *w = c->w;
    knnlm_status known = kn_store_writer_recover(w);
    if (known != KNNLM_OK && known != KNNLM_EDATA) return known; // what cannot be found may have been removed
    cut_manifest(w, c->first);
    w->hold = true;
    for (size_t i = c->first; i < c->base->manifest.segment_count; i++) KN_TRY(copy_segment(c, i));
    w->hold = false;
    KN_TRY(kn_writer_queue_commit(w, c->base->manifest.complete));
    return kn_spool_drain(w->spool);
}

// By the manifest that is on disk now, whichever it is.
static void sweep_now(const char *path) {
    kn_store *now;
    if (kn_store_open(path, &now) != KNNLM_OK) return;
    kn_store_sweep(path, &now->manifest);
    kn_store_close(now);
}

static knnlm_status compact(kn_store_writer *w, bool force, const kn_progress *progress,
                            knnlm_compact_result *out) {
    compaction c = {.w = w, .base = w->base, .progress = progress, .first = first_changed(w->base)};
    const kn_store_info *before = kn_store_describe(w->base);
    *out = (knnlm_compact_result){.bytes_before = before->bytes,
                                  .bytes_after = before->bytes,
                                  .segments_before = before->segments,
                                  .segments_after = before->segments};
    if (c.first == w->base->manifest.segment_count) return KNNLM_OK;
    if (w->base->manifest.settings.key_type == KNNLM_KEYS_NONE && w->base->manifest.annex.note && !force)
        return kn_fail(KNNLM_EINVAL,
                       "%s: keeps no keys, and compaction drops its index: only the model could make it anew "
                       "(`force` compacts all the same)",
                       w->base->path);
    KN_TRY(check_space(w->base, c.first, force));
    knnlm_status status = rewrite(&c);
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

knnlm_status kn_store_compact(const char *path, bool force, const kn_progress *progress,
                              knnlm_compact_result *out) {
    kn_store_writer *w;
    *out = (knnlm_compact_result){0};
    KN_TRY(kn_store_write(path, &w));
    knnlm_status status = compact(w, force, progress, out);
    char *message = status == KNNLM_OK ? NULL : strdup(knnlm_message());
    if (kn_spool_drain(w->spool) == KNNLM_OK || status != KNNLM_OK) sweep_now(path);
    if (message) kn_fail(status, "%s", message); // of the cause, not of the sweeping
    free(message);
    kn_store_writer_close(w);
    if (status == KNNLM_OK) measure(path, out);
    return status;
}
