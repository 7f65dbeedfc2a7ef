// Verification: checksums of every block, then what the numbers mean: counts, order, cross-references.
#include "store/shards.h"
#include "store/state.h"

#include "base/threads.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS_AT_A_TIME = 64 };

typedef struct verification {
    const kn_store *s;
    const kn_progress *progress;
    void (*found)(void *context, const knnlm_problem *problem);
    void *context;
    knnlm_verify_result *out;
    uint64_t *entry_bits; // a bit per entry that cannot be trusted
    bool *documents;      // those that cannot
    uint64_t *lost_bits;  // a bit per entry that leads to no document, as its record cannot be read
    uint64_t total;       // bytes to read
} verification;

// ---------------------------------------------------------------- reporting

static bool is_marked(const verification *v, uint64_t id) {
    return v->entry_bits[id / 64] >> id % 64 & 1;
}

static bool is_lost(const verification *v, uint64_t id) {
    return v->lost_bits[id / 64] >> id % 64 & 1;
}

static void mark_entries(verification *v, uint64_t first, uint64_t count) {
    for (uint64_t id = first; id < first + count; id++) v->entry_bits[id / 64] |= (uint64_t)1 << id % 64;
    // Documents of the range: entry by entry would be slow, so from document to document. An entry whose
    // document cannot be told is passed over: the record is reported by itself.
    for (uint64_t id = first; id < first + count;) {
        kn_store_entry e;
        kn_store_document d;
        uint64_t next = id + 1;
        if (!is_lost(v, id) && kn_store_entry_at(v->s, id, &e) == KNNLM_OK) {
            v->documents[e.document] = true;
            if (kn_store_document_at(v->s, e.document, &d) == KNNLM_OK) next = d.first + d.count;
        }
        id = next;
    }
}

static void mark_documents(verification *v, uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; i++) {
        kn_store_document d;
        v->documents[i] = true;
        if (kn_store_document_at(v->s, i, &d) == KNNLM_OK) mark_entries(v, d.first, d.count);
    }
}

static void mark_lost(void *context, uint64_t first, uint64_t count) {
    verification *v = context;
    for (uint64_t id = first; id < first + count; id++) {
        v->entry_bits[id / 64] |= (uint64_t)1 << id % 64;
        v->lost_bits[id / 64] |= (uint64_t)1 << id % 64;
    }
}

