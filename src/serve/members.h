// Members of a JSON object that a client sent: each is taken when it is there and right, and left as it was
// when it is not there. What is wrong with one is told in the error. Not a door: only this room includes it.
#ifndef KN_SERVE_MEMBERS_H
#define KN_SERVE_MEMBERS_H

#include "serve/http_error.h"

#include <jansson.h>
#include <stdint.h>

typedef struct kn_members {
    const json_t *object;
    const char *within; // "knn.", or ""
    kn_http_error *err;
} kn_members;

// "'NAME' must be WANTED": always false.
bool kn_member_refuse(const kn_members *f, const char *name, const char *wanted);
// NULL: left out, or null.
const json_t *kn_member_get(const kn_members *f, const char *name);
bool kn_member_number(const kn_members *f, const char *name, double min, double max, double *out);
bool kn_member_integer(const kn_members *f, const char *name, int64_t min, int64_t max, int64_t *out);
bool kn_member_size(const kn_members *f, const char *name, size_t min, size_t max, size_t *out);
bool kn_member_flag(const kn_members *f, const char *name, bool *out);
// Texts may have any character; names and words have no NUL. Both are the JSON's.
bool kn_member_string(const kn_members *f, const char *name, const char **out, size_t *size);
bool kn_member_name(const kn_members *f, const char *name, const char **out);
bool kn_member_has_nul(const json_t *string);

#endif
