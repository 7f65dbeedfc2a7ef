// What a rank does for others with the stores that it has: opens, reads, and tunes them.
#include "store/sharded.h"

#include <pthread.h>
#include <stdlib.h>

// Stores that other ranks have asked for, by number; NULL: closed.
static struct {
    pthread_mutex_t lock;
    kn_store **list;
    size_t count, capacity;
} opened = {.lock = PTHREAD_MUTEX_INITIALIZER};

static knnlm_status keep(kn_store *store, uint64_t *handle) {
    pthread_mutex_lock(&opened.lock);
    knnlm_status status = kn_grow(&opened.list, &opened.capacity, opened.count + 1, sizeof *opened.list);
    *handle = opened.count;
    if (status == KNNLM_OK) opened.list[opened.count++] = store;
    pthread_mutex_unlock(&opened.lock);
    return status;
}

static knnlm_status find(kn_message *in, kn_store **out) {
    uint64_t handle = kn_message_take_number(in);
    pthread_mutex_lock(&opened.lock);
    *out = handle < opened.count ? opened.list[handle] : NULL;
    pthread_mutex_unlock(&opened.lock);
    return *out ? KNNLM_OK
                : kn_fail(KNNLM_EINVAL, "no store is open as number %llu", (unsigned long long)handle);
}

// ---------------------------------------------------------------- opening

static void put_settings(kn_message *m, const kn_store_settings *s) {
    const char *strings[] = {s->model, s->model_fingerprint, s->tokenizer, s->tokenizer_fingerprint, s->tap,
                             s->split};
    kn_message_put(m, s, sizeof *s);
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) kn_message_put_text(m, strings[i]);
}

// One that is damaged has no name there, nor entries.
static void put_document(const kn_store *store, uint64_t number, kn_message *m) {
    kn_store_document d;
    bool there = kn_store_document_at(store, number, &d) == KNNLM_OK;
    if (!there) d = (kn_store_document){.removed = kn_store_document_removed(store, number)};
    kn_message_put(m, &d, sizeof d);
    kn_message_put_bytes(m, d.name, d.name_size);
    kn_message_put_bytes(m, d.path, d.path_size);
}

static knnlm_status run_open(kn_message *in, kn_message *out, const kn_progress *progress) {
    const char *path = kn_message_take_text(in);
    kn_store *store;
    uint64_t handle;
    (void)progress;
    KN_TRY(kn_message_read(in));
    KN_TRY(kn_shard_check(path));
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = keep(store, &handle);
    if (status != KNNLM_OK) {
        kn_store_close(store);
        return status;
    }
    const kn_store_info *info = kn_store_describe(store);
    kn_message_put_number(out, handle);
    kn_message_put(out, info, sizeof *info);
    kn_message_put_text(out, info->path);
    put_settings(out, &info->settings);
    kn_message_put_text(out, kn_store_annex_note(store));
    for (uint64_t i = 0; i < info->documents; i++) put_document(store, i, out);
    return KNNLM_OK;
}
const kn_service kn_service_store_open = {"store open", run_open};

static knnlm_status run_close(kn_message *in, kn_message *out, const kn_progress *progress) {
    uint64_t handle = kn_message_take_number(in);
    kn_store *store = NULL;
    (void)out;
    (void)progress;
    pthread_mutex_lock(&opened.lock);
    if (handle < opened.count) {
        store = opened.list[handle];
        opened.list[handle] = NULL;
    }
    pthread_mutex_unlock(&opened.lock);
    kn_store_close(store);
    return KNNLM_OK;
}
const kn_service kn_service_store_close = {"store close", run_close};

static knnlm_status run_current(kn_message *in, kn_message *out, const kn_progress *progress) {
    kn_store *store;
    (void)progress;
    KN_TRY(find(in, &store));
    kn_message_put_number(out, kn_store_is_current(store));
    return KNNLM_OK;
}
const kn_service kn_service_store_current = {"store current", run_current};

// ---------------------------------------------------------------- reading

