// Makes the index of a store from a FAISS file: its centroids, lists and codes.
#include "index/faiss.h"

#include "index/note.h"
#include "index/pq.h"
#include "index/pq_stream.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096 }; // entries at a time

// ---------------------------------------------------------------- numbers

static knnlm_status check_floats(const kn_faiss_file *f, const uint8_t *floats, size_t count,
                                 const char *what) {
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, floats + i * sizeof value, sizeof value);
        if (!isfinite(value))
            return kn_fail(KNNLM_EDATA, "%s: byte %zu: a number of %s is not finite", f->path,
                           (size_t)(floats - f->data) + i * sizeof value, what);
    }
    return KNNLM_OK;
}

static int64_t id_at(const uint8_t *ids, size_t i) {
    int64_t id;
    memcpy(&id, ids + i * sizeof id, sizeof id);
    return id;
}

// The ids of a list, which lie after its codes; *at moves on to the next list.
static const uint8_t *ids_of(const kn_faiss_file *f, size_t list, const uint8_t **at) {
    const uint8_t *ids = *at + f->sizes[list] * f->code_bytes;
    *at = ids + f->sizes[list] * sizeof(int64_t);
    return ids;
}

static knnlm_status bad_id(const kn_faiss_file *f, const uint8_t *place, int64_t id, const char *what) {
    return kn_fail(KNNLM_EDATA,
                   "%s: byte %zu: id %" PRId64
                   " %s: ids become the numbers of entries, and must be 0 to %zu, each "
                   "once (of a store with removed entries: compact and index it before the export)",
                   f->path, (size_t)(place - f->data), id, what, f->entries - 1);
}

static knnlm_status check_list(const kn_faiss_file *f, const uint8_t *ids, size_t count, uint64_t *seen) {
    for (size_t i = 0; i < count; i++) {
        int64_t id = id_at(ids, i);
        if (id < 0 || (uint64_t)id >= f->entries) return bad_id(f, ids + i * sizeof id, id, "names no entry");
        if (seen[id / 64] >> id % 64 & 1) return bad_id(f, ids + i * sizeof id, id, "comes twice");
        seen[id / 64] |= (uint64_t)1 << id % 64;
    }
    return KNNLM_OK;
}

static knnlm_status check_ids(const kn_faiss_file *f) {
    uint64_t *seen = kn_alloc(f->entries / 64 + 1, sizeof *seen);
    const uint8_t *at = f->content;
    knnlm_status status = seen ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t l = 0; l < f->lists && status == KNNLM_OK; l++)
        status = check_list(f, ids_of(f, l, &at), f->sizes[l], seen);
    free(seen);
    return status;
}

static knnlm_status check_numbers(const kn_faiss_file *f) {
    KN_TRY(check_floats(f, f->centroids, f->lists * f->d, "the coarse quantizer"));
    KN_TRY(check_floats(f, f->code_centroids, f->d << f->code_bits, "the codes' centroids"));
    return check_ids(f);
}

// ---------------------------------------------------------------- the parts of an index

typedef struct importing {
    kn_faiss_file file;
    const kn_progress *progress;
    kn_annex_writer *a;
} importing;

static knnlm_status put_lists(importing *m) {
    const kn_faiss_file *f = &m->file;
    KN_TRY(kn_annex_begin(m->a, "lists"));
    KN_TRY(kn_annex_put(m->a, f->centroids, f->lists * f->d * sizeof(float)));
    KN_TRY(kn_annex_pad(m->a));
    KN_TRY(kn_annex_put(m->a, f->code_centroids, (f->d << f->code_bits) * sizeof(float)));
    return kn_annex_seal(m->a, f->lists);
}

static knnlm_status put_ids(importing *m, const uint8_t *ids, size_t count) {
    uint32_t numbers[CHUNK];
    for (size_t done = 0; done < count; done += CHUNK) {
        size_t n = kn_min(CHUNK, count - done);
        for (size_t i = 0; i < n; i++) numbers[i] = (uint32_t)id_at(ids, done + i);
        KN_TRY(kn_annex_put(m->a, numbers, n * sizeof *numbers));
    }
    return KNNLM_OK;
}

static knnlm_status put_order(importing *m) {
    const kn_faiss_file *f = &m->file;
    const uint8_t *at = f->content;
    uint64_t end = 0;
    KN_TRY(kn_annex_begin(m->a, "order"));
    KN_TRY(kn_annex_put(m->a, &end, sizeof end));
    for (size_t l = 0; l < f->lists; l++) {
        end += f->sizes[l];
        KN_TRY(kn_annex_put(m->a, &end, sizeof end));
    }
    KN_TRY(kn_annex_pad(m->a));
    for (size_t l = 0; l < f->lists; l++) KN_TRY(put_ids(m, ids_of(f, l, &at), f->sizes[l]));
    return kn_annex_seal(m->a, f->entries);
}

