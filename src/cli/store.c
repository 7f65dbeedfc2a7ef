// What commands that write stores share.
#include "cli/store.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "cli/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TUNED_FROM = 64 }; // entries

void cli_print_plan(void *context, const knnlm_build_estimate *e) {
    const cli_command *command = context;
    char entries[32], disk[32], left[32], memory[32], seconds[32], rate[32];
    fprintf(stderr, "knnlm %s: ", command->name);
    if (e->entries)
        fprintf(stderr, "about %s entries, ", cli_count((double)e->entries, entries));
    else
        fprintf(stderr, "an unknown number of entries, ");
    if (e->present) fprintf(stderr, "%s of them there, ", cli_count((double)e->present, entries));
    fprintf(stderr, "%sB on disk (%sB free), ", e->entries ? cli_count((double)e->disk, disk) : "? ",
            cli_count((double)e->disk_free, left));
    if (e->seconds > 0)
        fprintf(stderr, "%s at %s tok/s, ", cli_duration(e->seconds, seconds),
                cli_count(e->tokens_per_second, rate));
    fprintf(stderr, "%sB of memory\n", cli_count((double)e->memory, memory));
}

static void print_json(const knnlm_build_result *r, const knnlm_index_result *x, bool tuned,
                       const char *store, const cli_texts *texts) {
    cli_print_json(json_pack(
        "{s:o?, s:{s:I, s:I, s:I, s:I, s:I}, s:{s:I, s:I}, s:I, s:I, s:b, s:o?, s:o?, s:o, s:b, s:o}",
        "store", json_string(store), "documents", "added", (json_int_t)r->documents_added, "unchanged",
        (json_int_t)r->documents_unchanged, "replaced", (json_int_t)r->documents_replaced, "removed",
        (json_int_t)r->documents_removed, "total", (json_int_t)r->documents, "entries", "added",
        (json_int_t)r->entries_added, "total", (json_int_t)r->entries, "text_bytes",
        (json_int_t)r->text_bytes, "bytes", (json_int_t)r->bytes, "resumed", r->resumed, "seconds",
        json_real(r->seconds), "tokens_per_second", json_real(r->tokens_per_second), "index",
        x ? cli_json_indexed(x) : json_null(), "tuned", tuned, "skipped_files", cli_texts_json(texts)));
}

static void warn_damaged(const knnlm_build_result *r, const char *store) {
    char text[1024];
    snprintf(text, sizeof text, "%s: %" PRIu64 " damaged documents were passed over (knnlm verify --repair)",
             store, r->documents_damaged);
    cli_warn(text);
}

static void print_built(const knnlm_build_result *r, const knnlm_index_result *x, bool tuned,
                        const char *store, const cli_texts *texts, bool json) {
    char size[32], seconds[32], rate[32];
    if (r->documents_damaged) warn_damaged(r, store);
    if (json) {
        print_json(r, x, tuned, store, texts);
        return;
    }
    printf("store            %s%s\n", store, r->resumed ? " (an interrupted run was continued)" : "");
    printf("documents        %" PRIu64 " added, %" PRIu64 " unchanged, %" PRIu64 " replaced",
           r->documents_added, r->documents_unchanged, r->documents_replaced);
    if (r->documents_removed) printf(", %" PRIu64 " removed", r->documents_removed);
    printf("; %" PRIu64 " in all\n", r->documents);
    printf("entries          %" PRIu64 " added, %" PRIu64 " in all\n", r->entries_added, r->entries);
    printf("size             %sB", cli_count((double)r->bytes, size));
    if (r->entries) printf(", %.0f bytes per entry", (double)r->bytes / (double)r->entries);
    printf("\ntime             %s, %s tokens/s\n", cli_duration(r->seconds, seconds),
           cli_count(r->tokens_per_second, rate));
    if (x) cli_print_index(x);
    if (tuned)
        printf("tuned            on its own text: a first guess (knnlm tune, with text of its kind, is "
               "better)\n");
}

// Of too few entries nothing is learnt; what somebody tuned on a text of his own is better; and what was
// guessed stands until the store has grown by a quarter.
static bool worth_tuning(const knnlm_store_info *s) {
    const knnlm_tuned *t = &s->tuned;
    uint64_t entries = s->entries - s->removed_entries;
    if (entries < TUNED_FROM || (!s->has_index && s->keys == KNNLM_KEYS_NONE)) return false;
    return !t->known || (t->quick && entries > (uint64_t)t->entries + (uint64_t)t->entries / 4);
}

