// The inside of a server, for the files of this room. Not a door: only this room includes it.
#ifndef KN_SERVE_SERVER_H
#define KN_SERVE_SERVER_H

#include "serve/access_log.h"
#include "serve/account.h"
#include "serve/engine.h"
#include "serve/jobs.h"
#include "serve/serve.h"

#include <microhttpd.h>

// A model that is served, with its stores.
typedef struct kn_served_model {
    char *name;
    kn_lm *lm;
    kn_served *served;
    kn_server_engine *engine;
} kn_served_model;

struct kn_server {
    knnlm_server_options o;
    char *host, *api_key, *cors, *allowed_hosts[KNNLM_ALLOWED_HOSTS_MAX]; // of the options
    bool loopback;                                                        // only this machine can connect
    char url[300];
    kn_budget budget;
    struct MHD_Daemon *daemon;
    kn_metrics metrics;
    kn_ticket_lock model_lock; // one for all models: each would have every core for itself
    // There once `ready` is.
    kn_served_model models[KN_MODELS_MAX]; // the first is that of requests which name none
    size_t model_count;
    int64_t created;
    atomic_bool ready, ending, hurry;
    atomic_size_t answering; // requests
    struct kn_watch *watch;  // who is slow
    kn_jobs *jobs;
    kn_access_log *log;       // NULL: none
    pthread_mutex_t key_lock; // of api_key, which may be changed
};

// Paths of this machine in the message become names of stores and files.
void kn_server_hide_paths(const kn_server *s, kn_http_error *err);

// The model of this name; NULL: none.
kn_served_model *kn_server_model(kn_server *s, const char *name);
// The model that has the store; NULL: none.
kn_served_model *kn_server_model_of_store(kn_server *s, const char *store);

#endif
