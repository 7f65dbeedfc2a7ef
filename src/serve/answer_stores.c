// /v1/stores and what is below.
#include "serve/json.h"
#include "serve/members.h"
#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <stdlib.h>
#include <string.h>

static enum MHD_Result reply(kn_exchange *x, unsigned status, json_t *json, const kn_http_error *err) {
    return json ? kn_reply(x, status, json) : kn_reply_error(x, err);
}

// ---------------------------------------------------------------- stores

static json_t *index_json(const kn_served_info *info) {
    if (!info->index.lists) return json_null();
    return json_pack("{s:I, s:b}", "lists", (json_int_t)info->index.lists, "codes", info->index.codes);
}

static json_t *tuned_json(const kn_served_info *info) {
    if (!info->tuned.known) return json_null();
    return json_pack("{s:f, s:f, s:I, s:b}", "lambda", info->tuned.lambda, "temperature",
                     info->tuned.temperature, "k", (json_int_t)info->tuned.k, "adaptive",
                     info->tuned.adaptive);
}

static json_t *effect_json(const kn_served_info *info) {
    if (!info->effect.known) return json_null();
    return json_pack("{s:f, s:f, s:I, s:I, s:b, s:b, s:b}", "lambda", info->effect.lambda, "temperature",
                     info->effect.temperature, "k", (json_int_t)info->effect.k, "probes",
                     (json_int_t)info->effect.probes, "adaptive", info->effect.adaptive, "gated",
                     info->effect.gated, "codes", info->effect.codes);
}

// Of texts that are generated, beside the stores.
static json_t *cache_json(const kn_served_model *m) {
    kn_cache_info cache = kn_served_cache(m->served);
    if (!cache.size) return json_null();
    return json_pack("{s:I, s:f, s:f}", "size", (json_int_t)cache.size, "lambda", cache.lambda, "temperature",
                     cache.temperature);
}

static json_t *store_json(const kn_exchange *x, const kn_served_model *m, size_t number) {
    kn_served_info info;
    kn_served_describe(m->served, number, &info);
    return json_pack(
        "{s:s, s:o, s:I, s:I, s:I, s:I, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "object", "store",
        "name", kn_json_text(info.name, strlen(info.name)), "entries", (json_int_t)info.entries, "documents",
        (json_int_t)info.documents, "removed_entries", (json_int_t)info.removed_entries, "bytes",
        (json_int_t)info.bytes, "dimensions", info.dimension, "distance", kn_distance_names[info.distance],
        "keys", kn_key_type_names[info.key_type], "tap", kn_json_text(info.tap, strlen(info.tap)), "index",
        index_json(&info), "tuned", tuned_json(&info), "settings", effect_json(&info), "cache", cache_json(m),
        "model", kn_json_text(m->name, strlen(m->name)), "writable", !x->server->o.read_only && !info.shards);
}

