// Deals the documents of a job to the shards of a store.
#include "base/file.h"
#include "build/changes.h"
#include "build/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

// PLAN: a line "knnlm-plan 1 CHECKSUM", then the plan as ranks would send it to each other.
#define PLAN_FILE "PLAN"
#define PLAN_MAGIC "knnlm-plan 1"
enum { PLAN_LINE = 32 };

// A document that the texts and the store know, by its identity.
typedef struct dealt {
    uint64_t bytes, hash; // of its name
    int64_t shard;        // -1: not dealt yet
    uint32_t who;
} dealt;

typedef struct dealing {
    const kn_store *store;
    kn_deal_plan *plan;
    kn_changes changes;
    uint32_t *who; // (plan->count): identity of each document
    size_t who_capacity;
    dealt *list; // by identity
    size_t capacity;
    uint64_t *loads; // (shards): bytes
    XXH3_state_t *state;
} dealing;

void kn_deal_free(kn_deal_plan *p) {
    for (size_t i = 0; i < p->count; i++) free(p->documents[i].name);
    free(p->documents);
    *p = (kn_deal_plan){0};
}

// ---------------------------------------------------------------- reading

static void note_document(dealing *d, const char *name, const kn_document *text, const uint64_t hash[2]) {
    XXH3_64bits_update(d->state, name, strlen(name) + 1);
    XXH3_64bits_update(d->state, &(uint64_t){text->size}, sizeof(uint64_t));
    XXH3_64bits_update(d->state, hash, 2 * sizeof *hash);
}

