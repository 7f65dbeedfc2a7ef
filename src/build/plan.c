// Settles the settings of a build or an addition, and checks the model against the store.
#include "build/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Entries a commit by default: about a minute's work at most. Of the model's size alone, so that the same
// build makes the same store everywhere.
static uint32_t default_segment(const kn_lm *lm) {
    uint64_t entries = kn_lm_afford(lm, KN_STORE_SEGMENT_DEFAULT);
    return entries < 1024 ? 1024 : (uint32_t)(entries / 1024 * 1024);
}

// A stream where the model can, unless a context is asked for; else the model's usual window, or one that is
// twice that context.
static knnlm_status resolve_windows(const kn_lm *lm, int32_t min_context, kn_read_options *read) {
    int32_t context = kn_lm_describe(lm)->context, window = kn_lm_describe(lm)->window;
    if (min_context < 0 && kn_lm_describe(lm)->stream) {
        read->stream = true;
        return kn_read_resolve(lm, read);
    }
    if (min_context < 0) min_context = window / 2;
    if (min_context > window / 2) window = min_context <= context / 2 ? 2 * min_context : context;
    if (min_context >= context)
        return kn_fail(KNNLM_EINVAL, "`min_context` %d: the model's context is %d", min_context, context);
    read->context = min_context;
    read->score = window - min_context;
    read->long_start = true;
    return KNNLM_OK;
}

static knnlm_status plan(kn_lm *lm, kn_plan *p) {
    const kn_lm_info *info = kn_lm_describe(lm);
    const kn_tokenizer *t = kn_lm_tokenizer(lm);
    p->lm = lm;
    p->model_path = realpath(info->path, NULL);
    if (!p->model_path) p->model_path = kn_strdup(info->path); // gone meanwhile: only a name
    if (!p->model_path) return KNNLM_ENOMEM;
    KN_TRY(kn_tap_print(lm, p->read.tap, p->tap));
    kn_tokenizer_fingerprint(t, p->tokenizer_fingerprint);
    p->read.keys = p->settings.key_type != KNNLM_KEYS_NONE;
    p->settings.model = p->model_path;
    p->settings.model_fingerprint = info->fingerprint;
    p->settings.tokenizer = kn_tokenizer_kind_name(kn_tokenizer_kind_of(t));
    p->settings.tokenizer_fingerprint = p->tokenizer_fingerprint;
    p->settings.vocabulary = info->vocabulary;
    p->settings.model_dimension = info->key_width;
    p->settings.tap = p->tap;
    p->settings.split = kn_split_names[p->read.texts.split];
    p->settings.window = p->read.stream ? 0 : p->read.context + p->read.score;
    p->settings.min_context = p->read.context;
    return KNNLM_OK;
}

knnlm_status kn_plan_build(kn_lm *lm, const kn_build_options *o, kn_plan *out) {
    const kn_lm_info *info = kn_lm_describe(lm);
    *out = (kn_plan){.read = {.texts = o->texts, .tap = o->tap},
                     .project = o->project,
                     .memory = o->memory,
                     .force = o->force};
    if (o->project < 0 || o->project > info->key_width)
        return kn_fail(KNNLM_EINVAL, "`project` pca:%d: the model's states have %d dimensions", o->project,
                       info->key_width);
    KN_TRY(resolve_windows(lm, o->min_context, &out->read));
    out->settings.key_type = o->keys;
    out->settings.distance = o->distance;
    out->settings.dimension = o->project ? o->project : info->key_width;
    out->settings.segment = o->segment ? o->segment : default_segment(lm);
    return plan(lm, out);
}

