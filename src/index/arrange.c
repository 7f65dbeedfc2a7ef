// Assigns every entry to a list, and writes keys and codes in list order.
#include "index/arrange.h"
#include "index/pq_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 16384 }; // entries assigned at a time

void kn_arrange_free(kn_arrangement *a) {
    free(a->list);
    if (!a->room.data) free(a->codes);
    kn_scratch_file_close(&a->room);
    free(a->ends);
    free(a->nothing);
}

// What an access maps: the page and, where the system has them in memory, its neighbours.
enum { AROUND = 1 << 16 };

// Rows that an index before has are in another order: each may be anywhere.
uint64_t kn_arrange_touched(const kn_store *store, uint64_t apart) {
    const kn_store_settings *s = &kn_store_describe(store)->settings;
    uint64_t bytes = apart * kn_key_row_bytes(s->key_type, (size_t)s->dimension);
    return kn_store_annex_parts(store) || bytes > AROUND ? AROUND : bytes;
}

knnlm_status kn_arrange_keys(const kn_store *store, const kn_key_source *source, uint64_t first, size_t n,
                             float *out) {
    if (!source) KN_TRY(kn_store_check_keys(store, first, n)); // damage must not be sealed as an index
    KN_TRY(source ? source->read(source->context, first, n, out) : kn_store_keys(store, first, n, out));
    kn_arrange_keys_as_seen(store, n, out);
    return KNNLM_OK;
}

void kn_arrange_keys_as_seen(const kn_store *store, size_t n, float *out) {
    const kn_store_settings *s = &kn_store_describe(store)->settings;
    size_t d = (size_t)s->dimension;
    if (!kn_distance_form_of(s->distance)->unit) return;
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t j = 0; j < d; j++) sum += (double)out[i * d + j] * out[i * d + j];
        float inverse = sum > 0 ? (float)(1 / sqrt(sum)) : 0;
        for (size_t j = 0; j < d; j++) out[i * d + j] *= inverse;
    }
}

// ---------------------------------------------------------------- assigning

static knnlm_status stopped(void) {
    return kn_fail(KNNLM_ESTOPPED, "stopped while indexing: the store is as it was");
}

static knnlm_status assign_chunk(kn_arrangement *a, size_t at, size_t n, float *keys, float *distances) {
    size_t d = kn_quantizer_dimension(a->quantizer);
    KN_TRY(kn_arrange_keys(a->store, a->source, a->first + at, n, keys));
    KN_TRY(a->groups ? kn_groups_assign(a->groups, keys, n, a->list + at, distances)
                     : kn_quantizer_assign(a->quantizer, keys, n, a->list + at, distances));
    for (size_t i = 0; i < n; i++) a->objective += distances[i];
    if (!a->pq) return KNNLM_OK;
    const float *centroids = kn_quantizer_centroids(a->quantizer);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < d; j++) keys[i * d + j] -= centroids[a->list[at + i] * d + j];
    kn_pq_encode(a->pq, keys, n, a->codes + at * kn_pq_code_bytes(a->pq));
    return KNNLM_OK;
}

// The lists and codes of entries that have them.
static knnlm_status adopt(kn_arrangement *a, const kn_run *r) {
    const kn_index *x = a->before;
    size_t bytes = a->pq ? kn_pq_code_bytes(a->pq) : 0;
    // Damage must not be sealed once more as if it were whole.
    KN_TRY(kn_run_check_places(x, r, 0, r->count, !r->rows));
    if (r->rows && a->pq) KN_TRY(kn_run_check_places(x, r, 0, r->count, true));
    for (uint32_t l = 0; l < a->lists; l++)
        for (uint64_t place = r->ends[l]; place < r->ends[l + 1]; place++) {
            uint64_t index = r->ids[place] - a->first;
            if (index >= a->count)
                return kn_fail(KNNLM_EDATA, "%s: its index is damaged: a run has an entry of another",
                               kn_store_describe(a->store)->path);
            a->list[index] = l;
            if (a->pq) kn_pq_deinterleave(r->codes, place, 1, bytes, a->codes + index * bytes);
        }
    return KNNLM_OK;
}

