// Builds stores of shards: deals the documents, and has every rank build its shards.
#include "build/plan.h"
#include "build/sample.h"
#include "build/shards.h"
#include "lm/shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    kn_shards_job kind;
    kn_lm *lm;
    const char *const *texts; // absolute
    size_t count;
    const kn_build_options *o;
    const kn_deal_plan *plan; // NULL: no documents
    const kn_pca *projection; // NULL: none, or the shards have it already
    const kn_progress *progress;
    kn_build_result *all; // of every shard, in sum
} job;

// ---------------------------------------------------------------- what a rank is told

static void put_text_options(kn_message *m, const kn_text_options *t) {
    kn_message_put_number(m, (uint64_t)t->split);
    kn_message_put_text(m, t->encoding);
    kn_message_put_text(m, t->field);
    kn_message_put_text(m, t->name_field);
    kn_message_put_texts(m, t->include, t->include_count);
    kn_message_put_texts(m, t->exclude, t->exclude_count);
    kn_message_put_number(m, (uint64_t)(t->hidden ? 1 : 0) | (t->follow ? 2 : 0) | (t->strict ? 4 : 0));
}

static void put_options(kn_message *m, const kn_build_options *o) {
    kn_message_put_number(m, (uint64_t)o->tap.point);
    kn_message_put_number(m, (uint64_t)(int64_t)o->tap.layer);
    kn_message_put_number(m, (uint64_t)(int64_t)o->min_context);
    kn_message_put_number(m, (uint64_t)o->keys);
    kn_message_put_number(m, (uint64_t)o->distance);
    kn_message_put_number(m, (uint64_t)o->project);
    kn_message_put_number(m, o->segment);
    kn_message_put_number(m, o->memory);
    put_text_options(m, &o->texts);
}

static void put_dealt(kn_message *m, const kn_deal_plan *p, size_t shard) {
    size_t mine = 0;
    for (size_t i = 0; p && i < p->count; i++) mine += p->documents[i].shard == shard;
    kn_message_put_number(m, mine);
    for (size_t i = 0; p && i < p->count; i++) {
        if (p->documents[i].shard != shard) continue;
        kn_message_put_number(m, i);
        kn_message_put_number(m, p->base + i);
        kn_message_put_bytes(m, p->documents[i].name, strlen(p->documents[i].name));
    }
}

static void put_projection(kn_message *m, const kn_pca *p) {
    kn_message_put_number(m, p ? p->in : 0);
    if (!p) return;
    kn_message_put_number(m, p->out);
    kn_message_put(m, &p->total, sizeof p->total);
    kn_message_put(m, p->mean, p->in * sizeof *p->mean);
    kn_message_put(m, p->components, p->out * p->in * sizeof *p->components);
    kn_message_put(m, p->variances, p->out * sizeof *p->variances);
}

static void put_job(void *context, size_t shard, kn_message *in) {
    const job *j = context;
    kn_message_put_number(in, (uint64_t)j->kind);
    kn_message_put_number(in, kn_lm_key(j->lm));
    put_options(in, j->o);
    kn_message_put_texts(in, j->texts, j->count);
    put_dealt(in, j->plan, shard);
    put_projection(in, j->projection);
}

// ---------------------------------------------------------------- what it does

typedef struct told {
    const char *path;
    kn_shards_job kind;
    kn_lm *lm;
    kn_build_options o;
    const char **texts;
    size_t count;
    kn_dealt mine;
    kn_pca projection; // in 0: none
} told;

static knnlm_status take_text_options(kn_message *m, kn_text_options *t) {
    t->split = (knnlm_split)kn_message_take_number(m);
    t->encoding = kn_message_take_text(m);
    t->field = kn_message_take_text(m);
    t->name_field = kn_message_take_text(m);
    KN_TRY(kn_message_take_texts(m, (const char ***)(uintptr_t)&t->include, &t->include_count));
    KN_TRY(kn_message_take_texts(m, (const char ***)(uintptr_t)&t->exclude, &t->exclude_count));
    uint64_t flags = kn_message_take_number(m);
    t->hidden = flags & 1;
    t->follow = flags & 2;
    t->strict = flags & 4;
    return kn_message_read(m);
}

static knnlm_status take_options(kn_message *m, kn_build_options *o) {
    *o = kn_build_options_default();
    o->tap.point = (kn_tap_point)kn_message_take_number(m);
    o->tap.layer = (int32_t)kn_message_take_number(m);
    o->min_context = (int32_t)kn_message_take_number(m);
    o->keys = (knnlm_keys)kn_message_take_number(m);
    o->distance = (knnlm_distance)kn_message_take_number(m);
    o->project = (int32_t)kn_message_take_number(m);
    o->segment = (uint32_t)kn_message_take_number(m);
    o->memory = kn_message_take_number(m);
    return take_text_options(m, &o->texts);
}

