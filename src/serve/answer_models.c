// /v1/models: what the models are.
#include "serve/json.h"
#include "serve/replies.h"
#include "serve/routes.h"
#include "serve/server.h"

#include <string.h>

static json_t *model_json(const kn_server *s, const kn_served_model *m) {
    const kn_lm_info *info = kn_lm_describe(m->lm);
    return json_pack("{s:o, s:s, s:I, s:s, s:{s:s, s:s, s:i, s:i, s:I, s:s}}", "id",
                     kn_json_text(m->name, strlen(m->name)), "object", "model", "created",
                     (json_int_t)s->created, "owned_by", "knnlm", "meta", "architecture", info->architecture,
                     "engine", info->engine, "vocabulary", info->vocabulary, "context", info->context,
                     "parameters", (json_int_t)info->parameters, "fingerprint", info->fingerprint);
}

enum MHD_Result kn_answer_models(kn_exchange *x) {
    json_t *list = json_array();
    for (size_t i = 0; i < x->server->model_count; i++)
        json_array_append_new(list, model_json(x->server, &x->server->models[i]));
    return kn_reply(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

enum MHD_Result kn_answer_model(kn_exchange *x) {
    kn_http_error err;
    const kn_served_model *m = kn_server_model(x->server, x->rest);
    if (m) return kn_reply(x, 200, model_json(x->server, m));
    kn_http_error_set(&err, 404, "model_not_found", NULL, "no model is called '%.100s'", x->rest);
    return kn_reply_error(x, &err);
}
