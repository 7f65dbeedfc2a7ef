// Shows a generated text as it comes, with its sources.
#include "cli/generate_show.h"

#include "cli/store.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---------------------------------------------------------------- text as it comes

static void put(cli_stream *s, const char *text, size_t size) {
    fwrite(text, 1, size, stdout);
    if (size) s->last = text[size - 1];
}

static void close_mark(cli_stream *s) {
    if (s->open) printf(s->colors ? "\033[24m[%zu]" : "][%zu]", s->open);
    s->open = 0;
}

static void open_mark(cli_stream *s, size_t source) {
    if (source) fputs(s->colors ? "\033[4m" : "[", stdout);
    s->open = source;
}

void cli_stream_begin(cli_stream *s, const char *prompt, size_t size, bool sources) {
    *s = (cli_stream){.sources = sources, .colors = cli_colors(STDOUT_FILENO)};
    put(s, prompt, size);
    fflush(stdout);
}

// The space before a word is not part of what is marked.
static void print_token(cli_stream *s, const knnlm_text_token *t, const char *text) {
    size_t space = 0, source = s->sources ? t->source : 0;
    if (source != s->open) {
        close_mark(s);
        while (space < t->size && strchr(" \t\r\n", text[space])) space++;
        put(s, text, space);
        open_mark(s, source);
    }
    put(s, text + space, t->size - space);
}

void cli_stream_more(cli_stream *s, const knnlm_text *text) {
    size_t size;
    const char *words = knnlm_text_read(text, &size);
    knnlm_text_token t;
    for (; s->tokens < knnlm_text_tokens(text); s->tokens++)
        if (knnlm_text_token_at(text, s->tokens, &t) == KNNLM_OK) print_token(s, &t, words + t.offset);
    fflush(stdout);
}

// ---------------------------------------------------------------- footnotes

enum { BEFORE = 60, TAKEN = 160, AFTER = 40 }; // bytes of a passage on its line

static const char *or_empty(const char *text) {
    return text ? text : "";
}

static void print_source(const knnlm_text_source *x, size_t number) {
    char *name = cli_line(x->document, x->document_size, 200, true),
         *before = cli_line(x->before, x->before_size, BEFORE, true),
         *text = cli_line(x->text, x->text_size, TAKEN, false),
         *after = cli_line(x->after, x->after_size, AFTER, false);
    printf("[%zu] %s, token %" PRIu64 ": %zu token%s, %.0f%%\n    %s[%s]%s\n", number, or_empty(name),
           x->position, x->tokens, x->tokens == 1 ? "" : "s", 100 * x->share, or_empty(before),
           or_empty(text), or_empty(after));
    free(name);
    free(before);
    free(text);
    free(after);
}

void cli_stream_end(cli_stream *s, const knnlm_text *text) {
    knnlm_text_source x;
    bool marked = s->open;
    close_mark(s);
    if (marked || s->last != '\n') printf("\n");
    if (!s->sources) return;
    for (size_t i = 1; i <= knnlm_text_sources(text); i++) {
        if (i == 1) printf("\n");
        if (knnlm_text_source_at(text, i, &x) == KNNLM_OK) print_source(&x, i);
    }
}

// ---------------------------------------------------------------- JSON

static json_t *json_generated(const knnlm_text_token *t, const char *words) {
    json_t *source = t->source ? json_integer((json_int_t)t->source) : json_null();
    return json_pack("{s:i, s:o, s:I, s:o?, s:f, s:f, s:o?, s:f, s:o?, s:o?, s:o}", "token", t->token, "text",
                     cli_json_text(words + t->offset, t->size), "offset", (json_int_t)t->offset, "logprob",
                     json_real(t->p), "p", exp(t->p), "p_lm", exp(t->lm), "p_knn", json_real(exp(t->knn)),
                     "lambda", t->lambda, "nearest", json_real(t->nearest), "entropy", json_real(t->entropy),
                     "source", source);
}

json_t *cli_json_generated(const knnlm_text *text) {
    size_t size;
    const char *words = knnlm_text_read(text, &size);
    json_t *list = json_array();
    knnlm_text_token t;
    for (size_t i = 0; i < knnlm_text_tokens(text); i++)
        cli_json_append(list,
                        knnlm_text_token_at(text, i, &t) == KNNLM_OK ? json_generated(&t, words) : NULL);
    return list;
}

static json_t *json_source(const knnlm_text_source *x, size_t number) {
    return json_pack("{s:I, s:o?, s:I, s:o, s:I, s:I, s:o, s:o, s:o, s:f, s:I, s:I}", "number",
                     (json_int_t)number, "store", json_string(x->store), "entry", (json_int_t)x->entry,
                     "document", cli_json_name(x->document, x->document_size), "position",
                     (json_int_t)x->position, "offset", (json_int_t)x->offset, "before",
                     cli_json_text(x->before, x->before_size), "text", cli_json_text(x->text, x->text_size),
                     "after", cli_json_text(x->after, x->after_size), "share", x->share, "first",
                     (json_int_t)x->first, "tokens", (json_int_t)x->tokens);
}

json_t *cli_json_sources(const knnlm_text *text) {
    json_t *list = json_array();
    knnlm_text_source x;
    for (size_t i = 1; i <= knnlm_text_sources(text); i++)
        cli_json_append(list, knnlm_text_source_at(text, i, &x) == KNNLM_OK ? json_source(&x, i) : NULL);
    return list;
}
