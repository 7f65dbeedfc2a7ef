#include "cli/info_store.h"

#include "cli/store.h"
#include "knn/origin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOCUMENTS_SHOWN = 10 };

// ---------------------------------------------------------------- JSON

static json_t *json_segments(const kn_store *store) {
    json_t *list = json_array();
    for (size_t i = 0; i < kn_store_describe(store)->segments; i++) {
        kn_store_segment g = kn_store_segment_at(store, i);
        cli_json_append(list,
                        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "file", (json_int_t)g.file,
                                  "first", (json_int_t)g.first, "entries", (json_int_t)g.count,
                                  "first_document", (json_int_t)g.first_document, "documents",
                                  (json_int_t)g.document_count, "bytes", (json_int_t)g.bytes, "text_checksum",
                                  json_sprintf("%016" PRIx64, g.text_seal), "keys_checksum",
                                  g.keys ? json_sprintf("%016" PRIx64, g.keys_seal) : json_null()));
    }
    return list;
}

static json_t *json_document(const kn_store_document *d, uint64_t number) {
    return json_pack("{s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:b}", "number", (json_int_t)number,
                     "name", cli_json_name(d->name, d->name_size), "path",
                     cli_json_name(d->path, d->path_size), "source_offset", (json_int_t)d->source_offset,
                     "bytes", (json_int_t)d->bytes, "tokens", (json_int_t)d->tokens, "first",
                     (json_int_t)d->first, "entries", (json_int_t)d->count, "hash",
                     json_sprintf("%016" PRIx64 "%016" PRIx64, d->hash[1], d->hash[0]), "added",
                     (json_int_t)d->added, "removed", d->removed);
}

static knnlm_status json_documents(const kn_store *store, json_t **out) {
    uint64_t total = kn_store_describe(store)->documents;
    *out = json_array();
    for (uint64_t i = 0; i < total; i++) {
        kn_store_document d;
        knnlm_status status = kn_store_document_at(store, i, &d);
        if (status != KNNLM_OK && status != KNNLM_EDATA) {
            json_decref(*out);
            return status;
        }
        bool removed = kn_store_document_removed(store, i);
        cli_json_append(*out, status == KNNLM_OK ? json_document(&d, i)
                                                 : json_pack("{s:I, s:b, s:b}", "number", (json_int_t)i,
                                                             "removed", removed, "damaged", true));
    }
    return KNNLM_OK;
}

// Those that nobody removed.
static uint64_t count_damaged(const kn_store *store) {
    uint64_t total = kn_store_describe(store)->documents, damaged = 0;
    for (uint64_t i = 0; i < total; i++) {
        kn_store_document d;
        damaged += kn_store_document_at(store, i, &d) != KNNLM_OK && !kn_store_document_removed(store, i);
    }
    return damaged;
}

static void warn_damaged(const kn_store *store) {
    uint64_t damaged = count_damaged(store);
    char text[256];
    if (!damaged) return;
    snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64 " documents %s damaged (knnlm verify --repair)",
             damaged, kn_store_describe(store)->documents, damaged == 1 ? "is" : "are");
    cli_warn(text);
}

static json_t *json_range(const kn_store_range *r) {
    return json_pack("[f, f]", r->median, r->high);
}

static json_t *json_seen(const kn_store_seen *s) {
    if (!s->known) return json_null();
    return json_pack("{s:o, s:o}", "distance", json_range(&s->distance), "entropy", json_range(&s->entropy));
}

static json_t *json_tuned(const kn_store_tuned *t) {
    if (!t->known) return json_null();
    return json_pack("{s:f, s:f, s:I, s:I, s:b, s:I, s:{s:I, s:f, s:f}, s:{s:I, s:I}, s:o}", "lambda",
                     t->lambda, "temperature", t->temperature, "k", (json_int_t)t->k, "probes",
                     (json_int_t)t->probes, "codes", t->codes, "tokens", (json_int_t)t->tokens, "cache",
                     "size", (json_int_t)t->cache.size, "lambda", t->cache.lambda, "temperature",
                     t->cache.temperature, "bins", "distances", (json_int_t)t->bins.distances, "entropies",
                     (json_int_t)t->bins.entropies, "seen", json_seen(&t->seen));
}

// Where lambda begins to fall back (eval --fallback) is beyond the second of each.
static void print_seen(const kn_store_seen *s) {
    printf("seen in tuning   nearest distance %.4g (95%%: %.4g), entropy of neighbours %.4g (95%%: %.4g)\n",
           s->distance.median, s->distance.high, s->entropy.median, s->entropy.high);
}

static void print_tuned(const kn_store_tuned *t) {
    printf("tuned            lambda %.4g, temperature %.4g, k %" PRId64, t->lambda, t->temperature, t->k);
    if (t->probes) printf(", %" PRId64 " probes", t->probes);
    if (t->codes) printf(", by codes");
    if (t->bins.distances)
        printf("; lambda by %" PRIu32 " x %" PRIu32 " bins", t->bins.distances, t->bins.entropies);
    if (t->cache.size)
        printf("; cache of %" PRId64 " with %.4g at %.4g", t->cache.size, t->cache.lambda,
               t->cache.temperature);
    printf("; on %" PRId64 " tokens\n", t->tokens);
    if (t->seen.known) print_seen(&t->seen);
}

