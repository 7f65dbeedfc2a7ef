// The writer of a store: its lock, documents and entries as they come, removals, commits.
#include "store/shards.h"
#include "store/tuned.h"
#include "store/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// Blocks of 1 MiB that may wait for the disk: a moment's work of the fastest model.
enum { QUEUE = 16 };

knnlm_status kn_writer_keep(kn_store_writer *w, knnlm_status status) {
    if (status == KNNLM_OK || w->status != KNNLM_OK) return status;
    w->status = status;
    w->message = strdup(knnlm_message());
    return status;
}

static knnlm_status check_usable(const kn_store_writer *w) {
    if (w->status == KNNLM_OK) return KNNLM_OK;
    return kn_fail(w->status, "%s", w->message ? w->message : knnlm_status_name(w->status));
}

// ---------------------------------------------------------------- opening

// Whether the file that was locked is still the one of that name: who deletes a lock must not let two writers
// in.
static bool is_lock(int fd, const char *path) {
    struct stat held, named;
    return fstat(fd, &held) == 0 && lstat(path, &named) == 0 && S_ISREG(named.st_mode) &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

static knnlm_status lock_file(kn_store_writer *w, const char *path) {
    for (int attempt = 0; attempt < 100; attempt++) {
        w->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
        if (w->lock < 0) return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot write", path);
        if (flock(w->lock, LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot lock", w->path);
            return kn_fail(KNNLM_EBUSY, "%s: another process is writing to it: wait for its end", w->path);
        }
        if (is_lock(w->lock, path)) return KNNLM_OK;
        close(w->lock);
        w->lock = -1;
    }
    return kn_fail(KNNLM_EIO, "%s: is no plain file, or is replaced all the time: cannot lock", path);
}

knnlm_status kn_writer_check_lock(const kn_store_writer *w) {
    char *path = kn_store_file(w->path, KN_STORE_LOCK);
    if (!path) return KNNLM_ENOMEM;
    knnlm_status status =
        is_lock(w->lock, path)
            ? KNNLM_OK
            : kn_fail(KNNLM_EIO, "%s: was deleted or replaced: another process may be writing", path);
    free(path);
    return status;
}

static knnlm_status lock(kn_store_writer *w) {
    char *path = kn_store_file(w->path, KN_STORE_LOCK);
    if (!path) return KNNLM_ENOMEM;
    knnlm_status status = lock_file(w, path);
    free(path);
    return status;
}

// The clock, or what the environment gives in its place (reproducible-builds.org).
static int64_t time_now(void) {
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    char *end;
    long long seconds = fixed ? strtoll(fixed, &end, 10) : 0;
    return fixed && end != fixed && !*end && seconds >= 0 ? seconds : (int64_t)time(NULL);
}

static knnlm_status make_writer(const char *path, kn_store_writer **out) {
    kn_store_writer *w = kn_alloc(1, sizeof *w);
    *out = w;
    if (!w) return KNNLM_ENOMEM;
    w->lock = -1;
    w->path = kn_strdup(path);
    if (!w->path) return KNNLM_ENOMEM;
    for (size_t n = strlen(w->path); n > 1 && w->path[n - 1] == '/'; n--) w->path[n - 1] = 0;
    return KNNLM_OK;
}

static knnlm_status finish_opening(kn_store_writer *w, knnlm_status status, kn_store_writer **out) {
    if (status == KNNLM_OK) status = kn_spool_open(QUEUE, &w->spool);
    if (status != KNNLM_OK)
        kn_store_writer_close(w);
    else
        *out = w;
    return status;
}

// Makes the new directory and its lock durable: a commit must not vanish together with the directory it is
// in. A parent that may not be read cannot be synced.
static knnlm_status sync_new(const kn_store_writer *w) {
    char *copy = kn_strdup(w->path);
    if (!copy) return KNNLM_ENOMEM;
    int error = kn_directory_sync(dirname(copy));
    free(copy);
    if (!error || error == EACCES) error = kn_directory_sync(w->path);
    return error ? kn_fail_errno(KNNLM_EIO, error, "%s: cannot create", w->path) : KNNLM_OK;
}

static knnlm_status create(kn_store_writer *w, const kn_store_settings *settings) {
    KN_TRY(kn_settings_copy(settings, &w->manifest.settings));
    w->settings = w->manifest.settings;
    if (mkdir(w->path, 0777) != 0 && errno != EEXIST)
        return kn_fail_errno(KNNLM_EIO, errno, "%s: cannot create", w->path);
    if (kn_store_exists(w->path)) return kn_fail(KNNLM_EIO, "%s: is a store already", w->path);
    KN_TRY(kn_store_check_empty(w->path));
    KN_TRY(lock(w));
    if (kn_store_exists(w->path)) return kn_fail(KNNLM_EIO, "%s: is a store already", w->path);
    kn_store_sweep(w->path, NULL);
    KN_TRY(sync_new(w));
    w->now = w->manifest.created = w->manifest.job_time = time_now();
    w->next_file = w->manifest.next_file = 1;
    w->changed = true;
    return KNNLM_OK;
}

knnlm_status kn_store_create(const char *path, const kn_store_settings *settings, kn_store_writer **out) {
    kn_store_writer *w;
    knnlm_status status = make_writer(path, &w);
    if (status == KNNLM_OK) status = create(w, settings);
    return finish_opening(w, status, out);
}

static knnlm_status load_removed(kn_store_writer *w) {
    const kn_removed_entry *r = &w->manifest.removed;
    if (!r->file) return KNNLM_OK;
    KN_TRY(kn_grow(&w->removed, &w->removed_capacity, r->documents, sizeof *w->removed));
    memcpy(w->removed, w->base->removed.data + KN_PART_HEADER, r->documents * sizeof *w->removed);
    w->removed_count = r->documents;
    w->removed_entries = r->entries;
    return KNNLM_OK;
}

// A damaged record is no obstacle: its document can only be removed.
static void find_unfinished(kn_store_writer *w) {
    kn_store_document last;
    w->unfinished = w->manifest.documents &&
                    kn_store_document_at(w->base, w->manifest.documents - 1, &last) == KNNLM_OK &&
                    last.count < last.tokens && !last.removed;
}

static knnlm_status open_existing(kn_store_writer *w) {
    kn_store *before;
    KN_TRY(kn_store_open(w->path, &before)); // what is no store gets no lock file
    kn_store_close(before);
    KN_TRY(lock(w));
    KN_TRY(kn_store_open(w->path, &w->base));
    KN_TRY(kn_manifest_copy(&w->base->manifest, &w->manifest));
    w->settings = w->manifest.settings;
    kn_store_sweep(w->path, &w->manifest);
    w->now = w->manifest.complete ? time_now() : w->manifest.job_time;
    w->manifest.job_time = w->now;
    w->next_file = w->manifest.next_file;
    w->entries = w->manifest.entries;
    w->documents = w->manifest.documents;
    w->changed = !w->manifest.complete;
    find_unfinished(w);
    return load_removed(w);
}

knnlm_status kn_store_write(const char *path, kn_store_writer **out) {
    kn_store_writer *w;
    if (kn_shards_exist(path)) return kn_fail(KNNLM_EINVAL, "%s: is made of shards: name one of them", path);
    knnlm_status status = make_writer(path, &w);
    if (status == KNNLM_OK) status = open_existing(w);
    return finish_opening(w, status, out);
}

void kn_store_writer_close(kn_store_writer *w) {
    if (!w) return;
    kn_spool_close(w->spool); // queued jobs first: they hold on to the parts
    kn_filling_free(w->filling);
    kn_manifest_free(&w->manifest);
    kn_store_close(w->base);
    free(w->removed);
    free(w->scratch);
    free(w->message);
    if (w->lock >= 0) close(w->lock);
    free(w->path);
    free(w);
}

const kn_store *kn_store_writer_base(const kn_store_writer *w) {
    return w->base;
}
knnlm_status kn_store_writer_recover(kn_store_writer *w) {
    return w->base ? kn_store_recover_order(w->base) : KNNLM_OK;
}
const char *kn_store_writer_path(const kn_store_writer *w) {
    return w->path;
}
const kn_store_settings *kn_store_writer_settings(const kn_store_writer *w) {
    return &w->settings;
}
uint64_t kn_store_writer_entries(const kn_store_writer *w) {
    return w->entries;
}

// ---------------------------------------------------------------- documents and entries

static knnlm_status begin_filling(kn_store_writer *w) {
    if (w->filling) return KNNLM_OK;
    w->filling = kn_alloc(1, sizeof *w->filling);
    if (!w->filling) return KNNLM_ENOMEM;
    w->filling->file = w->next_file++;
    if (w->settings.key_type == KNNLM_KEYS_NONE || w->entries < w->arranged_to) return KNNLM_OK;
    char *path = kn_store_part_file(w->path, w->filling->file, "keys");
    if (!path) return KNNLM_ENOMEM;
    knnlm_status status = kn_part_create(path, KN_PART_KEYS, w->spool, &w->filling->keys);
    free(path);
    return status;
}

knnlm_status kn_writer_record(kn_store_writer *w, const kn_store_document *d) {
    KN_TRY(begin_filling(w));
    kn_filling *f = w->filling;
    size_t strings = f->strings_size + d->name_size + d->path_size;
    KN_TRY(kn_grow(&f->documents, &f->document_capacity, f->document_count + 1, sizeof *f->documents));
    KN_TRY(kn_grow(&f->strings, &f->strings_capacity, strings, 1));
    if (d->name_size) memcpy(f->strings + f->strings_size, d->name, d->name_size);
    if (d->path_size) memcpy(f->strings + f->strings_size + d->name_size, d->path, d->path_size);
    f->documents[f->document_count++] = (kn_document_record){
        .first = (uint32_t)f->entries,
        .flags = (d->has_offsets ? KN_DOCUMENT_OFFSETS : 0) | d->order << KN_DOCUMENT_ORDER_SHIFT,
        .strings = f->strings_size,
        .name_size = (uint32_t)d->name_size,
        .path_size = (uint32_t)d->path_size,
        .source_offset = d->source_offset,
        .bytes = d->bytes,
        .tokens = d->tokens,
        .hash = {d->hash[0], d->hash[1]},
        .added = d->added ? d->added : w->now,
    };
    f->strings_size = strings;
    return KNNLM_OK;
}

static knnlm_status check_document(const kn_store_writer *w, const kn_store_document *d) {
    if (w->document_done < w->document_tokens)
        return kn_fail(KNNLM_EINVAL,
                       "%s: a document begins after %" PRIu64 " of %" PRIu64 " tokens of another", w->path,
                       w->document_done, w->document_tokens);
    if (d->bytes > KN_STORE_DOCUMENT_BYTES_MAX)
        return kn_fail(KNNLM_ENOTSUP, "%.*s: a document of %" PRIu64 " bytes: at most 4 GiB, split it",
                       (int)d->name_size, d->name, d->bytes);
    if (d->name_size > UINT32_MAX || d->path_size > UINT32_MAX || w->documents == UINT32_MAX)
        return kn_fail(KNNLM_ENOTSUP, "%s: too many documents, or too long a name", w->path);
    if (d->order > KN_STORE_ORDER_MAX)
        return kn_fail(KNNLM_ENOTSUP, "%s: more documents than a sharded store can order", w->path);
    if (d->tokens > KN_STORE_ENTRIES_MAX - w->entries)
        return kn_fail(KNNLM_ENOTSUP, "%s: more than %" PRIu32 " entries", w->path, KN_STORE_ENTRIES_MAX);
    return KNNLM_OK;
}

knnlm_status kn_store_writer_document(kn_store_writer *w, const kn_store_document *d) {
    KN_TRY(check_usable(w));
    KN_TRY(check_document(w, d));
    if (w->unfinished) KN_TRY(kn_writer_keep(w, kn_store_writer_remove(w, w->base->manifest.documents - 1)));
    KN_TRY(kn_writer_keep(w, kn_writer_take_tail(w, d->tokens)));
    KN_TRY(kn_writer_keep(w, kn_writer_record(w, d)));
    w->documents++;
    w->document_tokens = d->tokens;
    w->document_done = 0;
    w->document_offsets = d->has_offsets;
    w->continuing = false;
    w->changed = true;
    return KNNLM_OK;
}

knnlm_status kn_store_writer_continue(kn_store_writer *w, uint64_t *present) {
    kn_store_document last;
    KN_TRY(check_usable(w));
    if (!w->unfinished)
        return kn_fail(KNNLM_EINVAL, "%s: its last document is whole: there is nothing to go on with",
                       w->path);
    KN_TRY(kn_store_document_at(w->base, w->base->manifest.documents - 1, &last));
    w->unfinished = false;
    w->continuing = true;
    w->document_tokens = last.tokens;
    w->document_done = *present = last.count;
    w->document_offsets = last.has_offsets;
    return KNNLM_OK;
}

knnlm_status kn_writer_reserve(kn_store_writer *w, size_t count) {
    KN_TRY(begin_filling(w));
    kn_filling *f = w->filling;
    KN_TRY(kn_grow(&f->tokens, &f->tokens_capacity, f->entries + count, sizeof *f->tokens));
    return kn_grow(&f->offsets, &f->offsets_capacity, f->entries + count, sizeof *f->offsets);
}

// Segments with keys and segments without them do not mix.
size_t kn_writer_room(const kn_store_writer *w) {
    size_t held = w->filling ? w->filling->entries : 0;
    if (w->entries >= w->arranged_to) return w->settings.segment - held;
    return kn_min(KN_WRITER_TEXT_MAX - held, (size_t)(w->arranged_to - w->entries));
}

knnlm_status kn_writer_count(kn_store_writer *w, size_t count) {
    bool full = kn_writer_room(w) == count;
    kn_filling *f = w->filling;
    if (!f->document_count) f->continued += count;
    f->entries += count;
    w->entries += count;
    return full ? kn_writer_queue_commit(w, false) : KNNLM_OK;
}

static knnlm_status put_entries(kn_store_writer *w, const int32_t *tokens, const uint64_t *offsets,
                                const float *keys, size_t count) {
    KN_TRY(kn_writer_reserve(w, count));
    kn_filling *f = w->filling;
    if (f->keys) KN_TRY(kn_writer_put_keys(w, keys, count));
    memcpy(f->tokens + f->entries, tokens, count * sizeof *tokens);
    for (size_t i = 0; i < count; i++)
        f->offsets[f->entries + i] = w->document_offsets ? (uint32_t)offsets[i] : 0;
    w->document_done += count;
    return kn_writer_count(w, count);
}

static knnlm_status check_offsets(const kn_store_writer *w, const uint64_t *offsets, size_t count) {
    if (!w->document_offsets || !count) return KNNLM_OK;
    if (!offsets) return kn_fail(KNNLM_EINVAL, "%s: entries without offsets", w->path);
    for (size_t i = 0; i < count; i++)
        if (offsets[i] > KN_STORE_DOCUMENT_BYTES_MAX)
            return kn_fail(KNNLM_EINVAL, "%s: offset %" PRIu64 " of entry %" PRIu64 " is beyond a document",
                           w->path, offsets[i], w->entries + i);
    return KNNLM_OK;
}

static knnlm_status check_entries(const kn_store_writer *w, const int32_t *tokens, const float *keys,
                                  size_t count) {
    if (count > w->document_tokens - w->document_done)
        return kn_fail(KNNLM_EINVAL, "%s: %zu entries more: the document has %" PRIu64 " tokens", w->path,
                       count, w->document_tokens);
    if (!keys && w->settings.key_type != KNNLM_KEYS_NONE)
        return kn_fail(KNNLM_EINVAL, "%s: entries without keys", w->path);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (w->settings.vocabulary && tokens[i] >= w->settings.vocabulary))
            return kn_fail(KNNLM_EINVAL, "%s: token %d of entry %" PRIu64 ": the vocabulary has %d", w->path,
                           tokens[i], w->entries + i, w->settings.vocabulary);
    return KNNLM_OK;
}

knnlm_status kn_store_writer_append(kn_store_writer *w, const int32_t *tokens, const uint64_t *offsets,
                                    const float *keys, size_t count) {
    size_t d = (size_t)w->settings.dimension;
    KN_TRY(check_usable(w));
    KN_TRY(check_entries(w, tokens, keys, count));
    KN_TRY(check_offsets(w, offsets, count));
    w->changed |= count > 0;
    for (size_t done = 0; done < count;) {
        size_t n = kn_min(count - done, kn_writer_room(w));
        KN_TRY(kn_writer_keep(w, put_entries(w, tokens + done, offsets ? offsets + done : NULL,
                                             keys ? keys + done * d : NULL, n)));
        done += n;
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- what else a commit takes along

static int by_number(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

knnlm_status kn_store_writer_remove(kn_store_writer *w, uint64_t document) {
    kn_store_document d;
    KN_TRY(check_usable(w));
    if (!w->base || document >= w->base->manifest.documents)
        return kn_fail(KNNLM_EINVAL, "%s: no document %" PRIu64 " to remove", w->path, document);
    if (w->continuing && document + 1 == w->base->manifest.documents)
        return kn_fail(KNNLM_EINVAL, "%s: document %" PRIu64 " is being continued", w->path, document);
    uint32_t number = (uint32_t)document;
    if (w->removed && bsearch(&number, w->removed, w->removed_count, sizeof number, by_number))
        return KNNLM_OK;
    // A record that is damaged can go all the same: that is its cure.
    uint64_t count = kn_store_document_at(w->base, document, &d) == KNNLM_OK ? d.count : 0;
    KN_TRY(kn_grow(&w->removed, &w->removed_capacity, w->removed_count + 1, sizeof *w->removed));
    size_t at = w->removed_count++;
    for (; at > 0 && w->removed[at - 1] > number; at--) w->removed[at] = w->removed[at - 1];
    w->removed[at] = number;
    w->removed_entries += count;
    w->removed_changed = w->changed = true;
    if (document + 1 == w->base->manifest.documents) w->unfinished = false;
    return KNNLM_OK;
}

void kn_store_writer_tune(kn_store_writer *w, const kn_store_tuned *tuned) {
    if (!kn_tuned_valid(tuned)) {
        kn_writer_keep(
            w, kn_fail(KNNLM_EINVAL, "%s: impossible tuned values", w->path)); // the next commit tells
        return;
    }
    if (kn_spool_drain(w->spool) != KNNLM_OK) return; // likewise
    w->manifest.tuned = *tuned;
    w->changed = true;
}

// The manifest must not name what a power failure can take away.
static knnlm_status sync_file(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0) close(fd);
    return error ? kn_fail_errno(KNNLM_EIO, error, "%s", path) : KNNLM_OK;
}

knnlm_status kn_store_writer_attach(kn_store_writer *w, const char *name) {
    uint64_t hash, bytes;
    KN_TRY(check_usable(w));
    if (!kn_attachment_name(name) || kn_store_owns(name))
        return kn_fail(KNNLM_EINVAL, "%s: \"%s\" cannot be attached: a name is asked for", w->path, name);
    KN_TRY(kn_writer_keep(w, kn_spool_drain(w->spool)));
    char *path = kn_store_file(w->path, name);
    if (!path) return KNNLM_ENOMEM;
    knnlm_status status = sync_file(path);
    if (status == KNNLM_OK) status = kn_file_hash(path, &hash, &bytes);
    free(path);
    if (status == KNNLM_OK) status = kn_manifest_attach(&w->manifest, name, bytes, hash);
    w->changed = true;
    return kn_writer_keep(w, status);
}

void kn_store_writer_hold(kn_store_writer *w) {
    w->hold = true;
}

static knnlm_status commit(kn_store_writer *w, bool complete) {
    w->hold = false;
    if (w->document_done < w->document_tokens)
        return kn_fail(KNNLM_EINVAL, "%s: a commit after %" PRIu64 " of %" PRIu64 " tokens of a document",
                       w->path, w->document_done, w->document_tokens);
    if (!w->changed) return kn_writer_keep(w, kn_spool_drain(w->spool));
    KN_TRY(kn_writer_keep(w, kn_writer_queue_commit(w, complete)));
    KN_TRY(kn_writer_keep(w, kn_spool_drain(w->spool)));
    w->changed = false;
    if (w->superseded) kn_store_sweep(w->path, &w->manifest);
    w->superseded = false;
    return KNNLM_OK;
}

knnlm_status kn_store_writer_commit(kn_store_writer *w) {
    KN_TRY(check_usable(w));
    if (w->unfinished) KN_TRY(kn_writer_keep(w, kn_store_writer_remove(w, w->base->manifest.documents - 1)));
    return commit(w, true);
}

knnlm_status kn_store_writer_amend(kn_store_writer *w) {
    KN_TRY(check_usable(w));
    return commit(w, w->base && w->base->manifest.complete);
}
