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
    const char *no_color = getenv("NO_COLOR");
    *s = (cli_stream){.sources = sources, .colors = isatty(STDOUT_FILENO) && !(no_color && *no_color)};
    put(s, prompt, size);
    fflush(stdout);
}

// The space before a word is not part of what is marked.
static void print_token(cli_stream *s, const kn_generated *t, const char *text) {
    size_t space = 0, source = s->sources ? t->source : 0;
    if (source != s->open) {
        close_mark(s);
        while (space < t->size && strchr(" \t\r\n", text[space])) space++;
        put(s, text, space);
        open_mark(s, source);
    }
    put(s, text + space, t->size - space);
}

void cli_stream_more(cli_stream *s, const kn_sequence *sequence) {
    size_t count, size;
    const kn_generated *tokens = kn_sequence_tokens(sequence, &count);
    const char *text = kn_sequence_text(sequence, &size);
    for (; s->tokens < count; s->tokens++)
        print_token(s, &tokens[s->tokens], text + tokens[s->tokens].offset);
    fflush(stdout);
}

// ---------------------------------------------------------------- footnotes

enum { BEFORE = 60, TAKEN = 160, AFTER = 40 }; // bytes of a passage on its line

static const char *or_empty(const char *text) {
    return text ? text : "";
}

static void print_source(const kn_source *x, size_t number) {
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

void cli_stream_end(cli_stream *s, const kn_sequence *sequence) {
    size_t count;
    const kn_source *sources = kn_sequence_sources(sequence, &count);
    bool marked = s->open;
    close_mark(s);
    if (marked || s->last != '\n') printf("\n");
    if (s->sources && count) printf("\n");
    for (size_t i = 0; s->sources && i < count; i++) print_source(&sources[i], i + 1);
}

// ---------------------------------------------------------------- JSON

json_t *cli_json_generated(const kn_sequence *sequence) {
    size_t count, size;
    const kn_generated *tokens = kn_sequence_tokens(sequence, &count);
    const char *text = kn_sequence_text(sequence, &size);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const kn_generated *t = &tokens[i];
        json_t *source = t->source ? json_integer((json_int_t)t->source) : json_null();
        cli_json_append(list,
                        json_pack("{s:i, s:o, s:I, s:o?, s:f, s:f, s:o?, s:f, s:o?, s:o?, s:o}", "token",
                                  t->token, "text", cli_json_text(text + t->offset, t->size), "offset",
                                  (json_int_t)t->offset, "logprob", json_real(t->p), "p", exp(t->p), "p_lm",
                                  exp(t->lm), "p_knn", json_real(exp(t->knn)), "lambda", t->lambda, "nearest",
                                  json_real(t->nearest), "entropy", json_real(t->entropy), "source", source));
    }
    return list;
}

json_t *cli_json_sources(const kn_sequence *sequence) {
    size_t count;
    const kn_source *sources = kn_sequence_sources(sequence, &count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const kn_source *x = &sources[i];
        cli_json_append(list, json_pack("{s:I, s:o?, s:I, s:o, s:I, s:I, s:o, s:o, s:o, s:f, s:I, s:I}",
                                        "number", (json_int_t)(i + 1), "store", json_string(x->store_path),
                                        "entry", (json_int_t)x->entry, "document",
                                        cli_json_name(x->document, x->document_size), "position",
                                        (json_int_t)x->position, "offset", (json_int_t)x->offset, "before",
                                        cli_json_text(x->before, x->before_size), "text",
                                        cli_json_text(x->text, x->text_size), "after",
                                        cli_json_text(x->after, x->after_size), "share", x->share, "first",
                                        (json_int_t)x->first, "tokens", (json_int_t)x->tokens));
    }
    return list;
}
