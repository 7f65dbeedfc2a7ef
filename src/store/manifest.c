// Prints, parses and copies the manifest: settings, segments, attachments.
#include "store/state.h"
#include "store/tuned.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { STRING_MAX = 1 << 16 }; // of a setting

// ---------------------------------------------------------------- settings

const char *kn_settings_check(const kn_store_settings *s) {
    if ((unsigned)s->key_type >= KN_KEY_TYPES) return "an unknown type of keys";
    if ((unsigned)s->distance >= KN_DISTANCES) return "an unknown distance";
    if (s->dimension < 1 || s->dimension > KN_STORE_DIMENSION_MAX) return "an impossible dimension";
    if (s->model_dimension < s->dimension || s->model_dimension > KN_STORE_DIMENSION_MAX)
        return "an impossible dimension of the model";
    if (s->vocabulary < 0) return "an impossible vocabulary";
    if (s->window < 0 || s->min_context < 0) return "impossible windows";
    if (s->segment < 1 || s->segment > KN_STORE_SEGMENT_MAX) return "impossible segments";
    const char *const strings[] = {
        s->model, s->model_fingerprint, s->tokenizer, s->tokenizer_fingerprint, s->tap, s->split};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        if (strings[i] && strlen(strings[i]) > STRING_MAX) return "too long a name";
    return NULL;
}

// The strings of settings, in one order.
enum { STRINGS = 6 };
static void list_strings(kn_store_settings *s, const char **list[STRINGS]) {
    const char **all[STRINGS] = {
        &s->model, &s->model_fingerprint, &s->tokenizer, &s->tokenizer_fingerprint, &s->tap, &s->split};
    memcpy(list, all, sizeof all);
}

knnlm_status kn_settings_copy(const kn_store_settings *s, kn_store_settings *out) {
    const char **to[STRINGS];
    const char *reason = kn_settings_check(s);
    if (reason) return kn_fail(KNNLM_EINVAL, "a store with %s", reason);
    *out = *s;
    list_strings(out, to);
    bool whole = true;
    for (int i = 0; i < STRINGS; i++) {
        *to[i] = kn_strdup(*to[i] ? *to[i] : "");
        whole = whole && *to[i];
    }
    if (whole) return KNNLM_OK;
    kn_settings_free(out);
    return KNNLM_ENOMEM;
}

void kn_settings_free(kn_store_settings *s) {
    const char **list[STRINGS];
    list_strings(s, list);
    for (int i = 0; i < STRINGS; i++) {
        free((char *)(uintptr_t)*list[i]);
        *list[i] = NULL;
    }
}

// ---------------------------------------------------------------- lists

knnlm_status kn_manifest_add_segment(kn_manifest *m, const kn_segment_entry *s) {
    KN_TRY(kn_grow(&m->segments, &m->segment_capacity, m->segment_count + 1, sizeof *m->segments));
    kn_segment_entry *added = &m->segments[m->segment_count++];
    *added = *s;
    added->first_entry = m->entries;
    added->first_document = m->documents;
    m->entries += s->entries;
    m->documents += s->documents;
    return KNNLM_OK;
}

// A name of a file in the store's own directory that JSON can hold.
bool kn_attachment_name(const char *name) {
    json_t *text =
        *name && *name != '.' && !strchr(name, '/') && strlen(name) < 256 ? json_string(name) : NULL;
    json_decref(text);
    return text != NULL;
}

knnlm_status kn_manifest_attach(kn_manifest *m, const char *name, uint64_t bytes, uint64_t hash) {
    for (size_t i = 0; i < m->attachment_count; i++) {
        kn_attachment *a = &m->attachments[i];
        if (strcmp(a->name, name) != 0) continue;
        a->bytes = bytes;
        a->hash = hash;
        return KNNLM_OK;
    }
    KN_TRY(
        kn_grow(&m->attachments, &m->attachment_capacity, m->attachment_count + 1, sizeof *m->attachments));
    char *copy = kn_strdup(name);
    if (!copy) return KNNLM_ENOMEM;
    m->attachments[m->attachment_count++] = (kn_attachment){copy, bytes, hash};
    return KNNLM_OK;
}

