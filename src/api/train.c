// The public function that trains.
#include "api/api.h"
#include "train/texts.h"

API_DEFAULTS(knnlm_train_options, .tokenizer = -1, .vocabulary = -1, .vocabulary_sample = -1, .width = -1,
             .layers = -1, .heads = -1, .ffn = -1, .context = -1, .window = -1, .positions = -1,
             .activation = -1, .norm = -1, .steps = -1, .epochs = -1, .minutes = -1, .length = -1,
             .batch = 8192, .micro = -1, .schedule = -1, .rate = -1, .floor = 0.05, .tail = 0.2, .warmup = -1,
             .period = -1, .clip = -1, .decay = -1, .momentum = 0.99, .beta1 = 0.9, .beta2 = 0.98, .seed = 1,
             .type = KNNLM_TYPE_F16, .valid_every = 200, .report_every = 10, .save_seconds = 300,
             .valid_tokens = 1 << 17)

static knnlm_status check(const knnlm_train_options *o, size_t texts) {
    if (!texts) return kn_fail(KNNLM_EINVAL, "no text to train on");
    if ((o->steps >= 0) + (o->epochs >= 0) + (o->minutes >= 0) > 1)
        return kn_fail(KNNLM_EINVAL, "one of `steps`, `epochs` and `minutes`");
    if (o->resume && o->force)
        return kn_fail(KNNLM_EINVAL, "one of `resume` (go on with the run) and `force` (replace it)");
    if (o->from && kn_train_settings_shape(o))
        return kn_fail(KNNLM_EINVAL, "`%s`: with `from`, the model decides this", kn_train_settings_shape(o));
    if (o->batch < 1 || o->valid_tokens < 0 || o->report_every < 0 || o->valid_every < 0 || o->save_every < 0)
        return kn_fail(KNNLM_EINVAL, "a `batch` or a number of steps or tokens below 0");
    return KNNLM_OK;
}

knnlm_status knnlm_train(const char *const *texts, size_t count, const char *output,
                         const knnlm_train_options *options, knnlm_train_result *result) {
    knnlm_train_options o;
    kn_text_options texts_options;
    knnlm_train_result r = {0};
    KN_TRY(API_TAKE(knnlm_train_options, options, &o));
    KN_TRY(api_take_texts(o.texts, o.split, &texts_options));
    o.texts = &texts_options;
    KN_TRY(check(&o, count));
    KN_TRY(kn_train_texts(texts, count, output, &o, &r));
    if (result) *result = r;
    return KNNLM_OK;
}
