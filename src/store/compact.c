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
    size_t first;            // segment to write again
    bool *text_ok, *keys_ok; // blocks of the segment at hand that were found intact
    size_t text_room, keys_room;
} compaction;

// ---------------------------------------------------------------- what to write again

static size_t first_changed(const kn_store *s) {
    size_t count = s->manifest.segment_count, first = count;
    for (size_t i = 0; i + 1 < count && first == count; i++)
        if (s->segments[i].entry.entries < s->manifest.settings.segment) first = i;
    for (uint64_t d = 0; s->removed_bits && d < s->manifest.documents; d++) {
        if (!kn_store_document_removed(s, d)) continue;
        return kn_least(first, kn_store_find_document_segment(s, d));
    }
    return first;
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
                   "%s: the copy takes up to %" PRIu64 " bytes, %" PRIu64 " are free (--force tries anyway)",
                   s->path, needed, free_bytes);
}

// ---------------------------------------------------------------- only what is intact is copied

static knnlm_status check_span(const kn_store *s, const kn_map *part, uint64_t payload, bool *ok,
                               uint64_t from, uint64_t size, uint64_t file, const char *kind) {
    for (uint64_t block = from / KN_PART_BLOCK; size && block <= (from + size - 1) / KN_PART_BLOCK; block++) {
        if (!ok[block]) ok[block] = kn_part_block_intact(part, payload, block);
        if (!ok[block])
            return kn_fail(KNNLM_EDATA, "%s/%06" PRIu64 ".%s: damaged at block %" PRIu64 " (knnlm verify %s)",
                           s->path, file, kind, block, s->path);
    }
    return KNNLM_OK;
}

static knnlm_status check_run(compaction *c, const kn_segment *g, uint64_t from, uint64_t n) {
    const kn_segment_layout *l = &g->layout;
    uint64_t file = g->entry.file,
             spans[2][2] = {{l->tokens + 4 * from, 4 * n}, {l->offsets + 4 * from, 4 * n}};
    size_t d = (size_t)c->base->manifest.settings.dimension;
    for (int i = 0; i < 2; i++)
        KN_TRY(check_span(c->base, &g->text, l->text, c->text_ok, spans[i][0], spans[i][1], file, "text"));
    if (!l->keys_payload) return KNNLM_OK;
    kn_key_type type = c->base->manifest.settings.key_type;
    size_t row = kn_key_row_bytes(type, d);
    KN_TRY(check_span(c->base, &g->keys, l->keys_payload, c->keys_ok, l->keys + row * from, row * n, file,
                      "keys"));
    if (type != KN_KEYS_INT8) return KNNLM_OK;
    return check_span(c->base, &g->keys, l->keys_payload, c->keys_ok, l->scales + 4 * from, 4 * n, file,
                      "keys");
}

// The record of a document (of the next one, too: it tells where this one ends), and its names.
static knnlm_status check_record(compaction *c, const kn_segment *g, uint64_t index) {
    const kn_segment_layout *l = &g->layout;
    uint64_t at = l->documents + index * sizeof(kn_document_record);
    uint64_t records = index + 1 < g->entry.documents ? 2 : 1;
    KN_TRY(check_span(c->base, &g->text, l->text, c->text_ok, at, records * sizeof(kn_document_record),
                      g->entry.file, "text"));
    const kn_document_record *r = (const kn_document_record *)(const void *)(g->text.data + at);
    uint64_t size = (uint64_t)r->name_size + r->path_size;
    if (r->strings > g->entry.strings || size > g->entry.strings - r->strings) return KNNLM_OK; // told later
    return check_span(c->base, &g->text, l->text, c->text_ok, l->strings + r->strings, size, g->entry.file,
                      "text");
}

// ---------------------------------------------------------------- copying

// Entries [from, from + n) of a segment, as they are; the segment at hand has room for them.
static knnlm_status put_raw(kn_store_writer *w, const kn_store_segment *g, uint64_t from, size_t n) {
    size_t d = (size_t)w->settings.dimension;
    KN_TRY(kn_writer_reserve(w, n));
    kn_filling *f = w->filling;
    memcpy(f->tokens + f->entries, g->tokens + from, n * sizeof *f->tokens);
    memcpy(f->offsets + f->entries, g->offsets + from, n * sizeof *f->offsets);
    size_t row = kn_key_row_bytes(w->settings.key_type, d);
    if (f->keys) KN_TRY(kn_part_put(f->keys, (const uint8_t *)g->keys + from * row, n * row));
    if (g->scales) {
        KN_TRY(kn_grow(&f->scales, &f->scales_capacity, f->entries + n, sizeof *f->scales));
        memcpy(f->scales + f->entries, g->scales + from, n * sizeof *f->scales);
    }
    return kn_writer_count(w, n);
}

