// Describes a store, its documents and entries.
#include "cli/info_store.h"

#include "base/distance.h"
#include "cli/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { DOCUMENTS_SHOWN = 10 };

// ---------------------------------------------------------------- JSON

static knnlm_status json_segments(const knnlm_store *store, size_t count, json_t **out) {
    json_t *list = *out = json_array();
    for (size_t i = 0; i < count; i++) {
        knnlm_segment g;
        KN_TRY(knnlm_store_segment(store, i, &g));
        cli_json_append(list,
                        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "file", (json_int_t)g.file,
                                  "first", (json_int_t)g.first, "entries", (json_int_t)g.entries,
                                  "first_document", (json_int_t)g.first_document, "documents",
                                  (json_int_t)g.documents, "bytes", (json_int_t)g.bytes, "text_checksum",
                                  json_sprintf("%016" PRIx64, g.text_checksum), "keys_checksum",
                                  g.has_keys ? json_sprintf("%016" PRIx64, g.keys_checksum) : json_null()));
    }
    return KNNLM_OK;
}

static json_t *json_document(const knnlm_document *d, uint64_t number) {
    return json_pack("{s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:b}", "number", (json_int_t)number,
                     "name", cli_json_name(d->name, d->name_size), "path",
                     cli_json_name(d->path, d->path_size), "source_offset", (json_int_t)d->source_offset,
                     "bytes", (json_int_t)d->bytes, "tokens", (json_int_t)d->tokens, "first",
                     (json_int_t)d->first, "entries", (json_int_t)d->entries, "hash",
                     json_sprintf("%016" PRIx64 "%016" PRIx64, d->hash[1], d->hash[0]), "added",
                     (json_int_t)d->added, "removed", d->removed);
}

static knnlm_status json_documents(const knnlm_store *store, uint64_t count, json_t **out) {
    *out = json_array();
    for (uint64_t i = 0; i < count; i++) {
        knnlm_document d;
        knnlm_status status = knnlm_store_document(store, i, &d);
        if (status != KNNLM_OK && status != KNNLM_EDATA) return status;
        cli_json_append(*out, status == KNNLM_OK ? json_document(&d, i)
                                                 : json_pack("{s:I, s:b, s:b}", "number", (json_int_t)i,
                                                             "removed", d.removed, "damaged", true));
    }
    return KNNLM_OK;
}

// Those that nobody removed.
static uint64_t count_damaged(const knnlm_store *store, uint64_t total) {
    uint64_t damaged = 0;
    for (uint64_t i = 0; i < total; i++) {
        knnlm_document d;
        damaged += knnlm_store_document(store, i, &d) != KNNLM_OK && !d.removed;
    }
    return damaged;
}

static void warn_damaged(const knnlm_store *store, uint64_t documents) {
    uint64_t damaged = count_damaged(store, documents);
    char text[256];
    if (!damaged) return;
    snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64 " documents %s damaged (knnlm verify --repair)",
             damaged, documents, damaged == 1 ? "is" : "are");
    cli_warn(text);
}

static json_t *json_range(const double range[2]) {
    return json_pack("[f, f]", range[0], range[1]);
}

static json_t *json_seen(const knnlm_tuned *t) {
    if (!t->seen) return json_null();
    return json_pack("{s:o, s:o}", "distance", json_range(t->seen_distance), "entropy",
                     json_range(t->seen_entropy));
}

static json_t *json_tuned(const knnlm_tuned *t) {
    if (!t->known) return json_null();
    return json_pack("{s:f, s:f, s:I, s:I, s:b, s:I, s:{s:I, s:f, s:f}, s:{s:I, s:I}, s:b, s:b, s:I, s:o}",
                     "lambda", t->lambda, "temperature", t->temperature, "k", (json_int_t)t->k, "probes",
                     (json_int_t)t->probes, "codes", t->codes, "tokens", (json_int_t)t->tokens, "cache",
                     "size", (json_int_t)t->cache, "lambda", t->cache_lambda, "temperature",
                     t->cache_temperature, "bins", "distances", (json_int_t)t->distance_bins, "entropies",
                     (json_int_t)t->entropy_bins, "gate", t->gate, "quick", t->quick, "entries",
                     (json_int_t)t->entries, "seen", json_seen(t));
}

