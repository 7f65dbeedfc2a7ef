// /v1/stores and what is below.
#include "serve/http.h"
#include "serve/json.h"

#include <stdlib.h>
#include <string.h>

static enum MHD_Result reply(kn_exchange *x, unsigned status, json_t *json, const kn_complaint *c) {
    return json ? kn_reply(x, status, json) : kn_reply_complaint(x, c);
}

enum MHD_Result kn_answer_stores(kn_exchange *x) {
    return kn_reply(x, 200, kn_shelf_list(x->server->shelf));
}

enum MHD_Result kn_answer_store(kn_exchange *x) {
    kn_complaint c = {0};
    json_t *json = kn_shelf_describe(x->server->shelf, x->segments[0], &c);
    return reply(x, 200, json, &c);
}

enum MHD_Result kn_answer_documents(kn_exchange *x) {
    kn_complaint c = {0};
    uint64_t offset, limit;
    json_t *json = NULL;
    char *like = kn_exchange_text(x, "q");
    if (!like)
        kn_complain(&c, 400, NULL, "q", "'q' is not properly percent-encoded");
    else if (kn_exchange_number(x, "offset", UINT32_MAX, 0, &offset, &c) &&
             kn_exchange_number(x, "limit", 10000, 100, &limit, &c))
        json = kn_shelf_documents(x->server->shelf, x->segments[0], offset, (size_t)limit, like, &c);
    free(like);
    return reply(x, 200, json, &c);
}

static bool still_wanted(void *context) {
    const kn_exchange *x = context;
    return !kn_exchange_late(x) && !kn_exchange_gone(x);
}

enum MHD_Result kn_answer_add_document(kn_exchange *x) {
    kn_complaint c = {0};
    kn_prompt text;
    const char *name;
    bool created = false;
    enum MHD_Result result;
    json_t *root = kn_exchange_json(x, &result), *json = NULL;
    if (!root) return result;
    if (!kn_document_parse(root, &name, &text, &c))
        json = NULL;
    else if (!kn_account_take(&x->account, text.size * KN_COST_TOKEN))
        kn_account_complain(&x->account, "text", &c);
    else
        json = kn_shelf_add(x->server->shelf, x->segments[0], name, text.text, text.size, still_wanted, x,
                            &created, &c);
    result = reply(x, created ? 201 : 200, json, &c);
    json_decref(root);
    return result;
}

enum MHD_Result kn_answer_remove_document(kn_exchange *x) {
    kn_complaint c = {0};
    json_t *json =
        kn_shelf_remove(x->server->shelf, x->segments[0], x->rest, strlen(x->rest), still_wanted, x, &c);
    return reply(x, 200, json, &c);
}

enum MHD_Result kn_answer_entry(kn_exchange *x) {
    kn_complaint c = {0};
    uint64_t around;
    char *end;
    json_t *json = NULL;
    const char *id = x->segments[1];
    unsigned long long entry = strtoull(id, &end, 10);
    if (*id < '0' || *id > '9' || *end || strlen(id) > 18)
        kn_complain(&c, 404, "not_found", NULL, "'%.40s' is no number of an entry", id);
    else if (kn_exchange_number(x, "around", KN_AROUND_MOST, 100, &around, &c))
        json = kn_shelf_passage(x->server->shelf, x->segments[0], entry, (size_t)around, &c);
    return reply(x, 200, json, &c);
}
