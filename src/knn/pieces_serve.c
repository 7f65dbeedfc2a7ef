// What a rank does for others with its shards: opens them for a model, and searches them.
#include "knn/datastore_parts.h"
#include "knn/pieces.h"

#include "lm/shared.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// A shard that is open, and memory for searching it, which the system would have to clear every time.
typedef struct open_piece {
    kn_datastore *store; // NULL: closed
    kn_search_scratch scratch;
    bool searched; // somebody has the scratch memory now
} open_piece;

static struct {
    pthread_mutex_t lock;
    open_piece *list;
    size_t count, capacity;
} opened = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---------------------------------------------------------------- opening

// Warnings come without a context: each thread opens one at a time.
static _Thread_local struct {
    const char **texts;
    size_t count, capacity;
} warnings;

static void keep_warning(const char *text) {
    char *copy = kn_strdup(text);
    if (copy &&
        kn_grow(&warnings.texts, &warnings.capacity, warnings.count + 1, sizeof *warnings.texts) == KNNLM_OK)
        warnings.texts[warnings.count++] = copy;
    else
        free(copy);
}

static void forget_warnings(void) {
    for (size_t i = 0; i < warnings.count; i++) free((char *)(uintptr_t)warnings.texts[i]);
    free(warnings.texts);
    memset(&warnings, 0, sizeof warnings);
}

static knnlm_status keep(kn_datastore *store, uint64_t *handle) {
    pthread_mutex_lock(&opened.lock);
    knnlm_status status = kn_grow(&opened.list, &opened.capacity, opened.count + 1, sizeof *opened.list);
    *handle = opened.count;
    if (status == KNNLM_OK) opened.list[opened.count++] = (open_piece){.store = store};
    pthread_mutex_unlock(&opened.lock);
    return status;
}

static knnlm_status take_options(kn_message *in, kn_datastore_options *o) {
    o->distance = (int)kn_message_take_number(in);
    o->warn = kn_message_take_number(in) ? keep_warning : NULL;
    o->shard = true;
    KN_TRY(kn_message_take_texts(in, (const char ***)(uintptr_t)&o->filter.only, &o->filter.only_count));
    KN_TRY(kn_message_take_texts(in, (const char ***)(uintptr_t)&o->filter.except, &o->filter.except_count));
    o->filter.fraction = kn_message_take_real(in);
    return kn_message_read(in);
}

static bool is_empty(const kn_datastore *s) {
    return s->info.store->entries == s->info.store->removed_entries || s->nothing;
}

static knnlm_status open_piece_for(const kn_lm *lm, const char *path, const kn_datastore_options *o,
                                   kn_message *out) {
    kn_datastore *s;
    uint64_t handle;
    KN_TRY(kn_datastore_open(lm, path, o, &s));
    knnlm_status status = keep(s, &handle);
    if (status != KNNLM_OK) {
        kn_datastore_release(s);
        return status;
    }
    kn_message_put_number(out, handle);
    kn_message_put_number(out, is_empty(s));
    kn_message_put(out, s->info.index, sizeof *s->info.index);
    kn_message_put_texts(out, warnings.texts, warnings.count);
    return KNNLM_OK;
}

static knnlm_status run_open(kn_message *in, kn_message *out, const kn_progress *progress) {
    const char *path = kn_message_take_text(in);
    uint64_t key = kn_message_take_number(in);
    const kn_lm *lm = key ? kn_lm_find(key) : NULL;
    kn_datastore_options o = {0};
    (void)progress;
    knnlm_status status = take_options(in, &o);
    if (status == KNNLM_OK && key && !lm) status = kn_fail(KNNLM_EINVAL, "no such model is open");
    if (status == KNNLM_OK) status = open_piece_for(lm, path, &o, out);
    forget_warnings();
    free((void *)(uintptr_t)o.filter.only);
    free((void *)(uintptr_t)o.filter.except);
    return status;
}
const kn_service kn_service_knn_open = {"knn open", run_open};

static knnlm_status run_close(kn_message *in, kn_message *out, const kn_progress *progress) {
    uint64_t handle = kn_message_take_number(in);
    open_piece piece = {0};
    (void)out;
    (void)progress;
    pthread_mutex_lock(&opened.lock);
    if (handle < opened.count) {
        piece = opened.list[handle];
        opened.list[handle] = (open_piece){0};
    }
    while (opened.count && !opened.list[opened.count - 1].store) opened.count--;
    if (!opened.count) {
        free(opened.list);
        opened.list = NULL;
        opened.capacity = 0;
    }
    pthread_mutex_unlock(&opened.lock);
    kn_search_scratch_free(&piece.scratch);
    kn_datastore_release(piece.store);
    return KNNLM_OK;
}
const kn_service kn_service_knn_close = {"knn close", run_close};