// A store that cannot be tuned is still a store.
static knnlm_status tune_quickly(const cli_command *command, knnlm_model *model, const char *path,
                                 uint64_t memory, bool *tuned) {
    knnlm_tune_options o = knnlm_tune_options_default();
    knnlm_mixture_options mix = knnlm_mixture_options_default();
    knnlm_tune_result result;
    knnlm_store *store;
    knnlm_store_info info;
    *tuned = false;
    KN_TRY(knnlm_store_open(path, &store));
    knnlm_store_describe(store, &info);
    bool worth = worth_tuning(&info);
    knnlm_store_close(store);
    if (!worth) return KNNLM_OK;
    o.own = true;
    o.progress = cli_progress;
    mix.stores = &path;
    mix.store_count = 1;
    mix.memory = memory;
    knnlm_status status = knnlm_tune(model, NULL, 0, &mix, &o, &result);
    *tuned = status == KNNLM_OK;
    if (*tuned) knnlm_tune_result_free(&result);
    if (status == KNNLM_OK || status == KNNLM_ESTOPPED) return status;
    cli_progress_clear();
    fprintf(stderr, "knnlm %s: not tuned: ", command->name);
    cli_put_line(stderr, knnlm_message());
    fputc('\n', stderr);
    return KNNLM_OK;
}

knnlm_status cli_finish_store(const cli_command *command, knnlm_model *model, const cli_finish *how,
                              const knnlm_build_result *built) {
    knnlm_index_result index = {0};
    knnlm_status status = KNNLM_OK;
    bool tuned = false;
    if (how->recipe) status = knnlm_index_update(model, how->store, how->recipe, &index);
    if (status == KNNLM_OK && how->recipe && !how->no_tune && built->entries_added)
        status = tune_quickly(command, model, how->store, how->recipe->memory, &tuned);
    cli_progress_clear();
    if (status == KNNLM_OK)
        print_built(built, index.done ? &index : NULL, tuned, how->store, how->texts, how->json);
    return status;
}

static knnlm_status find_maker(const knnlm_store *store, const char **path) {
    knnlm_store_info s;
    knnlm_store_describe(store, &s);
    *path = s.model;
    if (!**path) return kn_fail(KNNLM_EINVAL, "%s: does not know its model: name it with -m", s.path);
    if (access(*path, R_OK) == 0) return KNNLM_OK;
    return kn_fail(KNNLM_EINVAL, "%s: its model (%s) is not there any more: name it with -m", s.path, *path);
}

knnlm_status cli_maker_of(const char *path, char **out) {
    knnlm_store *store;
    const char *maker;
    *out = NULL;
    KN_TRY(knnlm_store_open(path, &store));
    knnlm_status status = find_maker(store, &maker);
    if (status == KNNLM_OK && !(*out = kn_strdup(maker))) status = KNNLM_ENOMEM;
    knnlm_store_close(store);
    return status;
}

knnlm_status cli_open_maker(const char *given, const knnlm_store *store, const cli_common *common,
                            knnlm_model **out) {
    if (!given) KN_TRY(find_maker(store, &given));
    KN_TRY(cli_open_model(given, common, out));
    knnlm_status status = knnlm_store_check_model(store, *out);
    if (status != KNNLM_OK) knnlm_model_close(*out);
    return status;
}

int cli_take_store(const cli_command *command, const char **store, char ***rest, size_t *count) {
    if (*store) return CLI_DONE;
    if (*count == 0) return cli_usage(command, "no store given");
    *store = **rest;
    ++*rest;
    --*count;
    return CLI_DONE;
}

const char *cli_time(int64_t seconds, char buffer[32]) {
    time_t t = (time_t)seconds;
    struct tm parts;
    if (!gmtime_r(&t, &parts) || !strftime(buffer, 32, "%Y-%m-%d %H:%M:%S UTC", &parts)) strcpy(buffer, "?");
    return buffer;
}

json_t *cli_json_name(const char *name, size_t size) {
    json_t *exact = json_stringn(name, size);
    return exact ? exact : json_null();
}

char *cli_line(const char *text, size_t size, size_t max, bool keep_end) {
    char *out = kn_alloc(KN_UTF8_ESCAPED(size) + 3, 1);
    if (!out) return NULL;
    kn_utf8_escape(text, size, out, KN_UTF8_ESCAPED(size));
    size_t length = strlen(out);
    if (length <= max) return out;
    size_t from = keep_end ? length - max : 0, to = keep_end ? length : max;
    while (from < to && ((unsigned char)out[from] & 0xc0) == 0x80) from++; // whole characters
    while (to > from && ((unsigned char)out[to] & 0xc0) == 0x80) to--;
    memmove(out, out + from, to - from);
    out[to - from] = 0;
    return out;
}

json_t *cli_json_text(const char *text, size_t size) {
    json_t *plain = json_stringn(text ? text : "", size);
    if (plain) return plain;
    char *line = cli_line(text, size, SIZE_MAX, false);
    json_t *out = json_string(line ? line : "");
    free(line);
    return out;
}