const kn_attachment *kn_manifest_attachment(const kn_manifest *m, const char *name) {
    for (size_t i = 0; i < m->attachment_count; i++)
        if (strcmp(m->attachments[i].name, name) == 0) return &m->attachments[i];
    return NULL;
}

knnlm_status kn_annex_add(kn_annex *a, const kn_annex_part *part) {
    KN_TRY(kn_grow(&a->parts, &a->capacity, a->count + 1, sizeof *a->parts));
    a->parts[a->count++] = *part;
    return KNNLM_OK;
}

void kn_annex_free(kn_annex *a) {
    free(a->note);
    free(a->parts);
    *a = (kn_annex){0};
}

knnlm_status kn_annex_copy(const kn_annex *a, kn_annex *out) {
    *out = (kn_annex){0};
    if (!a->note) return KNNLM_OK;
    out->note = kn_strdup(a->note);
    out->arranged = a->arranged;
    knnlm_status status = out->note ? KNNLM_OK : KNNLM_ENOMEM;
    for (size_t i = 0; i < a->count && status == KNNLM_OK; i++) status = kn_annex_add(out, &a->parts[i]);
    if (status != KNNLM_OK) kn_annex_free(out);
    return status;
}

void kn_manifest_free(kn_manifest *m) {
    kn_settings_free(&m->settings);
    kn_annex_free(&m->annex);
    for (size_t i = 0; i < m->attachment_count; i++) free(m->attachments[i].name);
    free(m->attachments);
    free(m->segments);
    *m = (kn_manifest){0};
}

knnlm_status kn_manifest_copy(const kn_manifest *m, kn_manifest *out) {
    *out = *m;
    out->segments = NULL;
    out->attachments = NULL;
    out->annex = (kn_annex){0};
    out->segment_count = out->segment_capacity = out->attachment_count = out->attachment_capacity = 0;
    out->entries = out->documents = 0;
    knnlm_status status = kn_settings_copy(&m->settings, &out->settings);
    if (status != KNNLM_OK) return status;
    for (size_t i = 0; i < m->segment_count && status == KNNLM_OK; i++)
        status = kn_manifest_add_segment(out, &m->segments[i]);
    for (size_t i = 0; i < m->attachment_count && status == KNNLM_OK; i++) {
        const kn_attachment *a = &m->attachments[i];
        status = kn_manifest_attach(out, a->name, a->bytes, a->hash);
    }
    if (status == KNNLM_OK) status = kn_annex_copy(&m->annex, &out->annex);
    if (status != KNNLM_OK) kn_manifest_free(out);
    return status;
}

// ---------------------------------------------------------------- printing

static json_t *hex(uint64_t value) {
    return json_sprintf("%016" PRIx64, value);
}

static json_t *integer(uint64_t value) {
    return json_integer((json_int_t)value);
}

// Names of files need not be UTF-8, and JSON must be: what is not becomes "?".
static json_t *text(const char *string) {
    json_t *exact = json_string(string);
    if (exact) return exact;
    char *copy = kn_strdup(string);
    if (!copy) return NULL;
    for (char *c = copy; *c; c++)
        if (*c & 0x80) *c = '?';
    json_t *replaced = json_string(copy);
    free(copy);
    return replaced;
}

static json_t *print_segment(const kn_segment_entry *s, bool keys) {
    json_t *one = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "file", integer(s->file), "entries",
                            integer(s->entries), "documents", integer(s->documents), "continued",
                            integer(s->continued), "strings", integer(s->strings), "text", hex(s->text_seal));
    if (!one || !keys || kn_json_put(one, "keys", hex(s->keys_seal))) return one;
    json_decref(one);
    return NULL;
}

