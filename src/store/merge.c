// Small segments become larger ones as a store grows, as in a log-structured merge tree: ten thousand
// additions leave few files. What is merged keeps its order: numbers of entries and documents stay.
#include "store/writer.h"

#include <stdlib.h>
#include <string.h>

// A segment is merged with what follows it unless it is more than so much longer: an entry is written again
// only as often as its segment has grown by half.
enum { RATIO = 2 };

// ---------------------------------------------------------------- segments that have their keys

static bool is_intact(const kn_store *s, size_t segment) {
    const kn_segment_entry *e = &s->segments[segment].entry;
    return kn_store_check_text(s, segment) == KNNLM_OK &&
           kn_store_check_keys(s, e->first_entry, e->entries) == KNNLM_OK;
}

// The first of the last segments that go into one with `added` entries more.
static size_t tail_first(const kn_store *s, uint64_t added) {
    const kn_manifest *m = &s->manifest;
    size_t first = m->segment_count;
    for (; first; first--) {
        const kn_segment_entry *e = &m->segments[first - 1];
        if (e->first_entry < m->annex.arranged || e->entries > RATIO * added) break;
        if (added + e->entries > m->settings.segment || !is_intact(s, first - 1)) break;
        added += e->entries;
    }
    return first;
}

// One document after another, so that records and entries come in their order.
static knnlm_status copy_segment(kn_store_writer *w, size_t segment) {
    const kn_segment_entry *e = &w->base->segments[segment].entry;
    if (e->continued) KN_TRY(kn_writer_copy(w, segment, 0, e->continued));
    for (uint64_t i = 0; i < e->documents; i++)
        KN_TRY(kn_writer_copy_begun(w, segment, e->first_document + i));
    return KNNLM_OK;
}

