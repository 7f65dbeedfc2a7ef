// HTTP and JSON over the rooms above: docs/protocol.md has what is spoken.
//
//   server.c    opening, listening, closing
//   handle.c    libmicrohttpd's callbacks: a request, from its head to its answer
//   guard.c     who may ask: Host, Origin, key; how long a body may be
//   routes.c    the table of endpoints
//   request*.c  JSON to what is asked for; members.c: its members, one by one; lines.c: many documents
//   answer_*.c  what each endpoint answers; completion.c: the JSON of completions, chat.c: of chat
//   replies.c   JSON, errors and files to the wire; gzip.c: packed
//   jobs.c      long work, which outlives its request
//   access_log.c  a line for each request
//   engine*.c   the thread that has the model, and batches what many clients ask; gives C structs (chunk.h)
//   served*.c   the served stores, which change meanwhile, through us or by others; gives C structs
//   account.c   how much memory requests take
//   watch.c     how long clients take to ask, and to take their answers (slowloris, slow read)
#ifndef KN_SERVE_H
#define KN_SERVE_H

#include "knn/mixture.h"

typedef struct kn_server kn_server;

enum { KN_MODELS_MAX = 16 };

// The first line of the file. KNNLM_EINVAL: others may read it; KNNLM_EIO; KNNLM_EDATA: no key that a header
// could carry. Released with free().
knnlm_status kn_serve_read_key(const char *path, char **key);

// Listens, and answers 503 until it has a model. Options, which make sense, are copied. KNNLM_EIO: the
// address cannot be had; KNNLM_EINVAL: it is none, or other machines reach it and neither api_key nor no_key
// is given.
knnlm_status kn_server_open(const knnlm_server_options *options, kn_server **out);
// "http://127.0.0.1:8080/", owned by the server.
const char *kn_server_url(const kn_server *server);
// Serves the model, which stays the caller's but must not be used by him any more until the server is
// closed, with these stores. Requests are answered once there are options->models of them. KNNLM_EINVAL: a
// model or a store has the name of another; else as kn_mixture_open.
knnlm_status kn_server_load(kn_server *server, kn_lm *lm, const kn_mixture_options *mix);
// From now on clients must have this key. KNNLM_EINVAL: there was none before.
knnlm_status kn_server_set_key(kn_server *server, const char *key);
// The access log goes on in a new file of its name. KNNLM_EIO.
knnlm_status kn_server_reopen_log(kn_server *server);
// Lets no new request in, waits up to `patience` seconds for those that run, and ends the others.
void kn_server_close(kn_server *server, double patience);

#endif
