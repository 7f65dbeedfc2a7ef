// Updates parameters by AdamW or Nesterov momentum; Muon's part is in muon.c.
#include "train/optimizer.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Floats of a task: small enough to spread, large enough not to matter.
enum { CHUNK = 1 << 16 };

knnlm_status kn_optimizer_init(kn_optimizer *o, const kn_optimizer_options *options, const kn_layout *layout,
                               const kn_kernels *k) {
    *o = (kn_optimizer){.options = *options, .k = k, .layout = layout};
    o->first = kn_alloc_aligned(layout->total, sizeof(float));
    bool moments = options->kind != KNNLM_OPTIMIZER_NESTEROV;
    if (moments) o->second = kn_alloc_aligned(layout->total, sizeof(float));
    if (!o->first || (moments && !o->second)) {
        kn_optimizer_free(o);
        return KNNLM_ENOMEM;
    }
    memset(o->first, 0, layout->total * sizeof(float));
    if (o->second) memset(o->second, 0, layout->total * sizeof(float));
    return KNNLM_OK;
}

void kn_optimizer_free(kn_optimizer *o) {
    kn_free_aligned(o->first);
    kn_free_aligned(o->second);
    *o = (kn_optimizer){0};
}

typedef struct norm_job {
    const kn_kernels *k;
    const float *x;
    size_t n;
    double *parts;
} norm_job;

static void norm_chunk(void *context, size_t task, int worker) {
    const norm_job *j = context;
    size_t first = task * CHUNK, n = j->n - first < CHUNK ? j->n - first : CHUNK;
    (void)worker;
    j->parts[task] = j->k->sum_squares(j->x + first, n);
}

static double gradient_norm(const kn_optimizer *o, const float *grads) {
    size_t chunks = (o->layout->total + CHUNK - 1) / CHUNK;
    double *parts = kn_alloc(chunks, sizeof *parts), sum = 0;
    if (!parts) return NAN;
    norm_job j = {o->k, grads, o->layout->total, parts};
    kn_parallel(chunks, norm_chunk, &j);
    for (size_t i = 0; i < chunks; i++) sum += parts[i];
    free(parts);
    return sqrt(sum);
}

typedef struct update_job {
    kn_optimizer *o;
    const kn_param *param;
    float *params;
    const float *grads;
    kn_adam adam;
    kn_nesterov nesterov;
} update_job;

static void update_chunk(void *context, size_t task, int worker) {
    const update_job *j = context;
    size_t all = j->param->rows * j->param->columns, first = task * CHUNK;
    size_t at = j->param->offset + first, n = all - first < CHUNK ? all - first : CHUNK;
    (void)worker;
    if (j->o->options.kind != KNNLM_OPTIMIZER_NESTEROV)
        j->o->k->adam(j->params + at, j->o->first + at, j->o->second + at, j->grads + at, n, &j->adam);
    else
        j->o->k->nesterov(j->params + at, j->o->first + at, j->grads + at, n, &j->nesterov);
}

knnlm_status kn_optimizer_update(kn_optimizer *o, float *params, const float *grads, double rate,
                                 double *norm) {
    const kn_optimizer_options *p = &o->options;
    *norm = gradient_norm(o, grads);
    if (!isfinite(*norm)) return KNNLM_OK;
    float scale = p->clip > 0 && *norm > (double)p->clip ? (float)((double)p->clip / *norm) : 1.0f;
    double steps = (double)++o->updates;
    double ratio = o->last_rate > 0 ? rate / o->last_rate : 1.0;
    o->last_rate = rate;
    for (size_t i = 0; i < o->layout->count; i++) {
        const kn_param *param = &o->layout->params[i];
        if (p->kind == KNNLM_OPTIMIZER_MUON && kn_muon_takes(param)) continue;
        float decay = param->is_vector ? 0.0f : p->decay;
        update_job j = {.o = o, .param = param, .params = params, .grads = grads};
        j.adam = (kn_adam){scale,
                           (float)rate,
                           p->beta1,
                           p->beta2,
                           p->epsilon,
                           decay,
                           (float)(1.0 - pow((double)p->beta1, steps)),
                           (float)(1.0 - pow((double)p->beta2, steps))};
        j.nesterov = (kn_nesterov){scale, (float)rate, p->momentum, (float)ratio, decay};
        kn_parallel((param->rows * param->columns + CHUNK - 1) / CHUNK, update_chunk, &j);
    }
    return p->kind == KNNLM_OPTIMIZER_MUON ? kn_muon_update(o, params, grads, scale, rate) : KNNLM_OK;
}