static knnlm_status take_dealt(kn_message *m, kn_dealt *d) {
    size_t size;
    d->count = (size_t)kn_message_take_number(m);
    if (d->count > m->size) m->failed = true;
    KN_TRY(kn_message_read(m));
    d->documents = kn_alloc(d->count, sizeof *d->documents);
    if (!d->documents) return KNNLM_ENOMEM;
    for (size_t i = 0; i < d->count; i++) {
        d->documents[i].number = (size_t)kn_message_take_number(m);
        d->documents[i].order = (uint32_t)kn_message_take_number(m);
        d->documents[i].name = kn_message_take_bytes(m, &size);
    }
    return kn_message_read(m);
}

static knnlm_status take_projection(kn_message *m, kn_pca *p) {
    size_t in = (size_t)kn_message_take_number(m), out = in ? (size_t)kn_message_take_number(m) : 0;
    KN_TRY(kn_message_read(m));
    if (!in) return KNNLM_OK;
    KN_TRY(kn_pca_init(p, in, out));
    kn_message_take(m, &p->total, sizeof p->total);
    kn_message_take(m, p->mean, in * sizeof *p->mean);
    kn_message_take(m, p->components, out * in * sizeof *p->components);
    kn_message_take(m, p->variances, out * sizeof *p->variances);
    return kn_message_read(m);
}

static knnlm_status take_job(kn_message *in, told *t) {
    t->path = kn_message_take_text(in);
    t->kind = (kn_shards_job)kn_message_take_number(in);
    t->lm = kn_lm_find(kn_message_take_number(in));
    KN_TRY(take_options(in, &t->o));
    KN_TRY(kn_message_take_texts(in, &t->texts, &t->count));
    KN_TRY(take_dealt(in, &t->mine));
    KN_TRY(take_projection(in, &t->projection));
    return t->lm ? KNNLM_OK : kn_fail(KNNLM_EINVAL, "no such model is open");
}

static knnlm_status work(told *t, const kn_progress *progress, kn_build_result *r) {
    const char *const *texts = t->texts;
    t->o.dealt = &t->mine;
    t->o.projection = t->projection.in ? &t->projection : NULL;
    if (t->kind == KN_SHARDS_CREATE && kn_store_exists(t->path)) return KNNLM_OK;
    if (t->kind == KN_SHARDS_ADD) return kn_build_add(t->lm, t->path, texts, t->count, &t->o, progress, r);
    if (t->kind == KN_SHARDS_SYNC) return kn_build_sync(t->lm, t->path, texts, t->count, &t->o, progress, r);
    return kn_build(t->lm, t->path, texts, t->count, &t->o, progress, r);
}

static knnlm_status run_build(kn_message *in, kn_message *out, const kn_progress *progress) {
    told t = {0};
    kn_build_result result = {0};
    knnlm_status status = take_job(in, &t);
    if (status == KNNLM_OK) status = work(&t, progress, &result);
    if (status == KNNLM_OK) kn_message_put(out, &result, sizeof result);
    free(t.texts);
    free(t.mine.documents);
    kn_pca_free(&t.projection);
    free((void *)(uintptr_t)t.o.texts.include);
    free((void *)(uintptr_t)t.o.texts.exclude);
    return status;
}
const kn_service kn_service_build = {"build", run_build};

// ---------------------------------------------------------------- the driver

static void add_result(kn_build_result *all, const kn_build_result *one) {
    all->documents_added += one->documents_added;
    all->documents_unchanged += one->documents_unchanged;
    all->documents_replaced += one->documents_replaced;
    all->documents_removed += one->documents_removed;
    all->documents_damaged += one->documents_damaged;
    all->entries_added += one->entries_added;
    all->bytes_added += one->bytes_added;
    all->entries += one->entries;
    all->documents += one->documents;
    all->store_bytes += one->store_bytes;
    all->resumed |= one->resumed;
}

static knnlm_status take_built(void *context, size_t shard, kn_message *out) {
    const job *j = context;
    kn_build_result one;
    (void)shard;
    kn_message_take(out, &one, sizeof one);
    KN_TRY(kn_message_read(out));
    add_result(j->all, &one);
    return KNNLM_OK;
}

static knnlm_status run_shards(const kn_shards *shards, job *j, kn_build_result *out) {
    j->all = out;
    return kn_shards_call(shards, &(kn_shard_job){&kn_service_build, put_job, take_built, j}, j->progress);
}

// Every shard is there before anything is dealt, if only as a store without entries.
static knnlm_status create(const kn_shards *shards, job *j) {
    kn_build_result nothing = {0};
    job first = *j;
    first.kind = KN_SHARDS_CREATE;
    first.texts = NULL;
    first.count = 0;
    first.progress = NULL;
    return run_shards(shards, &first, &nothing);
}

// Once, from the texts of all shards. Where those are there already they have it.
static knnlm_status learn_projection(const char *path, const job *j, kn_pca *out) {
    kn_store *store;
    kn_plan plan;
    if (kn_store_open(path, &store) == KNNLM_OK) {
        kn_store_close(store);
        return KNNLM_OK;
    }
    knnlm_status status = kn_plan_build(j->lm, j->o, &plan);
    if (status == KNNLM_OK) status = kn_plan_learn(&plan, j->texts, j->count, j->progress, out);
    kn_plan_free(&plan);
    return status;
}

