// Keys that lie in the order of lists: where the key of an entry is, and whether it is intact.
#include "store/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool kn_segment_arranged(const kn_manifest *m, const kn_segment_entry *e) {
    return e->first_entry < m->annex.arranged;
}

// ---------------------------------------------------------------- opening

typedef struct opening {
    kn_store *s;
    size_t part; // next
    uint64_t first;
} opening;

static knnlm_status unfit(const kn_store *s, const char *what) {
    return kn_fail(KNNLM_EDATA, "%s: its index, which has the keys, is damaged: %s", s->path, what);
}

// The next part, which must be of this kind and hold `bytes`; *out is NULL when its file cannot be read.
static bool take_part(opening *o, const char *kind, uint64_t count, uint64_t bytes, const uint8_t **out) {
    const kn_annex *a = &o->s->manifest.annex;
    if (o->part >= a->count) return false;
    const kn_annex_part *p = &a->parts[o->part];
    if (strcmp(p->kind, kind) != 0 || p->count != count || p->payload != KN_PART_HEADER + bytes) return false;
    const uint8_t *data = o->s->annex[o->part++].data;
    *out = data ? data + KN_PART_HEADER : NULL;
    return true;
}

static void skip_part(opening *o, const char *kind) {
    const kn_annex *a = &o->s->manifest.annex;
    if (o->part < a->count && strcmp(a->parts[o->part].kind, kind) == 0) o->part++;
}

static bool take_run(opening *o, size_t lists, kn_arranged *r) {
    const kn_store_settings *set = &o->s->manifest.settings;
    uint64_t n = o->part < o->s->manifest.annex.count ? o->s->manifest.annex.parts[o->part].count : 0;
    size_t row = kn_key_row_bytes(set->key_type, (size_t)set->dimension);
    bool scaled = kn_key_form_of(set->key_type)->scaled;
    if (!n || n > o->s->manifest.annex.arranged - o->first) return false;
    uint64_t ends = kn_annex_padded((lists + 1) * sizeof(uint64_t)), keys = kn_annex_padded(n * row);
    *r = (kn_arranged){.first = o->first, .count = n, .lists = lists, .order = o->part};
    const uint8_t *order;
    if (!take_part(o, "order", n, ends + kn_annex_padded(n * sizeof(uint32_t)), &order)) return false;
    r->rows = o->part;
    if (!take_part(o, "rows", n, keys + (scaled ? kn_annex_padded(n * sizeof(float)) : 0), &r->keys))
        return false;
    skip_part(o, "codes");
    r->listed = o->part;
    if (!take_part(o, "listed", n, kn_annex_padded(n * kn_annex_list_bytes(lists)), &r->list_of))
        return false;
    if (order) r->ends = (const uint64_t *)(const void *)order;
    if (order) r->ids = (const uint32_t *)(const void *)(order + ends);
    if (scaled && r->keys) r->scales = (const float *)(const void *)(r->keys + keys);
    o->first += n;
    return true;
}

static bool is_aligned(const kn_manifest *m) {
    for (size_t i = 0; i < m->segment_count; i++)
        if (m->segments[i].first_entry < m->annex.arranged &&
            m->segments[i].first_entry + m->segments[i].entries > m->annex.arranged)
            return false;
    return true;
}

// Annexes have sizes that were checked against their files; here, whether those fit each other.
knnlm_status kn_store_open_arranged(kn_store *s) {
    const kn_annex *a = &s->manifest.annex;
    opening o = {.s = s, .part = 1};
    if (!a->arranged) return KNNLM_OK;
    size_t lists = a->count ? (size_t)a->parts[0].count : 0;
    if (!lists || lists > UINT32_MAX || strcmp(a->parts[0].kind, "lists") != 0)
        return unfit(s, "it has no lists");
    s->arranged = kn_alloc(a->count, sizeof *s->arranged);
    if (!s->arranged) return KNNLM_ENOMEM;
    while (o.first < a->arranged) {
        if (!take_run(&o, lists, &s->arranged[s->arranged_count]))
            return unfit(s, "a part is of another size");
        s->arranged_count++;
    }
    return is_aligned(&s->manifest) ? KNNLM_OK : unfit(s, "it ends within a segment");
}

