// Writes an index as FAISS's IVFPQ file.
#include "index/faiss.h"

#include "index/view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096 }; // entries at a time

typedef struct writing {
    const kn_index *x;
    const kn_store_info *info;
    const char *path;
    kn_file_writer *w;
    uint64_t *sizes; // (lists), without what was removed
    uint64_t entries, filled;
    uint8_t *codes; // (CHUNK, code bytes)
    const kn_progress *progress;
} writing;

// ---------------------------------------------------------------- can it be exported

static knnlm_status check_store(const kn_index *x, const kn_store_info *info) {
    if (info->settings.distance == KNNLM_DISTANCE_COSINE)
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: measures by cosine, which FAISS does not know: l2 and ip can be exported",
                       info->path);
    if (!x->info.lists)
        return kn_fail(KNNLM_EINVAL,
                       "%s: has no index to export: `knnlm_index` %s with `codes` pq64 makes one", info->path,
                       info->path);
    if (!x->has_pq)
        return kn_fail(
            KNNLM_EINVAL,
            "%s: its index has no codes, of which FAISS's is made: `knnlm_index` %s with `codes` pq64 "
            "makes them",
            info->path, info->path);
    if (x->info.listed < info->entries)
        return kn_fail(KNNLM_EINVAL,
                       "%s: %" PRIu64
                       " entries were added since it was indexed: `knnlm_index` %s with `extend` puts "
                       "them into the lists",
                       info->path, info->entries - x->info.listed, info->path);
    return KNNLM_OK;
}

static bool is_removed(const kn_index *x, uint32_t id) {
    return x->removed && (x->removed[id / 64] >> id % 64 & 1);
}

static knnlm_status count_list(writing *e, size_t list) {
    for (size_t i = 0; i < e->x->listed_count; i++) {
        const kn_run *r = &e->x->listed[i];
        for (uint64_t place = r->ends[list]; place < r->ends[list + 1]; place++) {
            if (r->ids[place] >= e->x->entries)
                return kn_fail(KNNLM_EDATA,
                               "%s: its index is damaged: list %zu has an entry that is not there",
                               e->info->path, list);
            e->sizes[list] += !is_removed(e->x, r->ids[place]);
        }
    }
    e->entries += e->sizes[list];
    e->filled += e->sizes[list] > 0;
    return KNNLM_OK;
}

static bool is_full(const writing *e) {
    return e->filled > e->x->info.lists / 2;
}

static knnlm_status check_room(const writing *e) {
    const kn_index *x = e->x;
    uint64_t free_bytes, sizes = is_full(e) ? x->info.lists : 2 * e->filled;
    uint64_t floats = x->info.lists * x->d + (x->d << x->pq.bits);
    uint64_t needed = 256 + 4 * floats + 8 * sizes + e->entries * (x->info.code_bytes + 8);
    KN_TRY(kn_disk_free(e->path, &free_bytes));
    if (needed <= free_bytes) return KNNLM_OK;
    return kn_fail(KNNLM_EIO,
                   "%s: the index takes %" PRIu64 " bytes, %" PRIu64 " are free (`force` tries anyway)",
                   e->path, needed, free_bytes);
}

// ---------------------------------------------------------------- before the lists

// What fails is kept by the writer, and told by its commit.
static void put(writing *e, const void *data, size_t size) {
    kn_file_writer_put(e->w, data, size);
}

static void put_u64(writing *e, uint64_t value) {
    put(e, &value, sizeof value);
}

static void put_floats(writing *e, const float *values, uint64_t count) {
    put_u64(e, count);
    put(e, values, count * sizeof *values);
}

static void put_header(writing *e, const char *fourcc, uint64_t entries) {
    int32_t d = (int32_t)e->x->d, metric = e->x->distance == KNNLM_DISTANCE_L2;
    uint8_t trained = 1;
    put(e, fourcc, 4);
    put(e, &d, sizeof d);
    put_u64(e, entries);
    put_u64(e, 1 << 20);
    put_u64(e, 1 << 20);
    put(e, &trained, sizeof trained);
    put(e, &metric, sizeof metric);
}

static void put_quantizers(writing *e) {
    const kn_index *x = e->x;
    uint8_t residuals = !x->plain_codes, no_map = 0;
    put_header(e, KN_FAISS_IVFPQ, e->entries);
    put_u64(e, x->info.lists);
    put_u64(e, x->info.probes);
    put_header(e, x->distance == KNNLM_DISTANCE_L2 ? "IxF2" : "IxFI", x->info.lists);
    put_floats(e, x->centres, x->info.lists * x->d);
    put(e, &no_map, sizeof no_map);
    put_u64(e, 0);
    put(e, &residuals, sizeof residuals);
    put_u64(e, x->info.code_bytes);
    put_u64(e, x->d);
    put_u64(e, x->pq.m);
    put_u64(e, x->pq.bits);
    put_floats(e, x->pq.centroids, x->d << x->pq.bits);
}