static knnlm_status put_list_codes(importing *m, kn_pq_stream *blocks) {
    const kn_faiss_file *f = &m->file;
    const uint8_t *at = f->content;
    uint64_t done = 0;
    for (size_t l = 0; l < f->lists; l++) {
        const uint8_t *codes = at;
        ids_of(f, l, &at);
        KN_TRY(kn_pq_stream_put(blocks, codes, f->sizes[l]));
        done += f->sizes[l];
        if (!kn_progress_report(m->progress, "arranging", done, f->entries, "entries"))
            return kn_fail(KNNLM_ESTOPPED, "stopped: nothing was kept");
    }
    return kn_pq_stream_end(blocks);
}

static knnlm_status put_codes(importing *m) {
    kn_pq_stream blocks;
    KN_TRY(kn_annex_begin(m->a, "codes"));
    KN_TRY(kn_pq_stream_init(&blocks, m->a, m->file.code_bytes));
    knnlm_status status = put_list_codes(m, &blocks);
    kn_pq_stream_free(&blocks);
    return status == KNNLM_OK ? kn_annex_seal(m->a, m->file.entries) : status;
}

static knnlm_status print_note(const kn_faiss_file *f, char **text) {
    kn_run_note run = {.entries = f->entries};
    kn_index_note note = {.lists = (uint32_t)f->lists,
                          .probes = (uint32_t)f->probes,
                          .code_parts = (uint32_t)f->code_parts,
                          .code_bits = (uint32_t)f->code_bits,
                          .plain_codes = !f->residuals,
                          .runs = &run,
                          .run_count = 1};
    return kn_index_note_print(&note, text);
}

static knnlm_status add_index(void *context, kn_store_writer *w) {
    importing *m = context;
    char *note = NULL;
    KN_TRY(kn_annex_open(w, 0, &m->a));
    knnlm_status status = put_lists(m);
    if (status == KNNLM_OK) status = put_order(m);
    if (status == KNNLM_OK) status = put_codes(m);
    if (status == KNNLM_OK) status = print_note(&m->file, &note);
    if (status == KNNLM_OK)
        status = kn_annex_commit(m->a, note, 0);
    else
        kn_annex_abort(m->a);
    free(note);
    return status;
}

// ---------------------------------------------------------------- the door

static kn_import_options options_of(const kn_faiss_import_options *o, importing *m) {
    const kn_faiss_file *f = &m->file;
    kn_import_options out = {.values = o->values,
                             .name = o->values ? o->values : f->path,
                             .value_type = o->value_type,
                             .entries = f->entries,
                             .force = o->force,
                             .settings = o->settings,
                             .add = add_index,
                             .context = m};
    out.room = kn_pq_blocks_bytes(f->entries, f->code_bytes) + f->entries * sizeof(uint32_t) +
               (f->lists * (f->d + 2) + (f->d << f->code_bits)) * sizeof(float);
    out.settings.dimension = (int32_t)f->d;
    out.settings.distance = f->distance;
    if (!o->values && !o->settings.vocabulary) out.settings.vocabulary = 1;
    return out;
}

static void tell(const kn_faiss_file *f, const kn_import_totals *t, kn_faiss_totals *out) {
    *out = (kn_faiss_totals){.entries = f->entries,
                             .documents = t->documents,
                             .bytes = t->bytes,
                             .dimension = (int32_t)f->d,
                             .lists = (uint32_t)f->lists,
                             .probes = (uint32_t)f->probes,
                             .code_parts = (uint32_t)f->code_parts,
                             .code_bits = (uint32_t)f->code_bits,
                             .distance = f->distance,
                             .residuals = f->residuals,
                             .restored = t->restored,
                             .value_type = t->value_type};
}

static knnlm_status import(importing *m, const kn_faiss_import_options *o, const char *store_path,
                           kn_faiss_totals *out) {
    kn_import_totals totals;
    int32_t d = o->settings.dimension;
    if (d && (size_t)d != m->file.d)
        return kn_fail(KNNLM_EDATA, "%s: is of dimension %zu, not %" PRId32, m->file.path, m->file.d, d);
    KN_TRY(check_numbers(&m->file));
    kn_import_options options = options_of(o, m);
    KN_TRY(kn_store_import(&options, store_path, m->progress, &totals));
    tell(&m->file, &totals, out);
    return KNNLM_OK;
}

knnlm_status kn_faiss_import(const char *index_path, const kn_faiss_import_options *o, const char *store_path,
                             const kn_progress *progress, kn_faiss_totals *out) {
    importing m = {.progress = progress};
    KN_TRY(kn_faiss_open(index_path, &m.file));
    knnlm_status status = import(&m, o, store_path, out);
    kn_faiss_close(&m.file);
    return status;
}
