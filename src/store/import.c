// Imports entries from .npy arrays and a table of their documents.
#include "store/import.h"
#include "base/utf8.h"
#include "store/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 4 << 20, // of keys as f32
    CHUNK_ROWS = 4096,
    ORIGIN = 3,
    FIELDS = 8, // of documents.tsv
};

typedef struct importing {
    const kn_import_options *o;
    const kn_progress *progress;
    kn_import_totals *out;
    kn_import_files files;
    kn_store_settings settings;
    kn_store_writer *w;
    size_t entries, dimension, done;
    size_t rows; // at a time
    int64_t *integers, *origin_rows;
    int32_t *tokens;
    uint64_t *offsets;
    float *keys;
    // Of origins.npy and documents.tsv; tsv_path NULL: there are none.
    char *origins_path, *tsv_path;
    kn_npy origins;
    char *tsv;
    size_t tsv_size, tsv_at, line;
} importing;

// ---------------------------------------------------------------- values

static knnlm_status bad_value(const importing *m, size_t row, int64_t value) {
    const char *path = m->files.values_path;
    if (value < 0 && m->files.values.type == KN_NPY_I16)
        return kn_fail(KNNLM_EDATA,
                       "%s: value %zu is %" PRId64
                       ": int16 has overflowed, as it does for vocabularies above "
                       "32767; `value_type` uint16 recovers the tokens of one below 65536",
                       path, row, value);
    if (value < 0 || value > INT32_MAX)
        return kn_fail(KNNLM_EDATA, "%s: value %zu is %" PRId64 ": not a token; are the values %s?", path,
                       row, value, kn_npy_type_name(m->files.values.type));
    return kn_fail(KNNLM_EDATA, "%s: value %zu is %" PRId64 ": the vocabulary has %d", path, row, value,
                   m->settings.vocabulary);
}

