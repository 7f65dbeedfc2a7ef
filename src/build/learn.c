// Learning the projection: the keys of pieces of text from everywhere in the collection.
#include "build/plan.h"

#include "build/sample.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES = 64, KEYS_MIN = 8192, KEYS_A_DIMENSION = 16, BYTES_A_TOKEN = 8 };

typedef struct learning {
    const kn_plan *plan;
    const kn_progress *progress;
    kn_tokens tokens;
    float *keys;
    size_t count, max, share, width; // share: keys of a piece
} learning;

static knnlm_status keep(void *context, const kn_records *r) {
    learning *l = context;
    memcpy(l->keys + l->count * l->width, r->keys, r->count * l->width * sizeof *l->keys);
    l->count += r->count;
    return KNNLM_OK;
}

static knnlm_status take(void *context, const kn_document *d, const char *text, size_t size) {
    learning *l = context;
    (void)d;
    l->tokens.count = 0;
    if (l->count == l->max) return KNNLM_OK;
    KN_TRY(kn_tokenizer_encode(kn_lm_tokenizer(l->plan->lm), text, size, &l->tokens));
    size_t n = kn_min(kn_min(l->tokens.count, l->share), l->max - l->count);
    KN_TRY(kn_read_tokens(l->plan->lm, l->tokens.ids, n, &l->plan->read, keep, l));
    if (kn_progress_report(l->progress, "learning the projection", l->count, l->max, "keys")) return KNNLM_OK;
    return kn_fail(KNNLM_ESTOPPED, "stopped while learning the projection");
}

knnlm_status kn_plan_check_texts(const kn_plan *plan, const char *const *texts, size_t count) {
    if (!plan->project || !kn_documents_once(texts, count)) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL,
                   "`project` reads the texts twice: they cannot come from standard input or a pipe");
}

knnlm_status kn_plan_learn(const kn_plan *plan, const char *const *texts, size_t count,
                           const kn_progress *progress, kn_pca *out) {
    kn_plan keyed = *plan; // a store without keys still learns from them
    keyed.read.keys = true;
    learning l = {.plan = &keyed, .progress = progress, .width = (size_t)plan->settings.model_dimension};
    kn_sample_totals t;
    l.max = kn_max(KEYS_MIN, KEYS_A_DIMENSION * l.width);
    l.share = (l.max + PIECES - 1) / PIECES;
    l.keys = kn_alloc_aligned(l.max, l.width * sizeof *l.keys);
    if (!l.keys) return KNNLM_ENOMEM;
    kn_sample_plan pieces = {.pieces = PIECES, .size = l.share * BYTES_A_TOKEN};
    knnlm_status status = kn_sample_texts(texts, count, &plan->read.texts, &pieces, take, &l, &t);
    if (status == KNNLM_OK && l.count < (size_t)plan->project)
        status = kn_fail(KNNLM_EINVAL, "`project` pca:%d: the texts have only %zu tokens to learn it from",
                         plan->project, l.count);
    if (status == KNNLM_OK) status = kn_pca_learn(l.keys, l.count, l.width, (size_t)plan->project, out);
    kn_tokens_free(&l.tokens);
    kn_free_aligned(l.keys);
    return status;
}
