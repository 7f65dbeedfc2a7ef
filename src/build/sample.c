// Takes pieces of the texts at even steps over their bytes.
#include "build/sample.h"

#include "base/memory.h"

#include <string.h>

// A piece may begin and end in the middle of a word, not of a character.
static size_t whole_characters(const char *text, size_t at) {
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    return at;
}

static knnlm_status take_piece(const kn_document *d, size_t at, size_t size, kn_sample_sink *sink,
                               void *context) {
    size_t from = whole_characters(d->text, d->size - at > size ? at : d->size > size ? d->size - size : 0);
    size_t to = d->size - from > size ? whole_characters(d->text, from + size) : d->size;
    return sink(context, d, d->text + from, to - from);
}

static bool is_enough(const kn_sample_plan *p, const kn_sample_totals *t, double start) {
    return (p->max && t->bytes >= p->max) || (p->seconds > 0 && kn_seconds() - start > p->seconds);
}

// Every `step` bytes of the files as they are on disk, a piece is taken of the document that lies there. A
// document longer than that gives several.
static knnlm_status sample(kn_documents *source, const kn_sample_plan *p, kn_sample_sink *sink, void *context,
                           kn_sample_totals *t) {
    uint64_t total = kn_documents_total(source), before = 0;
    uint64_t seen = p->max && p->max < total ? p->max : total, step = seen / p->pieces + 1, mark = step / 2;
    double start = kn_seconds();
    size_t taken = 0;
    t->disk_total = total;
    while (!is_enough(p, t, start)) {
        kn_document d;
        bool found;
        KN_TRY(kn_documents_next(source, &d, &found));
        t->disk_read = kn_documents_done(source);
        if (!found) break;
        t->documents++;
        t->bytes += d.size;
        if (d.size > t->largest) t->largest = d.size;
        for (; total && mark < t->disk_read && taken < p->pieces; mark += step, taken++) {
            double part = (double)(mark - before) / (double)(t->disk_read - before);
            KN_TRY(take_piece(&d, (size_t)(part * (double)d.size), p->size, sink, context));
        }
        before = t->disk_read;
    }
    return KNNLM_OK;
}

knnlm_status kn_sample_texts(const char *const *paths, size_t count, const kn_text_options *options,
                             const kn_sample_plan *plan, kn_sample_sink *sink, void *context,
                             kn_sample_totals *out) {
    kn_documents *source;
    kn_text_options silent = *options;
    silent.skipped = NULL;
    *out = (kn_sample_totals){0};
    KN_TRY(kn_documents_open(paths, count, &silent, &source));
    knnlm_status status = sample(source, plan, sink, context, out);
    kn_documents_close(source);
    return status;
}