static json_t *print_segments(const kn_manifest *m) {
    json_t *list = json_array();
    bool whole = list, keys = m->settings.key_type != KNNLM_KEYS_NONE;
    for (size_t i = 0; i < m->segment_count && whole; i++)
        whole =
            json_array_append_new(
                list, print_segment(&m->segments[i], keys && !kn_segment_arranged(m, &m->segments[i]))) == 0;
    if (whole) return list;
    json_decref(list);
    return NULL;
}

static json_t *print_attachments(const kn_manifest *m) {
    json_t *object = json_object();
    bool whole = object;
    for (size_t i = 0; i < m->attachment_count && whole; i++) {
        const kn_attachment *a = &m->attachments[i];
        whole = kn_json_put(object, a->name,
                            json_pack("{s:o, s:o}", "bytes", integer(a->bytes), "hash", hex(a->hash)));
    }
    if (whole) return object;
    json_decref(object);
    return NULL;
}

static json_t *print_settings(const kn_store_settings *s) {
    return json_pack(
        "{s:{s:o, s:o, s:i}, s:{s:o, s:o, s:i}, s:{s:s, s:i, s:o, s:s}, s:{s:i, s:i, s:o}, s:I}", "model",
        "path", text(s->model), "fingerprint", text(s->model_fingerprint), "dimension", s->model_dimension,
        "tokenizer", "kind", text(s->tokenizer), "fingerprint", text(s->tokenizer_fingerprint), "vocabulary",
        s->vocabulary, "keys", "type", kn_key_type_names[s->key_type], "dimension", s->dimension, "tap",
        text(s->tap), "distance", kn_distance_names[s->distance], "windows", "length", s->window,
        "min_context", s->min_context, "documents", text(s->split), "segment", (json_int_t)s->segment);
}

static json_t *print_removed(const kn_removed_entry *r) {
    return json_pack("{s:o, s:o, s:o, s:o}", "file", integer(r->file), "documents", integer(r->documents),
                     "entries", integer(r->entries), "seal", hex(r->seal));
}

static json_t *print_annex(const kn_annex *a) {
    json_t *note = json_loads(a->note, 0, NULL), *parts = json_array();
    bool whole = note && parts;
    for (size_t i = 0; i < a->count && whole; i++) {
        const kn_annex_part *p = &a->parts[i];
        whole = json_array_append_new(parts, json_pack("{s:o, s:s, s:o, s:o, s:o}", "file", integer(p->file),
                                                       "kind", p->kind, "count", integer(p->count), "payload",
                                                       integer(p->payload), "seal", hex(p->seal))) == 0;
    }
    if (whole)
        return json_pack("{s:o, s:o, s:o}", "note", note, "arranged", integer(a->arranged), "parts", parts);
    json_decref(note);
    json_decref(parts);
    return NULL;
}

static json_t *print_object(const kn_manifest *m) {
    json_t *root = json_pack("{s:o, s:b, s:I, s:I, s:o, s:o, s:o}", "generation", integer(m->generation),
                             "complete", m->complete, "created", (json_int_t)m->created, "job_time",
                             (json_int_t)m->job_time, "next_file", integer(m->next_file), "entries",
                             integer(m->entries), "documents", integer(m->documents));
    if (root && kn_json_put(root, "settings", print_settings(&m->settings)) &&
        (!m->tuned.known || kn_json_put(root, "tuned", kn_tuned_print(&m->tuned))) &&
        (!m->removed.file || kn_json_put(root, "removed", print_removed(&m->removed))) &&
        (!m->annex.note || kn_json_put(root, "index", print_annex(&m->annex))) &&
        kn_json_put(root, "attachments", print_attachments(m)) &&
        kn_json_put(root, "segments", print_segments(m)))
        return root;
    json_decref(root);
    return NULL;
}

typedef struct buffer {
    char *data;
    size_t size, capacity;
    bool failed;
} buffer;

static int append(const char *data, size_t size, void *context) {
    buffer *b = context;
    size_t needed;
    b->failed = b->failed || !kn_add(b->size, size, &needed) ||
                kn_grow(&b->data, &b->capacity, needed, 1) != KNNLM_OK;
    if (b->failed) return -1;
    memcpy(b->data + b->size, data, size);
    b->size = needed;
    return 0;
}

