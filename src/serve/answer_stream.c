// Completions and chat with `stream`: an answer that is sent as it comes, as server-sent events.
#include "serve/completion.h"
#include "serve/json.h"
#include "serve/replies.h"
#include "serve/watch.h"

#include <stdlib.h>
#include <string.h>

enum { QUIET_SECONDS = 15 };

static bool put(kn_completion *a, const char *text) {
    size_t size = strlen(text);
    if (kn_grow(&a->out, &a->out_capacity, a->out_size + size, 1) != KNNLM_OK) return false;
    memcpy(a->out + a->out_size, text, size);
    a->out_size += size;
    return true;
}

static bool put_event(kn_completion *a, json_t *take) {
    char *text = take ? json_dumps(take, JSON_COMPACT) : NULL;
    bool fine = text && put(a, "data: ") && put(a, text) && put(a, "\n\n");
    json_decref(take);
    free(text);
    return fine;
}

static bool put_choice(kn_completion *a, json_t *choice) {
    json_t *json = kn_completion_frame(a, json_pack("[o]", choice), false);
    if (a->r.include_usage) json_object_set_new(json, "usage", json_null());
    return put_event(a, json);
}

// The prompt comes first, once it is scored.
static bool echo(kn_completion *a, kn_choice *choice) {
    kn_slice slice = kn_slice_open(a);
    bool fine = kn_slice_prompt(a, choice, &slice);
    if (!choice->task && !a->tasks[choice->prompt].next_wanted) choice->finish = "length";
    return put_choice(a, kn_slice_close(a, choice, &slice)) && fine;
}

static bool scored(kn_completion *a, const kn_choice *choice) {
    if (!a->score_count) return true;
    pthread_mutex_lock(&a->job.lock);
    bool over = a->tasks[choice->prompt].over;
    pthread_mutex_unlock(&a->job.lock);
    return over;
}

// Takes the chunk.
static bool put_chunk(kn_completion *a, kn_choice *choice, kn_chunk *chunk) {
    kn_slice slice = kn_slice_open(a);
    bool fine = kn_slice_chunk(a, choice, chunk, &slice);
    kn_chunk_free(chunk);
    return put_choice(a, kn_slice_close(a, choice, &slice)) && fine;
}

// Whatever has come since the last time becomes events.
static bool collect(kn_completion *a) {
    bool fine = true;
    for (size_t i = 0; i < a->choice_count && fine; i++) {
        kn_choice *choice = &a->choices[i];
        kn_chunk *chunk;
        if (!scored(a, choice)) continue;
        if (a->r.echo && !choice->echoed) fine = echo(a, choice);
        while (fine && (fine = kn_choice_take(a, choice, &chunk)) && chunk)
            fine = put_chunk(a, choice, chunk);
    }
    return fine;
}

static void finish(kn_completion *a) {
    a->ended = true;
    if (a->r.include_usage) put_event(a, kn_completion_frame(a, json_array(), true));
    put(a, "data: [DONE]\n\n");
}

static void fail(kn_completion *a, kn_http_error *err) {
    a->ended = true;
    kn_account_pause(&a->x->account);
    kn_server_hide_paths(a->server, err);
    put_event(a, kn_json_error(err));
}

// libmicrohttpd, and others on the way, give up a connection on which nothing comes for long: a comment keeps
// it.
static void keep_alive(kn_completion *a) {
    if (kn_seconds() - a->last_sent < QUIET_SECONDS) return;
    put(a, ":\n\n");
}

// Waits until there is something to send, or nothing will come any more. False: the client is gone.
static bool wait_for_more(kn_completion *a) {
    kn_http_error err;
    while (a->out_sent == a->out_size && !a->ended) {
        if (kn_exchange_late(a->x)) {
            kn_exchange_late_error(a->x, &err);
            fail(a, &err);
            break;
        }
        pthread_mutex_lock(&a->job.lock);
        bool over = a->job.open == 0 || a->task_count == 0;
        knnlm_status status = a->job.status;
        unsigned long seen = a->job.changes;
        pthread_mutex_unlock(&a->job.lock);
        if (status != KNNLM_OK) {
            kn_http_error_status(&err, status, a->job.message);
            fail(a, &err);
        } else if (!collect(a) || kn_json_failed()) {
            kn_account_error(&a->x->account, NULL, &err);
            fail(a, &err);
        } else if (over) {
            finish(a);
        } else if (a->out_sent == a->out_size) {
            if (kn_exchange_gone(a->x)) return false;
            keep_alive(a);
            pthread_mutex_lock(&a->job.lock);
            kn_request_job_wait(&a->job, seen);
            pthread_mutex_unlock(&a->job.lock);
        }
    }
    return true;
}

static ssize_t send_more(void *context, uint64_t position, char *buffer, size_t max) {
    kn_completion *a = context;
    (void)position;
    kn_watch_asked(a->server->watch, a->x->connection); // it waits for us now
    if (a->out_sent == a->out_size) {
        a->out_sent = a->out_size = 0;
        if (a->ended) return MHD_CONTENT_READER_END_OF_STREAM;
        if (!wait_for_more(a)) {
            atomic_fetch_add(&a->server->metrics.gone, 1);
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
    }
    size_t n = kn_min(max, a->out_size - a->out_sent);
    a->last_sent = kn_seconds();
    memcpy(buffer, a->out + a->out_sent, n);
    a->out_sent += n;
    a->x->sent += n;
    kn_watch_sending(a->server->watch, a->x->connection);
    return (ssize_t)n;
}

enum MHD_Result kn_completion_stream(kn_completion *a) {
    kn_exchange *x = a->x;
    kn_http_error err;
    if (a->task_count && !kn_request_job_submit(a->model->engine, &a->job, a->tasks, a->task_count, &err)) {
        kn_completion_close(a);
        return kn_reply_error(x, &err);
    }
    a->submitted = a->task_count > 0;
    a->last_sent = kn_seconds();
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, KN_SEND_BLOCK, send_more, a, kn_completion_close);
    if (!response) {
        kn_completion_close(a);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Accel-Buffering", "no"); // proxies: every event as it comes
    return kn_reply_response(x, 200, "text/event-stream; charset=utf-8", response);
}
