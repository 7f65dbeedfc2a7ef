// Clients that take for ever to ask, or to take their answer (slowloris, slow read): a connection that has
// not sent a whole request after a while, or has not taken another block of its answer, is closed.
// libmicrohttpd only closes those on which nothing moves at all. Not a door: only this room includes it.
#ifndef KN_SERVE_WATCH_H
#define KN_SERVE_WATCH_H

#include "base/status.h"

#include <microhttpd.h>
#include <stdbool.h>

enum { KN_REST_SECONDS = 120 };    // between two requests
enum { KN_SEND_BLOCK = 32 << 10 }; // bytes: with the time for one, a kilobyte a second is fast enough

typedef struct kn_watch kn_watch;

// A head, and a block of an answer, may take as long as a request may, but not long.
// When three quarters of the connections are taken, those that rest may not rest for longer than that either.
knnlm_status kn_watch_open(double timeout, size_t connections, kn_watch **out);
void kn_watch_close(kn_watch *w);
// A new connection, which is expected to ask.
void kn_watch_enter(kn_watch *w, struct MHD_Connection *connection);
// An answer was given: it may rest, and then ask again.
void kn_watch_rest(kn_watch *w, struct MHD_Connection *connection);
// Its request's head is there.
void kn_watch_asked(kn_watch *w, struct MHD_Connection *connection);
// It is to take a block of its answer.
void kn_watch_sending(kn_watch *w, struct MHD_Connection *connection);
void kn_watch_leave(kn_watch *w, struct MHD_Connection *connection);
// Whether a request that began then should be there by now.
bool kn_watch_is_late(double begun);

#endif
