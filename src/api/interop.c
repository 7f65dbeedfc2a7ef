// The public functions for the files of other programs: import and export.
#include "api/api.h"
#include "index/faiss.h"

#include <stdlib.h>

// ---------------------------------------------------------------- import

API_DEFAULTS(knnlm_import_options)

typedef struct importing {
    const knnlm_import_options *given;
    const kn_lm *lm;
    kn_import_options o;
    char tokenizer[KN_FINGERPRINT], tap[KN_TAP_TEXT];
    knnlm_import_result *out;
} importing;

static knnlm_status find_files(importing *m) {
    const knnlm_import_options *g = m->given;
    if (!g->faiss && !g->keys) return kn_fail(KNNLM_EINVAL, "no `keys` to import, and no `faiss`");
    if (!g->faiss && !g->values) return kn_import_find(g->keys, &m->out->keys, &m->out->values);
    if (!g->faiss && !(m->out->keys = kn_strdup(g->keys))) return KNNLM_ENOMEM;
    if (g->values && !(m->out->values = kn_strdup(g->values))) return KNNLM_ENOMEM;
    return KNNLM_OK;
}

static void set_options(importing *m) {
    const knnlm_import_options *g = m->given;
    m->o = (kn_import_options){.keys = m->out->keys,
                               .values = m->out->values,
                               .entries = g->entries,
                               .key_type = g->key_type,
                               .value_type = g->value_type,
                               .convert = g->convert,
                               .force = g->force,
                               .settings = {.model = "",
                                            .model_fingerprint = "",
                                            .tokenizer = "",
                                            .tokenizer_fingerprint = "",
                                            .split = "",
                                            .tap = g->tap ? g->tap : "",
                                            .vocabulary = g->vocabulary,
                                            .key_type = g->convert ? g->keep : KNNLM_KEYS_F16,
                                            .dimension = g->dimension,
                                            .distance = g->distance}};
}

// What the model knows of the keys. The strings live in *m and in the model.
static knnlm_status ask_model(importing *m, kn_tap tap) {
    const kn_lm_info *info = kn_lm_describe(m->lm);
    const kn_tokenizer *t = kn_lm_tokenizer(m->lm);
    kn_store_settings *s = &m->o.settings;
    if (s->dimension && s->dimension != info->key_width)
        return kn_fail(KNNLM_EINVAL, "`dimension` %d: the keys of %s are of dimension %d", s->dimension,
                       info->path, info->key_width);
    if (s->vocabulary && s->vocabulary != info->vocabulary)
        return kn_fail(KNNLM_EINVAL, "`vocabulary` %d: the vocabulary of %s has %d", s->vocabulary,
                       info->path, info->vocabulary);
    KN_TRY(kn_tap_print(m->lm, tap, m->tap));
    kn_tokenizer_fingerprint(t, m->tokenizer);
    s->dimension = info->key_width;
    s->vocabulary = info->vocabulary;
    s->model = info->path;
    s->model_fingerprint = info->fingerprint;
    s->tokenizer = kn_tokenizer_kind_name(kn_tokenizer_kind_of(t));
    s->tokenizer_fingerprint = m->tokenizer;
    s->tap = m->tap;
    return KNNLM_OK;
}

static knnlm_status import_arrays(importing *m, const char *path) {
    kn_import_totals t;
    KN_TRY(kn_store_import(&m->o, path, &m->given->progress, &t));
    m->out->key_type = kn_npy_type_name(t.key_type);
    m->out->value_type = kn_npy_type_name(t.value_type);
    m->out->entries = t.entries;
    m->out->documents = t.documents;
    m->out->bytes = t.bytes;
    m->out->restored = t.restored;
    return KNNLM_OK;
}

static knnlm_status import_index(importing *m, const char *path) {
    kn_faiss_import_options o = {.values = m->out->values,
                                 .value_type = m->o.value_type,
                                 .force = m->o.force,
                                 .settings = m->o.settings};
    kn_faiss_totals t;
    KN_TRY(kn_faiss_import(m->given->faiss, &o, path, &m->given->progress, &t));
    m->out->value_type = m->out->values ? kn_npy_type_name(t.value_type) : NULL;
    m->out->entries = t.entries;
    m->out->documents = t.documents;
    m->out->bytes = t.bytes;
    m->out->restored = t.restored;
    m->out->lists = t.lists;
    m->out->probes = t.probes;
    m->out->code_parts = t.code_parts;
    m->out->code_bits = t.code_bits;
    m->out->residuals = t.residuals;
    return KNNLM_OK;
}