knnlm_status kn_plan_add(kn_lm *lm, const kn_store *store, const kn_build_options *o, kn_plan *out) {
    const kn_store_info *about = kn_store_describe(store);
    const kn_store_settings *s = &about->settings;
    *out = (kn_plan){.read = {.texts = o->texts, .tap = o->tap}, .memory = o->memory, .force = o->force};
    KN_TRY(kn_build_check_model(store, lm));
    if (!*s->tap)
        return kn_fail(
            KNNLM_EINVAL,
            "%s: where in the model its keys were taken is not known (`knnlm_import` with `tap` tells)",
            kn_store_describe(store)->path);
    KN_TRY(kn_tap_parse(s->tap, &out->read.tap));
    bool streamed = s->window == 0 && kn_lm_describe(lm)->stream;
    KN_TRY(resolve_windows(lm, streamed ? -1 : s->min_context, &out->read));
    if (s->window > s->min_context && s->window <= kn_lm_describe(lm)->context)
        out->read.score = s->window - s->min_context; // as the store was begun, whatever is usual now
    out->settings.key_type = s->key_type;
    out->settings.distance = s->distance;
    out->settings.dimension = s->dimension;
    out->settings.segment = s->segment;
    // A projection may keep all dimensions.
    out->project = about->has_projection || s->dimension < s->model_dimension ? s->dimension : 0;
    return plan(lm, out);
}

void kn_plan_free(kn_plan *p) {
    free(p->model_path);
    p->model_path = NULL;
}

static knnlm_status differs(const kn_store *store, const char *what, const char *had, const char *now) {
    return kn_fail(KNNLM_EINVAL,
                   "%s: was built with %s %s, not %s: name a new store, or use `knnlm_build_add`",
                   kn_store_describe(store)->path, what, had, now);
}

static knnlm_status differs_number(const kn_store *store, const char *what, int64_t had, int64_t now) {
    return kn_fail(KNNLM_EINVAL,
                   "%s: was built with %s %lld, not %lld: name a new store, or use `knnlm_build_add`",
                   kn_store_describe(store)->path, what, (long long)had, (long long)now);
}

static knnlm_status check_projection(const kn_plan *p, const kn_store *store) {
    const kn_store_info *about = kn_store_describe(store);
    int32_t had = about->has_projection ? about->settings.dimension : 0;
    char texts[2][32] = {"none", "none"};
    if (had == p->project) return KNNLM_OK;
    if (had) snprintf(texts[0], sizeof texts[0], "pca:%d", had);
    if (p->project) snprintf(texts[1], sizeof texts[1], "pca:%d", p->project);
    return differs(store, "`project`", texts[0], texts[1]);
}

knnlm_status kn_plan_check(const kn_plan *p, const kn_store *store, bool segment_given) {
    const kn_store_settings *had = &kn_store_describe(store)->settings, *now = &p->settings;
    KN_TRY(kn_build_check_model(store, p->lm));
    if (strcmp(had->tap, now->tap) != 0) return differs(store, "`tap`", had->tap, now->tap);
    if (had->key_type != now->key_type)
        return differs(store, "`keys`", kn_key_type_names[had->key_type], kn_key_type_names[now->key_type]);
    if (had->distance != now->distance)
        return differs(store, "`distance`", kn_distance_names[had->distance],
                       kn_distance_names[now->distance]);
    if (strcmp(had->split, now->split) != 0) return differs(store, "`split`", had->split, now->split);
    if (had->min_context != now->min_context)
        return differs_number(store, "`min_context`", had->min_context, now->min_context);
    if (had->window != now->window) return differs_number(store, "windows of", had->window, now->window);
    KN_TRY(check_projection(p, store));
    if (had->dimension != now->dimension)
        return differs_number(store, "keys of dimension", had->dimension, now->dimension);
    if (segment_given && had->segment != now->segment)
        return differs_number(store, "`segment`", had->segment, now->segment);
    return KNNLM_OK;
}

knnlm_status kn_build_check_model(const kn_store *store, const kn_lm *lm) {
    const kn_lm_info *info = kn_lm_describe(lm);
    char tokenizer[KN_FINGERPRINT];
    kn_tokenizer_fingerprint(kn_lm_tokenizer(lm), tokenizer);
    return kn_store_check_model(store, info->path, info->vouched ? NULL : info->fingerprint, tokenizer,
                                info->key_width);
}
