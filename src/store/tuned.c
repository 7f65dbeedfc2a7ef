// Checks, prints and parses the tuned settings of a store.
#include "store/tuned.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- checking

// Sums of weights may be above 1 by rounding.
static bool is_share(double x) {
    return x >= 0 && x <= 1 + 1e-12;
}

static bool is_scale(double x) {
    return x >= KN_TEMPERATURE_MIN && x <= KN_TEMPERATURE_MAX;
}

static bool ascend(const double *edges, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(edges[i]) || (i && !(edges[i] > edges[i - 1]))) return false;
    return true;
}

static bool bins_valid(const kn_store_bins *b) {
    if (!b->distances && !b->entropies) return true;
    if (b->distances < 1 || b->distances > KN_BINS_MAX || b->entropies < 1 || b->entropies > KN_BINS_MAX)
        return false;
    for (size_t i = 0; i < (size_t)b->distances * b->entropies; i++)
        if (!is_share(b->lambdas[i])) return false;
    return ascend(b->distance_edges, b->distances - 1) && ascend(b->entropy_edges, b->entropies - 1);
}

static bool range_valid(const kn_store_range *r) {
    return isfinite(r->median) && isfinite(r->high) && r->median <= r->high;
}

static bool seen_valid(const kn_store_seen *s) {
    return !s->known || (range_valid(&s->distance) && range_valid(&s->entropy) && s->entropy.median >= 0);
}

static bool gate_valid(const kn_store_gate *g) {
    if (!g->known) return true;
    for (size_t i = 0; i < KN_STORE_GATE; i++)
        if (!isfinite(g->weights[i])) return false;
    return isfinite(g->unit) && g->unit >= 0 && isfinite(g->centre);
}

bool kn_tuned_valid(const kn_store_tuned *t) {
    if (!t->known) return true;
    if (!is_share(t->lambda) || !is_scale(t->temperature) || t->k < 0 || t->probes < 0) return false;
    if (t->cache.size < 0 ||
        (t->cache.size && (!is_share(t->cache.lambda + t->lambda) || !is_share(t->cache.lambda) ||
                           !is_scale(t->cache.temperature))))
        return false;
    return bins_valid(&t->bins) && seen_valid(&t->seen) && gate_valid(&t->gate) &&
           t->text_count <= KN_TUNED_TEXTS;
}

// ---------------------------------------------------------------- printing

bool kn_json_put(json_t *object, const char *key, json_t *value) {
    return value && json_object_set_new(object, key, value) == 0;
}

