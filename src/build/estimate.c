// Estimates the disk, memory and time of a build, and refuses what cannot fit.
#include "build/plan.h"

#include "base/file.h"
#include "build/sample.h"
#include "store/contents.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PIECES = 16,
    PIECE = 1 << 15,       // bytes
    SEEN_MAX = 64 << 20,   // bytes of text looked at
    WINDOWS = 4,           // lengths of the context that the model reads of a piece, at most
    TOKENS_MIN = 64,       // that it reads of one at least
    QUEUE_BYTES = 24 << 20 // blocks on their way to the disk
};
#define SECONDS 1.0  // that the model may take
#define PATIENCE 2.0 // seconds that all of it may take
#define WORK 100e9   // parameters times tokens that a piece may cost: some tenths of a second

typedef struct estimating {
    const kn_plan *plan;
    kn_tokens tokens;
    kn_contents contents; // of the store
    uint64_t held;        // entries that it has
    uint64_t bytes, count;
    uint64_t known; // of `count`, tokens of documents that it has
    uint64_t run;   // tokens that the model read
    double seconds; // that it took
    bool warm;
} estimating;

static knnlm_status ignore(void *context, const kn_records *records) {
    (void)context;
    (void)records;
    return KNNLM_OK;
}

// Tokens of a piece: fewer where the model is large, whose rate shows early.
static size_t tokens_to_time(const kn_lm_info *info) {
    double affordable = info->parameters ? WORK / (double)info->parameters : 1e9;
    size_t most = (size_t)WINDOWS * (size_t)info->window;
    return affordable < TOKENS_MIN ? TOKENS_MIN : affordable < (double)most ? (size_t)affordable : most;
}

static knnlm_status time_model(estimating *e) {
    size_t n = kn_min(e->tokens.count, tokens_to_time(kn_lm_describe(e->plan->lm)));
    double start = kn_seconds();
    KN_TRY(kn_read_tokens(e->plan->lm, e->tokens.ids, n, &e->plan->read, ignore, NULL));
    double took = kn_seconds() - start;
    // The first run meets memory that was never touched; it counts only when there is no time for another.
    if (e->warm || took > SECONDS) {
        e->run += n;
        e->seconds += took;
    }
    e->warm = true;
    return KNNLM_OK;
}

static bool is_known(const estimating *e, const kn_document *d) {
    uint64_t hash[2];
    size_t count;
    if (!e->contents.count) return false;
    kn_content_hash(d->text, d->size, hash);
    return kn_contents_find(&e->contents, hash, &count) != NULL;
}

static knnlm_status take(void *context, const kn_document *d, const char *text, size_t size) {
    estimating *e = context;
    bool known = is_known(e, d);
    e->tokens.count = 0;
    KN_TRY(kn_tokenizer_encode(kn_lm_tokenizer(e->plan->lm), text, size, &e->tokens));
    e->bytes += size;
    e->count += e->tokens.count;
    if (known) e->known += e->tokens.count;
    if (known || !e->plan->read.keys || e->seconds > SECONDS || !e->tokens.count) return KNNLM_OK;
    return time_model(e);
}

uint64_t kn_plan_document_memory(uint64_t bytes) {
    return 12 * bytes; // text, tokens and byte offsets, the last two twice, with room to grow
}

// The centroids of the lists, and of an entry its number and its list.
static uint64_t index_bytes(uint64_t entries, uint64_t more, size_t dimension) {
    uint32_t lists = kn_recipe_lists(entries);
    return lists * dimension * sizeof(float) + more * (sizeof(uint32_t) + kn_annex_list_bytes(lists));
}

static void add_up(const estimating *e, const kn_sample_totals *t, knnlm_build_estimate *out) {
    const kn_store_settings *s = &e->plan->settings;
    double seen = t->disk_total && t->disk_read ? (double)t->disk_total / (double)t->disk_read : 0;
    out->text_bytes = (uint64_t)((double)t->bytes * seen);
    out->entries = e->bytes ? (uint64_t)((double)out->text_bytes * (double)e->count / (double)e->bytes) : 0;
    double part = e->count ? (double)e->known / (double)e->count : 0;
    uint64_t known = (uint64_t)((double)out->entries * part);
    // Where only the beginning was looked at, it may be known while the rest is not: the store has no more
    // than it has (an eighth is left to the estimate's own error).
    if (seen > 1 && known > e->held + e->held / 8) known = e->held;
    out->present = kn_max(known, out->present);
    uint64_t more = out->entries > out->present ? out->entries - out->present : 0;
    uint64_t documents = (uint64_t)((double)t->documents * seen * (1 - part));
    out->disk = more * (kn_key_bytes(s->key_type, (size_t)s->dimension) + 8) + documents * 160;
    if (more) out->disk += index_bytes(out->entries, more, (size_t)s->dimension);
    out->tokens_per_second = e->seconds > 0 ? (double)e->run / e->seconds : 0;
    out->seconds = out->tokens_per_second > 0 ? (double)more / out->tokens_per_second : 0;
    out->memory =
        kn_memory_resident() + QUEUE_BYTES + 16 * (uint64_t)s->segment + kn_plan_document_memory(t->largest);
}

static knnlm_status estimate(estimating *e, const kn_store *store, const char *const *texts, size_t count,
                             knnlm_build_estimate *out) {
    const kn_store_info *info = store ? kn_store_describe(store) : NULL;
    kn_sample_totals t;
    if (info && !info->complete) out->present = info->entries; // an interrupted run, which goes on
    KN_TRY(kn_contents_load(&e->contents, store));
    e->held = info ? info->entries : 0;
    static const kn_sample_plan pieces = {PIECES, PIECE, SEEN_MAX, PATIENCE};
    KN_TRY(kn_sample_texts(texts, count, &e->plan->read.texts, &pieces, take, e, &t));
    add_up(e, &t, out);
    return KNNLM_OK;
}

knnlm_status kn_plan_estimate(const kn_plan *plan, const char *path, const kn_store *store,
                              const char *const *texts, size_t count, knnlm_build_estimate *out) {
    estimating e = {.plan = plan};
    *out = (knnlm_build_estimate){0};
    KN_TRY(kn_disk_free(path, &out->disk_free));
    if (kn_documents_once(texts, count)) {
        out->memory = kn_memory_resident() + QUEUE_BYTES;
        return KNNLM_OK;
    }
    knnlm_status status = estimate(&e, store, texts, count, out);
    kn_tokens_free(&e.tokens);
    kn_contents_free(&e.contents);
    return status;
}

static const char *print_bytes(uint64_t bytes, char text[32]) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double n = (double)bytes;
    size_t unit = 0;
    for (; n >= 1000 && unit < 4; unit++) n /= 1000;
    snprintf(text, 32, unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
    return text;
}

knnlm_status kn_plan_afford(const kn_plan *plan, const char *path, const knnlm_build_estimate *e) {
    char needed[32], left[32];
    if (plan->force) return KNNLM_OK;
    if (e->disk > e->disk_free)
        return kn_fail(KNNLM_EIO, "%s: needs about %s of disk, %s are free (`force` tries anyway)", path,
                       print_bytes(e->disk, needed), print_bytes(e->disk_free, left));
    if (plan->memory && e->memory > plan->memory)
        return kn_fail(KNNLM_ENOMEM,
                       "%s: needs about %.0f MB of memory, `memory` allows %.3g (`force` tries anyway)", path,
                       (double)e->memory / 1e6, (double)plan->memory / 1e6);
    return KNNLM_OK;
}
