// Finds segments, documents and entries by number, and reads tokens, offsets and keys.
#include "store/sharded.h"

#include "base/convert.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- finding

size_t kn_store_find_segment(const kn_store *s, uint64_t entry) {
    size_t low = 0, high = s->manifest.segment_count - 1;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (s->segments[middle].entry.first_entry <= entry)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// Segments in which no document begins share their first document with the next: the last of them is asked
// for, the one whose range holds the number.
size_t kn_store_find_document_segment(const kn_store *s, uint64_t document) {
    size_t low = 0, high = s->manifest.segment_count - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const kn_segment_entry *e = &s->segments[middle].entry;
        if (e->first_document + e->documents > document)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static const kn_document_record *record_at(const kn_segment *g, size_t i) {
    return (const kn_document_record *)(const void *)(g->text.data + g->layout.documents) + i;
}

static const int32_t *tokens_of(const kn_segment *g) {
    return (const int32_t *)(const void *)(g->text.data + g->layout.tokens);
}

static const uint32_t *offsets_of(const kn_segment *g) {
    return (const uint32_t *)(const void *)(g->text.data + g->layout.offsets);
}

kn_store_segment kn_store_segment_at(const kn_store *s, size_t number) {
    const kn_segment *g = &s->segments[number];
    bool keys = g->layout.keys_payload != 0;
    bool scaled = keys && kn_key_form_of(s->manifest.settings.key_type)->scaled;
    return (kn_store_segment){
        .first = g->entry.first_entry,
        .count = g->entry.entries,
        .first_document = g->entry.first_document,
        .document_count = g->entry.documents,
        .file = g->entry.file,
        .text_seal = g->entry.text_seal,
        .keys_seal = g->entry.keys_seal,
        .bytes = g->text.size + g->keys.size,
        .tokens = tokens_of(g),
        .offsets = offsets_of(g),
        .keys = keys ? g->keys.data + g->layout.keys : NULL,
        .scales = scaled ? (const float *)(const void *)(g->keys.data + g->layout.scales) : NULL};
}

// ---------------------------------------------------------------- documents

static knnlm_status damaged_record(const kn_store *s, uint64_t number) {
    return kn_fail(KNNLM_EDATA, "%s: the record of document %" PRIu64 " is damaged (`knnlm_store_verify` %s)",
                   s->path, number, s->path);
}

static knnlm_status lost_entry(const kn_store *s, uint64_t id) {
    return kn_fail(KNNLM_EDATA,
                   "%s: the record of the document of entry %" PRIu64 " is damaged (`knnlm_store_verify` %s)",
                   s->path, id, s->path);
}

// Entries of the last document of a segment beyond that segment.
static uint64_t carried_after(const kn_store *s, size_t segment) {
    return segment + 1 < s->manifest.segment_count ? s->segments[segment + 1].carried : 0;
}

// Whether a record could be one.
static bool is_sound(const kn_segment *g, const kn_document_record *r) {
    uint64_t strings = (uint64_t)r->name_size + r->path_size;
    return r->first <= g->entry.entries && r->strings <= g->entry.strings &&
           strings <= g->entry.strings - r->strings;
}

// Whether record i has no more entries than tokens up to the next, as far as that can be told.
static bool is_plausible(const kn_segment *g, uint64_t i) {
    const kn_document_record *r = record_at(g, i);
    bool last = i + 1 == g->entry.documents;
    if (!is_sound(g, r)) return false;
    if (!last && !is_sound(g, r + 1)) return true;
    uint64_t end = last ? g->entry.entries : r[1].first;
    return end >= r->first && end - r->first <= r->tokens;
}

// Where document i of the segment ends in it: where the next begins, or, if that record is damaged, after its
// own number of tokens. So a damaged record costs no other document.
static uint64_t end_of(const kn_segment *g, uint64_t i) {
    const kn_document_record *r = record_at(g, i);
    if (i + 1 == g->entry.documents) return g->entry.entries;
    return is_plausible(g, i + 1) && r[1].first >= r->first ? r[1].first : r->first + r->tokens;
}

static bool read_document(const kn_store *s, size_t at, uint64_t i, kn_store_document *out) {
    const kn_segment *g = &s->segments[at];
    const kn_document_record *r = record_at(g, i);
    if (!is_sound(g, r)) return false;
    uint64_t end = end_of(g, i), number = g->entry.first_document + i;
    if (end > g->entry.entries || r->first > end) return false;
    const char *text = (const char *)g->text.data + g->layout.strings + r->strings;
    *out = (kn_store_document){.name = text,
                               .path = text + r->name_size,
                               .name_size = r->name_size,
                               .path_size = r->path_size,
                               .source_offset = r->source_offset,
                               .bytes = r->bytes,
                               .tokens = r->tokens,
                               .hash = {r->hash[0], r->hash[1]},
                               .added = r->added,
                               .has_offsets = (r->flags & KN_DOCUMENT_OFFSETS) != 0,
                               .order = r->flags >> KN_DOCUMENT_ORDER_SHIFT,
                               .first = g->entry.first_entry + r->first,
                               .count =
                                   end - r->first + (i + 1 == g->entry.documents ? carried_after(s, at) : 0),
                               .removed = kn_store_document_removed(s, number)};
    return out->count <= out->tokens;
}

knnlm_status kn_store_document_at(const kn_store *s, uint64_t number, kn_store_document *out) {
    if (s->sharded) return kn_sharded_document_at(s, number, out);
    if (number >= s->manifest.documents)
        return kn_fail(KNNLM_EINVAL, "%s: no document %" PRIu64 ": there are %" PRIu64, s->path, number,
                       s->manifest.documents);
    size_t at = kn_store_find_document_segment(s, number);
    return read_document(s, at, number - s->segments[at].entry.first_document, out)
               ? KNNLM_OK
               : damaged_record(s, number);
}

// Entries of one segment that lie between documents that can be read. *whole: whether the document begun last
// before it can be.
static void find_lost_in(const kn_store *s, size_t at, bool *whole, kn_lost_entries *found, void *context) {
    const kn_segment_entry *e = &s->segments[at].entry;
    uint64_t next = e->first_entry + (*whole ? e->continued : 0), end = e->first_entry + e->entries;
    for (uint64_t i = 0; i < e->documents; i++) {
        kn_store_document d;
        *whole = read_document(s, at, i, &d);
        if (!*whole) continue;
        if (d.first > next) found(context, next, d.first - next);
        next = d.first + d.count < end ? d.first + d.count : end;
    }
    if (next < end) found(context, next, end - next);
}

void kn_store_find_lost(const kn_store *s, kn_lost_entries *found, void *context) {
    bool whole = true;
    for (size_t at = 0; at < s->manifest.segment_count; at++) find_lost_in(s, at, &whole, found, context);
}

bool kn_store_document_matches(const kn_store_document *d, const char *pattern) {
    if (strlen(pattern) == d->name_size && memcmp(pattern, d->name, d->name_size) == 0) return true;
    char *name = kn_strndup(d->name, d->name_size);
    bool match = name && fnmatch(pattern, name, 0) == 0;
    free(name);
    return match;
}

bool kn_store_document_removed(const kn_store *s, uint64_t number) {
    if (s->sharded) return kn_sharded_document_removed(s, number);
    return s->removed_bits && number < s->manifest.documents &&
           (s->removed_bits[number / 64] >> number % 64 & 1);
}

// ---------------------------------------------------------------- entries

static bool holds(const kn_store_document *d, uint64_t id) {
    return id >= d->first && id - d->first < d->count;
}

// The document of entry `id`, of segment `at`, begun there. Records stand in the order of their entries, but
// where one is damaged that is not to be relied on: then all are looked at.
static bool find_begun(const kn_store *s, size_t at, uint64_t id, uint64_t *i, kn_store_document *out) {
    const kn_segment *g = &s->segments[at];
    uint64_t low = 0, high = g->entry.documents;
    while (low < high) { // the last that begins at or before it: empty documents begin where the next does
        uint64_t middle = (low + high) / 2;
        if (record_at(g, middle)->first <= id - g->entry.first_entry)
            low = middle + 1;
        else
            high = middle;
    }
    *i = low - 1;
    if (low > 0 && read_document(s, at, *i, out) && holds(out, id)) return true;
    for (*i = 0; *i < g->entry.documents; ++*i)
        if (read_document(s, at, *i, out) && holds(out, id)) return true;
    return false;
}

// The document of entry `id`, of segment `at`; false when none can be read that has it.
static bool find_document(const kn_store *s, size_t at, uint64_t id, uint64_t *document,
                          kn_store_document *out) {
    const kn_segment_entry *e = &s->segments[at].entry;
    uint64_t i = 0;
    if (id - e->first_entry >= e->continued) {
        bool found = find_begun(s, at, id, &i, out);
        *document = e->first_document + i;
        return found;
    }
    *document = e->first_document - 1;
    return e->first_document && kn_store_document_at(s, *document, out) == KNNLM_OK && holds(out, id);
}

static knnlm_status check_range(const kn_store *s, uint64_t first, size_t count) {
    if (first <= s->manifest.entries && count <= s->manifest.entries - first) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: no entries %" PRIu64 " to %" PRIu64 ": there are %" PRIu64, s->path,
                   first, first + count, s->manifest.entries);
}

knnlm_status kn_store_entry_at(const kn_store *s, uint64_t id, kn_store_entry *out) {
    kn_store_document d;
    uint64_t number;
    if (s->sharded) return kn_sharded_entry_at(s, id, out);
    KN_TRY(check_range(s, id, 1));
    size_t at = kn_store_find_segment(s, id);
    const kn_segment *g = &s->segments[at];
    if (!find_document(s, at, id, &number, &d)) return lost_entry(s, id);
    *out = (kn_store_entry){.id = id,
                            .token = tokens_of(g)[id - g->entry.first_entry],
                            .document = (uint32_t)number,
                            .position = id - d.first,
                            .offset = offsets_of(g)[id - g->entry.first_entry],
                            .removed = d.removed};
    return KNNLM_OK;
}

bool kn_store_entry_removed(const kn_store *s, uint64_t id) {
    uint64_t number;
    kn_store_document d;
    if (s->sharded) return kn_sharded_entry_removed(s, id);
    if (id >= s->manifest.entries) return true;
    if (!s->removed_bits) return false;
    return !find_document(s, kn_store_find_segment(s, id), id, &number, &d) || d.removed;
}

// ---------------------------------------------------------------- ranges

// Calls `copy` for each segment that [first, first + count) touches.
typedef knnlm_status copy_range(const kn_store *s, const kn_segment *g, uint64_t index, size_t count,
                                void *out, size_t done);

static knnlm_status for_range(const kn_store *s, uint64_t first, size_t count, copy_range *copy, void *out) {
    KN_TRY(check_range(s, first, count));
    size_t at = count ? kn_store_find_segment(s, first) : 0;
    for (size_t done = 0; done < count; at++) {
        const kn_segment *g = &s->segments[at];
        uint64_t index = first + done - g->entry.first_entry;
        size_t n = kn_min(count - done, (size_t)(g->entry.entries - index));
        KN_TRY(copy(s, g, index, n, out, done));
        done += n;
    }
    return KNNLM_OK;
}

static knnlm_status copy_tokens(const kn_store *s, const kn_segment *g, uint64_t index, size_t count,
                                void *out, size_t done) {
    (void)s;
    if (count) memcpy((int32_t *)out + done, tokens_of(g) + index, count * sizeof(int32_t));
    return KNNLM_OK;
}

knnlm_status kn_store_tokens(const kn_store *s, uint64_t first, size_t count, int32_t *out) {
    if (s->sharded) return kn_sharded_range(s, KN_RANGE_TOKENS, first, count, out);
    return for_range(s, first, count, copy_tokens, out);
}

static knnlm_status copy_offsets(const kn_store *s, const kn_segment *g, uint64_t index, size_t count,
                                 void *out, size_t done) {
    (void)s;
    for (size_t i = 0; i < count; i++) ((uint64_t *)out)[done + i] = offsets_of(g)[index + i];
    return KNNLM_OK;
}

knnlm_status kn_store_offsets(const kn_store *s, uint64_t first, size_t count, uint64_t *out) {
    if (s->sharded) return kn_sharded_range(s, KN_RANGE_OFFSETS, first, count, out);
    return for_range(s, first, count, copy_offsets, out);
}

static knnlm_status copy_keys(const kn_store *s, const kn_segment *g, uint64_t index, size_t count, void *out,
                              size_t done) {
    size_t d = (size_t)s->manifest.settings.dimension;
    knnlm_keys type = s->manifest.settings.key_type;
    const kn_key_form *form = kn_key_form_of(type);
    float *keys = (float *)out + done * d, scale;
    const uint8_t *key;
    for (size_t i = 0; i < count && !g->layout.keys_payload; i++) { // in the order of lists
        KN_TRY(kn_store_key_at(s, g->entry.first_entry + index + i, &key, &scale));
        form->widen(keys + i * d, key, form->scaled ? &scale : NULL, 1, d);
    }
    if (!g->layout.keys_payload) return KNNLM_OK;
    const float *scales = (const float *)(const void *)(g->keys.data + g->layout.scales);
    key = g->keys.data + g->layout.keys + index * kn_key_row_bytes(type, d);
    form->widen(keys, key, form->scaled ? scales + index : NULL, count, d);
    return KNNLM_OK;
}

knnlm_status kn_store_keys(const kn_store *s, uint64_t first, size_t count, float *out) {
    if (s->info.settings.key_type == KNNLM_KEYS_NONE)
        return kn_fail(KNNLM_ENOTSUP, "%s: keeps no keys (it was built with `keys` none)", s->path);
    if (s->sharded) return kn_sharded_range(s, KN_RANGE_KEYS, first, count, out);
    return for_range(s, first, count, copy_keys, out);
}