// ---------------------------------------------------------------- finding

static const kn_arranged *run_of(const kn_store *s, uint64_t id) {
    size_t low = 0, high = s->arranged_count - 1;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (s->arranged[middle].first <= id)
            low = middle;
        else
            high = middle - 1;
    }
    return &s->arranged[low];
}

// Numbers are little-endian: one of 2 bytes is the low half of one of 4.
static uint32_t list_of(const kn_arranged *r, uint64_t index) {
    size_t bytes = kn_annex_list_bytes(r->lists);
    uint32_t list = 0;
    memcpy(&list, r->list_of + index * bytes, bytes);
    return list;
}

// Within its list, whose entries ascend. Damage may lead nowhere, but not astray.
static bool find_place(const kn_arranged *r, uint64_t id, uint64_t *place) {
    uint32_t list = list_of(r, id - r->first);
    if (list >= r->lists || r->ends[list] > r->ends[list + 1] || r->ends[list + 1] > r->count) return false;
    uint64_t low = r->ends[list], high = r->ends[list + 1];
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (r->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    *place = low;
    return low < r->ends[list + 1] && r->ids[low] == id;
}

// The run that has the key of an entry, if all of it can be read.
static knnlm_status find_run(const kn_store *s, uint64_t id, const kn_arranged **run) {
    *run = s->arranged_count ? run_of(s, id) : NULL;
    if (*run && id - (*run)->first < (*run)->count && (*run)->keys && (*run)->ends && (*run)->list_of)
        return KNNLM_OK;
    return unfit(s, s->annex_fault ? s->annex_fault : "a part is missing");
}

static knnlm_status locate(const kn_store *s, uint64_t id, const kn_arranged **run, uint64_t *place) {
    KN_TRY(find_run(s, id, run));
    if (find_place(*run, id, place)) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: the key of entry %" PRIu64 " cannot be found: its index is damaged",
                   s->path, id);
}

static size_t row_bytes(const kn_store *s) {
    const kn_store_settings *set = &s->manifest.settings;
    return kn_key_row_bytes(set->key_type, (size_t)set->dimension);
}

knnlm_status kn_store_key_at(const kn_store *s, uint64_t id, const uint8_t **key, float *scale) {
    if (s->manifest.settings.key_type == KNNLM_KEYS_NONE || id >= s->manifest.entries)
        return kn_fail(KNNLM_EINVAL, "%s: no key of entry %" PRIu64, s->path, id);
    if (id >= s->manifest.annex.arranged) {
        const kn_segment *g = &s->segments[kn_store_find_segment(s, id)];
        uint64_t index = id - g->entry.first_entry;
        const float *scales = (const float *)(const void *)(g->keys.data + g->layout.scales);
        *key = g->keys.data + g->layout.keys + index * row_bytes(s);
        *scale = kn_key_form_of(s->manifest.settings.key_type)->scaled ? scales[index] : 1;
        return KNNLM_OK;
    }
    const kn_arranged *r;
    uint64_t place;
    KN_TRY(locate(s, id, &r, &place));
    *key = r->keys + place * row_bytes(s);
    *scale = r->scales ? r->scales[place] : 1;
    return KNNLM_OK;
}

static size_t own_first(const kn_store *s) {
    return s->manifest.annex.arranged < s->manifest.entries
               ? kn_store_find_segment(s, s->manifest.annex.arranged)
               : s->manifest.segment_count;
}

size_t kn_store_key_runs(const kn_store *s) {
    if (s->manifest.settings.key_type == KNNLM_KEYS_NONE) return 0;
    return s->arranged_count + s->manifest.segment_count - own_first(s);
}

kn_store_key_run kn_store_key_run_at(const kn_store *s, size_t number) {
    if (number < s->arranged_count) {
        const kn_arranged *r = &s->arranged[number];
        return (kn_store_key_run){.first = r->first,
                                  .count = r->count,
                                  .ids = r->ids,
                                  .keys = r->keys,
                                  .scales = r->scales,
                                  .part = r->rows,
                                  .order_part = r->order,
                                  .ids_at = kn_annex_padded((r->lists + 1) * sizeof(uint64_t))};
    }
    size_t segment = own_first(s) + number - s->arranged_count;
    kn_store_segment g = kn_store_segment_at(s, segment);
    return (kn_store_key_run){
        .first = g.first, .count = g.count, .keys = g.keys, .scales = g.scales, .part = segment};
}

