// Runs a build or an addition: which documents are new, what the reader's records become, when to commit.
#include "build/build.h"

#include "base/file.h"
#include "build/changes.h"
#include "build/plan.h"
#include "build/shards.h"
#include "index/projection.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A document that is being read, from the choice until its first record.
typedef struct coming {
    size_t number;
    kn_store_document about; // name and path are below
    char *name, *path;
    bool continues, copies;
    uint64_t original; // document that it copies
} coming;

typedef struct building {
    const kn_plan *plan;
    kn_store_writer *w;
    kn_changes changes;
    kn_pca pca;
    float *projected;
    size_t projected_capacity;
    coming *queue; // [first, count): documents not begun yet
    size_t first, count, capacity;
    size_t begun; // number of the document whose entries are coming
    bool any_begun;
    const kn_folders *folders; // NULL: what is gone stays
    const kn_dealt *dealt;     // of a shard; NULL: every document is its own
    const kn_pca *projection;  // of a new shard; NULL: learnt
    size_t passed;             // of those
    const kn_progress *progress;
    kn_build_result *out;
} building;

kn_build_options kn_build_options_default(void) {
    return (kn_build_options){.tap = KN_TAP_DEFAULT, .min_context = -1};
}

// ---------------------------------------------------------------- documents

static void coming_free(coming *c) {
    free(c->name);
    free(c->path);
}

static knnlm_status expect(building *b, const kn_document *d, const char *name, coming c,
                           const uint64_t hash[2]) {
    if (b->first == b->count) b->first = b->count = 0;
    KN_TRY(kn_grow(&b->queue, &b->capacity, b->count + 1, sizeof *b->queue));
    c.name = kn_strdup(name);
    c.path = kn_strdup(d->path);
    if (!c.name || !c.path) {
        coming_free(&c);
        return KNNLM_ENOMEM;
    }
    c.about = (kn_store_document){.name = c.name,
                                  .path = c.path,
                                  .name_size = strlen(c.name),
                                  .path_size = strlen(c.path),
                                  .source_offset = d->offset,
                                  .bytes = d->size,
                                  .hash = {hash[0], hash[1]},
                                  .has_offsets = true,
                                  .order = c.about.order};
    b->queue[b->count++] = c;
    b->out->bytes_added += d->size;
    return KNNLM_OK;
}

static knnlm_status check_memory(const building *b, const kn_document *d) {
    uint64_t needed = kn_plan_document_memory(d->size);
    if (!b->plan->memory || b->plan->force || kn_memory_resident() + needed <= b->plan->memory + d->size)
        return KNNLM_OK;
    return kn_fail(KNNLM_ENOMEM,
                   "%s: a document of %.0f MB does not fit `memory`: split it, or see `split` (`force` "
                   "tries anyway)",
                   d->name, (double)d->size / 1e6);
}

// A half that an interrupted run left of this document, or NULL: its rest is wanted, provided that nothing
// was begun after it.
static knnlm_status choose_unread(building *b, const kn_document *d, const char *name, coming c,
                                  const uint64_t hash[2], kn_content *half, uint64_t *skip) {
    bool last = half && half->number + 1 == kn_store_describe(b->changes.contents.store)->documents;
    c.continues = last && !b->any_begun && b->first == b->count;
    *skip = 0;
    if (c.continues)
        KN_TRY(kn_store_writer_continue(b->w, skip));
    else if (half)
        half->matched = false; // the half that is there goes, and is read again
    KN_TRY(check_memory(b, d));
    return expect(b, d, name, c, hash);
}

// Known documents are left alone, and what is known under another name is copied: the model reads no text
// twice.
static knnlm_status choose_own(building *b, const kn_document *d, coming c, uint64_t *skip) {
    uint64_t hash[2];
    kn_given given;
    kn_content_hash(d->text, d->size, hash);
    KN_TRY(kn_changes_give(&b->changes, d, &given));
    kn_content *known = given.again ? NULL : kn_changes_match(&b->changes, &given, hash);
    *skip = UINT64_MAX;
    if (given.again || (known && known->whole)) {
        b->out->documents_unchanged++;
        return KNNLM_OK;
    }
    const kn_content *same = known ? NULL : kn_changes_elsewhere(&b->changes, hash);
    if (!same) return choose_unread(b, d, given.name, c, hash, known, skip);
    c.copies = true;
    c.original = same->number;
    return expect(b, d, given.name, c, hash);
}

