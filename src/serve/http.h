// A request and its answer on the wire. Not a door: only this room includes it.
#ifndef KN_SERVE_HTTP_H
#define KN_SERVE_HTTP_H

#include "serve/account.h"
#include "serve/engine.h"
#include "serve/serve.h"

#include <microhttpd.h>

struct kn_server {
    kn_serve_options o;
    char *host, *api_key, *cors, *allowed_hosts[KN_ALLOWED_HOSTS]; // of the options
    bool loopback;                                                 // only this machine can connect
    char url[300];
    kn_budget budget;
    struct MHD_Daemon *daemon;
    kn_metrics metrics;
    kn_turn turn;
    // There once `ready` is.
    kn_lm *lm;
    kn_shelf *shelf;
    kn_server_engine *engine;
    char *model; // its name
    int64_t created;
    atomic_bool ready, ending, hurry;
    atomic_size_t answering; // requests
    struct kn_watch *watch;  // who is slow
};

enum { KN_SEGMENTS_MOST = 8 };

typedef struct kn_exchange {
    kn_server *server;
    struct MHD_Connection *connection;
    double begun;
    kn_account account;
    size_t endpoint; // its name's number
    char *path;      // segments that stars stand for are decoded in place
    const char *segments[KN_SEGMENTS_MOST];
    size_t segment_count;
    char *rest; // what DELETE .../documents/ is about, with its slashes
    char *body;
    size_t size, capacity;
    bool last; // the connection ends with the answer
    const struct kn_route *route;
    unsigned status; // answered; 0: not yet
} kn_exchange;

typedef enum MHD_Result kn_answer(kn_exchange *x);

// A header of the request, or NULL.
const char *kn_exchange_header(const kn_exchange *x, const char *name);

// ---------------------------------------------------------------- who may ask

// Framing, Host and Origin.
bool kn_access_check(kn_exchange *x, kn_complaint *c);
bool kn_access_has_key(const kn_exchange *x);
bool kn_access_is_preflight(const kn_exchange *x, const char *method);
enum MHD_Result kn_access_preflight(kn_exchange *x);

// ---------------------------------------------------------------- replies

// All answer and return what the connection's handler shall.
enum MHD_Result kn_reply(kn_exchange *x, unsigned status, json_t *take);
enum MHD_Result kn_reply_complaint(kn_exchange *x, const kn_complaint *c);
enum MHD_Result kn_reply_copy(kn_exchange *x, unsigned status, const char *type, const void *data,
                              size_t size);
// Paths of this machine become names of stores and files.
void kn_server_hide_paths(const kn_server *s, kn_complaint *c);
// Takes the response.
enum MHD_Result kn_reply_response(kn_exchange *x, unsigned status, const char *type,
                                  struct MHD_Response *response);

// Whether the client has closed the connection.
bool kn_exchange_gone(const kn_exchange *x);
bool kn_exchange_late(const kn_exchange *x);
// Why it is: always false.
bool kn_exchange_complain_late(const kn_exchange *x, kn_complaint *c);
// The body as JSON; NULL: answered with the complaint in *result.
json_t *kn_exchange_json(kn_exchange *x, enum MHD_Result *result);
// A number of the query, or `otherwise`; false: something else is there (complaint made).
bool kn_exchange_number(kn_exchange *x, const char *name, uint64_t most, uint64_t otherwise, uint64_t *out,
                        kn_complaint *c);
// A text of the query, decoded, "" when there is none; released with free(). NULL: not properly encoded.
char *kn_exchange_text(kn_exchange *x, const char *name);

// Runs the tasks and waits for them; false: with a complaint, also when the client is gone.
bool kn_exchange_run(kn_exchange *x, kn_job *job, kn_task *tasks, size_t count, kn_complaint *c);

// ---------------------------------------------------------------- the answers

kn_answer kn_answer_completions, kn_answer_score, kn_answer_explain, kn_answer_stores, kn_answer_store,
    kn_answer_documents, kn_answer_add_document, kn_answer_remove_document, kn_answer_entry, kn_answer_models,
    kn_answer_model, kn_answer_tokenize, kn_answer_detokenize, kn_answer_tokenizer_info, kn_answer_health,
    kn_answer_metrics, kn_answer_page;

// Names of endpoints, for the metrics.
extern const char *const kn_endpoints[];
size_t kn_endpoint_count(void);

// A file of the page; NULL: no such.
typedef struct kn_page_file {
    const char *path, *type;
    const unsigned char *data;
    const size_t *size;
} kn_page_file;
const kn_page_file *kn_page_find(const char *path);

// ---------------------------------------------------------------- prompts

// A prompt as tokens, and as text where that is wanted.
typedef struct kn_read_prompt {
    int32_t *tokens; // without the start token
    size_t count;
    bool own_start; // it brought the start token along
    char *text;     // NULL: not asked for
    size_t size;
    uint64_t *offsets; // (count): bytes at which tokens begin in the text
} kn_read_prompt;

bool kn_prompt_read(kn_exchange *x, const kn_prompt *p, bool text, const char *param, kn_read_prompt *out,
                    kn_complaint *c);
// Whether the ids are in the vocabulary, and there is memory for `copies` of their text.
bool kn_ids_check(kn_exchange *x, const kn_prompt *p, const char *param, size_t copies, kn_complaint *c);
void kn_read_prompt_free(kn_read_prompt *p);

#endif