enum MHD_Result kn_answer_stores(kn_exchange *x) {
    json_t *list = json_array();
    for (size_t m = 0; m < x->server->model_count; m++)
        for (size_t i = 0; i < kn_served_count(x->server->models[m].served); i++)
            json_array_append_new(list, store_json(x, &x->server->models[m], i));
    return kn_reply(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

enum MHD_Result kn_answer_store(kn_exchange *x) {
    kn_http_error err = {0};
    size_t number;
    bool found = kn_served_find(x->model->served, x->segments[0], &number, &err);
    return reply(x, 200, found ? store_json(x, x->model, number) : NULL, &err);
}

// ---------------------------------------------------------------- documents

static void add_document_json(void *list, const kn_store_document *d) {
    json_array_append_new(list, json_pack("{s:o, s:I, s:I, s:I}", "name", kn_json_text(d->name, d->name_size),
                                          "tokens", (json_int_t)d->tokens, "bytes", (json_int_t)d->bytes,
                                          "entry", (json_int_t)d->first));
}

static json_t *documents_json(kn_exchange *x, const kn_document_range *range, kn_http_error *err) {
    json_t *list = json_array();
    uint64_t total;
    if (kn_served_documents(x->model->served, x->segments[0], range, add_document_json, list, &total, err))
        return json_pack("{s:s, s:I, s:o}", "object", "list", "total", (json_int_t)total, "data", list);
    json_decref(list);
    return NULL;
}

enum MHD_Result kn_answer_documents(kn_exchange *x) {
    kn_http_error err = {0};
    uint64_t offset, limit;
    json_t *json = NULL;
    char *like = kn_exchange_text(x, "q");
    if (!like)
        kn_http_error_set(&err, 400, NULL, "q", "'q' is not properly percent-encoded");
    else if (kn_exchange_number(x, "offset", UINT32_MAX, 0, &offset, &err) &&
             kn_exchange_number(x, "limit", 10000, 100, &limit, &err))
        json = documents_json(x, &(kn_document_range){offset, (size_t)limit, like}, &err);
    free(like);
    return reply(x, 200, json, &err);
}

static bool still_wanted(void *context) {
    const kn_exchange *x = context;
    return !kn_exchange_late(x) && !kn_exchange_gone(x);
}

static kn_served_change change_of(kn_exchange *x) {
    return (kn_served_change){
        .store = x->segments[0], .allowed = x->may_write, .go_on = still_wanted, .context = x};
}

// Bytes that take a model longer than a client waits for an answer: they become a job.
enum { ADDED_AT_ONCE = 128 << 10 };

static enum MHD_Result add_now(kn_exchange *x, const kn_new_document *d) {
    kn_http_error err = {0};
    kn_served_change change = change_of(x);
    kn_served_added added = {0};
    json_t *json = NULL;
    if (!kn_account_take(&x->account, d->size * KN_COST_TOKEN))
        kn_account_error(&x->account, "text", &err);
    else if (kn_served_add(x->model->served, &change, d, 1, &added, &err))
        json = json_pack("{s:o, s:I, s:b}", "name", kn_json_text(d->name, strlen(d->name)), "tokens",
                         (json_int_t)added.entries, "unchanged", !added.documents);
    return reply(x, added.documents ? 201 : 200, json, &err);
}

enum MHD_Result kn_answer_add_document(kn_exchange *x) {
    kn_http_error err = {0};
    kn_prompt text;
    const char *name;
    if (!x->request) return kn_answer_add_later(x);
    if (!kn_document_parse(x->request, &name, &text, &err)) return kn_reply_error(x, &err);
    bool later = text.size > ADDED_AT_ONCE;
    kn_members f = {x->request, "", &err};
    if (!kn_member_flag(&f, "job", &later)) return kn_reply_error(x, &err);
    return later ? kn_answer_add_later(x) : add_now(x, &(kn_new_document){name, text.text, text.size});
}

static json_t *document_json(kn_exchange *x, const kn_document_span *span, kn_http_error *err) {
    kn_document_part p;
    if (!kn_served_document(x->model->served, x->segments[0], x->rest, span, &p, err)) return NULL;
    uint64_t next = p.position + p.tokens;
    json_t *json = json_pack(
        "{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "store",
        kn_json_text(x->segments[0], strlen(x->segments[0])), "name", kn_json_text(x->rest, strlen(x->rest)),
        "tokens", (json_int_t)p.total, "bytes", (json_int_t)p.bytes, "entry", (json_int_t)p.entry, "position",
        (json_int_t)p.position, "offset", (json_int_t)p.offset, "text", kn_json_text(p.text, p.size), "next",
        next < p.total ? json_integer((json_int_t)next) : json_null());
    free(p.text);
    return json;
}

enum MHD_Result kn_answer_document(kn_exchange *x) {
    kn_http_error err = {0};
    kn_document_span span;
    uint64_t count;
    json_t *json = NULL;
    if (kn_exchange_number(x, "position", UINT32_MAX, 0, &span.position, &err) &&
        kn_exchange_number(x, "limit", KN_SPAN_MAX, KN_SPAN_MAX, &count, &err)) {
        span.count = (size_t)count;
        json = document_json(x, &span, &err);
    }
    return reply(x, 200, json, &err);
}

enum MHD_Result kn_answer_remove_document(kn_exchange *x) {
    kn_http_error err = {0};
    kn_served_change change = change_of(x);
    uint64_t removed;
    json_t *json = NULL;
    size_t size = strlen(x->rest);
    if (kn_served_remove(x->model->served, &change, x->rest, size, &removed, &err))
        json = json_pack("{s:o, s:I}", "name", kn_json_text(x->rest, size), "removed", (json_int_t)removed);
    return reply(x, 200, json, &err);
}

// ---------------------------------------------------------------- entries

static json_t *passage_json(kn_exchange *x, const kn_entry_span *span, kn_http_error *err) {
    const char *store = x->segments[0];
    kn_passage p;
    if (!kn_served_passage(x->model->served, store, span, &p, err)) return NULL;
    const kn_origin *o = &p.origin;
    json_t *json = json_pack(
        "{s:o, s:I, s:o, s:I, s:I, s:o, s:o, s:o, s:b, s:b}", "store", kn_json_text(store, strlen(store)),
        "entry", (json_int_t)span->entry, "document", kn_json_text(o->document.name, o->document.name_size),
        "position", (json_int_t)o->entry.position, "offset", (json_int_t)o->entry.offset, "before",
        kn_json_text(o->before, o->before_size), "text", kn_json_text(o->word, o->word_size), "after",
        kn_json_text(o->after, o->after_size), "begins", p.begins, "ends", p.ends);
    kn_passage_free(&p);
    return json;
}

enum MHD_Result kn_answer_entry(kn_exchange *x) {
    kn_http_error err = {0};
    uint64_t around, count;
    char *end;
    json_t *json = NULL;
    const char *id = x->segments[1];
    unsigned long long entry = strtoull(id, &end, 10);
    if (*id < '0' || *id > '9' || *end || strlen(id) > 18)
        kn_http_error_set(&err, 404, "not_found", NULL, "'%.40s' is no number of an entry", id);
    else if (kn_exchange_number(x, "around", KN_AROUND_MAX, 100, &around, &err) &&
             kn_exchange_number(x, "tokens", KN_SPAN_MAX, 1, &count, &err))
        json = passage_json(x, &(kn_entry_span){entry, (size_t)count, (size_t)around}, &err);
    return reply(x, 200, json, &err);
}
