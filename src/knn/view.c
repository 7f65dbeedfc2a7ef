// Views: the stores of open mixtures with other settings.
#include "knn/mixture_parts.h"

#include <math.h>
#include <stdlib.h>

static void apply(const kn_view_options *o, kn_mixture_store *s) {
    if (!isnan(o->temperature)) s->temperature = o->temperature;
    if (o->fallback >= 0) s->fallback = o->fallback;
    if (o->k) s->k = kn_min((size_t)o->k, (size_t)s->store->entries);
    s->gated = s->gated && kn_mixture_gate_fits(s);
}

// Several stores share what each would have alone, and none has bins of its own; a lambda of all is dealt out
// in proportion.
static void share(kn_mixture *m, double lambda) {
    size_t count = m->info.count;
    kn_mixture_store *stores = m->info.stores;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        kn_mixture_part *p = &m->parts[i];
        if (!p->weight_given && p->sharers != count)
            stores[i].lambda = stores[i].lambda * (double)p->sharers / (double)count;
        p->sharers = count;
        if (count > 1) p->rule.bins = (kn_bins){0};
        if (isnan(lambda) && stores[i].gated) continue; // it takes what it finds
        sum += stores[i].lambda;
    }
    if (isnan(lambda) && sum > 1) lambda = 1; // some were given, the others are as tuned
    if (isnan(lambda)) return;
    for (size_t i = 0; i < count; i++) {
        stores[i].lambda = sum > 0 ? lambda * stores[i].lambda / sum : lambda / (double)count;
        m->parts[i].rule.bins = (kn_bins){0};
        stores[i].gated = false;
    }
}

static knnlm_status join(kn_mixture *m, const kn_mixture *other, const kn_view_options *o) {
    if (!m->info.count) { // the first that has stores
        m->info.tap = other->info.tap;
        m->info.split = other->info.split;
    }
    for (size_t i = 0; i < other->info.count; i++) {
        size_t at = m->info.count;
        if (at == KN_STORES_MAX) return kn_fail(KNNLM_EINVAL, "at most %d stores at a time", KN_STORES_MAX);
        m->parts[at] = other->parts[i];
        m->info.stores[at] = other->info.stores[i];
        kn_datastore_hold(m->parts[at].store);
        apply(o, &m->info.stores[at]);
        if (o->allowed && o->allowed[at]) m->parts[at].retrieve.allowed = o->allowed[at];
        m->info.count++;
    }
    return KNNLM_OK;
}

knnlm_status kn_mixture_view(const kn_mixture *const *mixtures, size_t count, const kn_view_options *o,
                             kn_mixture **out) {
    kn_mixture *m = kn_alloc(1, sizeof *m);
    knnlm_status status = m ? KNNLM_OK : KNNLM_ENOMEM;
    *out = NULL;
    if (m) m->info = mixtures[0]->info;
    if (m) m->info.count = 0;
    for (size_t i = 0; i < count && status == KNNLM_OK; i++) status = join(m, mixtures[i], o);
    if (status == KNNLM_OK) {
        share(m, o->lambda);
        kn_mixture_settle(m);
        *out = m;
    } else {
        kn_mixture_close(m);
    }
    return status;
}