// With its tokenizer the store can show text.
static knnlm_status keep_tokenizer(const kn_lm *lm, const char *path) {
    kn_store_writer *w;
    KN_TRY(kn_store_write(path, &w));
    knnlm_status status = kn_build_attach_tokenizer(w, kn_lm_tokenizer(lm));
    if (status == KNNLM_OK) status = kn_store_writer_amend(w);
    kn_store_writer_close(w);
    return status;
}

// What the new store says of itself.
static knnlm_status look(const char *path, knnlm_import_result *out) {
    kn_store *store;
    KN_TRY(kn_store_open(path, &store));
    const kn_store_settings *s = &kn_store_describe(store)->settings;
    out->dimension = s->dimension;
    out->vocabulary = s->vocabulary;
    out->kept = s->key_type;
    out->distance = s->distance;
    out->model = kn_strdup(s->model);
    out->fingerprint = kn_strdup(s->model_fingerprint);
    out->tap = kn_strdup(s->tap);
    kn_store_close(store);
    return out->model && out->fingerprint && out->tap ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status import(importing *m, const char *path) {
    kn_tap tap = KN_TAP_DEFAULT;
    if (m->given->tap) KN_TRY(kn_tap_parse(m->given->tap, &tap));
    KN_TRY(find_files(m));
    set_options(m);
    if (m->lm) KN_TRY(ask_model(m, tap));
    KN_TRY(m->given->faiss ? import_index(m, path) : import_arrays(m, path));
    if (m->lm) KN_TRY(keep_tokenizer(m->lm, path));
    return look(path, m->out);
}

knnlm_status knnlm_import(const char *path, const knnlm_import_options *options,
                          knnlm_import_result *result) {
    knnlm_import_options given;
    knnlm_import_result r = {0};
    double start = kn_seconds();
    KN_TRY(API_TAKE(knnlm_import_options, options, &given));
    importing m = {.given = &given, .lm = (const kn_lm *)given.model, .out = &r};
    knnlm_status status = import(&m, path);
    r.seconds = kn_seconds() - start;
    if (status == KNNLM_OK && result)
        *result = r;
    else
        knnlm_import_result_free(&r);
    return status;
}

void knnlm_import_result_free(knnlm_import_result *r) {
    free(r->keys);
    free(r->values);
    free(r->model);
    free(r->fingerprint);
    free(r->tap);
    *r = (knnlm_import_result){0};
}

// ---------------------------------------------------------------- export

API_DEFAULTS(knnlm_export_options)

knnlm_status knnlm_store_export(const knnlm_store *store, const char *directory,
                                const knnlm_export_options *options, knnlm_export_result *result) {
    knnlm_export_options given;
    kn_export_totals t;
    double start = kn_seconds();
    KN_TRY(API_TAKE(knnlm_export_options, options, &given));
    kn_export_options o = {.convert = given.convert, .key_type = given.keys, .force = given.force};
    KN_TRY(kn_store_export(store->store, directory, &o, &given.progress, &t));
    if (result)
        *result = (knnlm_export_result){.entries = t.entries,
                                        .documents = t.documents,
                                        .bytes = t.bytes,
                                        .dimension = t.dimension,
                                        .key_type = t.dimension ? kn_npy_type_name(t.key_type) : NULL,
                                        .distance = kn_store_describe(store->store)->settings.distance,
                                        .seconds = kn_seconds() - start};
    return KNNLM_OK;
}

knnlm_status knnlm_store_export_faiss(const knnlm_store *store, const char *file,
                                      const knnlm_export_options *options, knnlm_export_result *result) {
    knnlm_export_options given;
    kn_faiss_totals t;
    double start = kn_seconds();
    KN_TRY(API_TAKE(knnlm_export_options, options, &given));
    KN_TRY(kn_faiss_export(store->store, file, given.force, &given.progress, &t));
    if (result)
        *result = (knnlm_export_result){.entries = t.entries,
                                        .bytes = t.bytes,
                                        .left_out = t.left_out,
                                        .dimension = t.dimension,
                                        .distance = t.distance,
                                        .lists = t.lists,
                                        .probes = t.probes,
                                        .code_parts = t.code_parts,
                                        .code_bits = t.code_bits,
                                        .residuals = t.residuals,
                                        .seconds = kn_seconds() - start};
    return KNNLM_OK;
}