static json_t *print_reals(const double *x, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < count; i++) {
        json_t *number = json_real(x[i]);
        if (number && json_array_append_new(list, number) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *print_texts(const kn_store_tuned *t) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < t->text_count; i++) {
        char hex[17];
        snprintf(hex, sizeof hex, "%016" PRIx64, t->texts[i]);
        json_t *text = json_string(hex);
        if (text && json_array_append_new(list, text) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *print_bins(const kn_store_bins *b) {
    json_t *o = json_object();
    if (o && kn_json_put(o, "distances", print_reals(b->distance_edges, b->distances - 1)) &&
        kn_json_put(o, "entropies", print_reals(b->entropy_edges, b->entropies - 1)) &&
        kn_json_put(o, "lambdas", print_reals(b->lambdas, (size_t)b->distances * b->entropies)))
        return o;
    json_decref(o);
    return NULL;
}

static json_t *print_cache(const kn_store_cache *c) {
    return json_pack("{s:I, s:f, s:f}", "size", (json_int_t)c->size, "lambda", c->lambda, "temperature",
                     c->temperature);
}

static json_t *print_range(const kn_store_range *r) {
    return print_reals((const double[]){r->median, r->high}, 2);
}

static json_t *print_seen(const kn_store_seen *s) {
    json_t *o = json_object();
    if (o && kn_json_put(o, "distance", print_range(&s->distance)) &&
        kn_json_put(o, "entropy", print_range(&s->entropy)))
        return o;
    json_decref(o);
    return NULL;
}

static json_t *print_gate(const kn_store_gate *g) {
    json_t *o = json_pack("{s:f, s:f}", "unit", g->unit, "centre", g->centre);
    if (o && kn_json_put(o, "weights", print_reals(g->weights, KN_STORE_GATE))) return o;
    json_decref(o);
    return NULL;
}

json_t *kn_tuned_print(const kn_store_tuned *t) {
    json_t *o = json_pack("{s:f, s:f, s:I, s:I, s:b, s:I}", "lambda", t->lambda, "temperature",
                          t->temperature, "k", (json_int_t)t->k, "probes", (json_int_t)t->probes, "codes",
                          t->codes, "tokens", (json_int_t)t->tokens);
    if (o && kn_json_put(o, "texts", print_texts(t)) &&
        (!t->cache.size || kn_json_put(o, "cache", print_cache(&t->cache))) &&
        (!t->bins.distances || kn_json_put(o, "bins", print_bins(&t->bins))) &&
        (!t->gate.known || kn_json_put(o, "gate", print_gate(&t->gate))) &&
        (!t->quick || kn_json_put(o, "quick", json_true())) &&
        (!t->entries || kn_json_put(o, "entries", json_integer((json_int_t)t->entries))) &&
        (!t->seen.known || kn_json_put(o, "seen", print_seen(&t->seen))))
        return o;
    json_decref(o);
    return NULL;
}

// ---------------------------------------------------------------- parsing

static bool get_real(const json_t *o, const char *key, double *out) {
    const json_t *value = json_object_get(o, key);
    *out = json_number_value(value);
    return json_is_number(value);
}

static bool get_count(const json_t *o, const char *key, int64_t *out) {
    const json_t *value = json_object_get(o, key);
    *out = json_integer_value(value);
    return !value || (json_is_integer(value) && *out >= 0);
}

static bool parse_reals(const json_t *list, size_t max, double *out, size_t *count) {
    *count = json_array_size(list);
    if (!json_is_array(list) || *count > max) return false;
    for (size_t i = 0; i < *count; i++) {
        const json_t *number = json_array_get(list, i);
        if (!json_is_number(number)) return false;
        out[i] = json_number_value(number);
    }
    return true;
}

static bool parse_bins(const json_t *o, kn_store_bins *b) {
    size_t distances, entropies, lambdas;
    if (!o) return true;
    if (!parse_reals(json_object_get(o, "distances"), KN_BINS_MAX - 1, b->distance_edges, &distances) ||
        !parse_reals(json_object_get(o, "entropies"), KN_BINS_MAX - 1, b->entropy_edges, &entropies) ||
        !parse_reals(json_object_get(o, "lambdas"), KN_BINS_MAX * KN_BINS_MAX, b->lambdas, &lambdas))
        return false;
    b->distances = (uint32_t)distances + 1;
    b->entropies = (uint32_t)entropies + 1;
    return lambdas == (distances + 1) * (entropies + 1);
}

static bool parse_range(const json_t *list, kn_store_range *r) {
    double both[2];
    size_t count;
    if (!parse_reals(list, 2, both, &count) || count != 2) return false;
    *r = (kn_store_range){both[0], both[1]};
    return true;
}

static bool parse_seen(const json_t *o, kn_store_seen *s) {
    s->known = o != NULL;
    return !o || (parse_range(json_object_get(o, "distance"), &s->distance) &&
                  parse_range(json_object_get(o, "entropy"), &s->entropy));
}

// A gate of other terms, by a later version, is none.
static bool parse_gate(const json_t *o, kn_store_gate *g) {
    size_t count;
    const json_t *weights = json_object_get(o, "weights");
    if (!o || json_array_size(weights) != KN_STORE_GATE) return !o || json_is_array(weights);
    g->known = true;
    return parse_reals(weights, KN_STORE_GATE, g->weights, &count) && get_real(o, "unit", &g->unit) &&
           get_real(o, "centre", &g->centre);
}

static bool parse_texts(const json_t *list, kn_store_tuned *t) {
    t->text_count = json_array_size(list);
    if (t->text_count > KN_TUNED_TEXTS || (list && !json_is_array(list))) return false;
    for (size_t i = 0; i < t->text_count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) return false;
        t->texts[i] = strtoull(text, NULL, 16);
    }
    return true;
}

static bool parse_cache(const json_t *o, kn_store_cache *c) {
    if (!o) return true;
    return get_count(o, "size", &c->size) && get_real(o, "lambda", &c->lambda) &&
           get_real(o, "temperature", &c->temperature);
}

bool kn_tuned_parse(const json_t *o, kn_store_tuned *t) {
    const json_t *codes = json_object_get(o, "codes");
    *t = (kn_store_tuned){
        .known = true, .codes = json_is_true(codes), .quick = json_is_true(json_object_get(o, "quick"))};
    return (!codes || json_is_boolean(codes)) && get_real(o, "lambda", &t->lambda) &&
           get_real(o, "temperature", &t->temperature) && get_count(o, "k", &t->k) &&
           get_count(o, "probes", &t->probes) && get_count(o, "tokens", &t->tokens) &&
           get_count(o, "entries", &t->entries) && parse_texts(json_object_get(o, "texts"), t) &&
           parse_cache(json_object_get(o, "cache"), &t->cache) &&
           parse_bins(json_object_get(o, "bins"), &t->bins) &&
           parse_gate(json_object_get(o, "gate"), &t->gate) &&
           parse_seen(json_object_get(o, "seen"), &t->seen) && kn_tuned_valid(t);
}