knnlm_status kn_writer_take_tail(kn_store_writer *w, uint64_t added) {
    kn_manifest *m = &w->manifest;
    if (w->tail_taken || !w->base || !w->base->manifest.complete || w->filling) return KNNLM_OK;
    w->tail_taken = true;
    size_t first = tail_first(w->base, added), count = m->segment_count;
    if (first == count) return KNNLM_OK;
    w->entries = m->entries = m->segments[first].first_entry;
    w->documents = m->documents = m->segments[first].first_document;
    m->segment_count = first;
    w->superseded = true;
    for (size_t i = first; i < count; i++) KN_TRY(copy_segment(w, i));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- segments whose keys lie in the annex

// Segments [first, end) of the base as one.
typedef struct joining {
    kn_store_writer *w;
    size_t first, end;
    kn_segment_entry entry;
} joining;

static void measure(joining *j) {
    const kn_segment *segments = j->w->base->segments;
    j->entry = (kn_segment_entry){.file = j->w->next_file++};
    for (size_t i = j->first; i < j->end; i++) {
        const kn_segment_entry *e = &segments[i].entry;
        if (!j->entry.documents) j->entry.continued += e->continued;
        j->entry.entries += e->entries;
        j->entry.documents += e->documents;
        j->entry.strings += e->strings;
    }
}

static knnlm_status put_records(const joining *j, kn_part_writer *p) {
    uint64_t entries = 0, strings = 0;
    for (size_t i = j->first; i < j->end; i++) {
        const kn_segment *g = &j->w->base->segments[i];
        const kn_document_record *records =
            (const kn_document_record *)(const void *)(g->text.data + g->layout.documents);
        for (uint64_t d = 0; d < g->entry.documents; d++) {
            kn_document_record r = records[d];
            r.first += (uint32_t)entries;
            r.strings += strings;
            KN_TRY(kn_part_put(p, &r, sizeof r));
        }
        entries += g->entry.entries;
        strings += g->entry.strings;
    }
    return kn_part_pad(p);
}

// One more section: of each segment `size` bytes for each of its `count`s, from `at` on.
static knnlm_status put_section(const joining *j, kn_part_writer *p, size_t at, size_t count, size_t size) {
    for (size_t i = j->first; i < j->end; i++) {
        const kn_segment *g = &j->w->base->segments[i];
        uint64_t from, n;
        memcpy(&from, (const char *)&g->layout + at, sizeof from);
        memcpy(&n, (const char *)&g->entry + count, sizeof n);
        if (n) KN_TRY(kn_part_put(p, g->text.data + from, n * size));
    }
    return kn_part_pad(p);
}

static knnlm_status put_text(const joining *j, kn_part_writer *p) {
    size_t entries = offsetof(kn_segment_entry, entries), strings = offsetof(kn_segment_entry, strings);
    KN_TRY(put_section(j, p, offsetof(kn_segment_layout, tokens), entries, sizeof(int32_t)));
    KN_TRY(put_section(j, p, offsetof(kn_segment_layout, offsets), entries, sizeof(uint32_t)));
    KN_TRY(put_records(j, p));
    return put_section(j, p, offsetof(kn_segment_layout, strings), strings, 1);
}

static knnlm_status join(joining *j) {
    kn_part_writer *p;
    measure(j);
    char *path = kn_store_part_file(j->w->path, j->entry.file, "text");
    if (!path) return KNNLM_ENOMEM;
    knnlm_status status = kn_part_create(path, KN_PART_TEXT, NULL, &p);
    free(path);
    KN_TRY(status);
    status = put_text(j, p);
    if (status == KNNLM_OK) status = kn_part_seal(p, j->entry.entries, &j->entry.text_seal);
    kn_part_free(p);
    return status;
}

// The first of the segments that go into one with segment `last`. Records that a damaged text has are left
// where they are.
static size_t group_first(const kn_store *s, size_t last) {
    const kn_segment_entry *segments = s->manifest.segments;
    uint64_t total = segments[last].entries;
    size_t first = last;
    if (kn_store_check_text(s, last) != KNNLM_OK) return last;
    while (first && segments[first - 1].entries <= RATIO * total &&
           total + segments[first - 1].entries <= KN_WRITER_TEXT_MAX &&
           kn_store_check_text(s, first - 1) == KNNLM_OK)
        total += segments[--first].entries;
    return first;
}

// Groups are found from the end on, and then written from the beginning.
static knnlm_status join_groups(kn_store_writer *w, size_t end, bool *begins, kn_manifest *m) {
    for (size_t last = end; last--;) {
        last = group_first(w->base, last);
        begins[last] = true;
    }
    for (size_t first = 0; first < end;) {
        joining j = {.w = w, .first = first, .end = first + 1};
        while (j.end < end && !begins[j.end]) j.end++;
        j.entry = w->base->manifest.segments[first];
        if (j.end > first + 1) KN_TRY(join(&j));
        KN_TRY(kn_manifest_add_segment(m, &j.entry));
        first = j.end;
    }
    return KNNLM_OK;
}

knnlm_status kn_writer_join_texts(kn_store_writer *w, uint64_t arranged) {
    const kn_manifest *base = &w->base->manifest;
    kn_manifest m = {0};
    size_t end = 0;
    while (end < base->segment_count && base->segments[end].first_entry < arranged) end++;
    bool *begins = kn_alloc(end + 1, sizeof *begins);
    knnlm_status status = begins ? join_groups(w, end, begins, &m) : KNNLM_ENOMEM;
    free(begins);
    for (size_t i = end; i < base->segment_count && status == KNNLM_OK; i++)
        status = kn_manifest_add_segment(&m, &base->segments[i]);
    if (status != KNNLM_OK) {
        free(m.segments);
        return status;
    }
    free(w->manifest.segments);
    w->manifest.segments = m.segments;
    w->manifest.segment_count = m.segment_count;
    w->manifest.segment_capacity = m.segment_capacity;
    return KNNLM_OK;
}
