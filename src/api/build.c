// The public functions that build.
#include "api/api.h"

static kn_lm *lm_of(knnlm_model *model) {
    return (kn_lm *)model;
}

knnlm_build_options knnlm_build_options_default(void) {
    return (knnlm_build_options){.size = sizeof(knnlm_build_options), .min_context = -1};
}

typedef knnlm_status builder(kn_lm *lm, const char *path, const char *const *texts, size_t count,
                             const kn_build_options *options, const kn_progress *progress,
                             kn_build_result *out);

static knnlm_status work(builder *build, knnlm_model *model, const char *path, const char *const *texts,
                         size_t count, const knnlm_build_options *options, knnlm_build_result *result) {
    knnlm_build_options given;
    KN_TRY(API_TAKE(knnlm_build_options, options, &given));
    kn_build_options o = {.split = given.split,
                          .tap = KN_TAP_DEFAULT,
                          .min_context = given.min_context,
                          .keys = given.keys,
                          .distance = given.distance,
                          .project = given.project,
                          .segment = given.segment,
                          .memory = given.memory,
                          .force = given.force};
    kn_build_result r;
    if (given.tap) KN_TRY(kn_tap_parse(given.tap, &o.tap));
    KN_TRY(build(lm_of(model), path, texts, count, &o, &given.progress, &r));
    if (result)
        *result = (knnlm_build_result){.documents_added = r.documents_added,
                                       .documents_unchanged = r.documents_unchanged,
                                       .documents_replaced = r.documents_replaced,
                                       .entries_added = r.entries_added,
                                       .documents = r.documents,
                                       .entries = r.entries,
                                       .bytes = r.store_bytes,
                                       .seconds = r.seconds};
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