// Where lambda begins to fall back (eval --fallback) is beyond the second of each.
static void print_seen(const knnlm_tuned *t) {
    printf("seen in tuning   nearest distance %.4g (95%%: %.4g), entropy of neighbours %.4g (95%%: %.4g)\n",
           t->seen_distance[0], t->seen_distance[1], t->seen_entropy[0], t->seen_entropy[1]);
}

static void print_tuned(const knnlm_tuned *t) {
    printf("tuned            lambda %.4g, temperature %.4g, k %" PRId64, t->lambda, t->temperature, t->k);
    if (t->probes) printf(", %" PRId64 " probes", t->probes);
    if (t->codes) printf(", by codes");
    if (t->distance_bins)
        printf("; lambda by %" PRIu32 " x %" PRIu32 " bins", t->distance_bins, t->entropy_bins);
    if (t->cache)
        printf("; cache of %" PRId64 " with %.4g at %.4g", t->cache, t->cache_lambda, t->cache_temperature);
    if (t->gate) printf("; lambda by a gate");
    printf("; on %" PRId64 " tokens%s\n", t->tokens, t->quick ? " of its own text, a first guess" : "");
    if (t->seen) print_seen(t);
}

// What the index of the store is; no lists: it has none, or a damaged one.
static knnlm_status ask_index(const knnlm_store *store, knnlm_index_info *out) {
    *out = (knnlm_index_info){0};
    knnlm_status status = knnlm_store_index_describe(store, out);
    if (status == KNNLM_EDATA) cli_warn(knnlm_message());
    return status == KNNLM_EDATA ? KNNLM_OK : status;
}

static json_t *json_shards(const knnlm_store *store) {
    json_t *list = json_array();
    for (size_t i = 0; i < knnlm_store_shards(store); i++) {
        knnlm_shard s;
        if (knnlm_store_shard(store, i, &s) != KNNLM_OK) continue;
        cli_json_append(list, json_pack("{s:o?, s:s?, s:I, s:I, s:I}", "path", json_string(s.path), "host",
                                        s.host, "entries", (json_int_t)s.entries, "documents",
                                        (json_int_t)s.documents, "bytes", (json_int_t)s.bytes));
    }
    return list;
}

static void print_members(const knnlm_store_info *i, const knnlm_index_info *index, json_t *segments,
                          json_t *shards, json_t *documents) {
    cli_print_json(json_pack(
        "{s:o?, s:i, s:b, s:I, s:I, s:I, s:I, s:{s:I, s:I}, s:I, s:{s:o?, s:s, s:i}, s:{s:s, s:s, s:i, s:b}, "
        "s:{s:s, s:i, s:s, s:s, s:b}, s:{s:i, s:i, s:s}, s:I, s:o, s:o, s:o, s:o, s:o}",
        "store", json_string(i->path), "version", i->format, "complete", i->complete, "generation",
        (json_int_t)i->commits, "created", (json_int_t)i->created, "entries", (json_int_t)i->entries,
        "document_count", (json_int_t)i->documents, "removed", "entries", (json_int_t)i->removed_entries,
        "documents", (json_int_t)i->removed_documents, "bytes", (json_int_t)i->bytes, "model", "path",
        json_string(i->model), "fingerprint", i->model_fingerprint, "dimension", i->model_dimension,
        "tokenizer", "kind", i->tokenizer, "fingerprint", i->tokenizer_fingerprint, "vocabulary",
        i->vocabulary, "kept", i->has_tokenizer, "keys", "type", knnlm_keys_name(i->keys), "dimension",
        i->dimension, "tap", i->tap, "distance", knnlm_distance_name(i->distance), "projected",
        i->has_projection, "windows", "length", i->window, "min_context", i->min_context, "documents",
        i->split, "segment", (json_int_t)i->segment, "tuned", json_tuned(&i->tuned), "index",
        cli_json_index(index), "segments", segments, "shards", shards, "documents", documents));
}

