// Opens a store at its last commit: manifest, segments, their parts.
#include "store/sharded.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

// A commit between reading the manifest and opening its files may delete some of them: then the next manifest
// is there already.
enum { ATTEMPTS = 100 };

// ---------------------------------------------------------------- names

void kn_part_name(char name[KN_PART_NAME], uint64_t file, const char *kind) {
    snprintf(name, KN_PART_NAME, "%06" PRIu64 ".%s", file, kind);
}

char *kn_store_file(const char *directory, const char *name) {
    size_t size = strlen(directory) + strlen(name) + 2;
    char *path = kn_alloc(size, 1);
    if (path) snprintf(path, size, "%s/%s", directory, name);
    return path;
}

char *kn_store_part_file(const char *directory, uint64_t file, const char *kind) {
    char name[KN_PART_NAME];
    kn_part_name(name, file, kind);
    return kn_store_file(directory, name);
}

knnlm_status kn_file_hash(const char *path, uint64_t *hash, uint64_t *bytes) {
    kn_map map;
    KN_TRY(kn_map_open(path, &map));
    *hash = XXH3_64bits(map.data, map.size);
    *bytes = map.size;
    kn_map_close(&map);
    return KNNLM_OK;
}

bool kn_store_exists(const char *path) {
    char *manifest = kn_store_file(path, KN_STORE_MANIFEST);
    bool there = (manifest && access(manifest, F_OK) == 0) || kn_shards_exist(path);
    free(manifest);
    return there;
}

// ---------------------------------------------------------------- parts

bool kn_segment_measure(const kn_segment_entry *s, knnlm_keys type, size_t dimension,
                        kn_segment_layout *out) {
    uint64_t text = KN_PART_HEADER, keys = KN_PART_HEADER;
    *out = (kn_segment_layout){.tokens = text, .keys = keys};
    if (!kn_part_extend(&text, s->entries, sizeof(int32_t))) return false;
    out->offsets = text;
    if (!kn_part_extend(&text, s->entries, sizeof(uint32_t))) return false;
    out->documents = text;
    if (!kn_part_extend(&text, s->documents, sizeof(kn_document_record))) return false;
    out->strings = text;
    if (!kn_part_extend(&text, s->strings, 1)) return false;
    out->text = text;
    if (type == KNNLM_KEYS_NONE) return true;
    if (!kn_part_extend(&keys, s->entries, kn_key_row_bytes(type, dimension))) return false;
    out->scales = keys;
    if (kn_key_form_of(type)->scaled && !kn_part_extend(&keys, s->entries, sizeof(float))) return false;
    out->keys_payload = keys;
    return true;
}

static knnlm_status open_part(kn_store *s, uint64_t file, const char *kind, uint64_t payload, kn_map *out) {
    char *path = kn_store_part_file(s->path, file, kind);
    if (!path) return KNNLM_ENOMEM;
    knnlm_status status = kn_part_open(path, payload, out);
    free(path);
    if (status == KNNLM_OK) s->info.bytes += out->size;
    return status;
}

static knnlm_status open_segment(kn_store *s, kn_segment *segment) {
    const kn_store_settings *set = &s->manifest.settings;
    knnlm_keys own = kn_segment_arranged(&s->manifest, &segment->entry) ? KNNLM_KEYS_NONE : set->key_type;
    if (!kn_segment_measure(&segment->entry, own, (size_t)set->dimension, &segment->layout))
        return kn_fail(KNNLM_EDATA, "%s: segment %" PRIu64 " is of an impossible size", s->path,
                       segment->entry.file);
    KN_TRY(open_part(s, segment->entry.file, "text", segment->layout.text, &segment->text));
    if (!segment->layout.keys_payload) return KNNLM_OK;
    return open_part(s, segment->entry.file, "keys", segment->layout.keys_payload, &segment->keys);
}

// Its checksums are compared at once: it is small, and what was removed must not come back unnoticed.
static knnlm_status check_removed(const kn_store *s, uint64_t payload) {
    const kn_removed_entry *r = &s->manifest.removed;
    const char *reason = kn_part_check(&s->removed, KN_PART_REMOVED, r->documents, payload, r->seal);
    for (size_t i = 0; i < kn_part_blocks(payload) && !reason; i++)
        if (!kn_part_block_intact(&s->removed, payload, i)) reason = "its checksum is wrong";
    if (!reason) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s/%06" PRIu64 ".removed: damaged: %s", s->path, r->file, reason);
}

