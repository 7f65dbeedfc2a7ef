// Parses how entries are coded ("pq64", "pq64x4"), and tells how an index was made.
#include "index/note.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool parse_pq(const char *text, kn_recipe *out) {
    char *end;
    if (strncmp(text, "pq", 2) != 0 || !isdigit((unsigned char)text[2])) return false;
    unsigned long parts = strtoul(text + 2, &end, 10);
    bool four = strcmp(end, "x4") == 0;
    if (parts < 1 || parts > KN_STORE_DIMENSION_MAX || (*end && !four)) return false;
    out->code_parts = (uint32_t)parts;
    out->code_bits = four ? 4 : 8;
    return true;
}

knnlm_status kn_recipe_parse_codes(const char *text, kn_recipe *out) {
    out->code_parts = 0;
    out->code_bits = 0;
    out->auto_codes = !text || strcmp(text, "auto") == 0;
    if (out->auto_codes || strcmp(text, "none") == 0 || parse_pq(text, out)) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "codes %s: auto, none, pqN (N bytes) or pqNx4 (N parts of 4 bits)", text);
}

knnlm_status kn_recipe_of(const kn_store *store, kn_recipe *out) {
    const char *text = kn_store_annex_note(store);
    kn_index_note note;
    *out = (kn_recipe){.seed = 1};
    if (!text) return KNNLM_OK;
    KN_TRY(kn_index_note_parse(kn_store_describe(store)->path, text, &note));
    out->lists = note.lists;
    out->probes = note.probes;
    out->code_parts = note.code_parts;
    out->code_bits = note.code_parts ? note.code_bits : 0;
    kn_index_note_free(&note);
    return KNNLM_OK;
}

static knnlm_status add_outline(const char *path, const char *text, uint32_t *lists, uint64_t *listed) {
    kn_index_note note;
    if (!text) return KNNLM_OK;
    KN_TRY(kn_index_note_parse(path, text, &note));
    *lists = note.lists;
    for (size_t i = 0; i < note.run_count; i++) *listed += note.runs[i].entries;
    kn_index_note_free(&note);
    return KNNLM_OK;
}

knnlm_status kn_index_outline(const kn_store *store, uint32_t *lists, uint64_t *listed) {
    size_t shards = kn_store_shards(store);
    const char *path = kn_store_describe(store)->path;
    *lists = 0;
    *listed = 0;
    if (!shards) return add_outline(path, kn_store_annex_note(store), lists, listed);
    for (size_t i = 0; i < shards; i++)
        KN_TRY(add_outline(path, kn_store_shard_at(store, i).note, lists, listed));
    return KNNLM_OK;
}