static knnlm_status print_json(const knnlm_store *store, const knnlm_store_info *i) {
    json_t *segments = NULL, *documents = NULL;
    knnlm_index_info index;
    KN_TRY(ask_index(store, &index));
    knnlm_status status = json_segments(store, i->segments, &segments);
    if (status == KNNLM_OK) status = json_documents(store, i->documents, &documents);
    if (status == KNNLM_OK) {
        print_members(i, &index, segments, json_shards(store), documents);
        return KNNLM_OK;
    }
    json_decref(segments);
    json_decref(documents);
    return status;
}

// ---------------------------------------------------------------- text

// A line with what the manifest says, which may be anything.
static void print_said(const char *what, const char *text) {
    printf("%-17s", what);
    cli_put_line(stdout, text);
    printf("\n");
}

static void print_settings(const knnlm_store_info *s) {
    char line[1024];
    snprintf(line, sizeof line, "%s (%.12s...)", s->model, s->model_fingerprint);
    print_said("model", *s->model_fingerprint ? line : "not known");
    snprintf(line, sizeof line, "%s, %d tokens (%.12s...)", s->tokenizer, s->vocabulary,
             s->tokenizer_fingerprint);
    print_said("tokenizer", *s->tokenizer_fingerprint ? line : "not known");
    printf("keys             %s, %d dimensions", knnlm_keys_name(s->keys), s->dimension);
    if (s->has_projection) printf(" (PCA of %d)", s->model_dimension);
    printf(", tap ");
    cli_put_line(stdout, *s->tap ? s->tap : "not known");
    printf(", distance %s%s\n", knnlm_distance_name(s->distance),
           kn_distance_form_of(s->distance)->norms ? " (squared)" : "");
    if (s->window)
        snprintf(line, sizeof line, "%d tokens, at least %d before a target; documents by %s", s->window,
                 s->min_context, s->split);
    else
        snprintf(line, sizeof line, "none: read as a stream; documents by %s", s->split);
    if (s->window || *s->model_fingerprint) print_said("windows", line);
}

static void print_counts(const knnlm_store_info *i) {
    char size[32], time[32];
    uint64_t live = i->entries - i->removed_entries;
    printf("entries          %" PRIu64, live);
    if (i->removed_entries) printf(" (and %" PRIu64 " removed: knnlm compact)", i->removed_entries);
    printf("\ndocuments        %" PRIu64, i->documents - i->removed_documents);
    if (i->removed_documents) printf(" (and %" PRIu64 " removed)", i->removed_documents);
    printf("\nsize             %sB", cli_count((double)i->bytes, size));
    if (i->segments) printf(" in %zu segments", i->segments);
    if (i->entries) printf(", %.1f bytes per entry", (double)i->bytes / (double)i->entries);
    printf("\ncreated          %s, %" PRIu64 " commit%s, format %d\n", cli_time(i->created, time), i->commits,
           i->commits == 1 ? "" : "s", i->format);
    if (i->tuned.known)
        print_tuned(&i->tuned);
    else
        printf("tuned            not yet\n");
}

static void print_document(uint64_t number, const knnlm_document *d) {
    char time[32], bytes[32];
    printf("  %-8" PRIu64 " %9" PRIu64 " tokens %8sB  %s  ", number, d->entries,
           cli_count((double)d->bytes, bytes), cli_time(d->added, time));
    cli_put_text(stdout, d->name, d->name_size);
    printf("%s\n", d->entries < d->tokens ? "  (not whole)" : "");
}