// ---------------------------------------------------------------- checking

typedef struct row_check {
    const kn_store *s;
    const kn_arranged *r;
} row_check;

static const char *check_rows(void *context, size_t from, size_t to) {
    const row_check *c = context;
    return kn_keys_check(c->s->manifest.settings.key_type, c->r->keys,
                         kn_annex_padded(c->r->count * row_bytes(c->s)), from, to);
}

static knnlm_status check_place(const kn_store *s, const kn_arranged *r, uint64_t place) {
    size_t row = row_bytes(s);
    row_check c = {s, r};
    KN_TRY(kn_store_check_annex(s, r->rows, place * row, row, check_rows, &c));
    if (!r->scales) return KNNLM_OK;
    return kn_store_check_annex(s, r->rows, kn_annex_padded(r->count * row) + place * sizeof(float),
                                sizeof(float), check_rows, &c);
}

// The order of the entries is looked up by what it says itself: the list of this one, and its end.
static knnlm_status check_order(const kn_store *s, const kn_arranged *r, uint64_t id) {
    size_t bytes = kn_annex_list_bytes(r->lists), ends = kn_annex_padded((r->lists + 1) * sizeof(uint64_t));
    KN_TRY(kn_store_check_annex(s, r->listed, (id - r->first) * bytes, bytes, NULL, NULL));
    uint32_t list = list_of(r, id - r->first);
    if (list >= r->lists) return KNNLM_OK; // told when it is looked for
    KN_TRY(kn_store_check_annex(s, r->order, list * sizeof(uint64_t), 2 * sizeof(uint64_t), NULL, NULL));
    uint64_t from = r->ends[list], to = r->ends[list + 1];
    if (from >= to || to > r->count) return KNNLM_OK; // likewise
    return kn_store_check_annex(s, r->order, ends + from * sizeof(uint32_t), (to - from) * sizeof(uint32_t),
                                NULL, NULL);
}

// ---------------------------------------------------------------- recovering

// Entries ascend within a list: their lists tell their places.
static knnlm_status recover_places(kn_arranged *r) {
    size_t ends_bytes = kn_annex_padded((r->lists + 1) * sizeof(uint64_t));
    uint64_t *ends = kn_alloc(ends_bytes + r->count * sizeof(uint32_t), 1),
             *next = kn_alloc(r->lists + 1, sizeof *next);
    bool sound = ends && next;
    for (uint64_t i = 0; i < r->count && sound; i++) {
        uint32_t list = list_of(r, i);
        sound = list < r->lists;
        if (sound) ends[list + 1]++;
    }
    for (size_t l = 0; l < r->lists && sound; l++) ends[l + 1] += ends[l];
    if (sound) memcpy(next, ends, r->lists * sizeof *next);
    uint32_t *ids = ends ? (uint32_t *)(void *)((uint8_t *)ends + ends_bytes) : NULL;
    for (uint64_t i = 0; i < r->count && sound; i++) ids[next[list_of(r, i)]++] = (uint32_t)(r->first + i);
    knnlm_status status = sound ? KNNLM_OK : ends && next ? KNNLM_EDATA : KNNLM_ENOMEM;
    free(next);
    r->recovered_places = ends;
    if (status != KNNLM_OK) return status;
    r->ends = ends;
    r->ids = ids;
    return KNNLM_OK;
}

// Every entry stands once in the lists.
static knnlm_status recover_lists(kn_arranged *r) {
    size_t bytes = kn_annex_list_bytes(r->lists);
    uint8_t *lists = kn_alloc(r->count, bytes);
    uint64_t found = 0;
    r->recovered_lists = lists;
    if (!lists) return KNNLM_ENOMEM;
    for (uint32_t l = 0; l < r->lists; l++)
        for (uint64_t place = r->ends[l]; place < r->ends[l + 1] && place < r->count; place++, found++) {
            uint64_t index = r->ids[place] - r->first;
            if (index >= r->count) return KNNLM_EDATA;
            memcpy(lists + index * bytes, &l, bytes);
        }
    r->list_of = lists;
    return found == r->count ? KNNLM_OK : KNNLM_EDATA;
}

