// The tuned settings in the manifest. Not a door: only this room includes it.
#ifndef KN_STORE_TUNED_H
#define KN_STORE_TUNED_H

#include "store/store.h"

#include <jansson.h>

// Gives the value to the object. False, and nothing held, when there is none or no memory.
bool kn_json_put(json_t *object, const char *key, json_t *value);

// NULL: out of memory.
json_t *kn_tuned_print(const kn_store_tuned *tuned);
// False: not what was printed. Members that are missing were not known when it was written.
bool kn_tuned_parse(const json_t *object, kn_store_tuned *out);
// Whether mixing by it makes sense.
bool kn_tuned_valid(const kn_store_tuned *tuned);

#endif
