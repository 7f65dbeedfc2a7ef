// /v1/jobs, and the requests that become jobs: many or large documents, compaction, tuning, verification.
#include "serve/jobs.h"
#include "serve/json.h"
#include "serve/lines.h"
#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- the work

// What a job works on. Its memory is taken from the server's, as that of a request is.
typedef struct work {
    kn_served *served;
    char *store;
    kn_account account;
    kn_document_list documents; // of add
    char *text;                 // of tune; NULL: the store's own
    size_t size;
} work;

static void work_free(void *context) {
    work *w = context;
    kn_account_close(&w->account);
    kn_document_list_free(&w->documents);
    free(w->store);
    free(w->text);
    free(w);
}

static bool report(void *job, const char *phase, uint64_t done, uint64_t total, const char *unit) {
    return kn_job_report(job, phase, done, total, unit);
}

static kn_served_change change_by(const work *w, kn_job *job) {
    return (kn_served_change){w->store, true, kn_job_goes_on, job, {report, job}};
}

static json_t *run_add(void *context, kn_job *job, kn_http_error *err) {
    work *w = context;
    kn_served_change change = change_by(w, job);
    kn_served_added added;
    if (!kn_served_add(w->served, &change, w->documents.items, w->documents.count, &added, err)) return NULL;
    return json_pack("{s:I, s:I, s:I}", "documents", (json_int_t)added.documents, "unchanged",
                     (json_int_t)added.unchanged, "tokens", (json_int_t)added.entries);
}

static json_t *run_compact(void *context, kn_job *job, kn_http_error *err) {
    const work *w = context;
    kn_served_change change = change_by(w, job);
    knnlm_compact_result r;
    if (!kn_served_compact(w->served, &change, &r, err)) return NULL;
    return json_pack("{s:I, s:I, s:I, s:I}", "entries_dropped", (json_int_t)r.entries_dropped,
                     "documents_dropped", (json_int_t)r.documents_dropped, "bytes_before",
                     (json_int_t)r.bytes_before, "bytes_after", (json_int_t)r.bytes_after);
}

static json_t *run_tune(void *context, kn_job *job, kn_http_error *err) {
    const work *w = context;
    kn_served_change change = change_by(w, job);
    kn_served_tuned r;
    if (!kn_served_tune(w->served, &change, w->text, w->size, &r, err)) return NULL;
    return json_pack("{s:I, s:o, s:o, s:o, s:b}", "tokens", (json_int_t)r.tokens, "ppl_lm",
                     kn_json_real(r.ppl_lm), "ppl", kn_json_real(r.ppl), "ppl_best", kn_json_real(r.ppl_best),
                     "written", r.written);
}

enum { PROBLEMS_TOLD = 100 };

static void note_problem(void *context, const knnlm_problem *p) {
    json_t *list = context;
    if (json_array_size(list) < PROBLEMS_TOLD)
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:I, s:I, s:I}", "file", kn_json_text(p->file, strlen(p->file)),
                            "what", kn_json_text(p->what, strlen(p->what)), "offset", (json_int_t)p->offset,
                            "entries", (json_int_t)p->entries, "documents", (json_int_t)p->documents));
}

static json_t *run_verify(void *context, kn_job *job, kn_http_error *err) {
    const work *w = context;
    kn_served_change change = change_by(w, job);
    knnlm_verify_result r = {0};
    json_t *problems = json_array();
    if (!kn_served_verify(w->served, &change, note_problem, problems, &r, err)) {
        json_decref(problems);
        return NULL;
    }
    return json_pack("{s:I, s:o, s:I, s:I, s:I, s:I, s:b}", "problem_count", (json_int_t)r.problems,
                     "problems", problems, "entries", (json_int_t)r.entries, "documents",
                     (json_int_t)r.documents, "damaged_entries", (json_int_t)r.damaged_entries,
                     "damaged_documents", (json_int_t)r.damaged_documents, "index_damaged", r.index_damaged);
}

// ---------------------------------------------------------------- asking for it

