// The public functions that generate.
#include "api/api.h"
#include "generate/generate.h"

#include <math.h>
#include <stdlib.h>

struct knnlm_text {
    const kn_mixture *mixture; // the caller's, or the view
    kn_mixture *view;          // of the caller's, where lambda is to fall as it does not there; or NULL
    kn_generator *generator;
    kn_sequence *sequence;
};

void knnlm_text_options_init(knnlm_text_options *options, size_t size) {
    kn_generate_options o = kn_generate_options_default();
    knnlm_text_options defaults = {.tokens = o.tokens,
                                   .seed = o.seed,
                                   .temperature = o.sampling.temperature,
                                   .top_k = o.sampling.top_k,
                                   .top_p = o.sampling.top_p,
                                   .min_p = o.sampling.min_p,
                                   .repeat_penalty = o.sampling.repeat_penalty,
                                   .repeat_last = o.sampling.repeat_last,
                                   .dry_multiplier = -1,
                                   .dry_base = o.sampling.dry_base,
                                   .dry_allowed_length = o.sampling.dry_allowed_length,
                                   .sources = true,
                                   .around = o.around};
    api_give(&defaults, sizeof defaults, options, size);
}

// The most probable text is asked for as it is; a drawn one must not go round in circles.
static double choose_dry(const knnlm_text_options *o) {
    if (o->dry_multiplier == -1) return o->temperature > 0 ? 0.8 : 0;
    return o->dry_multiplier;
}

static kn_generate_options generate_options(const knnlm_text_options *o) {
    kn_generate_options out = kn_generate_options_default();
    out.tokens = o->tokens;
    out.seed = o->seed;
    out.sampling.temperature = o->temperature;
    out.sampling.top_k = o->top_k;
    out.sampling.top_p = o->top_p;
    out.sampling.min_p = o->min_p;
    out.sampling.repeat_penalty = o->repeat_penalty;
    out.sampling.repeat_last = o->repeat_last;
    out.sampling.dry_multiplier = choose_dry(o);
    out.sampling.dry_base = o->dry_base;
    out.sampling.dry_allowed_length = o->dry_allowed_length;
    out.stops = o->stops;
    out.stop_count = o->stop_count;
    out.sources = o->sources;
    out.around = o->around;
    out.ignore_end = o->ignore_end;
    out.begin_with_space = o->begin_with_space;
    out.no_carry = o->no_carry;
    return out;
}

// The mixture whose lambda falls, or does not, as the text wants it.
static knnlm_status choose_mixture(knnlm_text *t, const kn_mixture *m, bool fallback) {
    const kn_mixture_info *info = kn_mixture_describe(m);
    kn_view_options view = {.lambda = NAN, .temperature = NAN, .fallback = fallback};
    bool fits = true;
    for (size_t i = 0; i < info->count; i++) fits &= info->stores[i].fallback == fallback;
    if (!fits) KN_TRY(kn_mixture_view(&m, 1, &view, &t->view));
    t->mixture = fits ? m : t->view;
    return KNNLM_OK;
}

knnlm_status knnlm_text_open(knnlm_mixture *m, const int32_t *prompt, size_t count,
                             const knnlm_text_options *options, knnlm_text **out) {
    knnlm_text_options o;
    *out = NULL;
    KN_TRY(API_TAKE(knnlm_text_options, options, &o));
    kn_generate_options g = generate_options(&o);
    knnlm_text *t = kn_alloc(1, sizeof *t);
    if (!t) return KNNLM_ENOMEM;
    knnlm_status status = choose_mixture(t, m->mixture, !o.keep_lambda);
    if (status == KNNLM_OK) status = kn_generator_open(m->lm, 1, &t->generator);
    if (status == KNNLM_OK) status = kn_sequence_open(m->lm, &g, prompt, count, &t->sequence);
    if (status == KNNLM_OK)
        *out = t;
    else
        knnlm_text_close(t);
    return status;
}

void knnlm_text_close(knnlm_text *t) {
    if (!t) return;
    kn_sequence_close(t->sequence);
    kn_generator_close(t->generator);
    kn_mixture_close(t->view);
    free(t);
}

knnlm_status knnlm_text_step(knnlm_text *t, knnlm_finish *finish) {
    KN_TRY(kn_generator_step(t->generator, &t->sequence, &t->mixture, 1));
    *finish = kn_sequence_finish(t->sequence);
    return KNNLM_OK;
}

const char *knnlm_text_read(const knnlm_text *t, size_t *size) {
    return kn_sequence_text(t->sequence, size);
}

void knnlm_text_describe(const knnlm_text *t, knnlm_text_info *out) {
    kn_generator_times times = kn_generator_spent(t->generator);
    *out = (knnlm_text_info){.finish = kn_sequence_finish(t->sequence),
                             .generated = kn_sequence_generated(t->sequence),
                             .cut = kn_sequence_cut(t->sequence),
                             .seconds_lm = times.model,
                             .seconds_search = times.search,
                             .seconds_rest = times.rest};
}

size_t knnlm_text_tokens(const knnlm_text *t) {
    size_t count;
    kn_sequence_tokens(t->sequence, &count);
    return count;
}

size_t knnlm_text_sources(const knnlm_text *t) {
    size_t count;
    kn_sequence_sources(t->sequence, &count);
    return count;
}

static knnlm_text_token token_of(const kn_generated *g) {
    return (knnlm_text_token){.token = g->token,
                              .p = g->p,
                              .lm = g->lm,
                              .knn = g->knn,
                              .lambda = g->lambda,
                              .nearest = g->nearest,
                              .entropy = g->entropy,
                              .offset = g->offset,
                              .size = g->size,
                              .source = g->source};
}

knnlm_status knnlm_text_token_at(const knnlm_text *t, size_t number, knnlm_text_token *out) {
    size_t count;
    const kn_generated *tokens = kn_sequence_tokens(t->sequence, &count);
    if (number >= count) return kn_fail(KNNLM_EINVAL, "token %zu: the text has %zu", number, count);
    *out = token_of(&tokens[number]);
    return KNNLM_OK;
}

bool knnlm_text_end(const knnlm_text *t, knnlm_text_token *out) {
    const kn_generated *end = kn_sequence_end(t->sequence);
    if (end) *out = token_of(end);
    return end;
}

knnlm_status knnlm_text_source_at(const knnlm_text *t, size_t number, knnlm_text_source *out) {
    size_t count;
    const kn_source *sources = kn_sequence_sources(t->sequence, &count);
    if (number < 1 || number > count)
        return kn_fail(KNNLM_EINVAL, "source %zu: the text has %zu, from 1 on", number, count);
    const kn_source *s = &sources[number - 1];
    *out = (knnlm_text_source){.store = s->store_path,
                               .document = s->document,
                               .document_size = s->document_size,
                               .entry = s->entry,
                               .position = s->position,
                               .offset = s->offset,
                               .before = s->before,
                               .text = s->text,
                               .after = s->after,
                               .before_size = s->before_size,
                               .text_size = s->text_size,
                               .after_size = s->after_size,
                               .first = s->first,
                               .tokens = s->tokens,
                               .share = s->share,
                               .footnote = s->footnote,
                               .differ = s->differ,
                               .length = s->length,
                               .begins = s->begins,
                               .ends = s->ends};
    return KNNLM_OK;
}
