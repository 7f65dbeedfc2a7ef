// The public functions that build.
#include "api/api.h"

API_DEFAULTS(knnlm_build_options, .min_context = -1)

typedef knnlm_status builder(kn_lm *lm, const char *path, const char *const *texts, size_t count,
                             const kn_build_options *options, const kn_progress *progress,
                             kn_build_result *out);

// As an existing store was cut; by files where there is none, which is then for the builder to tell.
static knnlm_split split_of(const char *path) {
    kn_store *store;
    if (!kn_store_exists(path) || kn_store_open(path, &store) != KNNLM_OK) return KNNLM_SPLIT_FILE;
    knnlm_split split = kn_split_find(kn_store_describe(store)->settings.split);
    kn_store_close(store);
    return split;
}

static kn_build_options make_options(const knnlm_build_options *o) {
    return (kn_build_options){.tap = KN_TAP_DEFAULT,
                              .min_context = o->min_context,
                              .keys = o->keys,
                              .distance = o->distance,
                              .project = o->project,
                              .segment = o->segment,
                              .memory = o->memory,
                              .force = o->force,
                              .planned = o->planned,
                              .planned_context = o->planned_context};
}

static knnlm_build_result built(const kn_build_result *r) {
    return (knnlm_build_result){.documents_added = r->documents_added,
                                .documents_unchanged = r->documents_unchanged,
                                .documents_replaced = r->documents_replaced,
                                .documents_damaged = r->documents_damaged,
                                .entries_added = r->entries_added,
                                .text_bytes = r->bytes_added,
                                .documents = r->documents,
                                .entries = r->entries,
                                .bytes = r->store_bytes,
                                .resumed = r->resumed,
                                .seconds = r->seconds,
                                .tokens_per_second = r->tokens_per_second,
                                .documents_removed = r->documents_removed};
}

static knnlm_status work(builder *build, knnlm_model *model, const char *path, const char *const *texts,
                         size_t count, const knnlm_build_options *options, knnlm_build_result *result) {
    knnlm_build_options given;
    kn_build_result r;
    KN_TRY(API_TAKE(knnlm_build_options, options, &given));
    kn_build_options o = make_options(&given);
    KN_TRY(api_take_texts(given.texts, given.split_given ? given.split : split_of(path), &o.texts));
    if (given.tap) KN_TRY(kn_tap_parse(given.tap, &o.tap));
    KN_TRY(build((kn_lm *)model, path, texts, count, &o, &given.progress, &r));
    if (result) *result = built(&r);
    return KNNLM_OK;
}

knnlm_status knnlm_build(knnlm_model *model, const char *path, const char *const *texts, size_t count,
                         const knnlm_build_options *options, knnlm_build_result *result) {
    return work(kn_build, model, path, texts, count, options, result);
}

knnlm_status knnlm_build_add(knnlm_model *model, const char *path, const char *const *texts, size_t count,
                             const knnlm_build_options *options, knnlm_build_result *result) {
    return work(kn_build_add, model, path, texts, count, options, result);
}

knnlm_status knnlm_build_sync(knnlm_model *model, const char *path, const char *const *texts, size_t count,
                              const knnlm_build_options *options, knnlm_build_result *result) {
    return work(kn_build_sync, model, path, texts, count, options, result);
}

knnlm_status knnlm_build_compare(const char *path, const char *const *texts, size_t count,
                                 const knnlm_build_options *options, knnlm_change_found *found, void *context,
                                 knnlm_build_result *result) {
    knnlm_build_options given;
    kn_build_result r;
    KN_TRY(API_TAKE(knnlm_build_options, options, &given));
    kn_build_options o = make_options(&given);
    KN_TRY(api_take_texts(given.texts, given.split_given ? given.split : split_of(path), &o.texts));
    KN_TRY(kn_build_compare(path, texts, count, &o, &given.progress, found, context, &r));
    if (result) *result = built(&r);
    return KNNLM_OK;
}
