// Entries of the base written once more as they are: by compaction, and for a document whose content the
// store has under another name.
#include "store/writer.h"

#include <inttypes.h>
#include <string.h>

static knnlm_status put_key(kn_store_writer *w, uint64_t id, size_t row, float *scale) {
    const uint8_t *key;
    KN_TRY(kn_store_key_at(w->base, id, &key, scale));
    return kn_part_put(w->filling->keys, key, row);
}

static knnlm_status put_keys(kn_store_writer *w, const kn_store_segment *g, uint64_t from, size_t n) {
    kn_filling *f = w->filling;
    size_t row = kn_key_row_bytes(w->settings.key_type, (size_t)w->settings.dimension);
    if (kn_key_form_of(w->settings.key_type)->scaled)
        KN_TRY(kn_grow(&f->scales, &f->scales_capacity, f->entries + n, sizeof *f->scales));
    if (g->scales) memcpy(f->scales + f->entries, g->scales + from, n * sizeof *f->scales);
    if (g->keys) return kn_part_put(f->keys, (const uint8_t *)g->keys + from * row, n * row);
    for (size_t i = 0; i < n; i++) { // they lie in the order of lists
        float scale;
        KN_TRY(put_key(w, g->first + from + i, row, &scale));
        if (f->scales) f->scales[f->entries + i] = scale;
    }
    return KNNLM_OK;
}

// Entries [from, from + n) of a segment, as they are; the segment at hand has room for them.
static knnlm_status put_raw(kn_store_writer *w, const kn_store_segment *g, uint64_t from, size_t n) {
    KN_TRY(kn_writer_reserve(w, n));
    kn_filling *f = w->filling;
    memcpy(f->tokens + f->entries, g->tokens + from, n * sizeof *f->tokens);
    memcpy(f->offsets + f->entries, g->offsets + from, n * sizeof *f->offsets);
    if (f->keys) KN_TRY(put_keys(w, g, from, n));
    return kn_writer_count(w, n);
}

knnlm_status kn_writer_copy(kn_store_writer *w, size_t segment, uint64_t from, uint64_t n) {
    kn_store_segment view = kn_store_segment_at(w->base, segment);
    // Keys that are in the annex already were checked on the way there.
    KN_TRY(kn_segment_check_tokens(w->base, &w->base->segments[segment], from, n));
    if (w->entries >= w->arranged_to) KN_TRY(kn_store_check_keys(w->base, view.first + from, n));
    while (n) {
        size_t step = kn_min((size_t)n, kn_writer_room(w));
        KN_TRY(put_raw(w, &view, from, step));
        from += step;
        n -= step;
    }
    return KNNLM_OK;
}

knnlm_status kn_writer_copy_begun(kn_store_writer *w, size_t segment, uint64_t number) {
    const kn_segment *g = &w->base->segments[segment];
    kn_store_document d;
    KN_TRY(kn_segment_check_record(w->base, g, number - g->entry.first_document));
    KN_TRY(kn_store_document_at(w->base, number, &d));
    KN_TRY(kn_writer_record(w, &d));
    w->documents++;
    uint64_t from = d.first - g->entry.first_entry;
    return kn_writer_copy(w, segment, from, kn_min((size_t)d.count, (size_t)(g->entry.entries - from)));
}

// ---------------------------------------------------------------- a document

// Calls `take` for each segment that entries [first, first + count) of the store lie in.
typedef knnlm_status take_run(void *context, const kn_store *s, size_t segment, uint64_t from, uint64_t n);

static knnlm_status for_runs(const kn_store *s, uint64_t first, uint64_t count, take_run *take,
                             void *context) {
    for (size_t at = count ? kn_store_find_segment(s, first) : 0; count; at++) {
        const kn_segment_entry *e = &s->segments[at].entry;
        uint64_t from = first - e->first_entry, n = kn_min((size_t)count, (size_t)(e->entries - from));
        KN_TRY(take(context, s, at, from, n));
        first += n;
        count -= n;
    }
    return KNNLM_OK;
}

static knnlm_status check_run(void *context, const kn_store *s, size_t segment, uint64_t from, uint64_t n) {
    (void)context;
    return kn_segment_check_entries(s, &s->segments[segment], from, n);
}

bool kn_store_document_intact(const kn_store *s, uint64_t number) {
    kn_store_document d;
    if (kn_store_document_at(s, number, &d) != KNNLM_OK || d.count != d.tokens) return false;
    const kn_segment *g = &s->segments[kn_store_find_document_segment(s, number)];
    return kn_segment_check_record(s, g, number - g->entry.first_document) == KNNLM_OK &&
           for_runs(s, d.first, d.count, check_run, NULL) == KNNLM_OK;
}

static knnlm_status copy_run(void *context, const kn_store *s, size_t segment, uint64_t from, uint64_t n) {
    kn_store_writer *w = context;
    (void)s;
    w->document_done += n;
    return kn_writer_copy(w, segment, from, n);
}

knnlm_status kn_store_writer_copy(kn_store_writer *w, uint64_t document, const kn_store_document *about) {
    kn_store_document d, copy = *about;
    if (!w->base) return kn_fail(KNNLM_EINVAL, "%s: is new: there is nothing to copy", w->path);
    KN_TRY(kn_store_document_at(w->base, document, &d));
    if (d.count != d.tokens)
        return kn_fail(KNNLM_EINVAL, "%s: document %" PRIu64 " is not whole", w->path, document);
    copy.bytes = d.bytes;
    copy.tokens = d.tokens;
    copy.has_offsets = d.has_offsets;
    memcpy(copy.hash, d.hash, sizeof copy.hash);
    KN_TRY(kn_store_writer_document(w, &copy));
    return kn_writer_keep(w, for_runs(w->base, d.first, d.count, copy_run, w));
}
