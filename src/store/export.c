// Exports a store as .npy arrays and a table of its documents.
#include "base/convert.h"
#include "base/utf8.h"
#include "store/interop.h"
#include "store/state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 1024, ORIGIN = 3, ROW_BYTES = 256 }; // ROW_BYTES: of documents.tsv, but for the strings

typedef struct exporting {
    const kn_store *s;
    const char *directory;
    const kn_progress *progress;
    kn_export_totals *out;
    bool raw; // keys as they lie in the store
    kn_npy_writer *keys, *values, *origins;
    kn_file_writer *documents;
    uint64_t done, begun; // entries written, documents
    float *row;           // (ROWS, d) of keys that are converted
    uint16_t *half;
    char *text;
    size_t text_capacity;
} exporting;

static size_t dimension_of(const kn_store *s) {
    return (size_t)s->info.settings.dimension;
}

// ---------------------------------------------------------------- only what is intact

static knnlm_status check_part(const kn_store *s, const kn_segment *g, const kn_map *part, kn_part_kind kind,
                               uint64_t payload, uint64_t seal) {
    const char *reason = kn_part_check(part, kind, g->entry.entries, payload, seal);
    for (size_t i = 0; !reason && i < kn_part_blocks(payload); i++)
        if (!kn_part_block_intact(part, payload, i)) reason = "its content is damaged";
    if (!reason) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s/%06" PRIu64 ".%s: %s (`knnlm_store_verify` %s)", s->path, g->entry.file,
                   kind == KN_PART_TEXT ? "text" : "keys", reason, s->path);
}

static knnlm_status check_segment(const kn_store *s, const kn_segment *g) {
    KN_TRY(check_part(s, g, &g->text, KN_PART_TEXT, g->layout.text, g->entry.text_seal));
    if (!g->layout.keys_payload) return KNNLM_OK;
    return check_part(s, g, &g->keys, KN_PART_KEYS, g->layout.keys_payload, g->entry.keys_seal);
}

// ---------------------------------------------------------------- rows

// As they are, one by one from where they lie.
static knnlm_status put_arranged(exporting *e, uint64_t first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *key;
        float scale;
        KN_TRY(kn_store_key_at(e->s, first + i, &key, &scale));
        KN_TRY(kn_npy_put(e->keys, key, dimension_of(e->s)));
    }
    return KNNLM_OK;
}

static knnlm_status put_keys(exporting *e, const kn_store_segment *g, uint64_t from, size_t count) {
    size_t d = dimension_of(e->s);
    if (!e->keys) return KNNLM_OK;
    if (!g->keys)
        KN_TRY(kn_store_check_keys(e->s, g->first + from, count)); // a segment's are checked as a whole
    if (e->raw && !g->keys) return put_arranged(e, g->first + from, count);
    if (e->raw) {
        size_t bytes = kn_key_bytes(e->s->info.settings.key_type, d);
        return kn_npy_put(e->keys, (const uint8_t *)g->keys + from * bytes, count * d);
    }
    KN_TRY(kn_store_keys(e->s, g->first + from, count, e->row));
    if (e->out->key_type == KN_NPY_F32) return kn_npy_put(e->keys, e->row, count * d);
    kn_f16_from_f32(e->half, e->row, count * d);
    for (size_t i = 0; i < count * d; i++)
        if ((e->half[i] & 0x7c00) == 0x7c00)
            return kn_fail(KNNLM_EDATA, "%s: the key of entry %" PRIu64 " does not fit f16: use `keys` f32",
                           e->s->path, g->first + from + i / d);
    return kn_npy_put(e->keys, e->half, count * d);
}

// Entries [from, from + count) of a segment, those of document `d` from `position` on.
static knnlm_status put_rows(exporting *e, const kn_store_segment *g, const kn_store_document *d,
                             uint64_t from, size_t count, uint64_t position) {
    int64_t origins[ROWS][ORIGIN];
    for (size_t i = 0; i < count; i++) {
        origins[i][0] = (int64_t)e->begun - 1;
        origins[i][1] = (int64_t)(position + i);
        origins[i][2] = d->has_offsets ? (int64_t)g->offsets[from + i] : -1;
    }
    KN_TRY(put_keys(e, g, from, count));
    KN_TRY(kn_npy_put(e->values, g->tokens + from, count));
    KN_TRY(kn_npy_put(e->origins, origins, count * ORIGIN));
    e->done += count;
    if (kn_progress_report(e->progress, "exporting", e->done, e->out->entries, "entries")) return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "stopped: %s is as it was", e->directory);
}

