// Reads the beginnings of texts token by token, as far as gates are concerned.
#include "knn/learn.h"

#include <stdlib.h>

enum { PIECE = 512 }; // tokens at a time

struct kn_learner {
    kn_predictor *predictor;
    int32_t *targets;
    float *states, *logprobs, *entropies;
    bool *first; // never
    kn_prediction *predictions;
    size_t rows;
};

knnlm_status kn_learner_open(kn_learner **out) {
    *out = kn_alloc(1, sizeof **out);
    return *out ? kn_predictor_open(&(*out)->predictor) : KNNLM_ENOMEM;
}

static void free_rows(kn_learner *p) {
    free(p->targets);
    free(p->states);
    free(p->logprobs);
    free(p->entropies);
    free(p->first);
    free(p->predictions);
}

void kn_learner_close(kn_learner *p) {
    if (!p) return;
    kn_predictor_close(p->predictor);
    free_rows(p);
    free(p);
}

static knnlm_status make_room(kn_learner *p, size_t rows, size_t width) {
    if (rows <= p->rows) return KNNLM_OK;
    free_rows(p);
    p->targets = kn_alloc(rows, sizeof *p->targets);
    p->states = kn_alloc(rows * width, sizeof *p->states);
    p->logprobs = kn_alloc(rows, sizeof *p->logprobs);
    p->entropies = kn_alloc(rows, sizeof *p->entropies);
    p->first = kn_alloc(rows, sizeof *p->first);
    p->predictions = kn_alloc(rows, sizeof *p->predictions);
    bool had = p->targets && p->states && p->logprobs && p->entropies && p->first && p->predictions;
    p->rows = had ? rows : 0;
    return had ? KNNLM_OK : KNNLM_ENOMEM;
}

knnlm_status kn_learner_read(kn_learner *p, kn_session *session, const kn_mixture *m, const int32_t *tokens,
                             size_t count, int32_t last, kn_tap tap, kn_history *history) {
    if (!count) return KNNLM_OK;
    KN_TRY(make_room(p, count, kn_mixture_describe(m)->width));
    for (size_t i = 0; i + 1 < count; i++) p->targets[i] = tokens[i + 1];
    p->targets[count - 1] = last;
    kn_lm_output out = {.logprobs = p->logprobs, .entropies = p->entropies, .keys = p->states};
    KN_TRY(kn_session_score(session, tokens, p->targets, count, tap, &out));
    return kn_predict(p->predictor,
                      &(kn_predict_rows){.count = count,
                                         .mixture = m,
                                         .states = p->states,
                                         .predictions_alone = true,
                                         .targets = p->targets,
                                         .lm = p->logprobs,
                                         .entropies = p->entropies,
                                         .history = history,
                                         .first = p->first},
                      p->predictions);
}

static knnlm_status learn_text(kn_learner *l, kn_session *session, const kn_mixture *m, const int32_t *tokens,
                               size_t count, kn_tap tap, kn_history *history) {
    for (size_t done = 0, n; done + 1 < count; done += n) {
        n = kn_min(PIECE, count - 1 - done);
        KN_TRY(kn_learner_read(l, session, m, tokens + done, n, tokens[done + n], tap, history));
    }
    return KNNLM_OK;
}

knnlm_status kn_learn_text(kn_lm *lm, const kn_mixture *m, const int32_t *tokens, size_t count, kn_tap tap,
                           kn_history *history) {
    kn_learner *l;
    kn_session *session = NULL;
    knnlm_status status = kn_learner_open(&l);
    if (status == KNNLM_OK) status = kn_session_open(lm, &session);
    if (status == KNNLM_OK) status = learn_text(l, session, m, tokens, count, tap, history);
    kn_session_close(session);
    kn_learner_close(l);
    return status;
}