static size_t print_line(char line[KN_MANIFEST_LINE], int version, uint64_t checksum) {
    return (size_t)snprintf(line, KN_MANIFEST_LINE, "%s %d %016" PRIx64 "\n", KN_STORE_MAGIC, version,
                            checksum);
}

// Not by json_dumps: jansson 2.14 forgets some failures on the way, and goes on with a text that lacks a
// piece.
knnlm_status kn_manifest_print(const kn_manifest *m, char **data, size_t *size) {
    char line[KN_MANIFEST_LINE];
    buffer b = {0};
    size_t head = print_line(line, KN_STORE_VERSION, 0);
    json_t *root = print_object(m);
    bool done = root && append(line, head, &b) == 0 &&
                json_dump_callback(root, append, &b, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) == 0 &&
                !b.failed;
    json_decref(root);
    if (!done) {
        free(b.data);
        return kn_fail(KNNLM_ENOMEM, "out of memory for the manifest of a store");
    }
    print_line(line, KN_STORE_VERSION, XXH3_64bits(b.data + head, b.size - head));
    memcpy(b.data, line, head);
    *data = b.data;
    *size = b.size;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- parsing

// The first fault is kept in `reason`; after it every getter gives zeros.
typedef struct parse {
    const char *name, *reason;
} parse;

static void fault(parse *p, const char *reason) {
    if (!p->reason) p->reason = reason;
}

static uint64_t get_integer(parse *p, const json_t *object, const char *key, uint64_t max) {
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || (uint64_t)number > max) fault(p, key);
    return p->reason ? 0 : (uint64_t)number;
}

static uint64_t get_hex(parse *p, const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) fault(p, key);
    return p->reason ? 0 : strtoull(text, NULL, 16);
}

static const char *get_string(parse *p, const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) > STRING_MAX) fault(p, key);
    return p->reason ? "" : text;
}

static int get_choice(parse *p, const json_t *object, const char *key, const char *const *names) {
    const char *name = get_string(p, object, key);
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) return i;
    fault(p, key);
    return 0;
}

static void parse_settings(parse *p, const json_t *o, kn_store_settings *s) {
    const json_t *model = json_object_get(o, "model"), *tokenizer = json_object_get(o, "tokenizer");
    const json_t *keys = json_object_get(o, "keys"), *windows = json_object_get(o, "windows");
    *s = (kn_store_settings){
        .model = get_string(p, model, "path"),
        .model_fingerprint = get_string(p, model, "fingerprint"),
        .model_dimension = (int32_t)get_integer(p, model, "dimension", INT32_MAX),
        .tokenizer = get_string(p, tokenizer, "kind"),
        .tokenizer_fingerprint = get_string(p, tokenizer, "fingerprint"),
        .vocabulary = (int32_t)get_integer(p, tokenizer, "vocabulary", INT32_MAX),
        .key_type = (knnlm_keys)get_choice(p, keys, "type", kn_key_type_names),
        .dimension = (int32_t)get_integer(p, keys, "dimension", INT32_MAX),
        .tap = get_string(p, keys, "tap"),
        .distance = (knnlm_distance)get_choice(p, keys, "distance", kn_distance_names),
        .window = (int32_t)get_integer(p, windows, "length", INT32_MAX),
        .min_context = (int32_t)get_integer(p, windows, "min_context", INT32_MAX),
        .split = get_string(p, windows, "documents"),
        .segment = (uint32_t)get_integer(p, o, "segment", KN_STORE_SEGMENT_MAX),
    };
    const char *reason = kn_settings_check(s);
    if (reason) fault(p, reason);
}