// The part of a document that lies in a segment.
static knnlm_status put_document(exporting *e, const kn_store_segment *g, const kn_store_document *d) {
    uint64_t begin = d->first > g->first ? d->first : g->first;
    uint64_t end = d->first + d->count, segment_end = g->first + g->count;
    if (end > segment_end) end = segment_end;
    for (uint64_t at = begin; at < end;) {
        size_t n = kn_min((size_t)(end - at), ROWS);
        KN_TRY(put_rows(e, g, d, at - g->first, n, at - d->first));
        at += n;
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- documents.tsv

static const char columns[] = "number\tname\tpath\tbytes\ttokens\thash\tadded\tsource_offset\n";

static void print_time(int64_t seconds, char out[32]) {
    struct tm tm;
    time_t t = (time_t)seconds;
    if (!gmtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm)) strcpy(out, "-");
}

static knnlm_status put_record(exporting *e, const kn_store_document *d) {
    char added[32];
    size_t name = KN_UTF8_ESCAPED(d->name_size), path = KN_UTF8_ESCAPED(d->path_size);
    KN_TRY(kn_grow(&e->text, &e->text_capacity, name + path + ROW_BYTES, 1));
    char *escaped_name = e->text, *escaped_path = e->text + name, *line = escaped_path + path;
    kn_utf8_escape(d->name, d->name_size, escaped_name, name);
    kn_utf8_escape(d->path, d->path_size, escaped_path, path);
    print_time(d->added, added);
    int n = snprintf(line, ROW_BYTES, "%" PRIu64 "\t", e->begun++);
    kn_file_writer_put(e->documents, line, (size_t)n);
    kn_file_writer_put(e->documents, escaped_name, strlen(escaped_name));
    kn_file_writer_put(e->documents, "\t", 1);
    kn_file_writer_put(e->documents, escaped_path, strlen(escaped_path));
    // Of an interrupted addition, those tokens that are there.
    n = snprintf(line, ROW_BYTES,
                 "\t%" PRIu64 "\t%" PRIu64 "\t%016" PRIx64 "%016" PRIx64 "\t%s\t%" PRIu64 "\n", d->bytes,
                 d->count, d->hash[1], d->hash[0], added, d->source_offset);
    return kn_file_writer_put(e->documents, line, (size_t)n);
}

// ---------------------------------------------------------------- segments

static knnlm_status put_segment(exporting *e, size_t i) {
    const kn_segment *segment = &e->s->segments[i];
    kn_store_segment g = kn_store_segment_at(e->s, i);
    kn_store_document d;
    KN_TRY(check_segment(e->s, segment));
    // The document that goes on from the segment before is the last that was begun, unless it was removed.
    if (segment->entry.continued && !kn_store_document_removed(e->s, g.first_document - 1)) {
        KN_TRY(kn_store_document_at(e->s, g.first_document - 1, &d));
        KN_TRY(put_document(e, &g, &d));
    }
    for (uint64_t k = 0; k < g.document_count; k++) {
        if (kn_store_document_removed(e->s, g.first_document + k)) continue;
        KN_TRY(kn_store_document_at(e->s, g.first_document + k, &d));
        KN_TRY(put_record(e, &d));
        KN_TRY(put_document(e, &g, &d));
    }
    kn_map_release(&segment->keys, 0, segment->keys.size);
    return KNNLM_OK;
}

// Of shards, on whatever ranks they are.
static knnlm_status put_sharded_document(exporting *e, const kn_store_document *d) {
    int32_t tokens[ROWS];
    uint64_t places[ROWS];
    uint32_t offsets[ROWS];
    for (uint64_t at = d->first, end = at + d->count; at < end;) {
        size_t n = kn_min((size_t)(end - at), ROWS);
        kn_store_segment g = {.first = at, .count = n, .tokens = tokens, .offsets = offsets};
        KN_TRY(kn_store_tokens(e->s, at, n, tokens));
        KN_TRY(kn_store_offsets(e->s, at, n, places));
        for (size_t i = 0; i < n; i++) offsets[i] = (uint32_t)places[i];
        KN_TRY(put_rows(e, &g, d, 0, n, at - d->first));
        at += n;
    }
    return KNNLM_OK;
}

static knnlm_status put_shards(exporting *e) {
    for (uint64_t i = 0; i < e->s->info.documents; i++) {
        kn_store_document d;
        if (kn_store_document_removed(e->s, i)) continue;
        KN_TRY(kn_store_document_at(e->s, i, &d));
        KN_TRY(put_record(e, &d));
        KN_TRY(put_sharded_document(e, &d));
    }
    return KNNLM_OK;
}

static knnlm_status put_segments(exporting *e) {
    for (size_t i = 0; i < e->s->manifest.segment_count; i++) KN_TRY(put_segment(e, i));
    return KNNLM_OK;
}

static knnlm_status put_everything(exporting *e) {
    KN_TRY(kn_file_writer_put(e->documents, columns, sizeof columns - 1));
    KN_TRY(e->s->sharded ? put_shards(e) : put_segments(e));
    if (e->done == e->out->entries && e->begun == e->out->documents) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: its counts are not those of its content (`knnlm_store_verify` %s)",
                   e->s->path, e->s->path);
}