static knnlm_status adopt_all(kn_arrangement *a, size_t *adopted) {
    *adopted = 0;
    for (size_t i = a->merged; a->before && i < a->before->listed_count; i++) {
        KN_TRY(adopt(a, &a->before->listed[i]));
        *adopted += a->before->listed[i].count;
    }
    a->objective = a->merged_objective * (double)*adopted;
    return KNNLM_OK;
}

static knnlm_status assign_all(kn_arrangement *a, float *keys, float *distances) {
    size_t at;
    KN_TRY(adopt_all(a, &at));
    for (; at < a->count; at += CHUNK) {
        size_t n = kn_min(CHUNK, a->count - at);
        KN_TRY(assign_chunk(a, at, n, keys, distances));
        if (kn_resident_touch(&a->resident, n * kn_arrange_touched(a->store, 1)))
            kn_scratch_file_release(&a->room);
        if (!kn_progress_report(a->progress, "assigning", at, a->count, "entries")) return stopped();
    }
    a->objective = a->count ? a->objective / (double)a->count : 0;
    return KNNLM_OK;
}

static void count_lists(kn_arrangement *a) {
    for (size_t i = 0; i < a->count; i++) a->ends[a->list[i] + 1]++;
    for (size_t l = 0; l < a->lists; l++) a->ends[l + 1] += a->ends[l];
}

static knnlm_status make_room(kn_arrangement *a) {
    size_t bytes = kn_pq_code_bytes(a->pq);
    if (a->memory && a->count > a->memory / 8 / bytes) {
        KN_TRY(kn_scratch_file_open(kn_store_describe(a->store)->path, a->count * bytes, &a->room));
        a->codes = a->room.data;
    } else {
        a->codes = kn_alloc(a->count, bytes);
    }
    return a->codes ? KNNLM_OK : KNNLM_ENOMEM;
}

knnlm_status kn_arrange_assign(kn_arrangement *a) {
    size_t d = kn_quantizer_dimension(a->quantizer);
    a->lists = kn_quantizer_count(a->quantizer);
    a->list = kn_alloc(a->count, sizeof *a->list);
    a->ends = kn_alloc(a->lists + 1, sizeof *a->ends);
    if (a->pq) KN_TRY(make_room(a));
    float *keys = kn_alloc_aligned(CHUNK, d * sizeof *keys), *distances = kn_alloc(CHUNK, sizeof *distances);
    bool room = a->list && a->ends && keys && distances;
    knnlm_status status = room ? assign_all(a, keys, distances) : KNNLM_ENOMEM;
    kn_free_aligned(keys);
    free(distances);
    if (status == KNNLM_OK) count_lists(a);
    return status;
}

// ---------------------------------------------------------------- writing in list order

// Where the next entry of each list goes, from the first entry on.
static uint64_t *starts_of(const kn_arrangement *a) {
    uint64_t *next = kn_alloc(a->lists, sizeof *next);
    if (next) memcpy(next, a->ends, a->lists * sizeof *next);
    return next;
}

// Something of `size` bytes per entry, by entry.
typedef const void *source(kn_arrangement *a, size_t entry);

// In passes: each gathers the places that fit into the buffer, and goes through the entries once, in order.
static knnlm_status write_pass(kn_arrangement *a, source *from, size_t size, size_t begin, size_t end,
                               uint8_t *buffer) {
    uint64_t *next = starts_of(a);
    if (!next) return KNNLM_ENOMEM;
    for (size_t i = 0; i < a->count; i++) {
        uint64_t place = next[a->list[i]]++;
        if (place >= begin && place < end) memcpy(buffer + (place - begin) * size, from(a, i), size);
    }
    free(next);
    return KNNLM_OK;
}

// `blocks` NULL: one after the other.
static knnlm_status put_places(kn_annex_writer *w, kn_pq_stream *blocks, const uint8_t *data, size_t n,
                               size_t size) {
    return blocks ? kn_pq_stream_put(blocks, data, n) : kn_annex_put(w, data, n * size);
}