// What the index of the store is; no lists: it has none, or a damaged one.
static knnlm_status ask_index(const kn_store *store, kn_index_info *out) {
    kn_index *index;
    knnlm_status status = kn_index_open(store, &index);
    *out = (kn_index_info){0};
    if (status == KNNLM_EDATA) cli_warn(knnlm_message());
    if (status != KNNLM_OK) return status == KNNLM_EDATA ? KNNLM_OK : status;
    *out = *kn_index_describe(index);
    kn_index_close(index);
    return KNNLM_OK;
}

static knnlm_status print_json(const kn_store *store) {
    const kn_store_info *i = kn_store_describe(store);
    kn_index_info index;
    KN_TRY(ask_index(store, &index));
    const kn_store_settings *s = &i->settings;
    json_t *documents;
    KN_TRY(json_documents(store, &documents));
    cli_print_json(json_pack(
        "{s:o?, s:i, s:b, s:I, s:I, s:I, s:I, s:{s:I, s:I}, s:I, s:{s:o?, s:s, s:i}, s:{s:s, s:s, s:i, s:b}, "
        "s:{s:s, s:i, s:s, s:s, s:b}, s:{s:i, s:i, s:s}, s:I, s:o, s:o, s:o, s:o}",
        "store", json_string(i->path), "version", KN_STORE_VERSION, "complete", i->complete, "generation",
        (json_int_t)i->generation, "created", (json_int_t)i->created, "entries", (json_int_t)i->entries,
        "document_count", (json_int_t)i->documents, "removed", "entries", (json_int_t)i->removed_entries,
        "documents", (json_int_t)i->removed_documents, "bytes", (json_int_t)i->bytes, "model", "path",
        json_string(s->model), "fingerprint", s->model_fingerprint, "dimension", s->model_dimension,
        "tokenizer", "kind", s->tokenizer, "fingerprint", s->tokenizer_fingerprint, "vocabulary",
        s->vocabulary, "kept", i->has_tokenizer, "keys", "type", kn_key_type_names[s->key_type], "dimension",
        s->dimension, "tap", s->tap, "distance", kn_distance_names[s->distance], "projected",
        i->has_projection, "windows", "length", s->window, "min_context", s->min_context, "documents",
        s->split, "segment", (json_int_t)s->segment, "tuned", json_tuned(&i->tuned), "index",
        cli_json_index(&index), "segments", json_segments(store), "documents", documents));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- text

// A line with what the manifest says, which may be anything.
static void print_said(const char *what, const char *text) {
    printf("%-17s", what);
    cli_put_line(stdout, text);
    printf("\n");
}

static void print_settings(const kn_store_settings *s, bool projected) {
    char line[1024];
    snprintf(line, sizeof line, "%s (%.12s...)", s->model, s->model_fingerprint);
    print_said("model", *s->model_fingerprint ? line : "not known");
    snprintf(line, sizeof line, "%s, %d tokens (%.12s...)", s->tokenizer, s->vocabulary,
             s->tokenizer_fingerprint);
    print_said("tokenizer", *s->tokenizer_fingerprint ? line : "not known");
    printf("keys             %s, %d dimensions", kn_key_type_names[s->key_type], s->dimension);
    if (projected) printf(" (PCA of %d)", s->model_dimension);
    printf(", tap ");
    cli_put_line(stdout, *s->tap ? s->tap : "not known");
    printf(", distance %s%s\n", kn_distance_names[s->distance],
           kn_distance_form_of(s->distance)->norms ? " (squared)" : "");
    if (s->window)
        snprintf(line, sizeof line, "%d tokens, at least %d before a target; documents by %s", s->window,
                 s->min_context, s->split);
    else
        snprintf(line, sizeof line, "none: read as a stream; documents by %s", s->split);
    if (s->window || *s->model_fingerprint) print_said("windows", line);
}

static void print_counts(const kn_store_info *i) {
    char size[32], time[32];
    uint64_t live = i->entries - i->removed_entries;
    printf("entries          %" PRIu64, live);
    if (i->removed_entries) printf(" (and %" PRIu64 " removed: knnlm compact)", i->removed_entries);
    printf("\ndocuments        %" PRIu64, i->documents - i->removed_documents);
    if (i->removed_documents) printf(" (and %" PRIu64 " removed)", i->removed_documents);
    printf("\nsize             %sB in %zu segments", cli_count((double)i->bytes, size), i->segments);
    if (i->entries) printf(", %.1f bytes an entry", (double)i->bytes / (double)i->entries);
    printf("\ncreated          %s, %" PRIu64 " commit%s, format %d\n", cli_time(i->created, time),
           i->generation, i->generation == 1 ? "" : "s", KN_STORE_VERSION);
    if (i->tuned.known)
        print_tuned(&i->tuned);
    else
        printf("tuned            not yet\n");
}

static knnlm_status print_documents(const kn_store *store, bool all) {
    uint64_t total = kn_store_describe(store)->documents, shown = 0, left = 0;
    for (uint64_t i = 0; i < total; i++) {
        kn_store_document d;
        char time[32], bytes[32];
        knnlm_status status = kn_store_document_at(store, i, &d);
        if (kn_store_document_removed(store, i)) continue;
        if (!all && shown == DOCUMENTS_SHOWN) {
            left = total - kn_store_describe(store)->removed_documents - shown;
            break;
        }
        shown++;
        if (status == KNNLM_EDATA) {
            printf("  %-8" PRIu64 " damaged\n", i);
            continue;
        }
        KN_TRY(status);
        printf("  %-8" PRIu64 " %9" PRIu64 " tokens %8sB  %s  ", i, d.count,
               cli_count((double)d.bytes, bytes), cli_time(d.added, time));
        cli_put_text(stdout, d.name, d.name_size);
        printf("%s\n", d.count < d.tokens ? "  (not whole)" : "");
    }
    if (left) printf("  and %" PRIu64 " more (--documents lists all)\n", left);
    return KNNLM_OK;
}

static void print_index(const kn_index_info *x) {
    char size[32];
    if (!x->lists) {
        printf("index            none: searches look at every entry\n");
        return;
    }
    printf("index            %" PRIu32 " lists, %" PRIu32 " searched by default", x->lists, x->probes);
    if (x->code_bytes) printf(", codes of %" PRIu32 " bytes", x->code_bytes);
    printf(", %sB", cli_count((double)x->bytes, size));
    if (x->flat) printf("; %" PRIu64 " entries are outside", x->flat);
    printf("\n");
}

static knnlm_status print_text(const kn_store *store, bool all) {
    const kn_store_info *i = kn_store_describe(store);
    kn_index_info index;
    KN_TRY(ask_index(store, &index));
    printf("store            %s%s\n", i->path,
           i->complete ? "" : "  (not complete: the command that was building it goes on with it)");
    print_settings(&i->settings, i->has_projection);
    print_counts(i);
    print_index(&index);
    return print_documents(store, all);
}

// ---------------------------------------------------------------- one entry

static void print_entry(const kn_store_entry *e, const kn_store_document *d, const char *before,
                        const char *token, const char *after, bool json) {
    if (json) {
        cli_print_json(json_pack(
            "{s:I, s:i, s:o?, s:{s:I, s:o, s:o, s:I}, s:I, s:o, s:b, s:o?, s:o?}", "entry", (json_int_t)e->id,
            "token", e->token, "text", json_string(token), "document", "number", (json_int_t)e->document,
            "name", cli_json_name(d->name, d->name_size), "path", cli_json_name(d->path, d->path_size),
            "source_offset", (json_int_t)d->source_offset, "position", (json_int_t)e->position, "offset",
            d->has_offsets ? json_integer((json_int_t)e->offset) : json_null(), "removed", e->removed,
            "before", json_string(before), "after", json_string(after)));
        return;
    }
    printf("entry            %" PRIu64 "%s\n", e->id, e->removed ? " (removed)" : "");
    printf("value            token %d \"%s\"\n", e->token, token);
    printf("document         ");
    cli_put_text(stdout, d->name, d->name_size);
    printf("\n");
    printf("position         token %" PRIu64 " of %" PRIu64, e->position, d->tokens);
    if (d->has_offsets) printf(", byte %" PRIu64 " of %" PRIu64, e->offset, d->bytes);
    printf("\ncontext          %s [%s] %s\n", before, token, after);
}

static knnlm_status show_entry(const kn_store *store, const kn_tokenizer *t, const cli_info_wish *wish) {
    kn_origin o;
    KN_TRY(kn_origin_read(store, t, (uint64_t)wish->entry, (size_t)wish->around, &o));
    char *before = cli_line(o.before, o.before_size, SIZE_MAX, false),
         *word = cli_line(o.word, o.word_size, SIZE_MAX, false),
         *after = cli_line(o.after, o.after_size, SIZE_MAX, false);
    bool whole = before && word && after;
    if (whole) print_entry(&o.entry, &o.document, before, word, after, wish->json);
    free(before);
    free(word);
    free(after);
    kn_origin_free(&o);
    return whole ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status describe(const kn_store *store, const cli_info_wish *wish) {
    kn_tokenizer *t;
    if (wish->entry < 0) {
        warn_damaged(store);
        return wish->json ? print_json(store) : print_text(store, wish->documents);
    }
    KN_TRY(kn_origin_open_tokenizer(store, &t));
    knnlm_status status = show_entry(store, t, wish);
    kn_tokenizer_free(t);
    return status;
}

knnlm_status cli_info_store(const char *path, const cli_info_wish *wish) {
    kn_store *store;
    KN_TRY(kn_store_open(path, &store));
    knnlm_status status = describe(store, wish);
    kn_store_close(store);
    return status;
}
