// Members of a JSON object, one by one.
#include "serve/members.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool kn_member_refuse(const kn_members *f, const char *name, const char *wanted) {
    char param[64];
    snprintf(param, sizeof param, "%s%s", f->within, name);
    return kn_http_error_set(f->err, 400, NULL, param, "'%s' must be %s", param, wanted);
}

// NULL: left out.
const json_t *kn_member_get(const kn_members *f, const char *name) {
    const json_t *value = json_object_get(f->object, name);
    return json_is_null(value) ? NULL : value;
}

bool kn_member_number(const kn_members *f, const char *name, double min, double max, double *out) {
    const json_t *value = kn_member_get(f, name);
    char wanted[80];
    if (!value) return true;
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (number >= min && number <= max) {
        *out = number;
        return true;
    }
    snprintf(wanted, sizeof wanted, "a number from %g to %g", min, max);
    return kn_member_refuse(f, name, wanted);
}

bool kn_member_integer(const kn_members *f, const char *name, int64_t min, int64_t max, int64_t *out) {
    const json_t *value = kn_member_get(f, name);
    char wanted[80];
    if (!value) return true;
    if (json_is_integer(value) && json_integer_value(value) >= min && json_integer_value(value) <= max) {
        *out = json_integer_value(value);
        return true;
    }
    snprintf(wanted, sizeof wanted, "an integer from %lld to %lld", (long long)min, (long long)max);
    return kn_member_refuse(f, name, wanted);
}

bool kn_member_size(const kn_members *f, const char *name, size_t min, size_t max, size_t *out) {
    int64_t number = (int64_t)*out;
    if (!kn_member_integer(f, name, (int64_t)min, (int64_t)max, &number)) return false;
    *out = (size_t)number;
    return true;
}

bool kn_member_flag(const kn_members *f, const char *name, bool *out) {
    const json_t *value = kn_member_get(f, name);
    if (!value) return true;
    if (!json_is_boolean(value)) return kn_member_refuse(f, name, "true or false");
    *out = json_is_true(value);
    return true;
}

bool kn_member_string(const kn_members *f, const char *name, const char **out, size_t *size) {
    const json_t *value = kn_member_get(f, name);
    if (!value) return true;
    if (!json_is_string(value)) return kn_member_refuse(f, name, "a string");
    *out = json_string_value(value);
    *size = json_string_length(value);
    return true;
}

bool kn_member_has_nul(const json_t *string) {
    return strlen(json_string_value(string)) != json_string_length(string);
}

// Texts may have any character; names and words have no NUL.
bool kn_member_name(const kn_members *f, const char *name, const char **out) {
    const json_t *value = kn_member_get(f, name);
    if (!value) return true;
    if (!json_is_string(value) || kn_member_has_nul(value))
        return kn_member_refuse(f, name, "a string without NUL");
    *out = json_string_value(value);
    return true;
}