static knnlm_status parse_segments(parse *p, const json_t *list, kn_manifest *m) {
    if (!json_is_array(list)) fault(p, "segments");
    for (size_t i = 0; i < json_array_size(list) && !p->reason; i++) {
        const json_t *o = json_array_get(list, i);
        kn_segment_entry s = {
            .file = get_integer(p, o, "file", m->next_file - 1),
            .entries = get_integer(p, o, "entries", KN_STORE_SEGMENT_MAX),
            .documents = get_integer(p, o, "documents", UINT32_MAX - m->documents),
            .continued = get_integer(p, o, "continued", KN_STORE_SEGMENT_MAX),
            .strings = get_integer(p, o, "strings", INT64_MAX / 2),
            .text_seal = get_hex(p, o, "text"),
        };
        bool own = m->settings.key_type != KNNLM_KEYS_NONE && m->entries >= m->annex.arranged;
        s.keys_seal = own ? get_hex(p, o, "keys") : 0;
        bool continues = s.documents ? s.continued <= s.entries : s.continued == s.entries;
        if (!s.file || !continues || (m->documents == 0 && s.continued)) fault(p, "segments");
        if (s.entries > KN_STORE_ENTRIES_MAX - m->entries) fault(p, "entries");
        if (!p->reason) KN_TRY(kn_manifest_add_segment(m, &s));
    }
    return KNNLM_OK;
}

static knnlm_status parse_attachments(parse *p, json_t *object, kn_manifest *m) {
    const char *name;
    json_t *value;
    if (!json_is_object(object)) fault(p, "attachments");
    json_object_foreach (object, name, value) {
        uint64_t bytes = get_integer(p, value, "bytes", INT64_MAX), hash = get_hex(p, value, "hash");
        if (!kn_attachment_name(name)) fault(p, "attachments");
        if (p->reason) break;
        KN_TRY(kn_manifest_attach(m, name, bytes, hash));
    }
    return KNNLM_OK;
}

static void parse_removed(parse *p, const json_t *o, kn_manifest *m) {
    if (!o) return;
    m->removed = (kn_removed_entry){.file = get_integer(p, o, "file", m->next_file - 1),
                                    .documents = get_integer(p, o, "documents", m->documents),
                                    .entries = get_integer(p, o, "entries", m->entries),
                                    .seal = get_hex(p, o, "seal")};
    if (!m->removed.file || !m->removed.documents) fault(p, "removed");
}

// A word for a file's name.
static bool annex_kind(const char *kind) {
    size_t n = strlen(kind);
    return n && n < KN_ANNEX_KIND && strspn(kind, "abcdefghijklmnopqrstuvwxyz") == n &&
           strcmp(kind, "text") != 0 && strcmp(kind, "keys") != 0 && strcmp(kind, "removed") != 0;
}

static knnlm_status parse_annex_part(parse *p, const json_t *o, kn_manifest *m) {
    kn_annex_part part = {.file = get_integer(p, o, "file", m->next_file - 1),
                          .count = get_integer(p, o, "count", INT64_MAX),
                          .payload = get_integer(p, o, "payload", INT64_MAX / 2),
                          .seal = get_hex(p, o, "seal")};
    const char *kind = get_string(p, o, "kind");
    if (!part.file || !annex_kind(kind) || part.payload < KN_PART_HEADER) fault(p, "index");
    if (p->reason) return KNNLM_OK;
    strcpy(part.kind, kind);
    return kn_annex_add(&m->annex, &part);
}

static knnlm_status parse_annex(parse *p, const json_t *o, kn_manifest *m) {
    const json_t *note = json_object_get(o, "note"), *parts = json_object_get(o, "parts");
    if (!o) return KNNLM_OK;
    if (!json_is_object(note) || !json_is_array(parts)) fault(p, "index");
    if (json_object_get(o, "arranged")) // version 1 has none
        m->annex.arranged = get_integer(p, o, "arranged", KN_STORE_ENTRIES_MAX);
    if (m->annex.arranged && m->settings.key_type == KNNLM_KEYS_NONE) fault(p, "index");
    for (size_t i = 0; i < json_array_size(parts) && !p->reason; i++)
        KN_TRY(parse_annex_part(p, json_array_get(parts, i), m));
    if (p->reason) return KNNLM_OK;
    m->annex.note = json_dumps(note, JSON_COMPACT | JSON_REAL_PRECISION(17));
    return m->annex.note ? KNNLM_OK : kn_fail(KNNLM_ENOMEM, "out of memory for the note of an index");
}

