// Checksums compared on first touch: a block of a part is read through once in the life of an open store, and
// remembered. So a damaged file is an error where it is used, and opening a store of any size stays cheap.
#include "store/state.h"

#include <inttypes.h>
#include <stdlib.h>

// Bits of a part: one for header, footer and table, then one a block.
static size_t bits_of(uint64_t payload) {
    return payload ? 1 + kn_part_blocks(payload) : 0;
}

knnlm_status kn_store_number_blocks(kn_store *s) {
    size_t bits = 0;
    for (size_t i = 0; i < s->manifest.segment_count; i++) {
        kn_segment *g = &s->segments[i];
        g->text_bits = bits;
        g->keys_bits = bits += bits_of(g->layout.text);
        bits += bits_of(g->layout.keys_payload);
    }
    s->annex_bits = kn_alloc(s->manifest.annex.count, sizeof *s->annex_bits);
    if (!s->annex_bits) return KNNLM_ENOMEM;
    for (size_t i = 0; i < s->manifest.annex.count; i++) {
        s->annex_bits[i] = bits;
        bits += bits_of(s->manifest.annex.parts[i].payload);
    }
    s->checked = kn_alloc(bits / 64 + 1, sizeof *s->checked);
    return s->checked ? KNNLM_OK : KNNLM_ENOMEM;
}

// ---------------------------------------------------------------- one part

typedef struct sealed {
    const kn_store *s;
    const kn_map *map;
    kn_part_kind kind;
    const char *ending; // of its file's name
    uint64_t file, count, payload, seal;
    size_t bits;
} sealed;

static bool is_checked(const kn_store *s, size_t bit) {
    return atomic_load_explicit(&s->checked[bit / 64], memory_order_acquire) >> bit % 64 & 1;
}

// Of all blocks that bytes [from, from + size) of a part lie in: searches ask this of every list.
static bool are_checked(const kn_store *s, size_t bits, uint64_t from, uint64_t size) {
    size_t last = (size_t)((from + size - 1) / KN_PART_BLOCK);
    for (size_t block = (size_t)(from / KN_PART_BLOCK); block <= last; block++)
        if (!is_checked(s, bits + 1 + block)) return false;
    return true;
}

static void set_checked(const kn_store *s, size_t bit) {
    atomic_fetch_or_explicit(&s->checked[bit / 64], (uint64_t)1 << bit % 64, memory_order_release);
}

static knnlm_status damaged(const sealed *p, uint64_t block, const char *reason) {
    bool annex = p->kind == KN_PART_ANNEX;
    return kn_fail(KNNLM_EDATA, "%s/%06" PRIu64 ".%s: damaged at block %" PRIu64 ": %s (knnlm %s %s%s)",
                   p->s->path, p->file, p->ending, block, reason, annex ? "index" : "verify", p->s->path,
                   annex ? " makes it anew" : "");
}

static knnlm_status check_seal(const sealed *p) {
    if (is_checked(p->s, p->bits)) return KNNLM_OK;
    const char *reason = kn_part_check(p->map, p->kind, p->count, p->payload, p->seal);
    if (reason) return damaged(p, 0, reason);
    set_checked(p->s, p->bits);
    return KNNLM_OK;
}

// Two threads may check one block at a time: both find the same.
static knnlm_status check_block(const sealed *p, uint64_t block, kn_block_check *check, void *context) {
    uint64_t from = block * KN_PART_BLOCK, left = p->payload - from;
    KN_TRY(check_seal(p));
    if (!kn_part_block_intact(p->map, p->payload, (size_t)block))
        return damaged(p, block, "its checksum is wrong");
    uint64_t to = from + (left < KN_PART_BLOCK ? left : KN_PART_BLOCK);
    if (from < KN_PART_HEADER) from = KN_PART_HEADER;
    const char *reason = check && from < to
                             ? check(context, (size_t)(from - KN_PART_HEADER), (size_t)(to - KN_PART_HEADER))
                             : NULL;
    if (reason) return damaged(p, block, reason);
    set_checked(p->s, p->bits + 1 + (size_t)block);
    return KNNLM_OK;
}