static knnlm_status write_section(kn_arrangement *a, kn_annex_writer *w, kn_pq_stream *blocks, source *from,
                                  size_t size) {
    uint64_t memory = a->memory ? a->memory / 2 : (uint64_t)4 << 30;
    size_t fits = kn_max(1, kn_min(a->count, (size_t)(memory / size)));
    uint8_t *buffer = kn_alloc_aligned(fits, size);
    knnlm_status status = buffer ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t begin = 0; begin < a->count && status == KNNLM_OK; begin += fits) {
        size_t end = kn_min(begin + fits, a->count);
        status = write_pass(a, from, size, begin, end, buffer);
        if (status == KNNLM_OK) status = put_places(w, blocks, buffer, end - begin, size);
        if (!kn_progress_report(a->progress, "arranging", end, a->count, "entries")) status = stopped();
    }
    kn_free_aligned(buffer);
    return status == KNNLM_OK ? kn_annex_pad(w) : status;
}

static const void *entry_number(kn_arrangement *a, size_t i) {
    a->entry = (uint32_t)(a->first + i);
    return &a->entry;
}

static const void *entry_code(kn_arrangement *a, size_t i) {
    if (a->room.data && i % CHUNK == 0) kn_scratch_file_release(&a->room);
    return a->codes + i * kn_pq_code_bytes(a->pq);
}

static const void *entry_row(kn_arrangement *a, size_t i) {
    const uint8_t *key;
    kn_resident_touch(&a->resident, kn_arrange_touched(a->store, 1));
    if (kn_store_key_at(a->store, a->first + i, &key, &a->scale) == KNNLM_OK) return key;
    a->lost = true;
    return a->nothing;
}

static const void *entry_scale(kn_arrangement *a, size_t i) {
    entry_row(a, i);
    return &a->scale;
}

static knnlm_status write_rows(kn_arrangement *a, kn_annex_writer *w) {
    const kn_store_settings *s = &kn_store_describe(a->store)->settings;
    size_t d = (size_t)s->dimension;
    bool scaled = kn_key_form_of(s->key_type)->scaled;
    if (s->key_type == KNNLM_KEYS_NONE) return KNNLM_OK;
    KN_TRY(kn_annex_begin(w, "rows"));
    a->nothing = kn_alloc(1, kn_key_row_bytes(s->key_type, d));
    if (!a->nothing) return KNNLM_ENOMEM;
    KN_TRY(write_section(a, w, NULL, entry_row, kn_key_row_bytes(s->key_type, d)));
    if (scaled) KN_TRY(write_section(a, w, NULL, entry_scale, sizeof(float)));
    if (a->lost) return KNNLM_EDATA; // told when the key was looked for
    return kn_annex_seal(w, a->count);
}

static knnlm_status write_listed(const kn_arrangement *a, kn_annex_writer *w) {
    size_t bytes = kn_annex_list_bytes(a->lists);
    KN_TRY(kn_annex_begin(w, "listed"));
    for (size_t i = 0; i < a->count; i++) KN_TRY(kn_annex_put(w, &a->list[i], bytes)); // its low bytes
    return kn_annex_seal(w, a->count);
}

static knnlm_status write_codes(kn_arrangement *a, kn_annex_writer *w) {
    size_t bytes = kn_pq_code_bytes(a->pq);
    kn_pq_stream blocks;
    KN_TRY(kn_annex_begin(w, "codes"));
    KN_TRY(kn_pq_stream_init(&blocks, w, bytes));
    knnlm_status status = write_section(a, w, &blocks, entry_code, bytes);
    if (status == KNNLM_OK) status = kn_pq_stream_end(&blocks);
    kn_pq_stream_free(&blocks);
    return status == KNNLM_OK ? kn_annex_seal(w, a->count) : status;
}

knnlm_status kn_arrange_write(kn_arrangement *a, kn_annex_writer *w) {
    KN_TRY(kn_annex_begin(w, "order"));
    KN_TRY(kn_annex_put(w, a->ends, (a->lists + 1) * sizeof *a->ends));
    KN_TRY(kn_annex_pad(w));
    KN_TRY(write_section(a, w, NULL, entry_number, sizeof(uint32_t)));
    KN_TRY(kn_annex_seal(w, a->count));
    KN_TRY(write_rows(a, w));
    if (a->pq) KN_TRY(write_codes(a, w));
    return kn_store_describe(a->store)->settings.key_type == KNNLM_KEYS_NONE ? KNNLM_OK : write_listed(a, w);
}