static work *work_open(const kn_exchange *x, kn_http_error *err) {
    work *w = kn_alloc(1, sizeof *w);
    if (w) *w = (work){.served = x->model->served, .account = {.budget = &x->server->budget}};
    if (w) w->store = kn_strdup(x->segments[0]);
    if (w && w->store) return w;
    if (w) work_free(w);
    kn_http_error_memory(err);
    return NULL;
}

static enum MHD_Result reply_accepted(kn_exchange *x, const char *id, json_t *json) {
    char place[40];
    snprintf(place, sizeof place, "/v1/jobs/%s", id);
    return kn_reply_at(x, 202, json, place);
}

typedef json_t *runner(void *context, kn_job *job, kn_http_error *err);

// Takes the work.
static enum MHD_Result submit(kn_exchange *x, const char *kind, runner *run, work *w) {
    kn_http_error err = {0};
    char id[KN_JOB_ID];
    kn_job_work take = {kind, kn_strdup(w->store), run, work_free, w};
    json_t *json =
        kn_jobs_submit(x->server->jobs, &take, id, &err) ? kn_jobs_describe(x->server->jobs, id, &err) : NULL;
    return json ? reply_accepted(x, id, json) : kn_reply_error(x, &err);
}

// What is wrong with store or leave is told before anything is taken on.
static bool check_store(const kn_exchange *x, bool writes, kn_http_error *err) {
    size_t number;
    if (!kn_served_find(x->model->served, x->segments[0], &number, err)) return false;
    return !writes || x->may_write ||
           kn_http_error_set(err, 403, "read_only", NULL, "stores are served read-only");
}

// A job that needs nothing but its store.
static enum MHD_Result take_on(kn_exchange *x, const char *kind, bool writes, runner *run) {
    kn_http_error err = {0};
    work *w = check_store(x, writes, &err) ? work_open(x, &err) : NULL;
    return w ? submit(x, kind, run, w) : kn_reply_error(x, &err);
}

enum MHD_Result kn_answer_compact(kn_exchange *x) {
    return take_on(x, "compact", true, run_compact);
}

enum MHD_Result kn_answer_verify(kn_exchange *x) {
    return take_on(x, "verify", false, run_verify);
}

// Tokens and neighbours of a text take many times its own bytes; the library refuses what does not fit.
static bool take_text(work *w, const kn_prompt *text, kn_http_error *err) {
    if (!text->text) return true;
    if (!kn_account_take(&w->account, text->size * KN_COST_TOKEN))
        return kn_account_error(&w->account, "text", err);
    w->text = kn_strndup(text->text, text->size);
    w->size = text->size;
    return w->text || kn_http_error_memory(err);
}

enum MHD_Result kn_answer_tune(kn_exchange *x) {
    kn_http_error err = {0};
    kn_prompt text;
    bool fine = kn_tune_parse(x->request, &text, &err) && check_store(x, true, &err);
    work *w = fine ? work_open(x, &err) : NULL;
    if (w && take_text(w, &text, &err)) return submit(x, "tune", run_tune, w);
    if (w) work_free(w);
    return kn_reply_error(x, &err);
}

enum MHD_Result kn_answer_add_later(kn_exchange *x) {
    kn_http_error err = {0};
    bool fine =
        check_store(x, true, &err) && kn_served_takes_documents(x->model->served, x->segments[0], &err);
    work *w = fine ? work_open(x, &err) : NULL;
    if (w && kn_document_list_read(x, &w->account, &w->documents, &err)) return submit(x, "add", run_add, w);
    if (w) work_free(w);
    return kn_reply_error(x, &err);
}

// ---------------------------------------------------------------- looking at it

enum MHD_Result kn_answer_jobs(kn_exchange *x) {
    return kn_reply(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", kn_jobs_list(x->server->jobs)));
}

enum MHD_Result kn_answer_job(kn_exchange *x) {
    kn_http_error err = {0};
    json_t *json = kn_jobs_describe(x->server->jobs, x->segments[0], &err);
    return json ? kn_reply(x, 200, json) : kn_reply_error(x, &err);
}

enum MHD_Result kn_answer_cancel_job(kn_exchange *x) {
    kn_http_error err = {0};
    json_t *json = kn_jobs_cancel(x->server->jobs, x->segments[0], &err);
    return json ? kn_reply(x, 200, json) : kn_reply_error(x, &err);
}
