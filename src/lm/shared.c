// Keeps the models of all ranks in step, and deals windows to them.
#include "lm/shared.h"

#include "lm/engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The models of this rank that have a key.
static struct {
    pthread_mutex_t lock;
    kn_lm **list;
    size_t count, capacity;
    uint64_t last;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

uint64_t kn_lm_key(const kn_lm *lm) {
    return lm ? lm->key : 0;
}

kn_lm *kn_lm_find(uint64_t key) {
    kn_lm *found = NULL;
    pthread_mutex_lock(&known.lock);
    for (size_t i = 0; i < known.count && !found; i++)
        if (known.list[i]->key == key) found = known.list[i];
    pthread_mutex_unlock(&known.lock);
    return found;
}

static knnlm_status enter(kn_lm *lm, uint64_t key) {
    pthread_mutex_lock(&known.lock);
    knnlm_status status = kn_grow(&known.list, &known.capacity, known.count + 1, sizeof *known.list);
    if (status == KNNLM_OK) {
        lm->key = key ? key : ++known.last;
        known.list[known.count++] = lm;
    }
    pthread_mutex_unlock(&known.lock);
    return status;
}

static void forget(const kn_lm *lm) {
    pthread_mutex_lock(&known.lock);
    for (size_t i = 0; i < known.count; i++)
        if (known.list[i] == lm) known.list[i--] = known.list[--known.count];
    if (!known.count) {
        free(known.list);
        known.list = NULL;
        known.capacity = 0;
    }
    pthread_mutex_unlock(&known.lock);
}

// ---------------------------------------------------------------- opening

static knnlm_status call_others(const kn_service *service, const kn_message *in) {
    size_t count = (size_t)kn_rank_count() - 1;
    kn_call *calls = kn_alloc(count, sizeof *calls);
    if (!calls) return KNNLM_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        calls[i] = (kn_call){.rank = (int)i + 1, .service = service};
        kn_message_put(&calls[i].in, in->data, in->size);
    }
    knnlm_status status = kn_ranks_call(calls, count, NULL);
    kn_calls_free(calls, count);
    free(calls);
    return status;
}

knnlm_status kn_lm_share(kn_lm *lm, const kn_lm_options *o) {
    kn_message in = {0};
    if (kn_rank() != 0) return KNNLM_OK; // who was told to open it enters it
    KN_TRY(enter(lm, 0));
    if (kn_rank_count() == 1) return KNNLM_OK;
    char *path = realpath(lm->info.path, NULL);
    kn_message_put_number(&in, lm->key);
    kn_message_put_text(&in, path ? path : lm->info.path);
    kn_message_put_text(&in, lm->info.fingerprint);
    kn_message_put_number(&in, (uint64_t)o->precision);
    kn_message_put_number(&in, (uint64_t)o->engine);
    kn_message_put_number(&in, o->vouched);
    free(path);
    knnlm_status status = kn_message_sent(&in);
    if (status == KNNLM_OK) status = call_others(&kn_service_lm_open, &in);
    kn_message_free(&in);
    return status;
}

static knnlm_status run_open(kn_message *in, kn_message *out, const kn_progress *progress) {
    uint64_t key = kn_message_take_number(in);
    const char *path = kn_message_take_text(in), *fingerprint = kn_message_take_text(in);
    kn_lm_options o = {.progress = progress};
    kn_lm *lm;
    (void)out;
    o.precision = (knnlm_precision)kn_message_take_number(in);
    o.engine = (knnlm_engine)kn_message_take_number(in);
    o.vouched = kn_message_take_number(in);
    KN_TRY(kn_message_read(in));
    KN_TRY(kn_lm_open(path, &o, &lm));
    knnlm_status status =
        strcmp(lm->info.fingerprint, fingerprint) == 0
            ? enter(lm, key)
            : kn_fail(KNNLM_EINVAL, "%s: not the model that rank 0 has (%.12s..., not %.12s...)", path,
                      lm->info.fingerprint, fingerprint);
    if (status != KNNLM_OK) kn_lm_close(lm);
    return status;
}
const kn_service kn_service_lm_open = {"model open", run_open};

