// The shards that a rank has open for searches.
#include "knn/pieces.h"
#include "knn/pieces_parts.h"

#include "lm/shared.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    kn_open_piece *list;
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

static knnlm_status keep(const kn_open_piece *piece, uint64_t *handle) {
    pthread_mutex_lock(&opened.lock);
    knnlm_status status = kn_grow(&opened.list, &opened.capacity, opened.count + 1, sizeof *opened.list);
    *handle = opened.count;
    if (status == KNNLM_OK) opened.list[opened.count++] = *piece;
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

static knnlm_status open_for(const kn_lm *lm, const char *path, const kn_datastore_options *o, kn_message *in,
                             kn_message *out) {
    kn_open_piece piece = {0};
    uint64_t handle;
    KN_TRY(kn_datastore_open(lm, path, o, &piece.store));
    const kn_datastore *s = piece.store;
    knnlm_status status = kn_numbering_take(in, s->store, &piece.numbering);
    if (status == KNNLM_OK) status = keep(&piece, &handle);
    if (status != KNNLM_OK) {
        kn_numbering_free(&piece.numbering);
        kn_datastore_release(piece.store);
        return status;
    }
    kn_message_put_number(out, handle);
    kn_message_put_number(out, is_empty(s));
    kn_message_put(out, s->info.index, sizeof *s->info.index);
    kn_message_put_number(out, kn_index_lists(s->index));
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
    if (status == KNNLM_OK) status = open_for(lm, path, &o, in, out);
    forget_warnings();
    free((void *)(uintptr_t)o.filter.only);
    free((void *)(uintptr_t)o.filter.except);
    return status;
}
const kn_service kn_service_knn_open = {"knn open", run_open};

static knnlm_status run_close(kn_message *in, kn_message *out, const kn_progress *progress) {
    uint64_t handle = kn_message_take_number(in);
    kn_open_piece piece = {0};
    (void)out;
    (void)progress;
    pthread_mutex_lock(&opened.lock);
    if (handle < opened.count) {
        piece = opened.list[handle];
        opened.list[handle] = (kn_open_piece){0};
    }
    while (opened.count && !opened.list[opened.count - 1].store) opened.count--;
    bool none = !opened.count;
    if (none) {
        free(opened.list);
        opened.list = NULL;
        opened.capacity = 0;
    }
    pthread_mutex_unlock(&opened.lock);
    if (none) kn_pieces_forget();
    kn_numbering_free(&piece.numbering);
    kn_datastore_release(piece.store);
    return KNNLM_OK;
}
const kn_service kn_service_knn_close = {"knn close", run_close};

knnlm_status kn_open_piece_find(uint64_t handle, kn_open_piece *out) {
    *out = (kn_open_piece){0};
    pthread_mutex_lock(&opened.lock);
    if (handle < opened.count) *out = opened.list[handle];
    pthread_mutex_unlock(&opened.lock);
    return out->store ? KNNLM_OK
                      : kn_fail(KNNLM_EINVAL, "no shard is open as number %llu", (unsigned long long)handle);
}