static knnlm_status check_values(importing *m) {
    const kn_npy *v = &m->files.values;
    int64_t end = m->settings.vocabulary ? m->settings.vocabulary : (int64_t)INT32_MAX + 1;
    if (!m->files.values_path) return KNNLM_OK;
    if (m->settings.vocabulary > UINT16_MAX + 1 && kn_npy_type_size(v->type) <= 2)
        return kn_fail(KNNLM_EDATA, "%s: %s cannot hold the tokens of a vocabulary of %d: they are lost",
                       m->files.values_path, kn_npy_type_name(v->type), m->settings.vocabulary);
    for (size_t at = 0; at < m->entries; at += m->rows) {
        size_t n = kn_min(m->entries - at, m->rows);
        kn_npy_integers(v, at, n, m->integers);
        for (size_t i = 0; i < n; i++)
            if (m->integers[i] < 0 || m->integers[i] >= end) return bad_value(m, at + i, m->integers[i]);
    }
    kn_map_release(&v->map, 0, v->map.size);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- origins

static knnlm_status bad_origin(const importing *m, size_t row, const char *what) {
    return kn_fail(KNNLM_EDATA,
                   "%s: row %zu: %s; without origins.npy and documents.tsv everything becomes one document",
                   m->origins_path, row, what);
}

// The origins of the next `n` entries, `position` on in document `number`, must be just that.
static knnlm_status take_origins(importing *m, const kn_store_document *d, uint64_t number, uint64_t position,
                                 size_t n) {
    kn_npy_integers(&m->origins, m->done * ORIGIN, n * ORIGIN, m->origin_rows);
    for (size_t i = 0; i < n; i++) {
        const int64_t *row = m->origin_rows + i * ORIGIN;
        if (row[0] != (int64_t)number)
            return bad_origin(m, m->done + i, "another document than documents.tsv has there");
        if (row[1] != (int64_t)(position + i))
            return bad_origin(m, m->done + i, "entries of the document are missing, or out of order");
        bool known = row[2] >= 0 && (uint64_t)row[2] <= d->bytes;
        if (d->has_offsets ? !known : row[2] != -1)
            return bad_origin(m, m->done + i, "a byte offset outside of the document");
        m->offsets[i] = d->has_offsets ? (uint64_t)row[2] : 0;
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- entries

static knnlm_status append(importing *m, size_t n, bool has_offsets) {
    size_t d = m->dimension, value = kn_npy_type_size(m->files.values.type);
    const kn_npy *k = &m->files.keys, *v = &m->files.values;
    if (v->data) kn_npy_integers(v, m->done, n, m->integers); // else they stay 0
    for (size_t i = 0; i < n; i++) m->tokens[i] = (int32_t)m->integers[i];
    if (k->data) kn_npy_floats(k, m->done * d, n * d, m->keys);
    knnlm_status status =
        kn_store_writer_append(m->w, m->tokens, has_offsets ? m->offsets : NULL, k->data ? m->keys : NULL, n);
    if (status == KNNLM_EDATA) kn_fail_in(status, m->files.keys_path);
    KN_TRY(status);
    size_t key = d * kn_npy_type_size(k->type);
    if (k->data) kn_map_release(&k->map, (size_t)(k->data - k->map.data) + m->done * key, n * key);
    if (v->data) kn_map_release(&v->map, (size_t)(v->data - v->map.data) + m->done * value, n * value);
    m->done += n;
    if (kn_progress_report(m->progress, "importing", m->done, m->entries, "entries")) return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "stopped: nothing was kept");
}

static knnlm_status put_document(importing *m, const kn_store_document *d, uint64_t number) {
    KN_TRY(kn_store_writer_document(m->w, d));
    for (uint64_t position = 0; position < d->tokens;) {
        size_t n = kn_min((size_t)(d->tokens - position), m->rows);
        if (m->tsv_path) KN_TRY(take_origins(m, d, number, position, n));
        KN_TRY(append(m, n, d->has_offsets));
        position += n;
    }
    m->out->documents++;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- documents.tsv

static knnlm_status bad_line(const importing *m, const char *what) {
    return kn_fail(KNNLM_EDATA, "%s: line %zu: %s", m->tsv_path, m->line, what);
}

// Cuts the next line into fields, each ended by a NUL. Returns their number; 0 at the end of the file.
static size_t next_line(importing *m, char *fields[FIELDS], size_t sizes[FIELDS]) {
    if (m->tsv_at == m->tsv_size) return 0;
    size_t n = 0;
    char *at = m->tsv + m->tsv_at, *end = memchr(at, '\n', m->tsv_size - m->tsv_at);
    if (!end) end = m->tsv + m->tsv_size; // kn_file_read has put a NUL there
    m->tsv_at = (size_t)(end - m->tsv) + (end < m->tsv + m->tsv_size);
    m->line++;
    *end = 0;
    for (;; n++) {
        char *tab = memchr(at, '\t', (size_t)(end - at));
        char *stop = tab ? tab : end;
        if (n < FIELDS) fields[n] = at, sizes[n] = (size_t)(stop - at);
        *stop = 0;
        if (!tab) return n + 1;
        at = tab + 1;
    }
}

static bool parse_u64(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

// 32 hexadecimal digits, the high half first.
static bool parse_hash(const char *text, size_t size, uint64_t hash[2]) {
    char high[17] = "";
    if (size != 32 || strspn(text, "0123456789abcdefABCDEF") != 32) return false;
    memcpy(high, text, 16);
    hash[1] = strtoull(high, NULL, 16);
    hash[0] = strtoull(text + 16, NULL, 16);
    return true;
}

static bool parse_time(const char *text, int64_t *out) {
    struct tm tm = {0};
    *out = 0;
    if (strcmp(text, "-") == 0) return true; // beyond the calendar: it becomes now
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (!end || *end) return false;
    *out = (int64_t)timegm(&tm);
    return true;
}

static knnlm_status parse_record(importing *m, char *f[FIELDS], size_t sizes[FIELDS], size_t count,
                                 uint64_t number, kn_store_document *d) {
    uint64_t stated;
    *d = (kn_store_document){.name = f[1], .path = f[2]};
    if (count != FIELDS && count != FIELDS - 1) return bad_line(m, "not the fields of a document");
    if (!parse_u64(f[0], &stated) || stated != number)
        return bad_line(m, "documents are not numbered 0, 1, ...");
    if (!kn_utf8_unescape(f[1], sizes[1], f[1], &d->name_size) ||
        !kn_utf8_unescape(f[2], sizes[2], f[2], &d->path_size))
        return bad_line(m, "a backslash that escapes nothing");
    if (!parse_u64(f[3], &d->bytes)) return bad_line(m, "bytes are not a number");
    if (!parse_u64(f[4], &d->tokens)) return bad_line(m, "tokens are not a number");
    if (!parse_hash(f[5], sizes[5], d->hash)) return bad_line(m, "the hash is not 32 hexadecimal digits");
    if (!parse_time(f[6], &d->added)) return bad_line(m, "the time is not like 2020-04-26T09:30:00Z");
    if (count == FIELDS && !parse_u64(f[7], &d->source_offset))
        return bad_line(m, "the source offset is not a number");
    if (d->tokens > m->entries - m->done) return bad_line(m, "more tokens than are left in the values");
    if (!d->tokens) return KNNLM_OK;
    kn_npy_integers(&m->origins, m->done * ORIGIN, ORIGIN, m->origin_rows);
    d->has_offsets = m->origin_rows[2] >= 0;
    return KNNLM_OK;
}

static knnlm_status put_documents(importing *m) {
    char *fields[FIELDS];
    size_t sizes[FIELDS], count = next_line(m, fields, sizes);
    kn_store_document d;
    if (count < FIELDS - 1 || strcmp(fields[0], "number") != 0 || strcmp(fields[4], "tokens") != 0)
        return bad_line(m, "not the names of the columns: number, name, path, bytes, tokens, hash, added");
    for (uint64_t number = 0; (count = next_line(m, fields, sizes)); number++) {
        KN_TRY(parse_record(m, fields, sizes, count, number, &d));
        KN_TRY(put_document(m, &d, number));
    }
    if (m->done == m->entries) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: its documents have %zu tokens, %s has %zu", m->tsv_path, m->done,
                   m->files.values_path, m->entries);
}

static knnlm_status put_one_document(importing *m) {
    const char *name = m->o->name ? m->o->name : m->files.values_path;
    kn_store_document d = {.name = name, .path = name, .tokens = m->entries};
    d.name_size = d.path_size = strlen(name);
    return m->entries ? put_document(m, &d, 0) : KNNLM_OK;
}

// ---------------------------------------------------------------- before the work

static char *beside(const char *path, const char *name) {
    char *copy = kn_strdup(path), *out = copy ? kn_store_file(dirname(copy), name) : NULL;
    free(copy);
    return out;
}

// Both files, or none of them.
static knnlm_status open_documents(importing *m) {
    if (!m->files.headers) return KNNLM_OK;
    char *origins = m->origins_path = beside(m->files.values_path, "origins.npy");
    char *tsv = beside(m->files.values_path, "documents.tsv");
    bool has_origins = origins && access(origins, F_OK) == 0, has_tsv = tsv && access(tsv, F_OK) == 0;
    knnlm_status status = origins && tsv ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK && has_origins != has_tsv)
        status = kn_fail(KNNLM_EINVAL, "%s is there, %s is not: both tell the documents, or neither",
                         has_tsv ? tsv : origins, has_tsv ? origins : tsv);
    if (status == KNNLM_OK && has_tsv)
        m->tsv_path = tsv;
    else
        free(tsv);
    KN_TRY(status);
    if (!m->tsv_path) return KNNLM_OK;
    m->out->restored = true;
    KN_TRY(kn_npy_open(origins, &m->origins));
    if (m->origins.type < KN_NPY_I8 || m->origins.n_dims != 2 || m->origins.dims[0] != m->entries ||
        m->origins.dims[1] != ORIGIN)
        return kn_fail(KNNLM_EDATA, "%s: not %zu x %d integers", origins, m->entries, ORIGIN);
    return kn_file_read(tsv, &m->tsv, &m->tsv_size);
}

static knnlm_status check_room(const importing *m, const char *path) {
    uint64_t free_bytes,
        needed = m->entries * (kn_key_bytes(m->settings.key_type, m->dimension) + 8) + m->o->room;
    KN_TRY(kn_disk_free(path, &free_bytes));
    if (m->o->force || needed <= free_bytes) return KNNLM_OK;
    return kn_fail(KNNLM_EIO,
                   "%s: the store takes %" PRIu64 " bytes, %" PRIu64 " are free (`force` tries anyway)", path,
                   needed, free_bytes);
}

static knnlm_status plan(importing *m, const char *path) {
    const kn_npy *k = &m->files.keys;
    m->entries = k->dims[0];
    m->dimension = k->dims[1];
    m->settings = m->o->settings;
    if (!m->o->convert) m->settings.key_type = k->type == KN_NPY_F16 ? KNNLM_KEYS_F16 : KNNLM_KEYS_F32;
    if (m->settings.key_type == KNNLM_KEYS_NONE) return kn_fail(KNNLM_EINVAL, "an import keeps the keys");
    if (!m->o->keys) m->settings.key_type = KNNLM_KEYS_NONE;
    m->settings.dimension = m->settings.model_dimension = (int32_t)m->dimension;
    if (!m->settings.segment) m->settings.segment = KN_STORE_SEGMENT_DEFAULT;
    *m->out = (kn_import_totals){.entries = m->entries,
                                 .dimension = (int32_t)m->dimension,
                                 .key_type = k->type,
                                 .value_type = m->files.values.type};
    m->rows = kn_max(1, kn_min(CHUNK_ROWS, CHUNK_BYTES / (4 * m->dimension)));
    m->integers = kn_alloc(m->rows, sizeof *m->integers);
    m->origin_rows = kn_alloc(m->rows, ORIGIN * sizeof *m->origin_rows);
    m->tokens = kn_alloc(m->rows, sizeof *m->tokens);
    m->offsets = kn_alloc(m->rows, sizeof *m->offsets);
    m->keys = kn_alloc(m->rows * m->dimension, sizeof *m->keys);
    if (!m->integers || !m->origin_rows || !m->tokens || !m->offsets || !m->keys) return KNNLM_ENOMEM;
    return check_room(m, path);
}

// ---------------------------------------------------------------- the store

static knnlm_status fill(importing *m) {
    m->w->hold = true; // full segments are not published: there is no store before it is whole
    KN_TRY(m->tsv_path ? put_documents(m) : put_one_document(m));
    if (m->o->add) KN_TRY(m->o->add(m->o->context, m->w));
    m->w->hold = false;
    m->w->changed = true; // what was added has committed, to nobody's eyes
    return kn_store_writer_commit(m->w);
}

// Deletes what the writer has made, while it still has the lock: nobody else's files can be among it.
static void undo(kn_store_writer *w) {
    char *lock = kn_store_file(w->path, KN_STORE_LOCK), *manifest = kn_store_file(w->path, KN_STORE_MANIFEST);
    kn_spool_drain(w->spool);
    if (manifest) unlink(manifest); // of a commit that failed at its very end
    kn_store_sweep(w->path, NULL);
    if (lock) unlink(lock);
    free(lock);
    free(manifest);
}

static knnlm_status make_store(importing *m, const char *path) {
    bool there = access(path, F_OK) == 0;
    knnlm_status status = kn_store_create(path, &m->settings, &m->w);
    bool created = status == KNNLM_OK;
    if (created) status = fill(m);
    if (status != KNNLM_OK) {
        char *message = strdup(knnlm_message());
        if (created) undo(m->w);
        kn_fail(status, "%s", message ? message : knnlm_status_name(status)); // of the cause
        free(message);
    }
    if (created) kn_store_writer_close(m->w);
    if (status != KNNLM_OK && !there) rmdir(path); // only when nothing is in it
    return status;
}

static knnlm_status import_into(importing *m, const char *path) {
    kn_store *made;
    if (kn_store_exists(path)) return kn_fail(KNNLM_EIO, "%s: is a store already", path);
    KN_TRY(kn_import_open(m->o, &m->files));
    KN_TRY(plan(m, path));
    KN_TRY(open_documents(m));
    KN_TRY(check_values(m));
    KN_TRY(make_store(m, path));
    KN_TRY(kn_store_open(path, &made));
    m->out->bytes = kn_store_describe(made)->bytes;
    kn_store_close(made);
    return KNNLM_OK;
}

knnlm_status kn_store_import(const kn_import_options *o, const char *store_path, const kn_progress *progress,
                             kn_import_totals *out) {
    importing m = {.o = o, .progress = progress, .out = out};
    *out = (kn_import_totals){0};
    knnlm_status status = import_into(&m, store_path);
    kn_import_close(&m.files);
    kn_npy_close(&m.origins);
    free(m.origins_path);
    free(m.tsv_path);
    free(m.tsv);
    free(m.integers);
    free(m.origin_rows);
    free(m.tokens);
    free(m.offsets);
    free(m.keys);
    return status;
}
