// The inside of a server, for the files of this room. Not a door: only this room includes it.
#ifndef KN_SERVE_SERVER_H
#define KN_SERVE_SERVER_H

#include "serve/account.h"
#include "serve/engine.h"
#include "serve/serve.h"

#include <microhttpd.h>

struct kn_server {
    knnlm_server_options o;
    char *host, *api_key, *cors, *allowed_hosts[KNNLM_ALLOWED_HOSTS_MAX]; // of the options
    bool loopback;                                                        // only this machine can connect
    char url[300];
    kn_budget budget;
    struct MHD_Daemon *daemon;
    kn_metrics metrics;
    kn_ticket_lock model_lock;
    // There once `ready` is.
    kn_lm *lm;
    kn_served *served;
    kn_server_engine *engine;
    char *model; // its name
    int64_t created;
    atomic_bool ready, ending, hurry;
    atomic_size_t answering; // requests
    struct kn_watch *watch;  // who is slow
};

// Paths of this machine in the message become names of stores and files.
void kn_server_hide_paths(const kn_server *s, kn_http_error *err);

#endif