static knnlm_status parse_object(parse *p, const json_t *root, kn_manifest *m) {
    kn_store_settings settings;
    const json_t *complete = json_object_get(root, "complete"), *tuned = json_object_get(root, "tuned");
    if (!json_is_boolean(complete)) fault(p, "complete");
    m->complete = json_is_true(complete);
    m->generation = get_integer(p, root, "generation", KN_MANIFEST_COUNTER_MAX);
    m->created = (int64_t)get_integer(p, root, "created", INT64_MAX);
    m->job_time = (int64_t)get_integer(p, root, "job_time", INT64_MAX);
    m->next_file = get_integer(p, root, "next_file", KN_MANIFEST_COUNTER_MAX);
    if (!m->next_file) fault(p, "next_file");
    parse_settings(p, json_object_get(root, "settings"), &settings);
    if (p->reason) return KNNLM_OK;
    KN_TRY(kn_settings_copy(&settings, &m->settings));
    KN_TRY(parse_annex(p, json_object_get(root, "index"), m));
    KN_TRY(parse_segments(p, json_object_get(root, "segments"), m));
    KN_TRY(parse_attachments(p, json_object_get(root, "attachments"), m));
    parse_removed(p, json_object_get(root, "removed"), m);
    if (m->annex.arranged > m->entries) fault(p, "index");
    if (tuned && !kn_tuned_parse(tuned, &m->tuned)) fault(p, "tuned");
    if (get_integer(p, root, "entries", INT64_MAX) != m->entries) fault(p, "entries");
    if (get_integer(p, root, "documents", INT64_MAX) != m->documents) fault(p, "documents");
    return KNNLM_OK;
}

// The first line; *body is what follows it.
static knnlm_status parse_line(const char *name, const char *data, size_t size, size_t *body) {
    const char *end = size ? memchr(data, '\n', kn_min(size, 128)) : NULL;
    char line[128], expected[KN_MANIFEST_LINE];
    int version = 0;
    if (!end || strncmp(data, KN_STORE_MAGIC " ", sizeof KN_STORE_MAGIC) != 0)
        return kn_fail(KNNLM_EDATA, "%s: not the manifest of a knnlm store", name);
    *body = (size_t)(end - data) + 1;
    memcpy(line, data, *body);
    line[*body - 1] = 0;
    if (sscanf(line + sizeof KN_STORE_MAGIC, "%d", &version) == 1 && version > KN_STORE_VERSION)
        return kn_fail(KNNLM_ENOTSUP, "%s: a store of version %d: this knnlm knows up to %d", name, version,
                       KN_STORE_VERSION);
    if (version != KN_STORE_VERSION_ONE) version = KN_STORE_VERSION;
    expected[print_line(expected, version, XXH3_64bits(data + *body, size - *body)) - 1] =
        0; // without its newline
    if (strcmp(line, expected) == 0) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: damaged: its checksum is wrong", name);
}

knnlm_status kn_manifest_parse(const char *name, const char *data, size_t size, kn_manifest *out) {
    size_t body = 0;
    json_error_t error;
    parse p = {.name = name};
    *out = (kn_manifest){0};
    KN_TRY(parse_line(name, data, size, &body));
    json_t *root = json_loadb(data + body, size - body, 0, &error);
    if (!root) return kn_fail(KNNLM_EDATA, "%s: malformed at line %d: %s", name, error.line + 1, error.text);
    knnlm_status status = parse_object(&p, root, out);
    json_decref(root);
    if (status == KNNLM_OK && p.reason) status = kn_fail(KNNLM_EDATA, "%s: malformed: %s", name, p.reason);
    if (status != KNNLM_OK) kn_manifest_free(out);
    return status;
}
