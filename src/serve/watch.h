// Clients that take for ever to ask: a connection that has not sent a whole request after a while is closed.
// libmicrohttpd only closes those that send nothing at all. Not a door: only this room includes it.
#ifndef KN_SERVE_WATCH_H
#define KN_SERVE_WATCH_H

#include "base/status.h"

#include <microhttpd.h>
#include <stdbool.h>

enum { KN_REST_SECONDS = 120 }; // between two requests

typedef struct kn_watch kn_watch;

// A head may take as long as a request may, but not long.
knnlm_status kn_watch_open(double timeout, kn_watch **out);
void kn_watch_close(kn_watch *w);
// A new connection, which is expected to ask.
void kn_watch_enter(kn_watch *w, struct MHD_Connection *connection);
// An answer was given: it may rest, and then ask again.
void kn_watch_rest(kn_watch *w, struct MHD_Connection *connection);
// Its request's head is there.
void kn_watch_asked(kn_watch *w, struct MHD_Connection *connection);
void kn_watch_leave(kn_watch *w, struct MHD_Connection *connection);
// Whether a request that began then should be there by now.
bool kn_watch_is_late(double begun);

#endif