// What the problem touches was marked before.
static void report(verification *v, knnlm_problem problem, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void report(verification *v, knnlm_problem problem, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    problem.what = text;
    v->out->problems++;
    if (v->found) v->found(v->context, &problem);
}

// ---------------------------------------------------------------- blocks

typedef struct block_task {
    const kn_map *part;
    uint64_t payload;
    size_t first;
    knnlm_keys keys; // of a part of keys, whose numbers are looked at too; KNNLM_KEYS_NONE: another part
    uint64_t rows_end;
    const char *wrong[BLOCKS_AT_A_TIME]; // NULL: intact
} block_task;

static void check_block(void *context, size_t task, int worker) {
    block_task *t = context;
    uint64_t from = (uint64_t)(t->first + task) * KN_PART_BLOCK;
    (void)worker;
    t->wrong[task] = NULL;
    if (!kn_part_block_intact(t->part, t->payload, t->first + task))
        t->wrong[task] = "are damaged";
    else if (t->keys != KNNLM_KEYS_NONE &&
             kn_keys_check(t->keys, t->part->data, t->rows_end, kn_max(from, KN_PART_HEADER),
                           kn_min(from + KN_PART_BLOCK, t->payload)))
        t->wrong[task] = "have a key that is not finite";
}

// Marks the entries and documents that bytes [from, to) of a segment's part touch; in the result they are one
// range, with what may lie between.
typedef knnlm_problem touch(verification *v, size_t segment, uint64_t from, uint64_t to);

static bool has_rows(const verification *v, size_t annex_part) {
    return strcmp(v->s->manifest.annex.parts[annex_part].kind, "rows") == 0;
}

// `segment`: of a part of the annex its number there.
static knnlm_status check_part(verification *v, const kn_map *part, kn_part_kind kind, const char *name,
                               uint64_t count, uint64_t payload, uint64_t seal, size_t segment,
                               touch *touched) {
    const char *reason = kn_part_check(part, kind, count, payload, seal);
    if (reason) { // the blocks' checksums are not to be trusted either
        knnlm_problem p = touched(v, segment, 0, payload);
        p.file = name;
        report(v, p, "%s", reason);
        return KNNLM_OK;
    }
    size_t blocks = kn_part_blocks(payload);
    for (size_t at = 0; at < blocks; at += BLOCKS_AT_A_TIME) {
        block_task t = {.part = part, .payload = payload, .first = at, .keys = KNNLM_KEYS_NONE};
        if (kind == KN_PART_KEYS) {
            t.keys = v->s->manifest.settings.key_type;
            t.rows_end = v->s->segments[segment].layout.scales;
        } else if (kind == KN_PART_ANNEX && has_rows(v, segment)) {
            t.keys = v->s->manifest.settings.key_type;
            t.rows_end = kn_arranged_rows_end(v->s, segment);
        }
        size_t n = kn_min(blocks - at, BLOCKS_AT_A_TIME);
        kn_parallel(n, check_block, &t);
        for (size_t i = 0; i < n; i++) {
            uint64_t from = (uint64_t)(at + i) * KN_PART_BLOCK, to = from + KN_PART_BLOCK;
            if (!t.wrong[i]) continue;
            knnlm_problem p = touched(v, segment, from, to < payload ? to : payload);
            p.file = name;
            p.offset = from;
            report(v, p, "bytes %" PRIu64 " to %" PRIu64 " %s", from, to < payload ? to : payload,
                   t.wrong[i]);
        }
        kn_map_release(part, at * KN_PART_BLOCK, n * KN_PART_BLOCK);
        v->out->bytes += kn_min(n * KN_PART_BLOCK, (size_t)(payload - at * KN_PART_BLOCK));
        if (!kn_progress_report(v->progress, "verifying", v->out->bytes, v->total, "B"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while verifying");
    }
    return KNNLM_OK;
}

// [from, to) of the file as rows [*first, *end) of a section of `rows` rows of `size` bytes at `at`.
static bool rows_of(uint64_t from, uint64_t to, uint64_t at, uint64_t rows, uint64_t size, uint64_t *first,
                    uint64_t *end) {
    if (to <= at || !rows || !size) return false;
    *first = from > at ? (from - at) / size : 0;
    *end = (to - at + size - 1) / size;
    if (*end > rows) *end = rows;
    return *first < *end;
}

static void widen(uint64_t *first, uint64_t *count, uint64_t from, uint64_t to) {
    uint64_t low = *count && *first < from ? *first : from;
    uint64_t high = *count && *first + *count > to ? *first + *count : to;
    *first = low;
    *count = high - low;
}

static void touch_entries(verification *v, const kn_segment *g, knnlm_problem *p, uint64_t from,
                          uint64_t to) {
    mark_entries(v, g->entry.first_entry + from, to - from);
    widen(&p->first_entry, &p->entries, g->entry.first_entry + from, g->entry.first_entry + to);
}

static void touch_documents(verification *v, const kn_segment *g, knnlm_problem *p, uint64_t from,
                            uint64_t to) {
    mark_documents(v, g->entry.first_document + from, to - from);
    widen(&p->first_document, &p->documents, g->entry.first_document + from, g->entry.first_document + to);
}

// Names and paths in the range. A record that is damaged itself may lead anywhere: it is marked by its own.
static void touch_strings(verification *v, const kn_segment *g, knnlm_problem *p, uint64_t from,
                          uint64_t to) {
    const kn_document_record *records =
        (const kn_document_record *)(const void *)(g->text.data + g->layout.documents);
    if (to <= g->layout.strings) return;
    for (uint64_t i = 0; i < g->entry.documents; i++) {
        const kn_document_record *r = &records[i];
        uint64_t size = (uint64_t)r->name_size + r->path_size;
        if (r->strings > g->entry.strings || size > g->entry.strings - r->strings) continue;
        uint64_t first = g->layout.strings + r->strings;
        if (first < to && first + size > from) touch_documents(v, g, p, i, i + 1);
    }
}

static knnlm_problem touched_text(verification *v, size_t segment, uint64_t from, uint64_t to) {
    const kn_segment *g = &v->s->segments[segment];
    const kn_segment_layout *l = &g->layout;
    knnlm_problem p = {.first_entry = g->entry.first_entry, .first_document = g->entry.first_document};
    uint64_t a, b;
    if (rows_of(from, to, l->tokens, g->entry.entries, 4, &a, &b)) touch_entries(v, g, &p, a, b);
    if (rows_of(from, to, l->offsets, g->entry.entries, 4, &a, &b)) touch_entries(v, g, &p, a, b);
    if (rows_of(from, to, l->documents, g->entry.documents, sizeof(kn_document_record), &a, &b))
        touch_documents(v, g, &p, a, b);
    touch_strings(v, g, &p, from, to);
    return p;
}

static knnlm_problem touched_keys(verification *v, size_t segment, uint64_t from, uint64_t to) {
    const kn_segment *g = &v->s->segments[segment];
    size_t d = (size_t)v->s->manifest.settings.dimension;
    knnlm_keys type = v->s->manifest.settings.key_type;
    knnlm_problem p = {.first_entry = g->entry.first_entry};
    size_t row = kn_key_row_bytes(type, d);
    uint64_t a, b;
    if (rows_of(from, to, g->layout.keys, g->entry.entries, row, &a, &b)) touch_entries(v, g, &p, a, b);
    if (kn_key_form_of(type)->scaled && rows_of(from, to, g->layout.scales, g->entry.entries, 4, &a, &b))
        touch_entries(v, g, &p, a, b);
    return p;
}

typedef struct touching {
    verification *v;
    knnlm_problem *p;
} touching;

static void touch_entry(void *context, uint64_t id) {
    const touching *t = context;
    mark_entries(t->v, id, 1);
    widen(&t->p->first_entry, &t->p->entries, id, id + 1);
}

// Of a part of the annex that has keys; `part` is its number.
static knnlm_problem touched_rows(verification *v, size_t part, uint64_t from, uint64_t to) {
    knnlm_problem p = {0};
    kn_arranged_rows_touched(v->s, part, from, to, touch_entry, &(touching){v, &p});
    return p;
}

static knnlm_problem touched_nothing(verification *v, size_t segment, uint64_t from, uint64_t to) {
    (void)v;
    (void)segment;
    (void)from;
    (void)to;
    return (knnlm_problem){0};
}

// ---------------------------------------------------------------- meaning

// What is wrong with the place of a document, of which the first entry should be *next; "" when nothing is.
static void judge_document(const verification *v, uint64_t number, uint64_t *next, char *text, size_t size) {
    kn_store_document d;
    *text = 0;
    if (kn_store_document_at(v->s, number, &d) != KNNLM_OK) {
        snprintf(text, size, "%s", knnlm_message());
        *next = UINT64_MAX; // nobody knows
        return;
    }
    bool last = number + 1 == v->s->manifest.documents;
    if (d.first != *next && *next != UINT64_MAX)
        snprintf(text, size, "document %" PRIu64 " begins at entry %" PRIu64 ", not %" PRIu64, number,
                 d.first, *next);
    else if (d.count < d.tokens && !d.removed && (!last || v->s->manifest.complete))
        snprintf(text, size, "document %" PRIu64 " has %" PRIu64 " entries of %" PRIu64, number, d.count,
                 d.tokens);
    else if (d.bytes > KN_STORE_DOCUMENT_BYTES_MAX)
        snprintf(text, size, "document %" PRIu64 " has impossible sizes", number);
    *next = d.first + d.count;
}

static void check_document(verification *v, const char *file, uint64_t number, uint64_t *next) {
    char text[512];
    judge_document(v, number, next, text, sizeof text);
    if (!*text) return;
    mark_documents(v, number, 1);
    report(v, (knnlm_problem){.file = file, .first_document = number, .documents = 1}, "%s", text);
}

static void check_tokens(verification *v, const char *file, size_t segment) {
    kn_store_segment g = kn_store_segment_at(v->s, segment);
    int32_t vocabulary = v->s->manifest.settings.vocabulary;
    for (uint64_t i = 0; i < g.count; i++) { // of a block that is damaged anyway one line is enough
        uint64_t id = g.first + i;
        if ((g.tokens[i] >= 0 && (!vocabulary || g.tokens[i] < vocabulary)) || is_marked(v, id)) continue;
        mark_entries(v, id, 1);
        report(v, (knnlm_problem){.file = file, .first_entry = id, .entries = 1},
               "entry %" PRIu64 " has token %d, beyond the vocabulary", id, g.tokens[i]);
    }
}

static knnlm_status check_segment(verification *v, size_t i) {
    const kn_segment *g = &v->s->segments[i];
    char name[KN_PART_NAME];
    kn_part_name(name, g->entry.file, "text");
    KN_TRY(check_part(v, &g->text, KN_PART_TEXT, name, g->entry.entries, g->layout.text, g->entry.text_seal,
                      i, touched_text));
    check_tokens(v, name, i);
    uint64_t next = g->entry.first_entry + g->entry.continued;
    for (uint64_t d = 0; d < g->entry.documents; d++)
        check_document(v, name, g->entry.first_document + d, &next);
    if (!g->layout.keys_payload) return KNNLM_OK;
    kn_part_name(name, g->entry.file, "keys");
    return check_part(v, &g->keys, KN_PART_KEYS, name, g->entry.entries, g->layout.keys_payload,
                      g->entry.keys_seal, i, touched_keys);
}

static knnlm_status check_removed(verification *v) {
    const kn_removed_entry *r = &v->s->manifest.removed;
    uint64_t payload = KN_PART_HEADER, entries = 0;
    char name[KN_PART_NAME];
    if (!r->file) return KNNLM_OK;
    kn_part_name(name, r->file, "removed");
    kn_part_extend(&payload, r->documents, sizeof(uint32_t));
    KN_TRY(check_part(v, &v->s->removed, KN_PART_REMOVED, name, r->documents, payload, r->seal, 0,
                      touched_nothing));
    const uint32_t *numbers = (const uint32_t *)(const void *)(v->s->removed.data + KN_PART_HEADER);
    for (uint64_t i = 0; i < r->documents; i++) {
        kn_store_document d;
        if (i && numbers[i] <= numbers[i - 1])
            report(v, (knnlm_problem){.file = name}, "the removed documents are not in order");
        if (kn_store_document_at(v->s, numbers[i], &d) == KNNLM_OK) entries += d.count;
    }
    if (entries != r->entries)
        report(v, (knnlm_problem){.file = name}, "removed documents have %" PRIu64 " entries, not %" PRIu64,
               entries, r->entries);
    return KNNLM_OK;
}

static knnlm_status check_attachments(verification *v) {
    for (size_t i = 0; i < v->s->manifest.attachment_count; i++) {
        const char *name = v->s->manifest.attachments[i].name;
        char *path;
        knnlm_status status = kn_store_attachment(v->s, name, &path);
        if (status == KNNLM_ENOMEM) return status;
        if (status != KNNLM_OK) report(v, (knnlm_problem){.file = name}, "%s", knnlm_message());
        free(path);
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- the verdict

static void count_damage(verification *v) {
    const kn_manifest *m = &v->s->manifest;
    v->out->entries = m->entries - m->removed.entries;
    v->out->documents = m->documents - m->removed.documents;
    for (uint64_t i = 0; i < m->documents; i++)
        if (v->documents[i] && !kn_store_document_removed(v->s, i)) v->out->damaged_documents++;
    for (uint64_t id = 0; id < m->entries; id++) {
        if (!v->entry_bits[id / 64])
            id |= 63;
        else if (is_marked(v, id) && !kn_store_entry_removed(v->s, id))
            v->out->damaged_entries++;
    }
}

static knnlm_status check_annex_part(verification *v, size_t i) {
    const kn_annex_part *p = &v->s->manifest.annex.parts[i];
    char name[KN_PART_NAME];
    kn_part_name(name, p->file, p->kind);
    if (!v->s->annex[i].data) {
        report(v, (knnlm_problem){.file = name}, "is missing, or of another size");
        return KNNLM_OK;
    }
    return check_part(v, &v->s->annex[i], KN_PART_ANNEX, name, p->count, p->payload, p->seal, i,
                      has_rows(v, i) ? touched_rows : touched_nothing);
}

// Whether the index makes sense is its own room's matter; here, whether its bytes are those written. Where
// keys lie is said twice: only what is damaged in both ways is lost.
static knnlm_status check_annex(verification *v) {
    const kn_annex *a = &v->s->manifest.annex;
    size_t before = v->out->problems, run = 0;
    bool rows = true, order = true;
    if (!v->s->arranged_count) mark_entries(v, 0, a->arranged);
    for (size_t i = 0; i < a->count; i++) {
        size_t known = v->out->problems;
        bool there = v->s->annex[i].data;
        KN_TRY(check_annex_part(v, i));
        bool intact = v->out->problems == known;
        if (strcmp(a->parts[i].kind, "order") == 0) order = intact;
        if (strcmp(a->parts[i].kind, "rows") == 0) rows = there;
        if (strcmp(a->parts[i].kind, "listed") != 0 || run >= v->s->arranged_count) continue;
        const kn_arranged *r = &v->s->arranged[run++];
        if (!rows || (!intact && !order)) mark_entries(v, r->first, r->count);
    }
    if (v->s->annex_fault && v->out->problems == before) // its parts are whole, and do not fit each other
        report(v, (knnlm_problem){.file = "index"}, "%s", v->s->annex_fault);
    v->out->index_damaged = v->out->problems > before;
    return KNNLM_OK;
}

static knnlm_status check_all(verification *v) {
    kn_store_find_lost(v->s, mark_lost, v);
    for (size_t i = 0; i < v->s->manifest.segment_count; i++) KN_TRY(check_segment(v, i));
    KN_TRY(check_removed(v));
    KN_TRY(check_annex(v));
    return check_attachments(v);
}

knnlm_status kn_store_verify(const kn_store *s, const kn_progress *progress,
                             void (*found)(void *context, const knnlm_problem *problem), void *context,
                             knnlm_verify_result *out) {
    if (s->sharded) return kn_shards_verify(s, progress, found, context, out);
    verification v = {.s = s,
                      .progress = progress,
                      .found = found,
                      .context = context,
                      .out = out,
                      .entry_bits = kn_alloc(s->manifest.entries / 64 + 1, sizeof(uint64_t)),
                      .lost_bits = kn_alloc(s->manifest.entries / 64 + 1, sizeof(uint64_t)),
                      .documents = kn_alloc(s->manifest.documents + 1, sizeof(bool)),
                      .total = s->info.bytes};
    *out = (knnlm_verify_result){0};
    bool room = v.entry_bits && v.lost_bits && v.documents;
    knnlm_status status = room ? check_all(&v) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        count_damage(&v);
        out->document_damaged = v.documents;
        v.documents = NULL;
    }
    free(v.entry_bits);
    free(v.lost_bits);
    free(v.documents);
    return status;
}