static knnlm_status copy_run(compaction *c, size_t segment, uint64_t from, uint64_t n) {
    kn_store_segment view = kn_store_segment_at(c->base, segment);
    KN_TRY(check_run(c, &c->base->segments[segment], from, n));
    while (n) {
        size_t room = c->w->settings.segment - (c->w->filling ? c->w->filling->entries : 0);
        size_t step = kn_least((size_t)n, room);
        KN_TRY(put_raw(c->w, &view, from, step));
        from += step;
        n -= step;
    }
    return KNNLM_OK;
}

static knnlm_status copy_document(compaction *c, size_t segment, uint64_t number) {
    const kn_segment_entry *e = &c->base->segments[segment].entry;
    kn_store_document d;
    if (kn_store_document_removed(c->base, number)) return KNNLM_OK;
    KN_TRY(check_record(c, &c->base->segments[segment], number - e->first_document));
    KN_TRY(kn_store_document_at(c->base, number, &d));
    KN_TRY(kn_writer_record(c->w, &d));
    c->w->documents++;
    uint64_t from = d.first - e->first_entry;
    return copy_run(c, segment, from, kn_least((size_t)d.count, (size_t)(e->entries - from)));
}

static knnlm_status forget_blocks(compaction *c, const kn_segment *g) {
    size_t text = kn_part_blocks(g->layout.text), keys = kn_part_blocks(g->layout.keys_payload);
    KN_TRY(kn_grow(&c->text_ok, &c->text_room, text, sizeof *c->text_ok));
    KN_TRY(kn_grow(&c->keys_ok, &c->keys_room, keys, sizeof *c->keys_ok));
    memset(c->text_ok, 0, text * sizeof *c->text_ok);
    if (keys) memset(c->keys_ok, 0, keys * sizeof *c->keys_ok);
    return KNNLM_OK;
}

static knnlm_status copy_segment(compaction *c, size_t i) {
    const kn_segment *g = &c->base->segments[i];
    const kn_segment_entry *e = &g->entry;
    KN_TRY(forget_blocks(c, g));
    if (e->continued && !kn_store_document_removed(c->base, e->first_document - 1))
        KN_TRY(copy_run(c, i, 0, e->continued));
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
                            kn_store_compacted *out) {
    compaction c = {.w = w, .base = w->base, .progress = progress, .first = first_changed(w->base)};
    const kn_store_info *before = kn_store_describe(w->base);
    *out = (kn_store_compacted){.bytes_before = before->bytes,
                                .bytes_after = before->bytes,
                                .segments_before = before->segments,
                                .segments_after = before->segments};
    if (c.first == w->base->manifest.segment_count) return KNNLM_OK;
    if (w->base->manifest.settings.key_type == KN_KEYS_NONE && w->base->manifest.annex.note && !force)
        return kn_fail(KNNLM_EINVAL,
                       "%s: keeps no keys, and compaction drops its index: only the model could make it anew "
                       "(--force compacts all the same)",
                       w->base->path);
    KN_TRY(check_space(w->base, c.first, force));
    knnlm_status status = rewrite(&c);
    free(c.text_ok);
    free(c.keys_ok);
    if (status != KNNLM_OK) return status;
    out->entries_dropped = before->removed_entries;
    out->documents_dropped = before->removed_documents;
    return KNNLM_OK;
}

static void measure(const char *path, kn_store_compacted *out) {
    kn_store *after;
    if (kn_store_open(path, &after) != KNNLM_OK) return; // it was committed all the same
    out->bytes_after = kn_store_describe(after)->bytes;
    out->segments_after = kn_store_describe(after)->segments;
    kn_store_close(after);
}

knnlm_status kn_store_compact(const char *path, bool force, const kn_progress *progress,
                              kn_store_compacted *out) {
    kn_store_writer *w;
    *out = (kn_store_compacted){0};
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