// A shard takes the documents that were dealt to it, by the names that they have among all.
static knnlm_status choose(void *context, const kn_document *d, size_t number, uint64_t *skip) {
    building *b = context;
    coming c = {.number = number};
    if (!b->dealt) return choose_own(b, d, c, skip);
    const kn_dealt_text *mine = &b->dealt->documents[b->passed];
    *skip = UINT64_MAX;
    if (b->passed == b->dealt->count || mine->number != number) return KNNLM_OK;
    b->passed++;
    kn_document named = *d;
    named.name = mine->name;
    named.typed = NULL;
    c.about.order = mine->order;
    return choose_own(b, &named, c, skip);
}

static knnlm_status copy(building *b, const coming *c) {
    uint64_t before = kn_store_writer_entries(b->w);
    KN_TRY(kn_store_writer_copy(b->w, c->original, &c->about));
    b->out->entries_added += kn_store_writer_entries(b->w) - before;
    return KNNLM_OK;
}

static knnlm_status begin_next(building *b, uint64_t tokens) {
    coming *c = &b->queue[b->first++];
    c->about.tokens = tokens;
    knnlm_status status = c->copies      ? copy(b, c)
                          : c->continues ? KNNLM_OK
                                         : kn_store_writer_document(b->w, &c->about);
    b->begun = c->number;
    b->any_begun = true;
    b->out->documents_added++;
    coming_free(c);
    return status;
}

// ---------------------------------------------------------------- entries

static knnlm_status project(building *b, const kn_records *r, const float **keys) {
    *keys = r->keys;
    if (!b->pca.in || !r->keys) return KNNLM_OK;
    KN_TRY(kn_grow(&b->projected, &b->projected_capacity, r->count * b->pca.out, sizeof *b->projected));
    kn_pca_apply(&b->pca, r->keys, r->count, b->projected);
    *keys = b->projected;
    return KNNLM_OK;
}

static knnlm_status take(void *context, const kn_records *r) {
    building *b = context;
    const float *keys;
    // Documents without a token, and copies, have no records: those before this one are such.
    while (b->first < b->count && b->queue[b->first].number < r->document) KN_TRY(begin_next(b, 0));
    if (!b->any_begun || b->begun != r->document) KN_TRY(begin_next(b, r->tokens_in_document));
    KN_TRY(project(b, r, &keys));
    b->out->entries_added += r->count;
    return kn_store_writer_append(b->w, r->tokens, r->offsets, keys, r->count);
}

// The reader counts bytes; who waits wants tokens per second.
static bool report_tokens(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    building *b = context;
    uint64_t tokens = b->out->entries_added;
    double all = done && total ? (double)tokens * (double)total / (double)done : 0;
    (void)what;
    (void)unit;
    return kn_progress_report(b->progress, "building", tokens, (uint64_t)all, "tok");
}

// ---------------------------------------------------------------- the run

