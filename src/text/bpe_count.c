// Counts pre-tokens of a training text on all threads.
#include "text/bpe_count.h"

#include "base/threads.h"
#include "base/utf8.h"
#include "text/split.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 2 << 20, CHUNKS_A_REPORT = 16 };

typedef struct counter { // a worker's
    kn_splitter *splitter;
    kn_counts counts;
    knnlm_status status;
    char message[256];
} counter;

typedef struct counting {
    const char *text;
    const size_t *cuts; // chunk i is [cuts[i], cuts[i + 1])
    size_t first;
    counter *counters;
} counting;

static knnlm_status count_utf8(counter *c, const char *text, size_t size) {
    for (size_t from = 0, to; from < size; from = to) {
        KN_TRY(kn_splitter_next(c->splitter, text, size, from, &to));
        KN_TRY(kn_counts_add(&c->counts, text + from, to - from, 1));
    }
    return KNNLM_OK;
}

static knnlm_status count_bytes(counter *c, const char *text, size_t size) {
    if (!c->splitter) KN_TRY(kn_splitter_open(&c->splitter));
    for (size_t at = 0; at < size; at++) {
        size_t valid = kn_utf8_valid(text + at, size - at);
        KN_TRY(count_utf8(c, text + at, valid));
        at += valid;
    }
    return KNNLM_OK;
}

static void count_chunk(void *context, size_t task, int worker) {
    counting *all = context;
    counter *c = &all->counters[worker];
    size_t chunk = all->first + task;
    if (c->status != KNNLM_OK) return;
    c->status = count_bytes(c, all->text + all->cuts[chunk], all->cuts[chunk + 1] - all->cuts[chunk]);
    if (c->status != KNNLM_OK) strncpy(c->message, knnlm_message(), sizeof c->message - 1);
}

// A line's end after a visible ASCII character always begins a pre-token, and what is before it is split the
// same without it: a place to cut.
static size_t next_cut(const char *text, size_t size, size_t at) {
    while (at < size) {
        const char *end = memchr(text + at, '\n', size - at);
        if (!end) break;
        at = (size_t)(end - text);
        if (at > 0 && text[at - 1] > ' ' && text[at - 1] < 0x7F) return at;
        at++;
    }
    return size;
}

static knnlm_status make_cuts(const char *text, size_t size, size_t **cuts, size_t *chunks) {
    *cuts = kn_alloc(size / CHUNK + 2, sizeof **cuts);
    if (!*cuts) return KNNLM_ENOMEM;
    *chunks = 0;
    for (size_t at = 0; at < size;) {
        (*cuts)[(*chunks)++] = at;
        at = size - at > CHUNK ? next_cut(text, size, at + CHUNK) : size;
    }
    (*cuts)[*chunks] = size;
    return KNNLM_OK;
}

static knnlm_status count_chunks(counting *all, size_t chunks, int workers, const kn_progress *progress) {
    for (; all->first < chunks; all->first += CHUNKS_A_REPORT) {
        size_t left = chunks - all->first, tasks = left < CHUNKS_A_REPORT ? left : CHUNKS_A_REPORT;
        if (!kn_progress_report(progress, "counting words", all->cuts[all->first], all->cuts[chunks],
                                "bytes"))
            return kn_fail(KNNLM_ESTOPPED, "stopped while counting words");
        kn_parallel(tasks, count_chunk, all);
        for (int i = 0; i < workers; i++)
            if (all->counters[i].status != KNNLM_OK)
                return kn_fail(all->counters[i].status, "%s", all->counters[i].message);
    }
    kn_progress_report(progress, "counting words", all->cuts[chunks], all->cuts[chunks], "bytes");
    return KNNLM_OK;
}

static knnlm_status add_counts(kn_counts *to, const kn_counts *from) {
    const kn_strings *words = &from->words.strings;
    for (size_t i = 0; i < words->count; i++)
        KN_TRY(kn_counts_add(to, kn_strings_at(words, i), kn_strings_size(words, i), from->counts[i]));
    return KNNLM_OK;
}

// The first worker's counts become everybody's.
static knnlm_status gather(counter *counters, int workers, kn_counts *out) {
    *out = counters[0].counts;
    counters[0].counts = (kn_counts){0};
    for (int i = 1; i < workers; i++) {
        KN_TRY(add_counts(out, &counters[i].counts));
        kn_counts_free(&counters[i].counts);
    }
    return KNNLM_OK;
}

knnlm_status kn_bpe_count(const char *text, size_t size, const kn_progress *progress, kn_counts *out) {
    int workers = kn_threads();
    size_t *cuts = NULL, chunks;
    counter *counters = kn_alloc((size_t)workers, sizeof *counters);
    knnlm_status status = counters ? make_cuts(text, size, &cuts, &chunks) : KNNLM_ENOMEM;
    counting all = {.text = text, .cuts = cuts, .counters = counters};
    if (status == KNNLM_OK) status = count_chunks(&all, chunks, workers, progress);
    if (status == KNNLM_OK) status = gather(counters, workers, out);
    for (int i = 0; counters && i < workers; i++) {
        kn_splitter_close(counters[i].splitter);
        kn_counts_free(&counters[i].counts);
    }
    free(counters);
    free(cuts);
    return status;
}