// Bytes [from, from + size) of the file.
static knnlm_status check_bytes(const sealed *p, uint64_t from, uint64_t size, kn_block_check *check,
                                void *context) {
    if (!size) return KNNLM_OK;
    for (uint64_t block = from / KN_PART_BLOCK; block <= (from + size - 1) / KN_PART_BLOCK; block++)
        if (!is_checked(p->s, p->bits + 1 + (size_t)block)) KN_TRY(check_block(p, block, check, context));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- segments

static sealed text_of(const kn_store *s, const kn_segment *g) {
    return (sealed){.s = s,
                    .map = &g->text,
                    .kind = KN_PART_TEXT,
                    .ending = "text",
                    .file = g->entry.file,
                    .count = g->entry.entries,
                    .payload = g->layout.text,
                    .seal = g->entry.text_seal,
                    .bits = g->text_bits};
}

static sealed keys_of(const kn_store *s, const kn_segment *g) {
    return (sealed){.s = s,
                    .map = &g->keys,
                    .kind = KN_PART_KEYS,
                    .ending = "keys",
                    .file = g->entry.file,
                    .count = g->entry.entries,
                    .payload = g->layout.keys_payload,
                    .seal = g->entry.keys_seal,
                    .bits = g->keys_bits};
}

const char *kn_keys_check(knnlm_keys type, const uint8_t *data, size_t rows_end, size_t from, size_t to) {
    size_t rows_to = to < rows_end ? to : rows_end, scales_from = from > rows_end ? from : rows_end;
    bool finite = from >= rows_to || kn_key_values_finite(type, data + from, rows_to - from);
    if (finite && kn_key_form_of(type)->scaled && scales_from < to)
        finite = kn_key_values_finite(KNNLM_KEYS_F32, data + scales_from, to - scales_from);
    return finite ? NULL : "a key is not finite";
}

typedef struct key_check {
    const kn_store *s;
    const kn_segment *g;
} key_check;

static const char *check_key_block(void *context, size_t from, size_t to) {
    const key_check *c = context;
    return kn_keys_check(c->s->manifest.settings.key_type, c->g->keys.data + KN_PART_HEADER,
                         (size_t)c->g->layout.scales - KN_PART_HEADER, from, to);
}

static knnlm_status check_segment_keys(const kn_store *s, const kn_segment *g, uint64_t from, uint64_t n) {
    const kn_store_settings *set = &s->manifest.settings;
    size_t row = kn_key_row_bytes(set->key_type, (size_t)set->dimension);
    key_check context = {s, g};
    sealed p = keys_of(s, g);
    if (!g->layout.keys_payload) return KNNLM_OK;
    KN_TRY(check_bytes(&p, g->layout.keys + row * from, row * n, check_key_block, &context));
    if (!kn_key_form_of(set->key_type)->scaled) return KNNLM_OK;
    return check_bytes(&p, g->layout.scales + 4 * from, 4 * n, check_key_block, &context);
}

static knnlm_status check_keys(const kn_store *s, const kn_segment *g, uint64_t from, uint64_t n) {
    bool arranged = kn_segment_arranged(&s->manifest, &g->entry);
    return arranged ? kn_arranged_check(s, g->entry.first_entry + from, n)
                    : check_segment_keys(s, g, from, n);
}

knnlm_status kn_store_check_keys(const kn_store *s, uint64_t first, uint64_t count) {
    if (s->sharded) return KNNLM_OK; // each shard checks the keys that it is asked for
    for (size_t at = count ? kn_store_find_segment(s, first) : 0; count; at++) {
        const kn_segment *g = &s->segments[at];
        uint64_t from = first - g->entry.first_entry, left = g->entry.entries - from;
        uint64_t n = count < left ? count : left;
        KN_TRY(check_keys(s, g, from, n));
        first += n;
        count -= n;
    }
    return KNNLM_OK;
}

knnlm_status kn_segment_check_tokens(const kn_store *s, const kn_segment *g, uint64_t from, uint64_t n) {
    sealed p = text_of(s, g);
    KN_TRY(check_bytes(&p, g->layout.tokens + 4 * from, 4 * n, NULL, NULL));
    return check_bytes(&p, g->layout.offsets + 4 * from, 4 * n, NULL, NULL);
}

knnlm_status kn_segment_check_entries(const kn_store *s, const kn_segment *g, uint64_t from, uint64_t n) {
    KN_TRY(kn_segment_check_tokens(s, g, from, n));
    return check_keys(s, g, from, n);
}

knnlm_status kn_segment_check_record(const kn_store *s, const kn_segment *g, uint64_t index) {
    const kn_segment_layout *l = &g->layout;
    uint64_t at = l->documents + index * sizeof(kn_document_record);
    sealed p = text_of(s, g);
    KN_TRY(check_bytes(&p, at, sizeof(kn_document_record), NULL, NULL));
    const kn_document_record *r = (const kn_document_record *)(const void *)(g->text.data + at);
    uint64_t size = (uint64_t)r->name_size + r->path_size;
    if (r->strings > g->entry.strings || size > g->entry.strings - r->strings) return KNNLM_OK; // told later
    return check_bytes(&p, l->strings + r->strings, size, NULL, NULL);
}

knnlm_status kn_store_check_text(const kn_store *s, size_t segment) {
    sealed p = text_of(s, &s->segments[segment]);
    return check_bytes(&p, 0, p.payload, NULL, NULL);
}

// ---------------------------------------------------------------- the annex

knnlm_status kn_store_check_annex(const kn_store *s, size_t number, size_t offset, size_t size,
                                  kn_block_check *check, void *context) {
    const kn_annex_part *a = &s->manifest.annex.parts[number];
    if (size && are_checked(s, s->annex_bits[number], KN_PART_HEADER + offset, size)) return KNNLM_OK;
    sealed p = {.s = s,
                .map = &s->annex[number],
                .kind = KN_PART_ANNEX,
                .ending = a->kind,
                .file = a->file,
                .count = a->count,
                .payload = a->payload,
                .seal = a->seal,
                .bits = s->annex_bits[number]};
    KN_TRY(check_seal(&p));
    return check_bytes(&p, KN_PART_HEADER + offset, size, check, context);
}
