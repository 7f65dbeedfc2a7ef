// Reads and writes what an index keeps in the store's files, part by part.
#include "store/sharded.h"
#include "store/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- reading

const char *kn_store_annex_note(const kn_store *s) {
    return s->sharded ? kn_sharded_note(s) : s->manifest.annex.note;
}

const char *kn_store_annex_fault(const kn_store *s) {
    return s->annex_fault;
}

size_t kn_store_annex_parts(const kn_store *s) {
    return s->manifest.annex.count;
}

kn_store_annex_part kn_store_annex_at(const kn_store *s, size_t number) {
    const kn_annex_part *p = &s->manifest.annex.parts[number];
    return (kn_store_annex_part){.kind = p->kind,
                                 .count = p->count,
                                 .data = s->annex[number].data + KN_PART_HEADER,
                                 .size = (size_t)(p->payload - KN_PART_HEADER)};
}

void kn_store_annex_prefetch(const kn_store *s, size_t number, size_t offset, size_t size) {
    kn_map_prefetch(&s->annex[number], offset + KN_PART_HEADER, size);
}

void kn_store_segment_prefetch(const kn_store *s, size_t number, uint64_t first, uint64_t count) {
    const kn_segment *g = &s->segments[number];
    const kn_store_settings *set = &s->manifest.settings;
    size_t row = kn_key_row_bytes(set->key_type, (size_t)set->dimension);
    if (g->keys.data)
        kn_map_prefetch(&g->keys, g->layout.keys + (first - g->entry.first_entry) * row, count * row);
}

void kn_store_release_keys(const kn_store *s) {
    for (size_t i = 0; i < s->manifest.segment_count; i++)
        if (s->segments[i].keys.data) kn_map_release(&s->segments[i].keys, 0, s->segments[i].keys.size);
    for (size_t i = 0; i < s->manifest.annex.count; i++) kn_map_release(&s->annex[i], 0, s->annex[i].size);
}

// ---------------------------------------------------------------- writing

struct kn_annex_writer {
    kn_store_writer *w;
    kn_annex annex;
    kn_part_writer *part; // NULL between parts
    kn_annex_part entry;
};

knnlm_status kn_annex_open(kn_store_writer *w, size_t keep, kn_annex_writer **out) {
    kn_annex_writer *a = kn_alloc(1, sizeof *a);
    if (!a) return KNNLM_ENOMEM;
    a->w = w;
    knnlm_status status = keep ? kn_annex_copy(&w->manifest.annex, &a->annex) : KNNLM_OK;
    if (status != KNNLM_OK) {
        free(a);
        return status;
    }
    a->annex.count = kn_min(a->annex.count, keep);
    *out = a;
    return KNNLM_OK;
}

knnlm_status kn_annex_begin(kn_annex_writer *a, const char *kind) {
    a->entry = (kn_annex_part){.file = a->w->next_file++};
    strncpy(a->entry.kind, kind, KN_ANNEX_KIND - 1);
    char *path = kn_store_part_file(a->w->path, a->entry.file, kind);
    if (!path) return KNNLM_ENOMEM;
    knnlm_status status = kn_part_create(path, KN_PART_ANNEX, a->w->spool, &a->part);
    free(path);
    return status;
}

knnlm_status kn_annex_put(kn_annex_writer *a, const void *data, size_t size) {
    return kn_part_put(a->part, data, size);
}

knnlm_status kn_annex_pad(kn_annex_writer *a) {
    return kn_part_pad(a->part);
}

knnlm_status kn_annex_seal(kn_annex_writer *a, uint64_t count) {
    KN_TRY(kn_part_pad(a->part));
    KN_TRY(kn_spool_drain(a->w->spool));
    a->entry.count = count;
    a->entry.payload = kn_part_written(a->part);
    kn_part_take_over(a->part);
    KN_TRY(kn_part_seal(a->part, count, &a->entry.seal));
    KN_TRY(kn_annex_add(&a->annex, &a->entry));
    kn_part_free(a->part);
    a->part = NULL;
    return KNNLM_OK;
}

knnlm_status kn_annex_commit(kn_annex_writer *a, const char *note, uint64_t arranged) {
    kn_store_writer *w = a->w;
    kn_annex before = w->manifest.annex;
    if (arranged < before.arranged) { // nobody else has those keys
        kn_annex_abort(a);
        return kn_fail(KNNLM_EINVAL, "%s: an index of fewer keys than it has alone", w->path);
    }
    char *copy = kn_strdup(note);
    if (!copy) {
        kn_annex_abort(a);
        return KNNLM_ENOMEM;
    }
    knnlm_status joined = arranged ? kn_writer_join_texts(w, arranged) : KNNLM_OK;
    if (joined != KNNLM_OK) {
        free(copy);
        kn_annex_abort(a);
        return joined;
    }
    free(a->annex.note);
    a->annex.note = copy;
    a->annex.arranged = arranged;
    w->manifest.annex = a->annex;
    a->annex = (kn_annex){0};
    kn_annex_abort(a);
    w->changed = true;
    knnlm_status status = kn_store_writer_amend(w);
    if (status == KNNLM_OK) kn_store_sweep(w->path, &w->manifest);
    kn_annex_free(&before);
    return status;
}

void kn_annex_take(kn_annex_writer *a, char *note, uint64_t arranged, kn_annex *out) {
    free(a->annex.note);
    *out = a->annex;
    out->note = note;
    out->arranged = arranged;
    a->annex = (kn_annex){0};
    kn_annex_abort(a);
}

void kn_annex_abort(kn_annex_writer *a) {
    if (!a) return;
    kn_spool_drain(a->w->spool); // blocks of the part may be on their way
    kn_part_free(a->part);
    kn_annex_free(&a->annex);
    free(a);
}
