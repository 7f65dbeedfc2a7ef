// The callbacks that libmicrohttpd calls; `context` is the server. Not a door: only this room includes it.
#ifndef KN_SERVE_HANDLE_H
#define KN_SERVE_HANDLE_H

#include <microhttpd.h>

enum MHD_Result kn_handle_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data, size_t *size,
                                  void **state);
void kn_handle_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code);
void kn_handle_connection(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code);

#endif