static void put_sizes(writing *e) {
    const kn_index *x = e->x;
    put(e, "ilar", 4);
    put_u64(e, x->info.lists);
    put_u64(e, x->info.code_bytes);
    put(e, is_full(e) ? "full" : "sprs", 4);
    put_u64(e, is_full(e) ? x->info.lists : 2 * e->filled);
    for (size_t l = 0; l < x->info.lists; l++) {
        if (!is_full(e) && !e->sizes[l]) continue;
        if (!is_full(e)) put_u64(e, l);
        put_u64(e, e->sizes[l]);
    }
}

// ---------------------------------------------------------------- the lists

static void put_codes(writing *e, const kn_run *r, uint64_t from, uint64_t to) {
    size_t bytes = e->x->info.code_bytes, n = 0;
    for (; from < to; from++) {
        if (!is_removed(e->x, r->ids[from]))
            kn_pq_deinterleave(r->codes, from, 1, bytes, e->codes + n++ * bytes);
        if (n < CHUNK && from + 1 < to) continue;
        put(e, e->codes, n * bytes);
        n = 0;
    }
}

static void put_ids(writing *e, const kn_run *r, uint64_t from, uint64_t to) {
    int64_t ids[CHUNK];
    size_t n = 0;
    for (; from < to; from++) {
        if (!is_removed(e->x, r->ids[from])) ids[n++] = r->ids[from];
        if (n < CHUNK && from + 1 < to) continue;
        put(e, ids, n * sizeof *ids);
        n = 0;
    }
}

static knnlm_status put_lists(writing *e) {
    const kn_index *x = e->x;
    uint64_t done = 0;
    for (size_t l = 0; l < x->info.lists; l++) {
        for (size_t i = 0; i < x->listed_count; i++)
            put_codes(e, &x->listed[i], x->listed[i].ends[l], x->listed[i].ends[l + 1]);
        for (size_t i = 0; i < x->listed_count; i++)
            put_ids(e, &x->listed[i], x->listed[i].ends[l], x->listed[i].ends[l + 1]);
        done += e->sizes[l];
        if (!kn_progress_report(e->progress, "exporting", done, e->entries, "entries"))
            return kn_fail(KNNLM_ESTOPPED, "stopped: %s is as it was", e->path);
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the door

static void tell(const writing *e, kn_faiss_totals *out) {
    const kn_index *x = e->x;
    *out = (kn_faiss_totals){.entries = e->entries,
                             .left_out = x->info.listed - e->entries,
                             .bytes = kn_file_writer_offset(e->w),
                             .dimension = (int32_t)x->d,
                             .lists = x->info.lists,
                             .probes = x->info.probes,
                             .code_parts = (uint32_t)x->pq.m,
                             .code_bits = (uint32_t)x->pq.bits,
                             .distance = x->distance,
                             .residuals = !x->plain_codes};
}

static knnlm_status write_index(writing *e, bool force, kn_faiss_totals *out) {
    KN_TRY(check_store(e->x, e->info));
    e->sizes = kn_alloc(e->x->info.lists, sizeof *e->sizes);
    e->codes = kn_alloc(CHUNK, e->x->info.code_bytes);
    if (!e->sizes || !e->codes) return KNNLM_ENOMEM;
    for (size_t l = 0; l < e->x->info.lists; l++) KN_TRY(count_list(e, l));
    if (!force) KN_TRY(check_room(e));
    KN_TRY(kn_file_writer_open(e->path, &e->w));
    put_quantizers(e);
    put_sizes(e);
    knnlm_status status = put_lists(e);
    if (status != KNNLM_OK) {
        kn_file_writer_abort(e->w);
        return status;
    }
    tell(e, out);
    return kn_file_writer_commit(e->w);
}

knnlm_status kn_faiss_export(const kn_store *store, const char *path, bool force, const kn_progress *progress,
                             kn_faiss_totals *out) {
    kn_index *x;
    KN_TRY(kn_index_open(store, &x));
    writing e = {.x = x, .info = kn_store_describe(store), .path = path, .progress = progress};
    knnlm_status status = write_index(&e, force, out);
    free(e.sizes);
    free(e.codes);
    kn_index_close(x);
    return status;
}
