// One row of text per token.
#include "eval/rows.h"

#include "base/file.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kn_rows {
    kn_file_writer *file;
    const kn_tokenizer *tokenizer;
    const kn_mixture *m;
};

static const char alone[] = "document\tposition\toffset\ttoken\ttext\tlogprob",
                  mixed_in[] =
                      "document\tposition\toffset\ttoken\ttext\tlogprob_lm\tlogprob_knn\tlogprob_cache\t"
                      "logprob\tlambda\tnearest\tentropy",
                  with_ngram[] = "\tlogprob_ngram\tlogprob_mixed";

knnlm_status kn_rows_open(const char *path, const kn_lm *lm, const kn_mixture *m, bool ngram, kn_rows **out) {
    kn_rows *r = kn_alloc(1, sizeof *r);
    if (!r) return KNNLM_ENOMEM;
    r->tokenizer = kn_lm_tokenizer(lm);
    r->m = m;
    knnlm_status status = kn_file_writer_open(path, &r->file);
    if (status != KNNLM_OK) {
        free(r);
        return status;
    }
    *out = r;
    const char *header = kn_mixture_describe(m)->any ? mixed_in : alone;
    kn_file_writer_put(r->file, header, strlen(header)); // failures are told by the commit
    if (ngram) kn_file_writer_put(r->file, with_ngram, strlen(with_ngram));
    kn_file_writer_put(r->file, "\n", 1);
    return KNNLM_OK;
}

knnlm_status kn_rows_close(kn_rows *r, knnlm_status status) {
    if (status == KNNLM_OK)
        status = kn_file_writer_commit(r->file);
    else
        kn_file_writer_abort(r->file);
    free(r);
    return status;
}

// A number, or nothing where there is none.
static void put_number(kn_rows *r, double x) {
    char text[40];
    int n = isnan(x) ? snprintf(text, sizeof text, "\t") : snprintf(text, sizeof text, "\t%.9g", x);
    kn_file_writer_put(r->file, text, (size_t)n);
}

static void put_prediction(kn_rows *r, const kn_scored *b, size_t i) {
    const kn_prediction *p = &b->predictions[i];
    kn_row_neighbors found[KN_STORES_MAX];
    kn_predictor_neighbors(b->neighbors, i, found);
    put_number(r, kn_prediction_knn(r->m, p));
    put_number(r, b->cache ? b->cache[i] : NAN);
    put_number(r, p->p);
    put_number(r, kn_prediction_lambda(r->m, p));
    put_number(r, kn_nearest(r->m, found));
    put_number(r, (double)b->entropies[i]);
}

static void put_ngram(kn_rows *r, const kn_scored *b, const kn_eval_ngram *ngram, size_t i) {
    put_number(r, kn_eval_ngram_logprob(ngram, i));
    put_number(r, kn_eval_ngram_mix(ngram, i, b->predictions[i].p));
}

knnlm_status kn_rows_put(kn_rows *r, const kn_scored *b, const kn_eval_ngram *ngram) {
    for (size_t i = 0; i < b->count; i++) {
        const kn_scored_token *t = &b->tokens[i];
        char line[2048], name[1024], text[512], *piece;
        size_t size;
        KN_TRY(kn_tokenizer_decode(r->tokenizer, &t->token, 1, &piece, &size));
        kn_utf8_escape(piece, size, text, sizeof text);
        free(piece);
        kn_utf8_escape(b->names[t->document], strlen(b->names[t->document]), name, sizeof name);
        int n = snprintf(line, sizeof line, "%s\t%" PRIu64 "\t%" PRIu64 "\t%d\t%s", name, t->position,
                         t->offset, t->token, text);
        KN_TRY(kn_file_writer_put(r->file, line, (size_t)n));
        put_number(r, (double)b->lm[i]);
        if (kn_mixture_describe(r->m)->any) put_prediction(r, b, i);
        if (ngram) put_ngram(r, b, ngram, i);
        KN_TRY(kn_file_writer_put(r->file, "\n", 1));
    }
    return KNNLM_OK;
}