static knnlm_status refuse(const char *path, const kn_build_options *o, const char *const *texts,
                           size_t count) {
    if (o->keys == KNNLM_KEYS_NONE)
        return kn_fail(KNNLM_ENOTSUP,
                       "%s: a store of shards keeps its keys: `keys` int8 and `project` make them small",
                       path);
    if (kn_documents_once(texts, count))
        return kn_fail(KNNLM_EINVAL, "standard input and pipes cannot be dealt to shards: name files");
    return KNNLM_OK;
}

// The shards as they are, or (building) as they will be.
static knnlm_status find_shards(kn_shards_job kind, const char *path, const kn_build_options *o,
                                kn_shards *out) {
    *out = (kn_shards){0};
    if (kn_shards_exist(path)) {
        KN_TRY(kn_shards_read(path, out));
        if (kind == KN_SHARDS_BUILD && o->shards && o->shards != out->count)
            return kn_fail(KNNLM_EINVAL, "%s: has %zu shards, not %zu: name a new store, or the same number",
                           path, out->count, o->shards);
        return KNNLM_OK;
    }
    if (kn_store_exists(path))
        return kn_fail(KNNLM_EINVAL, "%s: is a store without shards: name a new one", path);
    KN_TRY(kn_shards_plan(path, o->shards, o->local, out));
    return kn_shards_write(out);
}

// Told once for all shards, not by each.
static knnlm_status estimate(const job *j, const char *path, const kn_store *store) {
    kn_plan plan;
    knnlm_build_estimate e;
    knnlm_status status = j->kind == KN_SHARDS_BUILD ? kn_plan_build(j->lm, j->o, &plan)
                                                     : kn_plan_add(j->lm, store, j->o, &plan);
    if (status == KNNLM_OK && j->kind == KN_SHARDS_BUILD)
        status = kn_plan_check(&plan, store, j->o->segment != 0);
    if (status == KNNLM_OK) status = kn_plan_estimate(&plan, path, store, j->texts, j->count, &e);
    if (status == KNNLM_OK && j->o->planned) j->o->planned(j->o->planned_context, &e);
    if (status == KNNLM_OK && !j->o->local) status = kn_plan_afford(&plan, path, &e);
    kn_plan_free(&plan);
    return status;
}

static knnlm_status deal_and_run(const kn_shards *shards, job *j, kn_build_result *out) {
    kn_store *store;
    kn_deal_plan plan = {0};
    KN_TRY(kn_store_open(shards->path, &store));
    knnlm_status status = estimate(j, shards->path, store);
    if (status == KNNLM_OK)
        status = kn_deal_texts(store, j->texts, j->count, &j->o->texts, j->progress, &plan);
    kn_store_close(store);
    j->plan = &plan;
    if (status == KNNLM_OK) status = run_shards(shards, j, out);
    if (status == KNNLM_OK) kn_deal_end(shards->path);
    kn_deal_free(&plan);
    return status;
}

static knnlm_status make_absolute(const char *const *texts, size_t count, char **out) {
    for (size_t i = 0; i < count; i++) {
        out[i] = realpath(texts[i], NULL);
        if (!out[i]) return kn_fail_errno(KNNLM_EIO, errno, "%s", texts[i]);
    }
    return KNNLM_OK;
}

static knnlm_status build(job *j, const char *path, kn_build_result *out) {
    kn_shards shards = {0};
    kn_pca projection = {0};
    bool learns = j->kind == KN_SHARDS_BUILD && j->o->project;
    knnlm_status status = learns ? learn_projection(path, j, &projection) : KNNLM_OK;
    if (status == KNNLM_OK) status = find_shards(j->kind, path, j->o, &shards);
    j->projection = projection.in ? &projection : NULL;
    kn_lm_set_alone(j->lm, true); // the other ranks read documents of their own
    if (status == KNNLM_OK && j->kind == KN_SHARDS_BUILD) status = create(&shards, j);
    if (status == KNNLM_OK) status = deal_and_run(&shards, j, out);
    kn_lm_set_alone(j->lm, false);
    kn_pca_free(&projection);
    kn_shards_free(&shards);
    return status;
}

knnlm_status kn_shards_build(kn_shards_job kind, kn_lm *lm, const char *path, const char *const *texts,
                             size_t count, const kn_build_options *o, const kn_progress *progress,
                             kn_build_result *out) {
    double start = kn_seconds();
    job j = {.kind = kind, .lm = lm, .count = count, .o = o, .progress = progress};
    *out = (kn_build_result){0};
    KN_TRY(refuse(path, o, texts, count));
    char **absolute = kn_alloc(count, sizeof *absolute);
    knnlm_status status = absolute ? make_absolute(texts, count, absolute) : KNNLM_ENOMEM;
    j.texts = (const char *const *)absolute;
    if (status == KNNLM_OK) status = build(&j, path, out);
    for (size_t i = 0; absolute && i < count; i++) free(absolute[i]);
    free(absolute);
    out->seconds = kn_seconds() - start;
    out->tokens_per_second = out->seconds > 0 ? (double)out->entries_added / out->seconds : 0;
    return status;
}
