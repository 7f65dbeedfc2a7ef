// Any bytes as a store: everything that can be asked of what opens is asked, then it is verified and
// compacted.
//
// An input is: a byte of flags (below), the JSON of a manifest, a NUL, and bytes that fill the parts which
// the manifest names, in order: text and keys of each segment, the removed list, the attachments. Sizes
// follow from the manifest, so that a mutation is not stopped by them; nor is it by checksums, which are made
// right here.
#include "store/writer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { SEALED = 1, COMPACTED = 2 }; // flags: parts are sealed; the store is compacted
enum { PART_MAX = 1 << 15, FILES_MAX = 24, KEYS_MAX = 1 << 14, ENTRIES_MAX = 1 << 12 };

static volatile uint64_t sink;

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

static void die(const char *what) {
    fprintf(stderr, "fuzz_store: %s: %s\n", what, knnlm_message());
    abort();
}

// ---------------------------------------------------------------- a directory in memory

static char folder[64], path[72];

static void leave(void) {
    unlink(path);
    rmdir(folder);
}

// By way of a link from elsewhere: what lies below /dev is never replaced by the library.
static void enter(void) {
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/knnlm-fuzz-XXXXXX" : "/tmp/knnlm-fuzz-XXXXXX");
    if (!mkdtemp(folder)) abort();
    snprintf(path, sizeof path, "/tmp/knnlm-fuzz-%ld.store", (long)getpid());
    unlink(path);
    if (symlink(folder, path) != 0) abort();
    atexit(leave);
}

static void write_file(const char *name, const void *data, size_t size) {
    char *file = kn_store_file(path, name);
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) die(file);
    close(fd);
    free(file);
}

static void empty(void) {
    char manifest[128];
    kn_store_sweep(path, NULL);
    snprintf(manifest, sizeof manifest, "%s/MANIFEST", path);
    unlink(manifest);
    snprintf(manifest, sizeof manifest, "%s/LOCK", path);
    unlink(manifest);
}

// ---------------------------------------------------------------- its files

static void take(input *in, uint8_t *out, size_t size) {
    size_t n = size < in->size ? size : in->size;
    if (n) memcpy(out, in->data, n);
    memset(out + n, 0, size - n);
    in->data += n;
    in->size -= n;
}

// A part of `payload` bytes; its seal when it gets one.
static bool write_part(input *in, uint64_t file, const char *kind_name, kn_part_kind kind, uint64_t count,
                       uint64_t payload, bool sealed, uint64_t *seal) {
    static uint8_t bytes[PART_MAX + 1024];
    char name[KN_PART_NAME];
    uint64_t size, hash;
    if (!kn_part_bytes(payload, &size) || size > PART_MAX) return false;
    take(in, bytes, (size_t)size);
    if (sealed) {
        uint32_t head[4] = {0, 0, KN_PART_VERSION, (uint32_t)kind};
        memcpy(head, KN_PART_MAGIC, 8);
        memmove(bytes + KN_PART_HEADER, bytes, (size_t)payload - KN_PART_HEADER);
        memset(bytes, 0, KN_PART_HEADER);
        memcpy(bytes, head, sizeof head);
        hash = XXH3_64bits(bytes, (size_t)payload); // one block
        memcpy(bytes + payload, &hash, 8);
        memcpy(bytes + payload + 8, &count, 8);
        memcpy(bytes + payload + 16, &payload, 8);
        *seal = XXH3_64bits(bytes + payload, 24);
        memcpy(bytes + payload + 24, seal, 8);
    }
    kn_part_name(name, file, kind_name);
    write_file(name, bytes, (size_t)size);
    return true;
}

static bool write_segment(input *in, kn_manifest *m, kn_segment_entry *s, bool sealed) {
    kn_segment_layout l;
    if (!kn_segment_measure(s, m->settings.key_type, (size_t)m->settings.dimension, &l)) return false;
    if (!write_part(in, s->file, "text", KN_PART_TEXT, s->entries, l.text, sealed, &s->text_seal))
        return false;
    return !l.keys_payload ||
           write_part(in, s->file, "keys", KN_PART_KEYS, s->entries, l.keys_payload, sealed, &s->keys_seal);
}

static bool write_attachment(input *in, kn_attachment *a, bool sealed) {
    static uint8_t bytes[PART_MAX];
    if (strcmp(a->name, "tokenizer.gguf") != 0 && strcmp(a->name, "projection.gguf") != 0) return true;
    if (a->bytes > sizeof bytes) return false;
    take(in, bytes, (size_t)a->bytes);
    if (sealed) a->hash = XXH3_64bits(bytes, (size_t)a->bytes);
    write_file(a->name, bytes, (size_t)a->bytes);
    return true;
}

static bool write_files(input *in, kn_manifest *m, bool sealed) {
    uint64_t removed = KN_PART_HEADER;
    if (m->segment_count > FILES_MAX) return false;
    for (size_t i = 0; i < m->segment_count; i++)
        if (!write_segment(in, m, &m->segments[i], sealed)) return false;
    if (m->removed.file && (!kn_part_extend(&removed, m->removed.documents, 4) ||
                            !write_part(in, m->removed.file, "removed", KN_PART_REMOVED, m->removed.documents,
                                        removed, sealed, &m->removed.seal)))
        return false;
    for (size_t i = 0; i < m->attachment_count; i++)
        if (!write_attachment(in, &m->attachments[i], sealed)) return false;
    return true;
}

// ---------------------------------------------------------------- the manifest