static knnlm_status open_removed(kn_store *s) {
    const kn_removed_entry *r = &s->manifest.removed;
    uint64_t payload = KN_PART_HEADER;
    if (!r->file) return KNNLM_OK;
    if (!kn_part_extend(&payload, r->documents, sizeof(uint32_t)))
        return kn_fail(KNNLM_EDATA, "%s: of an impossible size", s->path);
    KN_TRY(open_part(s, r->file, "removed", payload, &s->removed));
    KN_TRY(check_removed(s, payload));
    s->removed_bits = kn_alloc(s->manifest.documents / 64 + 1, sizeof *s->removed_bits);
    if (!s->removed_bits) return KNNLM_ENOMEM;
    const uint32_t *numbers = (const uint32_t *)(const void *)(s->removed.data + KN_PART_HEADER);
    for (uint64_t i = 0; i < r->documents; i++) {
        if (numbers[i] >= s->manifest.documents)
            return kn_fail(KNNLM_EDATA, "%s/%06" PRIu64 ".removed: damaged: document %" PRIu32 " of %" PRIu64,
                           s->path, r->file, numbers[i], s->manifest.documents);
        s->removed_bits[numbers[i] / 64] |= (uint64_t)1 << numbers[i] % 64;
    }
    return KNNLM_OK;
}

// The first one is told.
static knnlm_status note_fault(kn_store *s) {
    if (!s->annex_fault) s->annex_fault = kn_strdup(knnlm_message());
    return s->annex_fault ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status open_annex(kn_store *s) {
    const kn_annex *a = &s->manifest.annex;
    s->annex = kn_alloc(a->count, sizeof *s->annex);
    if (!s->annex) return KNNLM_ENOMEM;
    for (size_t i = 0; i < a->count; i++) {
        knnlm_status status =
            open_part(s, a->parts[i].file, a->parts[i].kind, a->parts[i].payload, &s->annex[i]);
        if (status == KNNLM_ENOMEM) return status;
        // Documents are all there without it: who wants the index is told.
        if (status != KNNLM_OK) KN_TRY(note_fault(s));
    }
    knnlm_status status = kn_store_open_arranged(s);
    return status == KNNLM_EDATA ? note_fault(s) : status;
}

static knnlm_status open_parts(kn_store *s) {
    s->segments = kn_alloc(s->manifest.segment_count, sizeof *s->segments);
    if (!s->segments) return KNNLM_ENOMEM;
    for (size_t i = 0; i < s->manifest.segment_count; i++) {
        s->segments[i].entry = s->manifest.segments[i];
        KN_TRY(open_segment(s, &s->segments[i]));
    }
    for (size_t i = s->manifest.segment_count, carried = 0; i-- > 0;) {
        const kn_segment_entry *e = &s->segments[i].entry;
        carried = e->continued + (e->documents ? 0 : carried);
        s->segments[i].carried = carried;
    }
    KN_TRY(open_removed(s));
    KN_TRY(open_annex(s));
    return kn_store_number_blocks(s);
}

// ---------------------------------------------------------------- the state

// The first line of a manifest's bytes.
static void first_line(const char *data, size_t size, char line[KN_MANIFEST_LINE]) {
    const char *end = size ? memchr(data, '\n', size) : NULL;
    size_t length = kn_min(end ? (size_t)(end - data) : size, KN_MANIFEST_LINE - 1);
    if (length) memcpy(line, data, length);
    line[length] = 0;
}

static knnlm_status load_manifest(kn_store *s) {
    char *path = kn_store_file(s->path, KN_STORE_MANIFEST), *data = NULL;
    size_t size;
    struct stat st;
    if (!path) return KNNLM_ENOMEM;
    knnlm_status status = KNNLM_OK;
    if (stat(s->path, &st) == 0 && stat(path, &st) != 0 && errno == ENOENT)
        status = kn_fail(KNNLM_EDATA, "%s: not a store: it has no " KN_STORE_MANIFEST, s->path);
    if (status == KNNLM_OK && stat(path, &st) != 0) status = kn_fail_errno(KNNLM_EIO, errno, "%s", s->path);
    if (status == KNNLM_OK) status = kn_file_read(path, &data, &size);
    if (status == KNNLM_OK) first_line(data, size, s->seen);
    if (status == KNNLM_OK) status = kn_manifest_parse(path, data, size, &s->manifest);
    s->info.bytes = status == KNNLM_OK ? size : 0;
    free(data);
    free(path);
    return status;
}

static void describe(kn_store *s) {
    const kn_manifest *m = &s->manifest;
    uint64_t bytes = s->info.bytes;
    for (size_t i = 0; i < m->attachment_count; i++) bytes += m->attachments[i].bytes;
    s->info = (kn_store_info){.path = s->path,
                              .settings = m->settings,
                              .tuned = m->tuned,
                              .complete = m->complete,
                              .generation = m->generation,
                              .created = m->created,
                              .entries = m->entries,
                              .documents = m->documents,
                              .removed_entries = m->removed.entries,
                              .removed_documents = m->removed.documents,
                              .arranged = m->annex.arranged,
                              .bytes = bytes,
                              .segments = m->segment_count,
                              .has_tokenizer = kn_manifest_attachment(m, "tokenizer.gguf") != NULL,
                              .has_projection = kn_manifest_attachment(m, "projection.gguf") != NULL};
}

static knnlm_status open_state(const char *path, kn_store **out) {
    kn_store *s = kn_alloc(1, sizeof *s);
    *out = s;
    if (!s) return KNNLM_ENOMEM;
    s->path = kn_strdup(path);
    if (!s->path) return KNNLM_ENOMEM;
    for (size_t n = strlen(s->path); n > 1 && s->path[n - 1] == '/'; n--) s->path[n - 1] = 0;
    KN_TRY(load_manifest(s));
    KN_TRY(open_parts(s));
    describe(s);
    return KNNLM_OK;
}

knnlm_status kn_store_open(const char *path, kn_store **out) {
    knnlm_status status = KNNLM_OK;
    if (kn_shards_exist(path)) return kn_sharded_open(path, out);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        kn_store *s;
        status = open_state(path, &s);
        bool doubtful = status != KNNLM_OK || s->annex_fault;
        bool overtaken = doubtful && s && s->manifest.next_file && !kn_store_is_current(s);
        if (status == KNNLM_OK && !overtaken) {
            *out = s;
            return KNNLM_OK;
        }
        kn_store_close(s);
        if (!overtaken) break;
    }
    return status;
}