static knnlm_status run_entry(kn_message *in, kn_message *out, const kn_progress *progress) {
    kn_store *store;
    kn_store_entry entry;
    (void)progress;
    KN_TRY(find(in, &store));
    KN_TRY(kn_store_entry_at(store, kn_message_take_number(in), &entry));
    kn_message_put(out, &entry, sizeof entry);
    return KNNLM_OK;
}
const kn_service kn_service_store_entry = {"store entry", run_entry};

size_t kn_range_item(const kn_store_settings *s, kn_range_kind kind) {
    return kind == KN_RANGE_TOKENS    ? sizeof(int32_t)
           : kind == KN_RANGE_OFFSETS ? sizeof(uint64_t)
                                      : (size_t)s->dimension * sizeof(float);
}

knnlm_status kn_store_read_range(const kn_store *s, kn_range_kind kind, uint64_t first, size_t count,
                                 void *out) {
    if (kind == KN_RANGE_TOKENS) return kn_store_tokens(s, first, count, out);
    if (kind == KN_RANGE_OFFSETS) return kn_store_offsets(s, first, count, out);
    KN_TRY(kn_store_keys(s, first, count, out)); // knows whether there are any
    return kn_store_check_keys(s, first, count);
}

static knnlm_status run_range(kn_message *in, kn_message *out, const kn_progress *progress) {
    kn_store *store;
    (void)progress;
    KN_TRY(find(in, &store));
    kn_range_kind kind = (kn_range_kind)kn_message_take_number(in);
    uint64_t first = kn_message_take_number(in), count = kn_message_take_number(in);
    const kn_store_info *info = kn_store_describe(store);
    KN_TRY(kn_message_read(in));
    if (first > info->entries || count > info->entries - first)
        return kn_fail(KNNLM_EINVAL, "%s: has no such entries", info->path);
    void *room = kn_message_room(out, (size_t)count * kn_range_item(&info->settings, kind));
    KN_TRY(kn_message_sent(out));
    return kn_store_read_range(store, kind, first, (size_t)count, room);
}
const kn_service kn_service_store_range = {"store range", run_range};

static knnlm_status put_keys(const kn_store *store, kn_message *in, kn_message *out) {
    size_t row = (size_t)kn_store_describe(store)->settings.dimension;
    while (in->taken < in->size) {
        uint64_t id = kn_message_take_number(in);
        void *room = kn_message_room(out, row * sizeof(float));
        KN_TRY(kn_message_sent(out));
        KN_TRY(kn_store_check_keys(store, id, 1)); // damage must not be learnt from
        KN_TRY(kn_store_keys(store, id, 1, room));
    }
    return KNNLM_OK;
}

// By its path: who samples keys writes to the store soon, and holds no state of it.
static knnlm_status run_keys(kn_message *in, kn_message *out, const kn_progress *progress) {
    const char *path = kn_message_take_text(in);
    kn_store *store;
    (void)progress;
    KN_TRY(kn_message_read(in));
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = put_keys(store, in, out);
    kn_store_close(store);
    return status;
}
const kn_service kn_service_store_keys = {"store keys", run_keys};

// ---------------------------------------------------------------- tuning

static knnlm_status run_tune(kn_message *in, kn_message *out, const kn_progress *progress) {
    const char *path = kn_message_take_text(in);
    kn_store_tuned tuned;
    kn_store_writer *w;
    (void)out;
    (void)progress;
    kn_message_take(in, &tuned, sizeof tuned);
    KN_TRY(kn_message_read(in));
    KN_TRY(kn_store_write(path, &w));
    kn_store_writer_tune(w, &tuned);
    knnlm_status status = kn_store_writer_amend(w);
    kn_store_writer_close(w);
    return status;
}
const kn_service kn_service_store_tune = {"store tune", run_tune};

static void put_tuned(void *context, size_t shard, kn_message *in) {
    (void)shard;
    kn_message_put(in, context, sizeof(kn_store_tuned));
}

knnlm_status kn_shards_tune(const char *path, const kn_store_tuned *tuned) {
    kn_store_tuned copy = *tuned;
    return kn_shards_call_at(path, &(kn_shard_job){&kn_service_store_tune, put_tuned, NULL, &copy}, NULL);
}
