// A commit: the segment at hand is sealed, the list of removed documents is written, the manifest replaced.
#include "store/writer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct commit_job {
    kn_store_writer *w;
    kn_filling *filling; // NULL: no new segment
    uint32_t *removed;   // NULL: as before
    size_t removed_count;
    uint64_t removed_entries, removed_file;
    uint64_t next_file; // after this commit
    bool complete, publish;
} commit_job;

void kn_filling_free(kn_filling *f) {
    if (!f) return;
    kn_part_free(f->keys);
    free(f->tokens);
    free(f->offsets);
    free(f->scales);
    free(f->documents);
    free(f->strings);
    free(f);
}

// ---------------------------------------------------------------- parts

// One more section of a part.
static knnlm_status put_section(kn_part_writer *p, const void *data, size_t count, size_t size) {
    if (count) KN_TRY(kn_part_put(p, data, count * size));
    return kn_part_pad(p);
}

static knnlm_status create_part(const char *directory, uint64_t file, const char *kind_name,
                                kn_part_kind kind, kn_part_writer **out) {
    char *path = kn_store_part_file(directory, file, kind_name);
    if (!path) return KNNLM_ENOMEM;
    knnlm_status status = kn_part_create(path, kind, NULL, out);
    free(path);
    return status;
}

static knnlm_status put_text(kn_part_writer *p, const kn_filling *f) {
    KN_TRY(put_section(p, f->tokens, f->entries, sizeof *f->tokens));
    KN_TRY(put_section(p, f->offsets, f->entries, sizeof *f->offsets));
    KN_TRY(put_section(p, f->documents, f->document_count, sizeof *f->documents));
    return put_section(p, f->strings, f->strings_size, 1);
}

static knnlm_status seal_text(const char *directory, const kn_filling *f, uint64_t *seal) {
    kn_part_writer *p;
    KN_TRY(create_part(directory, f->file, "text", KN_PART_TEXT, &p));
    knnlm_status status = put_text(p, f);
    if (status == KNNLM_OK) status = kn_part_seal(p, f->entries, seal);
    kn_part_free(p);
    return status;
}

static knnlm_status seal_keys(const kn_store_writer *w, kn_filling *f, uint64_t *seal) {
    if (!f->keys) return KNNLM_OK;
    kn_part_take_over(f->keys); // a job must not wait for the queue that it is in
    KN_TRY(kn_part_pad(f->keys));
    if (kn_key_form_of(w->settings.key_type)->scaled)
        KN_TRY(put_section(f->keys, f->scales, f->entries, sizeof *f->scales));
    return kn_part_seal(f->keys, f->entries, seal);
}

static knnlm_status seal_segment(kn_store_writer *w, kn_filling *f) {
    kn_segment_entry entry = {.file = f->file,
                              .entries = f->entries,
                              .documents = f->document_count,
                              .continued = f->continued,
                              .strings = f->strings_size};
    KN_TRY(seal_keys(w, f, &entry.keys_seal));
    KN_TRY(seal_text(w->path, f, &entry.text_seal));
    return kn_manifest_add_segment(&w->manifest, &entry);
}

static knnlm_status seal_removed(kn_store_writer *w, const commit_job *job) {
    kn_part_writer *p;
    kn_removed_entry *r = &w->manifest.removed;
    KN_TRY(create_part(w->path, job->removed_file, "removed", KN_PART_REMOVED, &p));
    knnlm_status status = put_section(p, job->removed, job->removed_count, sizeof *job->removed);
    if (status == KNNLM_OK) status = kn_part_seal(p, job->removed_count, &r->seal);
    kn_part_free(p);
    r->file = job->removed_file;
    r->documents = job->removed_count;
    r->entries = job->removed_entries;
    return status;
}

// ---------------------------------------------------------------- the manifest

knnlm_status kn_manifest_publish(const char *directory, const kn_manifest *m) {
    char *data, *path = kn_store_file(directory, KN_STORE_MANIFEST);
    size_t size;
    kn_file_writer *file;
    if (!path) return KNNLM_ENOMEM;
    bool room = m->generation <= KN_MANIFEST_COUNTER_MAX && m->next_file <= KN_MANIFEST_COUNTER_MAX;
    knnlm_status status = room ? kn_manifest_print(m, &data, &size)
                               : kn_fail(KNNLM_EDATA, "%s: has no more numbers for commits and files", path);
    if (status == KNNLM_OK) {
        int error = kn_directory_sync(directory);
        if (error) status = kn_fail_errno(KNNLM_EIO, error, "%s: cannot write", directory);
        if (status == KNNLM_OK) status = kn_file_writer_open(path, &file);
        if (status == KNNLM_OK) {
            kn_file_writer_put(file, data, size); // a failure is told by the commit
            status = kn_file_writer_commit(file);
        }
        free(data);
    }
    free(path);
    return status;
}

static knnlm_status publish(commit_job *job) {
    kn_store_writer *w = job->w;
    kn_manifest *m = &w->manifest;
    uint64_t old = m->removed.file;
    if (job->removed) KN_TRY(seal_removed(w, job));
    m->generation++;
    m->next_file = job->next_file;
    m->complete = job->complete;
    KN_TRY(kn_writer_check_lock(w));
    KN_TRY(kn_manifest_publish(w->path, m));
    if (!job->removed || !old) return KNNLM_OK;
    char *path = kn_store_part_file(w->path, old, "removed"); // superseded; the next writer would sweep it up
    if (path) unlink(path);
    free(path);
    return KNNLM_OK;
}

static knnlm_status run_commit(void *context, bool failed) {
    commit_job *job = context;
    knnlm_status status = KNNLM_OK;
    if (!failed && job->filling) status = seal_segment(job->w, job->filling);
    if (!failed && status == KNNLM_OK && job->publish) status = publish(job);
    kn_filling_free(job->filling);
    free(job->removed);
    free(job);
    return status;
}

knnlm_status kn_writer_queue_commit(kn_store_writer *w, bool complete) {
    commit_job *job = kn_alloc(1, sizeof *job);
    if (!job) return KNNLM_ENOMEM;
    *job = (commit_job){.w = w, .complete = complete, .publish = !w->hold};
    if (w->removed_changed && !w->hold) { // what is not published must not be taken for told
        job->removed = kn_alloc(w->removed_count, sizeof *job->removed);
        if (!job->removed) {
            free(job);
            return KNNLM_ENOMEM;
        }
        memcpy(job->removed, w->removed, w->removed_count * sizeof *job->removed);
        job->removed_count = w->removed_count;
        job->removed_entries = w->removed_entries;
        job->removed_file = w->next_file++;
        w->removed_changed = false;
    }
    job->filling = w->filling;
    job->next_file = w->next_file;
    w->filling = NULL;
    return kn_spool_put(w->spool, run_commit, job);
}
