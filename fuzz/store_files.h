// The files of a store, made of any bytes, in a folder in memory. Sizes follow from a manifest, so that a
// mutation is not stopped by them; nor is it by checksums, which are made right here where parts are sealed.
#ifndef FUZZ_STORE_FILES_H
#define FUZZ_STORE_FILES_H

#include "folder.h"
#include "store/writer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <xxhash.h>

enum { PART_MAX = 1 << 15, FILES_MAX = 24 };

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

static inline void die(const char *what) {
    fprintf(stderr, "fuzz: %s: %s\n", what, knnlm_message());
    abort();
}

// What the input does not have is zero.
static inline void take(input *in, uint8_t *out, size_t size) {
    size_t n = size < in->size ? size : in->size;
    if (n) memcpy(out, in->data, n);
    memset(out + n, 0, size - n);
    in->data += n;
    in->size -= n;
}

static inline void write_file(const char *name, const void *data, size_t size) {
    char path[160];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) abort();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) die(path);
    close(fd);
}

static inline void remove_files(void) {
    char path[160];
    kn_store_sweep(folder, NULL);
    snprintf(path, sizeof path, "%s/" KN_STORE_MANIFEST, folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/" KN_STORE_LOCK, folder);
    unlink(path);
}

// ---------------------------------------------------------------- parts

// Header, table and seal of one block, around what is there already.
static inline uint64_t seal_part(uint8_t *bytes, kn_part_kind kind, uint64_t count, uint64_t payload) {
    uint32_t head[4] = {0, 0, KN_PART_VERSION, (uint32_t)kind};
    memcpy(head, KN_PART_MAGIC, 8);
    memset(bytes, 0, KN_PART_HEADER);
    memcpy(bytes, head, sizeof head);
    uint64_t hash = XXH3_64bits(bytes, (size_t)payload);
    memcpy(bytes + payload, &hash, 8);
    memcpy(bytes + payload + 8, &count, 8);
    memcpy(bytes + payload + 16, &payload, 8);
    uint64_t seal = XXH3_64bits(bytes + payload, 24);
    memcpy(bytes + payload + 24, &seal, 8);
    return seal;
}

// A part of `payload` bytes; its seal when it gets one. Of a sealed one the input has what follows the
// header, and then as many bytes more as header, table and seal have, which are not used.
static inline bool write_part(input *in, uint64_t file, const char *kind_name, kn_part_kind kind,
                              uint64_t count, uint64_t payload, bool sealed, uint64_t *seal) {
    static uint8_t bytes[PART_MAX];
    char name[KN_PART_NAME];
    uint64_t size;
    if (payload < KN_PART_HEADER || !kn_part_bytes(payload, &size) || size > PART_MAX) return false;
    take(in, bytes, (size_t)size);
    if (sealed) {
        memmove(bytes + KN_PART_HEADER, bytes, (size_t)payload - KN_PART_HEADER);
        *seal = seal_part(bytes, kind, count, payload);
    }
    kn_part_name(name, file, kind_name);
    write_file(name, bytes, (size_t)size);
    return true;
}

static inline bool write_segment(input *in, kn_manifest *m, kn_segment_entry *s, bool sealed) {
    kn_segment_layout l;
    if (!kn_segment_measure(s, m->settings.key_type, (size_t)m->settings.dimension, &l)) return false;
    if (!write_part(in, s->file, "text", KN_PART_TEXT, s->entries, l.text, sealed, &s->text_seal))
        return false;
    return !l.keys_payload ||
           write_part(in, s->file, "keys", KN_PART_KEYS, s->entries, l.keys_payload, sealed, &s->keys_seal);
}

static inline bool write_attachment(input *in, kn_attachment *a, bool sealed) {
    static uint8_t bytes[PART_MAX];
    if (strcmp(a->name, "tokenizer.gguf") != 0 && strcmp(a->name, "projection.gguf") != 0) return true;
    if (a->bytes > sizeof bytes) return false;
    take(in, bytes, (size_t)a->bytes);
    if (sealed) a->hash = XXH3_64bits(bytes, (size_t)a->bytes);
    write_file(a->name, bytes, (size_t)a->bytes);
    return true;
}

// Text and keys of each segment, the removed list, the attachments, the parts of the index.
static inline bool write_files(input *in, kn_manifest *m, bool sealed) {
    uint64_t removed = KN_PART_HEADER;
    if (m->segment_count > FILES_MAX || m->annex.count > FILES_MAX) return false;
    for (size_t i = 0; i < m->segment_count; i++)
        if (!write_segment(in, m, &m->segments[i], sealed)) return false;
    if (m->removed.file && (!kn_part_extend(&removed, m->removed.documents, 4) ||
                            !write_part(in, m->removed.file, "removed", KN_PART_REMOVED, m->removed.documents,
                                        removed, sealed, &m->removed.seal)))
        return false;
    for (size_t i = 0; i < m->attachment_count; i++)
        if (!write_attachment(in, &m->attachments[i], sealed)) return false;
    for (size_t i = 0; i < m->annex.count; i++) {
        kn_annex_part *p = &m->annex.parts[i];
        if (!write_part(in, p->file, p->kind, KN_PART_ANNEX, p->count, p->payload, sealed, &p->seal))
            return false;
    }
    return true;
}

// ---------------------------------------------------------------- the manifest

// Of JSON alone: its first line is made here.
static inline bool parse_manifest(const uint8_t *json, size_t size, kn_manifest *m) {
    char line[KN_MANIFEST_LINE];
    int n = snprintf(line, sizeof line, "%s %d %016" PRIx64 "\n", KN_STORE_MAGIC, KN_STORE_VERSION,
                     XXH3_64bits(json, size));
    char *text = malloc((size_t)n + size);
    if (!text) abort();
    memcpy(text, line, (size_t)n);
    memcpy(text + n, json, size);
    bool parsed = kn_manifest_parse("fuzz", text, (size_t)n + size, m) == KNNLM_OK;
    free(text);
    return parsed;
}

static inline bool write_manifest(const kn_manifest *m) {
    char *text;
    size_t size;
    if (kn_manifest_print(m, &text, &size) != KNNLM_OK) return false;
    write_file(KN_STORE_MANIFEST, text, size);
    free(text);
    return true;
}

// An input that is the JSON of a manifest, a NUL, and bytes that fill the files which the manifest names; cut
// here at the NUL.
static inline const uint8_t *cut_input(const uint8_t *data, size_t size, input *files) {
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    if (!end) end = data + size;
    *files = (input){end, (size_t)(data + size - end)};
    take(files, &(uint8_t){0}, 1); // the NUL
    return end;
}

#endif