static knnlm_status print_documents(const knnlm_store *store, const knnlm_store_info *info, bool all) {
    uint64_t shown = 0, left = 0;
    for (uint64_t i = 0; i < info->documents; i++) {
        knnlm_document d;
        knnlm_status status = knnlm_store_document(store, i, &d);
        if (status != KNNLM_OK && status != KNNLM_EDATA) return status;
        if (d.removed) continue;
        if (!all && shown == DOCUMENTS_SHOWN) {
            left = info->documents - info->removed_documents - shown;
            break;
        }
        shown++;
        if (status == KNNLM_EDATA)
            printf("  %-8" PRIu64 " damaged\n", i);
        else
            print_document(i, &d);
    }
    if (left) printf("  and %" PRIu64 " more (--documents lists all)\n", left);
    return KNNLM_OK;
}

static void print_index(const knnlm_index_info *x) {
    char size[32];
    if (!x->lists) {
        printf("index            none: searches look at every entry\n");
        return;
    }
    printf("index            %" PRIu32 " lists, %" PRIu32 " searched by default", x->lists, x->probes);
    if (x->code_bytes) printf(", codes of %" PRIu32 " bytes", x->code_bytes);
    printf(", %sB", cli_count((double)x->bytes, size));
    if (x->outside) printf("; %" PRIu64 " entries are outside", x->outside);
    printf("\n");
}

static knnlm_status print_shards(const knnlm_store *store) {
    size_t count = knnlm_store_shards(store);
    if (count) printf("shards           %zu\n", count);
    for (size_t i = 0; i < count; i++) {
        knnlm_shard shard;
        char bytes[32];
        KN_TRY(knnlm_store_shard(store, i, &shard));
        printf("  %-8zu %9" PRIu64 " entries %7sB  ", i, shard.entries,
               cli_count((double)shard.bytes, bytes));
        if (shard.host) printf("%s:", shard.host);
        cli_put_line(stdout, shard.path);
        printf("\n");
    }
    return KNNLM_OK;
}

static knnlm_status print_text(const knnlm_store *store, const knnlm_store_info *i, bool all) {
    knnlm_index_info index;
    KN_TRY(ask_index(store, &index));
    printf("store            %s%s\n", i->path,
           i->complete ? "" : "  (not complete: the command that was building it goes on with it)");
    print_settings(i);
    print_counts(i);
    KN_TRY(print_shards(store));
    print_index(&index);
    return print_documents(store, i, all);
}

// ---------------------------------------------------------------- one entry

static void print_entry(const knnlm_entry *e, const knnlm_document *d, const char *before, const char *token,
                        const char *after, bool json) {
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

static knnlm_status show_entry(const knnlm_store *store, const cli_info_wish *wish) {
    knnlm_origin o;
    KN_TRY(knnlm_store_origin(store, (uint64_t)wish->entry, (size_t)wish->around, &o));
    char *before = cli_line(o.before, o.before_size, SIZE_MAX, false),
         *word = cli_line(o.word, o.word_size, SIZE_MAX, false),
         *after = cli_line(o.after, o.after_size, SIZE_MAX, false);
    bool whole = before && word && after;
    if (whole) print_entry(&o.entry, &o.document, before, word, after, wish->json);
    free(before);
    free(word);
    free(after);
    knnlm_origin_free(&o);
    return whole ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status describe(const knnlm_store *store, const cli_info_wish *wish) {
    knnlm_store_info info;
    if (wish->entry >= 0) return show_entry(store, wish);
    knnlm_store_describe(store, &info);
    warn_damaged(store, info.documents);
    return wish->json ? print_json(store, &info) : print_text(store, &info, wish->documents);
}

knnlm_status cli_info_store(const char *path, const cli_info_wish *wish) {
    knnlm_store *store;
    KN_TRY(knnlm_store_open(path, &store));
    knnlm_status status = describe(store, wish);
    knnlm_store_close(store);
    return status;
}