// ---------------------------------------------------------------- searching

// The scratch memory, unless another thread has it: zero then.
static kn_datastore *borrow(uint64_t handle, kn_search_scratch *scratch, bool *lent) {
    kn_datastore *store = NULL;
    *scratch = (kn_search_scratch){0};
    pthread_mutex_lock(&opened.lock);
    if (handle < opened.count) {
        open_piece *p = &opened.list[handle];
        store = p->store;
        *lent = store && !p->searched;
        if (*lent) *scratch = p->scratch;
        p->searched = true;
    }
    pthread_mutex_unlock(&opened.lock);
    return store;
}

static void give_back(uint64_t handle, kn_search_scratch *scratch, bool lent) {
    pthread_mutex_lock(&opened.lock);
    if (lent) {
        opened.list[handle].scratch = *scratch;
        opened.list[handle].searched = false;
        *scratch = (kn_search_scratch){0};
    }
    pthread_mutex_unlock(&opened.lock);
    kn_search_scratch_free(scratch);
}

typedef struct question {
    size_t n;
    kn_retrieve_options o;
    const float *states;
} question;

static knnlm_status take_question(kn_message *in, size_t width, question *q) {
    q->n = (size_t)kn_message_take_number(in);
    q->o.k = (size_t)kn_message_take_number(in);
    q->o.probes = (uint32_t)kn_message_take_number(in);
    uint64_t flags = kn_message_take_number(in);
    q->o.codes = flags & 1;
    q->o.singly = flags & 2;
    q->o.memory = kn_message_take_number(in);
    q->o.temperature = NAN;
    q->o.excludes = (size_t)kn_message_take_number(in);
    size_t ranges = 0, states = 0;
    if (!kn_mul(q->n * q->o.excludes, sizeof *q->o.exclude, &ranges) ||
        !kn_mul(q->n * width, sizeof *q->states, &states))
        in->failed = true;
    KN_TRY(kn_message_read(in));
    q->o.exclude = q->o.excludes ? kn_message_view(in, ranges) : NULL;
    q->states = kn_message_view(in, states);
    return kn_message_read(in);
}

static void put_found(kn_message *out, const kn_retrieved *f, size_t n) {
    static const uint8_t nothing[8];
    kn_message_put(out, f->counts, n * sizeof *f->counts);
    for (size_t q = 0; q < n; q++) kn_message_put(out, &(uint8_t){f->begins[q]}, 1);
    kn_message_put(out, nothing, (8 - out->size % 8) % 8);
    for (size_t q = 0; q < n; q++)
        kn_message_put(out, f->distances + q * f->k, f->counts[q] * sizeof *f->distances);
    for (size_t q = 0; q < n; q++)
        kn_message_put(out, f->values + q * f->k, f->counts[q] * sizeof *f->values);
    for (size_t q = 0; q < n; q++) kn_message_put(out, f->found + q * f->k, f->counts[q] * sizeof *f->found);
}

static knnlm_status answer(const kn_datastore *s, question *q, kn_message *out) {
    kn_retrieved found;
    KN_TRY(kn_retrieved_init(&found, q->n, q->o.k));
    knnlm_status status = kn_datastore_search(s, q->states, q->n, &q->o, &found);
    if (status == KNNLM_OK) put_found(out, &found, q->n);
    kn_retrieved_free(&found);
    return status;
}

static knnlm_status run_search(kn_message *in, kn_message *out, const kn_progress *progress) {
    uint64_t handle = kn_message_take_number(in);
    kn_search_scratch scratch;
    question q = {0};
    bool lent = false;
    (void)progress;
    const kn_datastore *s = borrow(handle, &scratch, &lent);
    if (!s) return kn_fail(KNNLM_EINVAL, "no shard is open as number %llu", (unsigned long long)handle);
    q.o.scratch = &scratch;
    knnlm_status status = take_question(in, s->width, &q);
    if (status == KNNLM_OK) status = answer(s, &q, out);
    give_back(handle, &scratch, lent);
    return status;
}
const kn_service kn_service_knn_search = {"knn search", run_search};
