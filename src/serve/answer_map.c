// /v1/stores/NAME/map: a picture of a store's keys, and where a context is in it.
#include "serve/json.h"
#include "serve/prompt.h"
#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <string.h>

// A point in the answer, and a document that it may bring along.
enum { COST_POINT = 1200, COST_NAME = 4096 / 8 };

typedef struct map_answer {
    const kn_tokenizer *tokenizer;
    json_t *points, *documents;
    uint32_t document; // the last one
} map_answer;

// Entries come in their order: so do documents.
static void add_point(void *context, const kn_key_map_point *p, const kn_store_entry *entry,
                      const kn_store_document *d) {
    map_answer *m = context;
    if (!json_array_size(m->documents) || m->document != entry->document)
        json_array_append_new(m->documents, kn_json_text(d->name, d->name_size));
    m->document = entry->document;
    json_array_append_new(m->points,
                          json_pack("{s:I, s:i, s:o, s:I, s:f, s:f}", "entry", (json_int_t)p->entry, "token",
                                    entry->token, "text", kn_json_token(m->tokenizer, entry->token),
                                    "document", (json_int_t)json_array_size(m->documents) - 1, "x",
                                    (double)p->x, "y", (double)p->y));
}

static bool afford(kn_exchange *x, kn_http_error *err) {
    size_t number;
    kn_served_info info;
    if (!kn_served_find(x->model->served, x->segments[0], &number, err)) return false;
    kn_served_describe(x->model->served, number, &info);
    size_t drawing = info.dimension <= KN_KEY_MAP_DIMENSIONS ? kn_key_map_cost((size_t)info.dimension) : 0;
    return kn_account_expect(&x->account, drawing + (size_t)KN_KEY_MAP_POINTS * (COST_POINT + COST_NAME)) ||
           kn_account_error(&x->account, NULL, err);
}

static json_t *map_json(kn_exchange *x, kn_http_error *err) {
    const char *store = x->segments[0];
    map_answer m = {kn_lm_tokenizer(x->model->lm), json_array(), json_array(), 0};
    kn_served_map_info info;
    if (afford(x, err) && kn_served_map(x->model->served, store, add_point, &m, &info, err))
        return json_pack("{s:s, s:o, s:I, s:[f, f], s:f, s:o, s:o}", "object", "map", "store",
                         kn_json_text(store, strlen(store)), "generation", (json_int_t)info.generation,
                         "variances", info.variances[0], info.variances[1], "variance", info.total,
                         "documents", m.documents, "points", m.points);
    json_decref(m.documents);
    json_decref(m.points);
    return NULL;
}

enum MHD_Result kn_answer_map(kn_exchange *x) {
    kn_http_error err = {0};
    json_t *json = map_json(x, &err);
    return json ? kn_reply(x, 200, json) : kn_reply_error(x, &err);
}

// ---------------------------------------------------------------- a place in it

static json_t *place_json(kn_exchange *x, const kn_read_prompt *p, kn_http_error *err) {
    kn_key_map_point place;
    kn_served_map_info info;
    if (!afford(x, err) ||
        !kn_served_map_place(x->model->served, x->segments[0], p->tokens, p->count, &place, &info, err))
        return NULL;
    return json_pack("{s:s, s:I, s:f, s:f}", "object", "map.place", "generation", (json_int_t)info.generation,
                     "x", (double)place.x, "y", (double)place.y);
}

// What is asked for is a context, as of /v1/explain.
enum MHD_Result kn_answer_map_place(kn_exchange *x) {
    kn_http_error err = {0};
    kn_explain_request r;
    kn_read_prompt p = {0};
    json_t *json = NULL;
    if (kn_explain_parse(x->request, &r, &err) &&
        kn_prompt_read(x, &r.context, KN_PROMPT_CONTINUED, r.context.text ? "context" : "tokens", &p, &err))
        json = place_json(x, &p, &err);
    enum MHD_Result result = json ? kn_reply(x, 200, json) : kn_reply_error(x, &err);
    kn_explain_free(&r);
    kn_read_prompt_free(&p);
    return result;
}
