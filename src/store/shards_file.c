// Reads and writes SHARDS, and tells which rank has which shard.
#include "store/shards.h"

#include "base/file.h"
#include "store/state.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

bool kn_shards_exist(const char *path) {
    char *file = kn_store_file(path, KN_SHARDS_FILE);
    bool there = file && access(file, F_OK) == 0;
    free(file);
    return there;
}

void kn_shards_free(kn_shards *s) {
    for (size_t i = 0; s->places && i < s->count; i++) {
        free(s->places[i].path);
        free(s->places[i].host);
    }
    free(s->places);
    free(s->path);
    *s = (kn_shards){0};
}

static knnlm_status make_room(kn_shards *s, const char *path, size_t count) {
    *s = (kn_shards){.path = kn_strdup(path), .places = kn_alloc(count, sizeof *s->places), .count = count};
    if (!s->path || !s->places) return KNNLM_ENOMEM;
    for (size_t n = strlen(s->path); n > 1 && s->path[n - 1] == '/'; n--) s->path[n - 1] = 0;
    return KNNLM_OK;
}

// ---------------------------------------------------------------- parsing

static size_t print_line(char line[KN_SHARDS_LINE], const char *body, size_t size) {
    return (size_t)snprintf(line, KN_SHARDS_LINE, "%s %d %016" PRIx64 "\n", KN_SHARDS_MAGIC,
                            KN_SHARDS_VERSION, XXH3_64bits(body, size));
}

