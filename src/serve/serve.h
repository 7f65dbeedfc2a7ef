// HTTP and JSON over the rooms above: docs/protocol.md has what is spoken.
//
//   http.c      connections: who may ask, how much, how long; routes
//   request.c   JSON to what is asked for
//   answer_*.c  what each path answers
//   engine.c    the thread that has the model, and batches what many clients ask
//   shelf*.c    the stores, which change while they are served, through us or by others
#ifndef KN_SERVE_H
#define KN_SERVE_H

#include "eval/mixture.h"

typedef struct kn_serve_options {
    const char *host;    // an address of this machine, or "localhost"
    uint16_t port;       // 0: any that is free
    const char *api_key; // NULL: everybody may ask
    const char *cors;    // pages of this origin may ask, "*": of any; NULL: only our own
    bool read_only;      // stores are not changed
    size_t queue;        // requests that may wait
    size_t parallel;     // sequences generated at a time
    size_t max_tokens;   // of a prompt with its answer, or of a text
    size_t max_body;     // bytes of a request
    size_t connections;  // at a time
    double timeout;      // seconds of a request
    // A store that another process has changed cannot be opened: its path, and why. Called by another thread;
    // may be NULL.
    void (*warn)(const char *store, const char *message);
} kn_serve_options;

kn_serve_options kn_serve_options_default(void);

typedef struct kn_server kn_server;

// Listens, and answers 503 until it has a model. Options are copied. KNNLM_EIO: the address cannot be had;
// KNNLM_EINVAL: it is none.
knnlm_status kn_server_open(const kn_serve_options *options, kn_server **out);
// "http://127.0.0.1:8080/", owned by the server.
const char *kn_server_url(const kn_server *server);
// Serves the model, which stays the caller's but must not be used by him any more until the server is
// closed, with these stores. Once. As kn_mixture_open.
knnlm_status kn_server_load(kn_server *server, kn_lm *lm, const kn_mixture_options *mix);
// Lets no new request in, waits up to `patience` seconds for those that run, and ends the others.
void kn_server_close(kn_server *server, double patience);

#endif