static knnlm_status join(const char *directory, const char *name, char **path) {
    size_t size = strlen(directory) + strlen(name) + 2;
    *path = kn_alloc(size, 1);
    if (*path) snprintf(*path, size, "%s/%s", directory, name);
    return *path ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status save_tokenizer(const kn_tokenizer *t, const char *file) {
    kn_gguf_writer *g;
    KN_TRY(kn_gguf_writer_open(file, &g));
    knnlm_status status = kn_gguf_put_string(g, "general.type", "knnlm tokenizer");
    if (status == KNNLM_OK) status = kn_tokenizer_save_gguf(t, g);
    if (status == KNNLM_OK) return kn_gguf_writer_commit(g);
    kn_gguf_writer_abort(g);
    return status;
}

knnlm_status kn_build_attach_tokenizer(kn_store_writer *w, const kn_tokenizer *t) {
    char *file;
    KN_TRY(join(kn_store_writer_path(w), "tokenizer.gguf", &file));
    knnlm_status status = save_tokenizer(t, file);
    free(file);
    return status == KNNLM_OK ? kn_store_writer_attach(w, "tokenizer.gguf") : status;
}

static knnlm_status attach_projection(building *b, const char *const *texts, size_t count) {
    char *file;
    if (!b->projection) KN_TRY(kn_plan_learn(b->plan, texts, count, b->progress, &b->pca));
    KN_TRY(join(kn_store_writer_path(b->w), "projection.gguf", &file));
    knnlm_status status = kn_projection_save(file, b->projection ? b->projection : &b->pca);
    if (status == KNNLM_OK && b->projection) status = kn_projection_open(file, &b->pca);
    free(file);
    return status == KNNLM_OK ? kn_store_writer_attach(b->w, "projection.gguf") : status;
}

static knnlm_status equip(building *b, const char *const *texts, size_t count) {
    KN_TRY(kn_build_attach_tokenizer(b->w, kn_lm_tokenizer(b->plan->lm)));
    return b->plan->project ? attach_projection(b, texts, count) : KNNLM_OK;
}

static knnlm_status retire_gone(building *b) {
    for (size_t i = 0; b->folders && i < b->changes.contents.count; i++) {
        const kn_content *d = &b->changes.contents.documents[i];
        if (!kn_changes_is_gone(&b->changes, d, b->folders)) continue;
        KN_TRY(kn_store_writer_remove(b->w, d->number));
        b->out->documents_removed++;
    }
    return KNNLM_OK;
}

static knnlm_status read_all(building *b, kn_documents *source) {
    b->out->documents_damaged = b->changes.contents.damaged;
    kn_progress progress = {report_tokens, b};
    kn_read_totals totals;
    KN_TRY(kn_read_source(b->plan->lm, source, &b->plan->read, &progress, choose, take, b, &totals));
    while (b->first < b->count) KN_TRY(begin_next(b, 0));
    KN_TRY(kn_changes_retire(&b->changes, b->w, &b->out->documents_replaced));
    KN_TRY(retire_gone(b));
    return kn_store_writer_commit(b->w);
}

static void building_free(building *b) {
    for (; b->first < b->count; b->first++) coming_free(&b->queue[b->first]);
    free(b->queue);
    free(b->projected);
    kn_changes_free(&b->changes);
    kn_pca_free(&b->pca);
}

static knnlm_status explain_stop(const building *b, knnlm_status status) {
    if (status != KNNLM_ESTOPPED || !kn_store_exists(kn_store_writer_path(b->w))) return status;
    return kn_fail(status, "stopped: %s stands at its last commit; the same command goes on",
                   kn_store_writer_path(b->w));
}

static knnlm_status run(building *b, const char *const *texts, size_t count) {
    const kn_store *base = kn_store_writer_base(b->w);
    kn_documents *source = NULL;
    knnlm_status status = kn_changes_load(&b->changes, base);
    if (status == KNNLM_OK) status = base ? kn_projection_of(base, &b->pca) : equip(b, texts, count);
    if (status == KNNLM_OK && !(b->dealt && !count)) // a new shard begins without any
        status = kn_documents_open(texts, count, &b->plan->read.texts, &source);
    if (status == KNNLM_OK) status = source ? read_all(b, source) : kn_store_writer_commit(b->w);
    status = explain_stop(b, status);
    kn_documents_close(source);
    building_free(b);
    return status;
}

static knnlm_status run_one(building *b, kn_documents *source) {
    const kn_store *base = kn_store_writer_base(b->w);
    kn_store_writer_hold(b->w);
    knnlm_status status = kn_changes_load(&b->changes, base);
    if (status == KNNLM_OK) status = kn_projection_of(base, &b->pca);
    if (status == KNNLM_OK) status = read_all(b, source);
    building_free(b);
    return status;
}

static knnlm_status summarise(const char *path, double seconds, kn_build_result *out) {
    kn_store *store;
    KN_TRY(kn_store_open(path, &store));
    const kn_store_info *info = kn_store_describe(store);
    out->entries = info->entries - info->removed_entries;
    out->documents = info->documents - info->removed_documents;
    out->store_bytes = info->bytes;
    out->seconds = seconds;
    out->tokens_per_second = seconds > 0 ? (double)out->entries_added / seconds : 0;
    kn_store_close(store);
    return KNNLM_OK;
}

// Estimates, opens or creates, reads, closes.
static knnlm_status work(const kn_plan *plan, const char *path, const kn_store *store,
                         const char *const *texts, size_t count, const kn_build_options *o,
                         const kn_folders *folders, const kn_progress *progress, kn_build_result *out) {
    knnlm_build_estimate estimate;
    const kn_store_info *info = store ? kn_store_describe(store) : NULL;
    out->resumed = info && !info->complete;
    if (!o->dealt) { // else it was estimated for all shards together
        KN_TRY(kn_plan_estimate(plan, path, store, texts, count, &estimate));
        if (o->planned) o->planned(o->planned_context, &estimate);
        KN_TRY(kn_plan_afford(plan, path, &estimate));
    }
    building b = {.plan = plan,
                  .folders = folders,
                  .dealt = o->dealt,
                  .projection = o->projection,
                  .progress = progress,
                  .out = out};
    double start = kn_seconds();
    KN_TRY(store ? kn_store_write(path, &b.w) : kn_store_create(path, &plan->settings, &b.w));
    knnlm_status status = run(&b, texts, count);
    kn_store_writer_close(b.w);
    return status == KNNLM_OK ? summarise(path, kn_seconds() - start, out) : status;
}

knnlm_status kn_build(kn_lm *lm, const char *path, const char *const *texts, size_t count,
                      const kn_build_options *o, const kn_progress *progress, kn_build_result *out) {
    kn_plan plan;
    kn_store *store = NULL;
    if (o->shards || kn_shards_exist(path))
        return kn_shards_build(KN_SHARDS_BUILD, lm, path, texts, count, o, progress, out);
    *out = (kn_build_result){0};
    knnlm_status status = kn_plan_build(lm, o, &plan);
    if (status == KNNLM_OK && kn_store_exists(path)) status = kn_store_open(path, &store);
    if (status == KNNLM_OK && store) status = kn_plan_check(&plan, store, o->segment != 0);
    if (status == KNNLM_OK && !store) status = kn_plan_check_texts(&plan, texts, count);
    if (status == KNNLM_OK) status = work(&plan, path, store, texts, count, o, NULL, progress, out);
    kn_store_close(store);
    kn_plan_free(&plan);
    return status;
}

static knnlm_status change(kn_lm *lm, const char *path, const char *const *texts, size_t count,
                           const kn_build_options *o, const kn_folders *folders, const kn_progress *progress,
                           kn_build_result *out) {
    kn_plan plan;
    kn_store *store;
    *out = (kn_build_result){0};
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = kn_plan_add(lm, store, o, &plan);
    if (status == KNNLM_OK) status = work(&plan, path, store, texts, count, o, folders, progress, out);
    kn_store_close(store);
    kn_plan_free(&plan);
    return status;
}

knnlm_status kn_build_add(kn_lm *lm, const char *path, const char *const *texts, size_t count,
                          const kn_build_options *o, const kn_progress *progress, kn_build_result *out) {
    if (kn_shards_exist(path))
        return kn_shards_build(KN_SHARDS_ADD, lm, path, texts, count, o, progress, out);
    return change(lm, path, texts, count, o, NULL, progress, out);
}

knnlm_status kn_build_sync(kn_lm *lm, const char *path, const char *const *texts, size_t count,
                           const kn_build_options *o, const kn_progress *progress, kn_build_result *out) {
    kn_folders folders;
    if (kn_shards_exist(path))
        return kn_shards_build(KN_SHARDS_SYNC, lm, path, texts, count, o, progress, out);
    knnlm_status status = kn_folders_find(&folders, texts, count);
    if (status == KNNLM_OK) status = change(lm, path, texts, count, o, &folders, progress, out);
    kn_folders_free(&folders);
    return status;
}

static knnlm_status add_planned(const kn_plan *plan, const char *path, kn_documents *source,
                                const kn_progress *progress, kn_build_result *out) {
    building b = {.plan = plan, .progress = progress, .out = out};
    double start = kn_seconds();
    KN_TRY(kn_store_write(path, &b.w));
    knnlm_status status = run_one(&b, source);
    kn_store_writer_close(b.w);
    return status == KNNLM_OK ? summarise(path, kn_seconds() - start, out) : status;
}

knnlm_status kn_build_add_one(kn_lm *lm, const char *path, const kn_document *document, size_t gather,
                              const kn_progress *progress, kn_build_result *out) {
    static const kn_build_options plain = {.tap = KN_TAP_DEFAULT};
    kn_documents *source;
    kn_store *store;
    kn_plan plan;
    *out = (kn_build_result){0};
    if (kn_shards_exist(path))
        return kn_fail(KNNLM_ENOTSUP, "%s: is made of shards: `knnlm_build_add` adds files to it", path);
    KN_TRY(kn_documents_open_one(document, &source));
    knnlm_status status = kn_store_open(path, &store);
    if (status == KNNLM_OK) {
        status = kn_plan_add(lm, store, &plain, &plan);
        plan.read.gather = gather;
        if (status == KNNLM_OK) status = add_planned(&plan, path, source, progress, out);
        kn_store_close(store);
        kn_plan_free(&plan);
    }
    kn_documents_close(source);
    return status;
}