static knnlm_status run_close(kn_message *in, kn_message *out, const kn_progress *progress) {
    (void)out;
    (void)progress;
    kn_lm_close(kn_lm_find(kn_message_take_number(in)));
    return KNNLM_OK;
}
const kn_service kn_service_lm_close = {"model close", run_close};

void kn_lm_unshare(kn_lm *lm) {
    kn_message in = {0};
    if (!lm->key) return;
    forget(lm);
    if (kn_rank() != 0 || kn_rank_count() == 1) return;
    kn_message_put_number(&in, lm->key);
    if (!in.failed) call_others(&kn_service_lm_close, &in); // one that is gone has closed it
    kn_message_free(&in);
}

void kn_lm_set_alone(kn_lm *lm, bool alone) {
    lm->alone = alone;
}

// ---------------------------------------------------------------- dealing

enum { ROWS_MIN = 64 }; // scored positions: fewer are run sooner than sent

static size_t rows_of(const kn_window *windows, size_t count) {
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) rows += (size_t)(windows[i].length - windows[i].first);
    return rows;
}

bool kn_lm_is_dealt(const kn_lm *lm, const kn_window *windows, size_t count) {
    if (kn_rank() != 0 || kn_rank_count() == 1 || lm->alone || count < 2) return false;
    for (size_t i = 0; i < count; i++)
        if (windows[i].past) return false; // a stream stays where it began
    return rows_of(windows, count) >= ROWS_MIN;
}

// Which results are wanted, as bits.
static uint64_t wanted(const kn_lm_output *o) {
    return (uint64_t)(o->logprobs ? 1 : 0) | (o->entropies ? 2 : 0) | (o->distribution ? 4 : 0) |
           (o->keys ? 8 : 0);
}

void kn_lm_put_run(kn_message *m, const kn_lm *lm, kn_tap tap, const kn_lm_output *out) {
    kn_message_put_number(m, lm->key);
    kn_message_put_number(m, (uint64_t)tap.point);
    kn_message_put_number(m, (uint64_t)(int64_t)tap.layer);
    kn_message_put_number(m, wanted(out));
}

knnlm_status kn_lm_take_run(kn_message *m, kn_lm **lm, kn_tap *tap, uint64_t *wanted_bits) {
    *lm = kn_lm_find(kn_message_take_number(m));
    tap->point = (kn_tap_point)kn_message_take_number(m);
    tap->layer = (int32_t)kn_message_take_number(m);
    *wanted_bits = kn_message_take_number(m);
    return *lm ? kn_message_read(m) : kn_fail(KNNLM_EINVAL, "no such model is open");
}

static void put_windows(kn_message *m, const kn_window *windows, size_t count) {
    kn_message_put_number(m, count);
    for (size_t i = 0; i < count; i++) {
        const kn_window *w = &windows[i];
        size_t bytes = (size_t)w->length * sizeof *w->inputs;
        kn_message_put_number(m, (uint64_t)w->length);
        kn_message_put_number(m, (uint64_t)w->first);
        kn_message_put_number(m, w->targets != NULL);
        kn_message_put_bytes(m, (const char *)w->inputs, bytes);
        if (w->targets) kn_message_put_bytes(m, (const char *)w->targets, bytes);
    }
}

knnlm_status kn_lm_take_results(kn_message *m, const kn_lm *lm, kn_lm_output *o, size_t rows) {
    if (o->logprobs) kn_message_take(m, o->logprobs, rows * sizeof(float));
    if (o->entropies) kn_message_take(m, o->entropies, rows * sizeof(float));
    if (o->distribution)
        kn_message_take(m, o->distribution, rows * (size_t)lm->info.vocabulary * sizeof(float));
    if (o->keys) kn_message_take(m, o->keys, rows * (size_t)lm->info.key_width * sizeof(float));
    kn_lm_output_advance(lm, o, rows);
    return kn_message_read(m);
}

// The part of the windows that each rank gets: by their lengths, from one end to the other.
static void cut(const kn_window *windows, size_t count, size_t ranks, size_t *ends) {
    size_t all = 0, done = 0, rank = 0;
    for (size_t i = 0; i < count; i++) all += (size_t)windows[i].length;
    for (size_t i = 0; i < count; i++) {
        done += (size_t)windows[i].length;
        while (rank + 1 < ranks && done * ranks >= all * (rank + 1)) ends[rank++] = i + 1;
    }
    for (; rank < ranks; rank++) ends[rank] = count;
}

