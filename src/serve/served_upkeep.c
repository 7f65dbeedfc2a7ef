// Upkeep of served stores: compaction, tuning, verification.
#include "serve/served_parts.h"

#include "build/build.h"
#include "eval/tune.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// ---------------------------------------------------------------- compaction

static bool report(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    const kn_served_change *change = context;
    return kn_progress_report(&change->progress, what, done, total, unit) && change->go_on(change->context);
}

bool kn_served_compact(kn_served *s, const kn_served_change *change, knnlm_compact_result *out,
                       kn_http_error *err) {
    kn_progress progress = {report, (void *)change};
    kn_served_store *b = kn_served_change_begin(s, change, err);
    if (!b) return false;
    knnlm_status status = kn_build_compact(b->path, false, &progress, out);
    if (status == KNNLM_OK) status = kn_served_store_publish(s, b);
    bool done = kn_served_change_error(err, status);
    kn_served_change_end(s);
    return done;
}

// ---------------------------------------------------------------- tuning

typedef struct tuning {
    kn_served *s;
    kn_served_store *b;
    const kn_served_change *change;
} tuning;

// Between two batches, and between settings: whoever waits for the model has it first.
static bool let_others(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    const tuning *x = context;
    kn_ticket_lock_release(x->s->model_lock);
    bool goes_on = report((void *)x->change, what, done, total, unit);
    kn_ticket_lock_acquire(x->s->model_lock);
    return goes_on;
}

static bool write_all(int fd, const char *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, data + done, size - done);
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

// Tuning reads files, more than once: the text becomes one that is in memory alone. A line of JSON, so that
// nothing in it is taken for another kind of file.
static knnlm_status write_text(const char *text, size_t size, int *fd) {
    json_t *line = json_pack("{s:s%}", "text", text, size);
    char *data = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    *fd = memfd_create("knnlm-tune", MFD_CLOEXEC);
    bool written = data && *fd >= 0 && write_all(*fd, data, strlen(data));
    free(data);
    return written ? KNNLM_OK : kn_fail(KNNLM_ENOMEM, "no memory for the text to tune on");
}

static knnlm_status run_tune(tuning *x, const char *path, kn_tune_result *r) {
    kn_tune_options o = {.read = {.context = -1}, .mix = x->s->options, .own = !path};
    kn_store_choice alone = {.path = x->b->path, .weight = NAN, .temperature = NAN};
    kn_progress progress = {let_others, x};
    o.read.texts.split = KNNLM_SPLIT_JSONL;
    o.split_said = true;
    o.mix.stores = &alone;
    o.mix.store_count = 1;
    o.mix.lambda = o.mix.temperature = NAN; // what is to be found
    o.mix.k = 0;
    kn_ticket_lock_acquire(x->s->model_lock);
    knnlm_status status = kn_tune_run(x->s->lm, &path, path != NULL, &o, &progress, r);
    kn_ticket_lock_release(x->s->model_lock);
    return status;
}

static knnlm_status tune_on(tuning *x, const char *text, size_t size, kn_tune_result *r) {
    char path[40];
    int fd = -1;
    if (!text) return run_tune(x, NULL, r);
    knnlm_status status = write_text(text, size, &fd);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (status == KNNLM_OK) status = run_tune(x, path, r);
    if (fd >= 0) close(fd);
    return status;
}

static kn_served_tuned outcome_of(const kn_tune_result *r) {
    kn_served_tuned out = {.tokens = r->totals.read.tokens,
                           .ppl_lm = r->ppl_lm,
                           .ppl = r->ppl,
                           .ppl_best = r->ppl,
                           .written = r->written};
    if (r->tuned.bins.distances && !isnan(r->ppl_adaptive)) out.ppl_best = r->ppl_adaptive;
    if (r->tuned.gate.known && !isnan(r->ppl_gate)) out.ppl_best = r->ppl_gate;
    return out;
}

bool kn_served_tune(kn_served *s, const kn_served_change *change, const char *text, size_t size,
                    kn_served_tuned *out, kn_http_error *err) {
    kn_tune_result *r = kn_alloc(1, sizeof *r); // too large for a stack
    if (!r) return kn_http_error_memory(err);
    kn_served_store *b = kn_served_change_begin(s, change, err);
    bool done = false;
    if (b) {
        tuning x = {s, b, change};
        knnlm_status status = tune_on(&x, text, size, r);
        if (status == KNNLM_OK) *out = outcome_of(r);
        if (status == KNNLM_OK) status = kn_served_store_publish(s, b);
        done = kn_served_change_error(err, status);
        kn_served_change_end(s);
    }
    free(r);
    return done;
}

// ---------------------------------------------------------------- verification

bool kn_served_verify(kn_served *s, const kn_served_change *change,
                      void (*found)(void *context, const knnlm_problem *problem), void *context,
                      knnlm_verify_result *out, kn_http_error *err) {
    kn_progress progress = {report, (void *)change};
    kn_served_store *b = kn_served_named(s, change->store, err);
    kn_store *store;
    if (!b) return false;
    knnlm_status status = kn_store_open(b->path, &store); // as it is on disk, whatever is served
    if (status == KNNLM_OK) {
        status = kn_store_verify(store, &progress, found, context, out);
        kn_store_close(store);
    }
    if (status == KNNLM_OK) free(out->document_damaged);
    out->document_damaged = NULL;
    return kn_served_change_error(err, status);
}
