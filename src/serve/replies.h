// Replies: what goes back over the wire. All but the last answer the request and return what libmicrohttpd's
// handler shall. Not a door: only this room includes it.
#ifndef KN_SERVE_REPLIES_H
#define KN_SERVE_REPLIES_H

#include "serve/exchange.h"

// Takes the JSON; NULL: there was no memory for it.
enum MHD_Result kn_reply(kn_exchange *x, unsigned status, json_t *take);
// The same, with a Location.
enum MHD_Result kn_reply_at(kn_exchange *x, unsigned status, json_t *take, const char *place);
enum MHD_Result kn_reply_error(kn_exchange *x, const kn_http_error *err);
// 405, with the methods that the path has.
enum MHD_Result kn_reply_not_allowed(kn_exchange *x, const char *allowed);
enum MHD_Result kn_reply_copy(kn_exchange *x, unsigned status, const char *type, const void *data,
                              size_t size);
// A response of these bytes, packed where the client takes that; `lasts`: they outlive it, and are not
// copied.
struct MHD_Response *kn_response_of(kn_exchange *x, const void *data, size_t size, bool lasts);
// Takes the response.
enum MHD_Result kn_reply_response(kn_exchange *x, unsigned status, const char *type,
                                  struct MHD_Response *response);
// An error (413, 503) to a client that is still sending its body. x->status 0 afterwards: it could not be
// sent.
void kn_reply_past_body(kn_exchange *x, const kn_http_error *err);

#endif
