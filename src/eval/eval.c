#include "eval/eval.h"

#include "base/file.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scoring {
    const kn_lm *lm;
    double nll;
    kn_writer *rows; // NULL: not wanted
} scoring;

static knnlm_status write_row(scoring *s, const kn_records *r, size_t i) {
    char line[2048], name[1024], text[512], *piece;
    size_t size;
    KN_TRY(kn_tokenizer_decode(kn_lm_tokenizer(s->lm), &r->tokens[i], 1, &piece, &size));
    kn_utf8_escape(piece, size, text, sizeof text);
    free(piece);
    kn_utf8_escape(r->name, strlen(r->name), name, sizeof name);
    int n = snprintf(line, sizeof line, "%s\t%" PRIu64 "\t%" PRIu64 "\t%d\t%s\t%.7g\n", name, r->position + i,
                     r->offsets[i], r->tokens[i], text, (double)r->logprobs[i]);
    return kn_writer_put(s->rows, line, (size_t)n);
}

static knnlm_status take(void *context, const kn_records *r) {
    scoring *s = context;
    for (size_t i = 0; i < r->count; i++) {
        s->nll -= (double)r->logprobs[i];
        if (s->rows) KN_TRY(write_row(s, r, i));
    }
    return KNNLM_OK;
}

static const char header[] = "document\tposition\toffset\ttoken\ttext\tlogprob\n";

static void summarise(double nll, kn_eval_result *out) {
    const kn_read_totals *t = &out->totals;
    out->nll = nll;
    out->ppl = exp(nll / (double)t->tokens);
    out->ppl_word = t->words ? exp(nll / (double)t->words) : NAN;
    out->bits_per_byte = t->bytes ? nll / log(2.0) / (double)t->bytes : NAN;
    out->seconds = t->seconds;
    out->tokens_per_second = (double)t->tokens / t->seconds;
}

static knnlm_status score(scoring *s, kn_lm *lm, const char *const *paths, size_t count,
                          const kn_read_options *read, const kn_progress *progress, kn_eval_result *out) {
    if (s->rows) KN_TRY(kn_writer_put(s->rows, header, sizeof header - 1));
    KN_TRY(kn_read_texts(lm, paths, count, read, progress, NULL, take, s, &out->totals));
    return out->totals.tokens ? KNNLM_OK : kn_fail(KNNLM_EDATA, "%s: no text to score", paths[0]);
}

knnlm_status kn_eval_run(kn_lm *lm, const char *const *paths, size_t count, const kn_eval_options *options,
                         const kn_progress *progress, kn_eval_result *out) {
    scoring s = {.lm = lm};
    kn_read_options read = options->read;
    *out = (kn_eval_result){0};
    KN_TRY(kn_read_resolve(lm, &read));
    read.logprobs = true;
    out->score = read.score;
    out->context = read.context;
    if (options->per_token) KN_TRY(kn_writer_open(options->per_token, &s.rows));
    knnlm_status status = score(&s, lm, paths, count, &read, progress, out);
    if (s.rows && status == KNNLM_OK)
        status = kn_writer_commit(s.rows);
    else if (s.rows)
        kn_writer_abort(s.rows);
    if (status == KNNLM_OK) summarise(s.nll, out);
    return status;
}