static knnlm_status check_line(const char *file, const char *data, size_t size, size_t *body) {
    char expected[KN_SHARDS_LINE], line[KN_SHARDS_LINE + 1] = "";
    const char *end = size ? memchr(data, '\n', kn_min(size, KN_SHARDS_LINE)) : NULL;
    int version = 0;
    if (end) memcpy(line, data, (size_t)(end - data)); // the file is not a string
    if (!end || sscanf(line, KN_SHARDS_MAGIC " %d ", &version) != 1)
        return kn_fail(KNNLM_EDATA, "%s: does not tell the shards of a knnlm store", file);
    if (version > KN_SHARDS_VERSION)
        return kn_fail(KNNLM_ENOTSUP, "%s: of version %d: this knnlm knows up to %d", file, version,
                       KN_SHARDS_VERSION);
    *body = (size_t)(end - data) + 1;
    size_t length = print_line(expected, data + *body, size - *body);
    if (length == *body && memcmp(data, expected, length) == 0) return KNNLM_OK;
    return kn_fail(KNNLM_EDATA, "%s: damaged: its checksum is wrong", file);
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static knnlm_status take_place(kn_shards *s, size_t i, const json_t *item, const char *file) {
    const char *path = json_string_value(json_object_get(item, "path"));
    const char *host = json_string_value(json_object_get(item, "host"));
    if (!path || !*path || (host && *path != '/'))
        return kn_fail(KNNLM_EDATA, "%s: malformed: shard %zu has no path", file, i);
    for (size_t j = 0; j < i; j++)
        if (strcmp(s->places[j].path, path) == 0 && same_text(s->places[j].host, host))
            return kn_fail(KNNLM_EDATA, "%s: shards %zu and %zu are both %s", file, j, i, path);
    s->places[i].path = kn_strdup(path);
    s->places[i].host = host ? kn_strdup(host) : NULL;
    return s->places[i].path && (!host || s->places[i].host) ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status take_places(kn_shards *s, const char *path, const json_t *root, const char *file) {
    const json_t *list = json_object_get(root, "shards");
    size_t count = json_array_size(list);
    if (!count || count > KN_SHARDS_MAX)
        return kn_fail(KNNLM_EDATA, "%s: malformed: %zu shards", file, count);
    KN_TRY(make_room(s, path, count));
    for (size_t i = 0; i < count; i++) KN_TRY(take_place(s, i, json_array_get(list, i), file));
    return KNNLM_OK;
}

knnlm_status kn_shards_parse(const char *path, const char *file, const char *data, size_t size,
                             kn_shards *out) {
    size_t body = 0;
    json_error_t error;
    *out = (kn_shards){0};
    KN_TRY(check_line(file, data, size, &body));
    json_t *root = json_loadb(data + body, size - body, 0, &error);
    if (!root) return kn_fail(KNNLM_EDATA, "%s: malformed at line %d: %s", file, error.line + 1, error.text);
    knnlm_status status = take_places(out, path, root, file);
    json_decref(root);
    return status;
}

knnlm_status kn_shards_read(const char *path, kn_shards *out) {
    char *file = kn_store_file(path, KN_SHARDS_FILE), *data = NULL;
    size_t size;
    *out = (kn_shards){0};
    knnlm_status status = file ? kn_file_read(file, &data, &size) : KNNLM_ENOMEM;
    if (status == KNNLM_OK) status = kn_shards_parse(path, file, data, size, out);
    free(data);
    free(file);
    return status;
}

// ---------------------------------------------------------------- writing

static knnlm_status place_shard(kn_shards *s, size_t i, const char *local, const char *name) {
    char path[4096];
    int length = local ? snprintf(path, sizeof path, "%s/%s-%04zu.store", local, name, i)
                       : snprintf(path, sizeof path, "shard-%04zu.store", i);
    if (length >= (int)sizeof path) return kn_fail(KNNLM_EINVAL, "%s: too long a name", local);
    s->places[i].path = kn_strdup(path);
    if (!s->places[i].path) return KNNLM_ENOMEM;
    if (!local || kn_rank_count() == 1) return KNNLM_OK;
    s->places[i].host = kn_strdup(kn_rank_host((int)(i % (size_t)kn_rank_count())));
    return s->places[i].host ? KNNLM_OK : KNNLM_ENOMEM;
}

knnlm_status kn_shards_plan(const char *path, size_t count, const char *local, kn_shards *out) {
    *out = (kn_shards){0};
    if (count < 1 || count > KN_SHARDS_MAX)
        return kn_fail(KNNLM_EINVAL, "%zu shards: from 1 to %d", count, KN_SHARDS_MAX);
    if (local && *local != '/') return kn_fail(KNNLM_EINVAL, "%s: not an absolute path", local);
    KN_TRY(make_room(out, path, count));
    char *copy = kn_strdup(out->path), *name = copy ? basename(copy) : NULL;
    knnlm_status status = copy ? KNNLM_OK : KNNLM_ENOMEM;
    if (name && strlen(name) > 6 && strcmp(name + strlen(name) - 6, ".store") == 0)
        name[strlen(name) - 6] = 0;
    for (size_t i = 0; i < count && status == KNNLM_OK; i++) status = place_shard(out, i, local, name);
    free(copy);
    return status;
}

static json_t *print_places(const kn_shards *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->count; i++) {
        const kn_shard_place *p = &s->places[i];
        json_array_append_new(list, p->host ? json_pack("{s:s, s:s}", "path", p->path, "host", p->host)
                                            : json_pack("{s:s}", "path", p->path));
    }
    return json_pack("{s:o}", "shards", list);
}

static knnlm_status write_file(const char *file, const char *body) {
    char line[KN_SHARDS_LINE];
    size_t length = print_line(line, body, strlen(body));
    kn_file_writer *w;
    KN_TRY(kn_file_writer_open(file, &w));
    kn_file_writer_put(w, line, length); // a failure is told by the commit
    kn_file_writer_put(w, body, strlen(body));
    return kn_file_writer_commit(w);
}

knnlm_status kn_shards_write(const kn_shards *s) {
    json_t *root = print_places(s);
    char *body = root ? json_dumps(root, JSON_INDENT(1)) : NULL,
         *file = kn_store_file(s->path, KN_SHARDS_FILE);
    knnlm_status status = KNNLM_OK;
    json_decref(root);
    if (mkdir(s->path, 0777) != 0 && errno != EEXIST)
        status = kn_fail_errno(KNNLM_EIO, errno, "%s: cannot create", s->path);
    if (status == KNNLM_OK)
        status =
            body && file ? write_file(file, body) : kn_fail(KNNLM_ENOMEM, "out of memory for a manifest");
    free(body);
    free(file);
    return status;
}

// ---------------------------------------------------------------- where they are

knnlm_status kn_shards_path(const kn_shards *s, size_t number, char **out) {
    const char *path = s->places[number].path;
    char *base = *path == '/' ? NULL : realpath(s->path, NULL);
    *out = NULL;
    if (*path != '/' && !base) return kn_fail_errno(KNNLM_EIO, errno, "%s", s->path);
    *out = base ? kn_store_file(base, path) : kn_strdup(path);
    free(base);
    return *out ? KNNLM_OK : KNNLM_ENOMEM;
}

// Shards of one host are dealt to the ranks there; those that every rank sees to all ranks.
knnlm_status kn_shards_rank(const kn_shards *s, size_t number, int *rank) {
    const char *host = s->places[number].host;
    size_t there = 0, turn = 0;
    *rank = (int)(number % (size_t)kn_rank_count());
    if (!host || strcmp(kn_rank_host(*rank), host) == 0) return KNNLM_OK;
    for (int i = 0; i < kn_rank_count(); i++) there += strcmp(kn_rank_host(i), host) == 0;
    if (!there)
        return kn_fail(KNNLM_EINVAL, "%s: shard %zu (%s) is on the disk of %s, where no rank runs", s->path,
                       number, s->places[number].path, host);
    for (*rank = 0;; ++*rank)
        if (strcmp(kn_rank_host(*rank), host) == 0 && turn++ == number % there) return KNNLM_OK;
}

static knnlm_status prepare(const kn_shards *s, size_t i, const kn_shard_job *job, kn_call *call) {
    char *path;
    call->service = job->service;
    KN_TRY(kn_shards_rank(s, i, &call->rank));
    KN_TRY(kn_shards_path(s, i, &path));
    kn_message_put_text(&call->in, path);
    free(path);
    if (job->put) job->put(job->context, i, &call->in);
    return KNNLM_OK;
}

static knnlm_status call_all(const kn_shards *s, const kn_shard_job *job, const kn_progress *progress,
                             kn_call *calls) {
    for (size_t i = 0; i < s->count; i++) KN_TRY(prepare(s, i, job, &calls[i]));
    KN_TRY(kn_ranks_call(calls, s->count, progress));
    for (size_t i = 0; job->take && i < s->count; i++) KN_TRY(job->take(job->context, i, &calls[i].out));
    return KNNLM_OK;
}

knnlm_status kn_shards_call(const kn_shards *s, const kn_shard_job *job, const kn_progress *progress) {
    kn_call *calls = kn_alloc(s->count, sizeof *calls);
    if (!calls) return KNNLM_ENOMEM;
    knnlm_status status = call_all(s, job, progress, calls);
    kn_calls_free(calls, s->count);
    free(calls);
    return status;
}

knnlm_status kn_shards_call_at(const char *path, const kn_shard_job *job, const kn_progress *progress) {
    kn_shards shards;
    knnlm_status status = kn_shards_read(path, &shards);
    if (status == KNNLM_OK) status = kn_shards_call(&shards, job, progress);
    kn_shards_free(&shards);
    return status;
}