static knnlm_status run_all(kn_lm *lm, const kn_window *windows, const size_t *ends, kn_call *calls,
                            kn_tap tap, const kn_lm_output *out) {
    size_t ranks = (size_t)kn_rank_count();
    for (size_t r = 0, first = 0; r < ranks; first = ends[r++]) {
        calls[r] = (kn_call){.rank = (int)r, .service = &kn_service_lm_run};
        kn_lm_put_run(&calls[r].in, lm, tap, out);
        put_windows(&calls[r].in, windows + first, ends[r] - first);
    }
    KN_TRY(kn_ranks_call(calls, ranks, NULL));
    kn_lm_output at = *out;
    for (size_t r = 0, first = 0; r < ranks; first = ends[r++]) {
        size_t rows = rows_of(windows + first, ends[r] - first);
        KN_TRY(kn_lm_take_results(&calls[r].out, lm, &at, rows));
    }
    return KNNLM_OK;
}

knnlm_status kn_lm_deal(kn_lm *lm, const kn_window *windows, size_t count, kn_tap tap,
                        const kn_lm_output *out) {
    size_t ranks = (size_t)kn_rank_count(), *ends = kn_alloc(ranks, sizeof *ends);
    kn_call *calls = kn_alloc(ranks, sizeof *calls);
    knnlm_status status = ends && calls ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK) {
        cut(windows, count, ranks, ends);
        status = run_all(lm, windows, ends, calls, tap, out);
    }
    kn_calls_free(calls, calls ? ranks : 0);
    free(calls);
    free(ends);
    return status;
}

// ---------------------------------------------------------------- a part

static knnlm_status take_windows(kn_message *in, kn_window **out, size_t *count) {
    size_t size;
    *count = (size_t)kn_message_take_number(in);
    if (*count > in->size) in->failed = true;
    KN_TRY(kn_message_read(in));
    *out = kn_alloc(*count + 1, sizeof **out);
    if (!*out) return KNNLM_ENOMEM;
    for (size_t i = 0; i < *count; i++) {
        kn_window *w = &(*out)[i];
        w->length = (int32_t)kn_message_take_number(in);
        w->first = (int32_t)kn_message_take_number(in);
        bool targets = kn_message_take_number(in);
        w->inputs = (const int32_t *)(const void *)kn_message_take_bytes(in, &size);
        if (targets) w->targets = (const int32_t *)(const void *)kn_message_take_bytes(in, &size);
    }
    return kn_message_read(in);
}

// Results are computed where they lie in the answer.
knnlm_status kn_lm_make_results(kn_message *m, const kn_lm *lm, uint64_t bits, size_t rows,
                                kn_lm_output *out) {
    size_t wide = (size_t)lm->info.vocabulary, width = (size_t)lm->info.key_width;
    size_t sizes[] = {bits & 1 ? rows : 0, bits & 2 ? rows : 0, bits & 4 ? rows * wide : 0,
                      bits & 8 ? rows * width : 0};
    float *room = kn_message_room(m, (sizes[0] + sizes[1] + sizes[2] + sizes[3]) * sizeof *room);
    KN_TRY(kn_message_sent(m));
    float **places[] = {&out->logprobs, &out->entropies, &out->distribution, &out->keys};
    for (size_t i = 0; i < 4; i++) {
        *places[i] = sizes[i] ? room : NULL;
        room += sizes[i];
    }
    return KNNLM_OK;
}

static knnlm_status run_run(kn_message *in, kn_message *out, const kn_progress *progress) {
    kn_lm *lm;
    kn_tap tap;
    uint64_t bits;
    kn_window *windows = NULL;
    kn_lm_output results = {0};
    size_t count;
    (void)progress;
    KN_TRY(kn_lm_take_run(in, &lm, &tap, &bits));
    knnlm_status status = take_windows(in, &windows, &count);
    if (status == KNNLM_OK && count)
        status = kn_lm_make_results(out, lm, bits, rows_of(windows, count), &results);
    if (status == KNNLM_OK && count) status = lm->engine->run(lm, windows, count, tap, &results);
    free(windows);
    return status;
}
const kn_service kn_service_lm_run = {"model run", run_run};
