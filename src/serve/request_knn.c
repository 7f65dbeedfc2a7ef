// The knn member of requests: which neighbours count, and how much.
#include "serve/request.h"

#include "base/memory.h"
#include "serve/members.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool take_temperatures(const kn_members *f, kn_knn_request *out) {
    const json_t *list = kn_member_get(f, "temperatures"), *value;
    size_t i;
    if (!list) return true;
    if (!json_is_array(list) || json_array_size(list) > KN_TEMPERATURES_MAX)
        return kn_member_refuse(f, "temperatures", "a list of at most 64 numbers");
    json_array_foreach (list, i, value) {
        double t = json_is_number(value) ? json_number_value(value) : NAN;
        if (!(t >= KN_TEMPERATURE_MIN && t <= KN_TEMPERATURE_MAX))
            return kn_member_refuse(f, "temperatures", "numbers above 0");
        out->temperatures[out->temperature_count++] = t;
    }
    return true;
}

// *names NULL: not given. The strings are the JSON's.
static bool take_names(const kn_members *f, const char *name, const char ***names, size_t *count) {
    const json_t *list = kn_member_get(f, name), *value;
    size_t i;
    if (!list) return true;
    if (!json_is_array(list) || json_array_size(list) > KN_NAMES_MAX)
        return kn_member_refuse(f, name, "a list of at most 1024 names");
    *names = kn_alloc(json_array_size(list) + 1, sizeof **names);
    if (!*names) return kn_http_error_memory(f->err);
    json_array_foreach (list, i, value) {
        if (!json_is_string(value) || kn_member_has_nul(value))
            return kn_member_refuse(f, name, "a list of names without NUL");
        (*names)[(*count)++] = json_string_value(value);
    }
    return true;
}

#define MEMBERS                                                                                              \
    "lambda, temperature, k, stores, only, not, exclude_self, fallback, carry, cache, explain, temperatures"

// Whether a list "a, b, c" has the name.
static bool lists(const char *list, const char *name) {
    size_t size = strlen(name);
    if (!size) return false;
    for (const char *at = list; (at = strstr(at, name)); at += size)
        if ((at == list || at[-1] == ' ') && (!at[size] || at[size] == ',')) return true;
    return false;
}

// A member that is misspelt would silently change what is measured.
static bool known_members(const kn_members *f) {
    const char *name;
    const json_t *value;
    json_object_foreach ((json_t *)f->object, name, value)
        if (!lists(MEMBERS, name))
            return kn_http_error_set(f->err, 400, NULL, "knn", "'knn' has no member '%.40s': it has " MEMBERS,
                                     name);
    return true;
}

bool kn_knn_parse(const json_t *root, kn_knn_request *out, kn_http_error *err) {
    kn_members outer = {root, "", err};
    const json_t *object = kn_member_get(&outer, "knn");
    *out =
        (kn_knn_request){.lambda = NAN, .temperature = NAN, .fallback = true, .carry = true, .cache = true};
    if (!object) return true;
    if (!json_is_object(object)) return kn_member_refuse(&outer, "knn", "an object");
    kn_members f = {object, "knn.", err};
    return known_members(&f) && kn_member_number(&f, "lambda", 0, 1, &out->lambda) &&
           kn_member_number(&f, "temperature", KN_TEMPERATURE_MIN, KN_TEMPERATURE_MAX, &out->temperature) &&
           kn_member_integer(&f, "k", 1, KN_NEIGHBORS_MAX, &out->k) &&
           take_names(&f, "stores", &out->stores, &out->store_count) &&
           take_names(&f, "only", &out->only, &out->only_count) &&
           take_names(&f, "not", &out->except, &out->except_count) &&
           kn_member_flag(&f, "exclude_self", &out->exclude_self) &&
           kn_member_flag(&f, "fallback", &out->fallback) && kn_member_flag(&f, "explain", &out->explain) &&
           kn_member_flag(&f, "carry", &out->carry) && kn_member_flag(&f, "cache", &out->cache) &&
           take_temperatures(&f, out);
}

void kn_knn_free(kn_knn_request *knn) {
    free(knn->stores);
    free(knn->only);
    free(knn->except);
    *knn = (kn_knn_request){0};
}
