// Percent-encoding of paths and queries. Not a door: only this room includes it.
#ifndef KN_SERVE_PERCENT_H
#define KN_SERVE_PERCENT_H

#include <stdbool.h>
#include <stddef.h>

// Decodes in place, and adds a NUL; `plus`: "+" is a space, as in queries. False: broken, or a NUL.
bool kn_percent_decode(char *text, size_t size, bool plus);

#endif