void kn_store_close(kn_store *s) {
    if (!s) return;
    kn_sharded_close(s->sharded);
    for (size_t i = 0; s->segments && i < s->manifest.segment_count; i++) {
        kn_map_close(&s->segments[i].text);
        kn_map_close(&s->segments[i].keys);
    }
    kn_map_close(&s->removed);
    for (size_t i = 0; s->annex && i < s->manifest.annex.count; i++) kn_map_close(&s->annex[i]);
    for (size_t i = 0; i < s->arranged_count; i++) {
        free(s->arranged[i].recovered_places);
        free(s->arranged[i].recovered_lists);
    }
    free(s->arranged);
    free(s->annex);
    free(s->annex_fault);
    free(s->annex_bits);
    free(s->checked);
    free(s->removed_bits);
    free(s->segments);
    kn_manifest_free(&s->manifest);
    free(s->path);
    free(s);
}

const kn_store_info *kn_store_describe(const kn_store *s) {
    return &s->info;
}

// Inode, size and time would be cheaper, and are not enough: two quick commits can bring all three back.
bool kn_store_is_current(const kn_store *s) {
    char data[KN_MANIFEST_LINE], line[KN_MANIFEST_LINE];
    if (s->sharded) return kn_sharded_is_current(s);
    char *path = kn_store_file(s->path, KN_STORE_MANIFEST);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t size = fd < 0 ? -1 : read(fd, data, sizeof data);
    if (fd >= 0) close(fd);
    free(path);
    if (size < 0) return false;
    first_line(data, (size_t)size, line);
    return strcmp(line, s->seen) == 0;
}

knnlm_status kn_store_check_model(const kn_store *s, const char *name, const char *model,
                                  const char *tokenizer, int32_t dimension) {
    const kn_store_settings *set = &s->info.settings;
    bool other_tokens = *set->tokenizer_fingerprint && strcmp(set->tokenizer_fingerprint, tokenizer) != 0;
    bool fits = !other_tokens && set->model_dimension == dimension;
    if (model && *set->model_fingerprint && strcmp(set->model_fingerprint, model) != 0)
        return kn_fail(KNNLM_EINVAL,
                       "%s: was made by model %s (%.12s...), not by %s (%.12s...): name that one (`model`)%s",
                       s->path, set->model, set->model_fingerprint, name, model,
                       fits ? ", or take this one all the same (`accept`)" : "");
    if (other_tokens)
        return kn_fail(KNNLM_EINVAL,
                       "%s: was made with another tokenizer (%s, %.12s...) than that of %s (%.12s...)",
                       s->path, set->tokenizer, set->tokenizer_fingerprint, name, tokenizer);
    if (set->model_dimension != dimension)
        return kn_fail(KNNLM_EINVAL, "%s: keys are of a model of width %d, %s has %d", s->path,
                       set->model_dimension, name, dimension);
    return KNNLM_OK;
}

knnlm_status kn_store_attachment(const kn_store *s, const char *name, char **out) {
    uint64_t hash, bytes;
    if (s->sharded) return kn_sharded_attachment(s, name, out);
    const kn_attachment *a = kn_manifest_attachment(&s->manifest, name);
    *out = NULL;
    if (!a) return KNNLM_OK;
    char *path = kn_store_file(s->path, name);
    if (!path) return KNNLM_ENOMEM;
    knnlm_status status = kn_file_hash(path, &hash, &bytes);
    if (status == KNNLM_OK && (hash != a->hash || bytes != a->bytes))
        status = kn_fail(KNNLM_EDATA, "%s: damaged: its checksum is wrong", path);
    if (status != KNNLM_OK) {
        free(path);
        return status;
    }
    *out = path;
    return KNNLM_OK;
}
