// Any bytes as a store: everything that can be asked of what opens is asked, then it is verified and
// compacted.
//
// An input is: a byte of flags (below), the JSON of a manifest, a NUL, and bytes that fill the parts which
// the manifest names, in order: text and keys of each segment, the removed list, the attachments, the index
// (store_files.h).
#include "store_files.h"

enum { SEALED = 1, COMPACTED = 2 }; // flags: parts are sealed; the store is compacted
enum { KEYS_MAX = 1 << 14, ENTRIES_MAX = 1 << 12 };

static volatile uint64_t sink;

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
    size_t n = kn_min((size_t)info->entries, ENTRIES_MAX), d = (size_t)info->settings.dimension;
    if (kn_store_tokens(s, info->entries - n, n, tokens) != KNNLM_OK) die("no tokens");
    if (kn_store_offsets(s, info->entries - n, n, offsets) != KNNLM_OK) die("no offsets");
    size_t rows = kn_min(n, KEYS_MAX / d);
    if (info->settings.key_type != KNNLM_KEYS_NONE &&
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

static void hear(void *context, const knnlm_problem *p) {
    (void)context;
    sink += strlen(p->file) + strlen(p->what);
}

static void ask(bool compacted) {
    kn_store *s;
    knnlm_verify_result v;
    knnlm_compact_result c;
    char *file;
    if (kn_store_open(folder, &s) != KNNLM_OK) return;
    ask_documents(s);
    ask_entries(s);
    if (kn_store_attachment(s, "tokenizer.gguf", &file) == KNNLM_OK) free(file);
    if (kn_store_verify(s, NULL, hear, NULL, &v) != KNNLM_OK) die("cannot be verified");
    if (!v.problems) ask_sound(s);
    free(v.document_damaged);
    if (!kn_store_is_current(s)) die("not current");
    kn_store_close(s);
    if (!compacted) return;
    knnlm_status status = kn_store_compact(folder, true, NULL, NULL, &c);
    if (!v.problems && status != KNNLM_OK) die("verified, and cannot be compacted");
    if (status == KNNLM_OK && kn_store_open(folder, &s) != KNNLM_OK) die("compacted, and cannot be opened");
    if (status == KNNLM_OK) kn_store_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_manifest m;
    input files;
    folder_enter();
    if (!size) return 0;
    const uint8_t *end = cut_input(data + 1, size - 1, &files);
    if (!parse_manifest(data + 1, (size_t)(end - data) - 1, &m)) return 0;
    check_round_trip(&m);
    write_files(&files, &m, data[0] & SEALED);
    if (!write_manifest(&m)) die("cannot be printed");
    kn_manifest_free(&m);
    ask(data[0] & COMPACTED);
    remove_files();
    return 0;
}