// Whether the lists and what lies in them tell the same.
static bool agree(const kn_arranged *r) {
    if (r->ends[0] != 0 || r->ends[r->lists] != r->count) return false;
    for (size_t l = 0; l < r->lists; l++) {
        if (r->ends[l] > r->ends[l + 1] || r->ends[l + 1] > r->count) return false;
        for (uint64_t place = r->ends[l]; place < r->ends[l + 1]; place++) {
            uint64_t index = r->ids[place] - r->first;
            bool ascends = place == r->ends[l] || r->ids[place - 1] < r->ids[place];
            if (index >= r->count || !ascends || list_of(r, index) != l) return false;
        }
    }
    return true;
}

static bool part_intact(const kn_store *s, size_t part) {
    if (!s->annex[part].data) return false;
    size_t size = (size_t)(s->manifest.annex.parts[part].payload - KN_PART_HEADER);
    return kn_store_check_annex(s, part, 0, size, NULL, NULL) == KNNLM_OK;
}

static knnlm_status recover_run(const kn_store *s, kn_arranged *r) {
    if (r->trusted) return KNNLM_OK;
    bool order = part_intact(s, r->order), listed = part_intact(s, r->listed);
    knnlm_status status = KNNLM_OK;
    if (!order && !listed) return unfit(s, "neither the lists nor the entries in them can be read");
    if (!listed) status = recover_lists(r);
    if (!order || (status == KNNLM_OK && !agree(r))) status = recover_places(r);
    if (status == KNNLM_EDATA) return unfit(s, "its lists make no sense");
    r->trusted = status == KNNLM_OK;
    return status;
}

knnlm_status kn_store_recover_order(kn_store *s) {
    if (s->manifest.annex.arranged && !s->arranged_count) return unfit(s, s->annex_fault);
    for (size_t i = 0; i < s->arranged_count; i++) KN_TRY(recover_run(s, &s->arranged[i]));
    return KNNLM_OK;
}

knnlm_status kn_arranged_check(const kn_store *s, uint64_t first, uint64_t count) {
    for (uint64_t id = first; id < first + count; id++) {
        const kn_arranged *r;
        uint64_t place;
        KN_TRY(find_run(s, id, &r));
        if (!r->trusted) KN_TRY(check_order(s, r, id));
        KN_TRY(locate(s, id, &r, &place));
        KN_TRY(check_place(s, r, place));
    }
    return KNNLM_OK;
}

static void touch_places(const kn_arranged *r, uint64_t from, uint64_t to, uint64_t at, size_t size,
                         kn_arranged_entry *touched, void *context) {
    uint64_t end = at + r->count * size;
    if (to <= at || from >= end) return;
    uint64_t place = from > at ? (from - at) / size : 0, last = (kn_min(to, end) - at + size - 1) / size;
    for (; place < last; place++)
        if (r->ids[place] - r->first < r->count) touched(context, r->ids[place]);
}

void kn_arranged_rows_touched(const kn_store *s, size_t part, uint64_t from, uint64_t to,
                              kn_arranged_entry *touched, void *context) {
    size_t row = row_bytes(s);
    for (size_t i = 0; i < s->arranged_count; i++) {
        const kn_arranged *r = &s->arranged[i];
        if (r->rows != part || !r->ids) continue;
        touch_places(r, from, to, KN_PART_HEADER, row, touched, context);
        if (r->scales)
            touch_places(r, from, to, KN_PART_HEADER + kn_annex_padded(r->count * row), sizeof(float),
                         touched, context);
    }
}

uint64_t kn_arranged_rows_end(const kn_store *s, size_t part) {
    return KN_PART_HEADER + kn_annex_padded(s->manifest.annex.parts[part].count * row_bytes(s));
}