static knnlm_status take_document(dealing *d, const kn_document *text) {
    kn_deal_plan *p = d->plan;
    uint64_t hash[2];
    kn_given given;
    KN_TRY(kn_changes_give(&d->changes, text, &given));
    if (given.who < 0) return kn_fail(KNNLM_EINVAL, "%s: has no name to be dealt by", text->name);
    kn_content_hash(text->text, text->size, hash);
    note_document(d, given.name, text, hash);
    KN_TRY(kn_grow(&p->documents, &p->capacity, p->count + 1, sizeof *p->documents));
    KN_TRY(kn_grow(&d->who, &d->who_capacity, p->count + 1, sizeof *d->who));
    size_t had = d->capacity, who = (size_t)given.who;
    KN_TRY(kn_grow(&d->list, &d->capacity, who + 1, sizeof *d->list));
    for (; had < d->capacity; had++) d->list[had] = (dealt){.shard = -1, .who = (uint32_t)had};
    d->list[who].bytes += text->size;
    d->list[who].hash = XXH3_64bits(given.name, strlen(given.name));
    d->who[p->count] = (uint32_t)who;
    p->documents[p->count].name = kn_strdup(given.name);
    return p->documents[p->count++].name ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status read_all(dealing *d, kn_documents *source, const kn_progress *progress) {
    for (;;) {
        kn_document text;
        bool found;
        KN_TRY(kn_documents_next(source, &text, &found));
        if (!found) return KNNLM_OK;
        KN_TRY(take_document(d, &text));
        if (!kn_progress_report(progress, "dealing", kn_documents_done(source), kn_documents_total(source),
                                "B"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while dealing: nothing was changed");
    }
}

// ---------------------------------------------------------------- the plan that is there

static char *plan_file(const char *path) {
    size_t size = strlen(path) + sizeof PLAN_FILE + 1;
    char *file = kn_alloc(size, 1);
    if (file) snprintf(file, size, "%s/%s", path, PLAN_FILE);
    return file;
}

void kn_deal_end(const char *path) {
    char *file = plan_file(path);
    if (file) unlink(file);
    free(file);
}

static size_t print_line(char line[PLAN_LINE + 8], const void *data, size_t size) {
    return (size_t)snprintf(line, PLAN_LINE + 8, PLAN_MAGIC " %016llx\n",
                            (unsigned long long)XXH3_64bits(data, size));
}

static knnlm_status write_plan(const char *file, const kn_deal_plan *p) {
    char line[PLAN_LINE + 8];
    kn_message m = {0};
    kn_file_writer *w;
    kn_message_put_number(&m, p->fingerprint);
    kn_message_put_number(&m, p->base);
    for (size_t i = 0; i < p->count; i++) kn_message_put_number(&m, p->documents[i].shard);
    knnlm_status status = kn_message_sent(&m);
    if (status == KNNLM_OK) status = kn_file_writer_open(file, &w);
    if (status == KNNLM_OK) {
        kn_file_writer_put(w, line, print_line(line, m.data, m.size)); // a failure is told by the commit
        kn_file_writer_put(w, m.data, m.size);
        status = kn_file_writer_commit(w);
    }
    kn_message_free(&m);
    return status;
}

// Whether it is of these documents: then *p is dealt by it.
static bool take_plan(const char *data, size_t size, size_t shards, kn_deal_plan *p) {
    char line[PLAN_LINE + 8];
    const char *end = memchr(data, '\n', kn_min(size, PLAN_LINE + 8));
    size_t head = end ? (size_t)(end - data) + 1 : size, numbers = p->count + 2;
    if (size - head != numbers * sizeof(uint64_t)) return false;
    if (print_line(line, data + head, size - head) != head || memcmp(line, data, head) != 0) return false;
    kn_message m = {.data = (uint8_t *)(uintptr_t)(data + head), .size = size - head};
    if (kn_message_take_number(&m) != p->fingerprint) return false;
    p->base = (uint32_t)kn_message_take_number(&m);
    for (size_t i = 0; i < p->count; i++) {
        uint64_t shard = kn_message_take_number(&m);
        if (shard >= shards) return false;
        p->documents[i].shard = (uint32_t)shard;
    }
    return true;
}

static bool find_plan(const char *file, size_t shards, kn_deal_plan *p) {
    char *data;
    size_t size;
    if (access(file, F_OK) != 0 || kn_file_read(file, &data, &size) != KNNLM_OK) return false;
    bool found = take_plan(data, size, shards, p);
    free(data);
    return found;
}

// ---------------------------------------------------------------- dealing

// Documents stay where they are; what shards have counts.
static knnlm_status settle_known(dealing *d) {
    uint64_t documents = kn_store_describe(d->store)->documents;
    for (uint64_t i = 0; i < documents; i++) {
        kn_store_document about;
        size_t shard;
        uint64_t local;
        if (kn_store_document_removed(d->store, i)) continue;
        if (kn_store_document_at(d->store, i, &about) != KNNLM_OK) continue;
        kn_store_shard_document(d->store, i, &shard, &local);
        d->loads[shard] += about.bytes;
        int32_t who = d->changes.identities.of_document[i];
        if (who >= 0 && (size_t)who < d->capacity) d->list[who].shard = (int64_t)shard;
    }
    return KNNLM_OK;
}

// The largest first; of equals, in an order that has nothing to do with how they were named or given.
static int by_size(const void *a, const void *b) {
    const dealt *x = *(dealt *const *)a, *y = *(dealt *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return (x->who > y->who) - (x->who < y->who);
}

static void give(dealing *d, dealt *one, size_t shards) {
    size_t least = 0;
    for (size_t s = 1; s < shards; s++)
        if (d->loads[s] < d->loads[least]) least = s;
    one->shard = (int64_t)least;
    d->loads[least] += one->bytes;
}

static knnlm_status deal_anew(dealing *d) {
    size_t shards = kn_store_shards(d->store), count = 0;
    dealt **left = kn_alloc(d->capacity, sizeof *left);
    d->loads = kn_alloc(shards, sizeof *d->loads);
    knnlm_status status = left && d->loads ? settle_known(d) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        for (size_t i = 0; i < d->capacity; i++)
            if (d->list[i].shard < 0 && d->list[i].hash) left[count++] = &d->list[i];
        if (count) qsort(left, count, sizeof *left, by_size);
        for (size_t i = 0; i < count; i++) give(d, left[i], shards);
        for (size_t i = 0; i < d->plan->count; i++)
            d->plan->documents[i].shard = (uint32_t)d->list[d->who[i]].shard;
    }
    free(left);
    return status;
}

// Documents get their order from after all that are there.
static knnlm_status deal(dealing *d, const char *file) {
    if (find_plan(file, kn_store_shards(d->store), d->plan)) return KNNLM_OK;
    d->plan->base = kn_store_last_order(d->store) + 1;
    if (d->plan->count > KN_STORE_ORDER_MAX - d->plan->base)
        return kn_fail(KNNLM_ENOTSUP, "%s: more documents than a sharded store can order",
                       kn_store_describe(d->store)->path);
    KN_TRY(deal_anew(d));
    return write_plan(file, d->plan);
}

knnlm_status kn_deal_texts(const kn_store *store, const char *const *texts, size_t count,
                           const kn_text_options *options, const kn_progress *progress, kn_deal_plan *out) {
    dealing d = {.store = store, .plan = out, .state = XXH3_createState()};
    kn_documents *source = NULL;
    char *file = plan_file(kn_store_describe(store)->path);
    *out = (kn_deal_plan){0};
    knnlm_status status = file && d.state ? kn_changes_load(&d.changes, store) : KNNLM_ENOMEM;
    if (d.state) XXH3_64bits_reset(d.state);
    if (status == KNNLM_OK) status = kn_documents_open(texts, count, options, &source);
    if (status == KNNLM_OK) status = read_all(&d, source, progress);
    if (status == KNNLM_OK) out->fingerprint = XXH3_64bits_digest(d.state);
    if (status == KNNLM_OK) status = deal(&d, file);
    kn_documents_close(source);
    kn_changes_free(&d.changes);
    XXH3_freeState(d.state);
    free(d.who);
    free(d.list);
    free(d.loads);
    free(file);
    return status;
}