// ---------------------------------------------------------------- files

// Makes `path` = DIRECTORY/NAME for `call`.
#define IN_DIRECTORY(e, name, call)                                                                          \
    do {                                                                                                     \
        char *path = kn_store_file((e)->directory, name);                                                    \
        knnlm_status status = path ? (call) : KNNLM_ENOMEM;                                                  \
        free(path);                                                                                          \
        if (status != KNNLM_OK) return status;                                                               \
    } while (0)

// All are written under other names first: arrays of two exports never stand together.
enum { FILES = 4 };
static const char *const names[FILES] = {"keys.npy", "values.npy", "origins.npy", "documents.tsv"};
static const char *const new_names[FILES] = {"keys.npy.new", "values.npy.new", "origins.npy.new",
                                             "documents.tsv.new"};

static size_t first_file(const exporting *e) {
    return e->out->dimension ? 0 : 1;
}

static knnlm_status open_files(exporting *e) {
    size_t n = (size_t)e->out->entries, d = dimension_of(e->s);
    kn_npy_type type = e->out->key_type;
    if (e->out->dimension) {
        IN_DIRECTORY(e, new_names[0], kn_npy_create(path, type, 2, (size_t[]){n, d}, &e->keys));
        e->row = kn_alloc(e->raw ? 0 : ROWS * d, sizeof *e->row);
        e->half = kn_alloc(e->raw ? 0 : ROWS * d, sizeof *e->half);
        if (!e->row || !e->half) return KNNLM_ENOMEM;
    }
    IN_DIRECTORY(e, new_names[1], kn_npy_create(path, KN_NPY_I32, 1, &n, &e->values));
    IN_DIRECTORY(e, new_names[2], kn_npy_create(path, KN_NPY_I64, 2, (size_t[]){n, ORIGIN}, &e->origins));
    IN_DIRECTORY(e, new_names[3], kn_file_writer_open(path, &e->documents));
    return KNNLM_OK;
}

static knnlm_status commit_array(kn_npy_writer **w) {
    kn_npy_writer *taken = *w;
    *w = NULL;
    return taken ? kn_npy_commit(taken) : KNNLM_OK;
}

static knnlm_status commit_files(exporting *e) {
    kn_file_writer *documents = e->documents;
    e->documents = NULL;
    KN_TRY(kn_file_writer_commit(documents));
    KN_TRY(commit_array(&e->values));
    KN_TRY(commit_array(&e->origins));
    return commit_array(&e->keys);
}

static knnlm_status rename_file(const char *from, const char *to, uint64_t *bytes) {
    struct stat st;
    if (stat(from, &st) != 0 || rename(from, to) != 0)
        return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot replace", to);
    *bytes += (uint64_t)st.st_size;
    return KNNLM_OK;
}

