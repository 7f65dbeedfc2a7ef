// The guard: who may ask, and how much. Not a door: only this room includes it.
#ifndef KN_SERVE_GUARD_H
#define KN_SERVE_GUARD_H

#include "serve/exchange.h"

// Framing (one length, one Host), Host (DNS rebinding) and Origin (CSRF).
bool kn_guard_check(kn_exchange *x, kn_http_error *err);
bool kn_guard_has_key(const kn_exchange *x);
// CORS: a browser asks whether a page of another origin may ask.
bool kn_guard_is_preflight(const kn_exchange *x, const char *method);
enum MHD_Result kn_guard_preflight(kn_exchange *x);
// The length that is announced; then room for so much more of the body, in x->body.
bool kn_guard_length(const kn_exchange *x, kn_http_error *err);
bool kn_guard_body(kn_exchange *x, size_t more, kn_http_error *err);

#endif