// Printed and parsed again it is the same; else the store would change by being opened and committed.
static void check_round_trip(const kn_manifest *m) {
    kn_manifest again, copy;
    char *first, *second;
    size_t first_size, second_size;
    if (kn_manifest_print(m, &first, &first_size) != KNNLM_OK) die("cannot be printed");
    if (kn_manifest_parse("fuzz", first, first_size, &again) != KNNLM_OK) die("cannot be parsed again");
    if (kn_manifest_copy(&again, &copy) != KNNLM_OK) die("cannot be copied");
    if (kn_manifest_print(&copy, &second, &second_size) != KNNLM_OK) die("cannot be printed again");
    if (first_size != second_size || memcmp(first, second, first_size) != 0) die("is another now");
    kn_manifest_free(&again);
    kn_manifest_free(&copy);
    free(first);
    free(second);
}

static bool parse(const uint8_t *json, size_t size, kn_manifest *m) {
    char line[KN_MANIFEST_LINE];
    int n = snprintf(line, sizeof line, "%s %d %016" PRIx64 "\n", KN_STORE_MAGIC, KN_STORE_VERSION,
                     XXH3_64bits(json, size));
    char *text = malloc((size_t)n + size);
    if (!text) abort();
    memcpy(text, line, (size_t)n);
    memcpy(text + n, json, size);
    bool parsed = kn_manifest_parse("fuzz", text, (size_t)n + size, m) == KNNLM_OK;
    free(text);
    if (parsed) check_round_trip(m);
    return parsed;
}

// ---------------------------------------------------------------- what is asked

static void ask_documents(const kn_store *s) {
    const kn_store_info *info = kn_store_describe(s);
    for (uint64_t i = 0; i < info->documents; i++) {
        kn_store_document d;
        if (kn_store_document_at(s, i, &d) != KNNLM_OK) continue;
        for (size_t j = 0; j < d.name_size + d.path_size; j++) sink += (uint8_t)d.name[j];
        if (d.first > info->entries || d.count > info->entries - d.first) die("entries beyond the end");
    }
}

static void ask_entries(const kn_store *s) {
    static int32_t tokens[ENTRIES_MAX];
    static uint64_t offsets[ENTRIES_MAX];
    static float keys[KEYS_MAX];
    const kn_store_info *info = kn_store_describe(s);
    size_t n = kn_least((size_t)info->entries, ENTRIES_MAX), d = (size_t)info->settings.dimension;
    if (kn_store_tokens(s, info->entries - n, n, tokens) != KNNLM_OK) die("no tokens");
    if (kn_store_offsets(s, info->entries - n, n, offsets) != KNNLM_OK) die("no offsets");
    size_t rows = kn_least(n, KEYS_MAX / d);
    if (info->settings.key_type != KN_KEYS_NONE &&
        kn_store_keys(s, info->entries - rows, rows, keys) != KNNLM_OK)
        die("no keys");
    for (uint64_t id = 0; id < n; id++) {
        kn_store_entry e;
        if (kn_store_entry_at(s, id, &e) == KNNLM_OK && e.document >= info->documents)
            die("no such document");
        sink += kn_store_entry_removed(s, id);
    }
    for (size_t i = 0; i < info->segments; i++) sink += kn_store_segment_at(s, i).count;
}

// When nothing is wrong with it, nothing may be refused.
static void ask_sound(const kn_store *s) {
    const kn_store_info *info = kn_store_describe(s);
    kn_store_document d;
    kn_store_entry e;
    for (uint64_t i = 0; i < info->documents; i++)
        if (kn_store_document_at(s, i, &d) != KNNLM_OK) die("verified, and a document cannot be read");
    for (uint64_t id = 0; id < info->entries && id < ENTRIES_MAX; id++)
        if (kn_store_entry_at(s, id, &e) != KNNLM_OK) die("verified, and an entry cannot be read");
}

static void hear(void *context, const kn_store_problem *p) {
    (void)context;
    sink += strlen(p->file) + strlen(p->what);
}

static void ask(bool compacted) {
    kn_store *s;
    kn_store_verdict v;
    kn_store_compacted c;
    char *file;
    if (kn_store_open(path, &s) != KNNLM_OK) return;
    ask_documents(s);
    ask_entries(s);
    if (kn_store_attachment(s, "tokenizer.gguf", &file) == KNNLM_OK) free(file);
    if (kn_store_verify(s, NULL, hear, NULL, &v) != KNNLM_OK) die("cannot be verified");
    if (!v.problems) ask_sound(s);
    free(v.document_damaged);
    if (!kn_store_is_current(s)) die("not current");
    kn_store_close(s);
    if (!compacted) return;
    knnlm_status status = kn_store_compact(path, true, NULL, &c);
    if (!v.problems && status != KNNLM_OK) die("verified, and cannot be compacted");
    if (status == KNNLM_OK && kn_store_open(path, &s) != KNNLM_OK) die("compacted, and cannot be opened");
    if (status == KNNLM_OK) kn_store_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_manifest m;
    char *manifest;
    size_t manifest_size;
    if (!*folder) enter();
    const uint8_t *end = size > 1 ? memchr(data + 1, 0, size - 1) : NULL;
    if (!end) end = data + size;
    if (!size || !parse(data + 1, (size_t)(end - data) - 1, &m)) return 0;
    input in = {end, (size_t)(data + size - end)};
    take(&in, &(uint8_t){0}, 1); // the NUL
    write_files(&in, &m, data[0] & SEALED);
    if (kn_manifest_print(&m, &manifest, &manifest_size) != KNNLM_OK) die("cannot be printed");
    write_file(KN_STORE_MANIFEST, manifest, manifest_size);
    free(manifest);
    kn_manifest_free(&m);
    ask(data[0] & COMPACTED);
    empty();
    return 0;
}