static knnlm_status publish_files(exporting *e) {
    for (size_t i = first_file(e); i < FILES; i++) {
        char *from = kn_store_file(e->directory, new_names[i]), *to = kn_store_file(e->directory, names[i]);
        knnlm_status status = from && to ? rename_file(from, to, &e->out->bytes) : KNNLM_ENOMEM;
        free(from);
        free(to);
        KN_TRY(status);
    }
    int error = kn_directory_sync(e->directory);
    return error ? kn_fail_errno(KNNLM_EIO, error, "%s: cannot write", e->directory) : KNNLM_OK;
}

static void discard_files(const exporting *e) {
    for (size_t i = 0; i < FILES; i++) {
        char *path = kn_store_file(e->directory, new_names[i]);
        if (path) unlink(path);
        free(path);
    }
}

static void release(exporting *e) {
    kn_npy_abort(e->keys);
    kn_npy_abort(e->values);
    kn_npy_abort(e->origins);
    kn_file_writer_abort(e->documents);
    free(e->row);
    free(e->half);
    free(e->text);
}

// ---------------------------------------------------------------- before the work

static knnlm_status refuse_stale_keys(const char *path) {
    if (access(path, F_OK) != 0) return KNNLM_OK;
    return kn_fail(KNNLM_EIO, "%s: would not belong to this store, which keeps no keys: delete it first",
                   path);
}

static knnlm_status check_room(const exporting *e, bool force) {
    const kn_store_info *info = &e->s->info;
    uint64_t free_bytes, row = 4 + 8 * ORIGIN;
    row += e->out->dimension ? kn_npy_type_size(e->out->key_type) * dimension_of(e->s) : 0;
    uint64_t needed = e->out->entries * row + info->documents * ROW_BYTES;
    IN_DIRECTORY(e, names[0], kn_disk_free(path, &free_bytes));
    if (force || needed <= free_bytes) return KNNLM_OK;
    return kn_fail(KNNLM_EIO,
                   "%s: the files take %" PRIu64 " bytes, %" PRIu64 " are free (`force` tries anyway)",
                   e->directory, needed, free_bytes);
}

static knnlm_status plan(exporting *e, const kn_export_options *o) {
    const kn_store_settings *set = &e->s->info.settings;
    knnlm_keys type = o && o->convert                   ? o->key_type
                      : set->key_type == KNNLM_KEYS_F16 ? KNNLM_KEYS_F16
                                                        : KNNLM_KEYS_F32;
    if (type != KNNLM_KEYS_F16 && type != KNNLM_KEYS_F32)
        return kn_fail(KNNLM_EINVAL, "keys are exported as f16 or f32");
    *e->out = (kn_export_totals){.entries = e->s->info.entries - e->s->info.removed_entries,
                                 .documents = e->s->info.documents - e->s->info.removed_documents,
                                 .dimension = set->key_type == KNNLM_KEYS_NONE ? 0 : set->dimension,
                                 .key_type = type == KNNLM_KEYS_F16 ? KN_NPY_F16 : KN_NPY_F32};
    e->raw = type == set->key_type && !e->s->sharded; // those of shards are read as f32, which loses nothing
    if (!e->out->dimension) IN_DIRECTORY(e, names[0], refuse_stale_keys(path));
    return check_room(e, o && o->force);
}

static knnlm_status export_into(exporting *e, const kn_export_options *o) {
    KN_TRY(plan(e, o));
    KN_TRY(open_files(e));
    KN_TRY(put_everything(e));
    KN_TRY(commit_files(e));
    return publish_files(e);
}

knnlm_status kn_store_export(const kn_store *s, const char *directory, const kn_export_options *o,
                             const kn_progress *progress, kn_export_totals *out) {
    exporting e = {.s = s, .directory = directory, .progress = progress, .out = out};
    if (kn_store_exists(directory))
        return kn_fail(KNNLM_EINVAL, "%s: is a store: name another directory", directory);
    bool made = mkdir(directory, 0777) == 0;
    if (!made && errno != EEXIST) return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot create", directory);
    knnlm_status status = export_into(&e, o);
    release(&e);
    if (status != KNNLM_OK) discard_files(&e);
    if (status != KNNLM_OK && made) rmdir(directory); // only when nothing is in it
    return status;
}
