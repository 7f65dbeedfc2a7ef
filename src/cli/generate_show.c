// Shows a generated text as it comes, with its sources.
#include "cli/generate_show.h"

#include "base/memory.h"
#include "base/words.h"
#include "cli/store.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---------------------------------------------------------------- text as it comes

// A terminal does what bytes say: of control characters it gets line ends and tabs alone. Other bytes pass as
// they are: a token may be part of a character.
static void put_shown(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < size ? (unsigned char)text[i + 1] : 0;
        bool harmful = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        if (c == 0xc2 && next >= 0x80 && next < 0xa0) // U+0080 to U+009F
            printf("\\xc2\\x%02x", (unsigned char)text[++i]);
        else if (harmful)
            printf("\\x%02x", c);
        else
            fputc(c, stdout);
    }
}

static void put(cli_stream *s, const char *text, size_t size) {
    if (s->terminal)
        put_shown(text, size);
    else
        fwrite(text, 1, size, stdout);
    if (size) s->last = text[size - 1];
}

// A lone word is dimmed on a terminal, and not marked elsewhere.
static void close_mark(cli_stream *s) {
    if (s->open && s->footnote) printf(s->colors ? "\033[24m[%zu]" : "][%zu]", s->footnote);
    if (s->open && !s->footnote && s->colors) fputs("\033[22m", stdout);
    s->open = 0;
}

static void open_mark(cli_stream *s, size_t source, size_t footnote) {
    if (source && footnote) fputs(s->colors ? "\033[4m" : "[", stdout);
    if (source && !footnote && s->colors) fputs("\033[2m", stdout);
    s->open = source;
    s->footnote = footnote;
}

void cli_stream_begin(cli_stream *s, const char *prompt, size_t size, bool sources) {
    *s = (cli_stream){
        .sources = sources, .colors = cli_colors(STDOUT_FILENO), .terminal = isatty(STDOUT_FILENO) == 1};
    put(s, prompt, size);
    fflush(stdout);
}

// The space before a word is not part of what is marked.
static void print_token(cli_stream *s, const knnlm_text *text, const knnlm_text_token *t, const char *word) {
    size_t space = 0, source = s->sources ? t->source : 0;
    knnlm_text_source x = {0};
    if (source != s->open) {
        close_mark(s);
        while (space < t->size && strchr(" \t\r\n", word[space])) space++;
        put(s, word, space);
        if (source && knnlm_text_source_at(text, source, &x) != KNNLM_OK) source = 0;
        open_mark(s, source, x.footnote);
    }
    put(s, word + space, t->size - space);
}

void cli_stream_more(cli_stream *s, const knnlm_text *text) {
    size_t size;
    const char *words = knnlm_text_read(text, &size);
    knnlm_text_token t;
    for (; s->tokens < knnlm_text_tokens(text); s->tokens++)
        if (knnlm_text_token_at(text, s->tokens, &t) == KNNLM_OK) print_token(s, text, &t, words + t.offset);
    fflush(stdout);
}

// ---------------------------------------------------------------- footnotes

enum { BEFORE = 60, TAKEN = 160, HEAD = 100, TAIL = 50, AFTER = 40 }; // characters of a passage on its line

static bool begins_character(char byte) {
    return ((unsigned char)byte & 0xc0) != 0x80;
}

// Bytes of the words that `max` characters hold.
static size_t first_words(const char *text, size_t size, size_t max) {
    size_t at = 0, count = 0;
    while (at < size && (!begins_character(text[at]) || ++count <= max)) at++;
    if (at == size) return size;
    at = kn_word_border_before(text, size, at);
    while (at > 0 && text[at - 1] == ' ') at--;
    return at;
}

// Where the words begin that the last `max` characters hold.
static size_t last_words(const char *text, size_t size, size_t max) {
    size_t count = 0;
    for (size_t at = size; at-- > 0;)
        if (begins_character(text[at]) && ++count == max)
            return at ? kn_word_border_after(text, size, at) : 0;
    return 0;
}

static void put_line(const char *text, size_t size) {
    char *line = cli_line(text, size, SIZE_MAX, false);
    fputs(line ? line : "", stdout);
    free(line);
}

// In brackets, but for the space before it; the middle of a long one is left out.
static void put_taken(const char *text, size_t size) {
    size_t space = 0, head = first_words(text, size, TAKEN);
    while (space < size && strchr(" \t\r\n", text[space])) space++;
    put_line(text, space);
    printf("[");
    if (head < size) head = kn_max(first_words(text, size, HEAD), space);
    put_line(text + space, head - space);
    if (head < size) {
        size_t tail = kn_max(last_words(text, size, TAIL), head);
        printf(" …");
        put_line(text + tail, size - tail);
    }
    printf("]");
}

static void print_source(const knnlm_text_source *x) {
    size_t from = last_words(x->before, x->before_size, BEFORE),
           to = first_words(x->after, x->after_size, AFTER);
    printf("[%zu] ", x->footnote);
    cli_put_text(stdout, x->document, x->document_size);
    printf(", token %" PRIu64 ": %zu token%s", x->position, x->tokens, x->tokens == 1 ? "" : "s");
    if (x->differ) printf(" (%zu of them other ones)", x->differ);
    printf(", %.0f%%\n    %s", 100 * x->share, from || !x->begins ? "…" : "");
    put_line(x->before + from, x->before_size - from);
    put_taken(x->text, x->text_size);
    bool more = to < x->after_size || !x->ends;
    while (more && to > 0 && x->after[to - 1] == ' ') to--;
    put_line(x->after, to);
    printf("%s\n", more ? " …" : "");
}

void cli_stream_end(cli_stream *s, const knnlm_text *text) {
    knnlm_text_source x;
    bool marked = s->open && s->footnote;
    close_mark(s);
    if (marked || s->last != '\n') printf("\n");
    for (size_t i = 1; s->sources && i <= knnlm_text_sources(text); i++) {
        if (knnlm_text_source_at(text, i, &x) != KNNLM_OK || !x.footnote) continue;
        if (x.footnote == 1) printf("\n");
        print_source(&x);
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
    json_t *footnote = x->footnote ? json_integer((json_int_t)x->footnote) : json_null();
    return json_pack("{s:I, s:o, s:o?, s:I, s:o, s:I, s:I, s:o, s:o, s:o, s:b, s:b, s:f, s:I, s:I, s:I, s:I}",
                     "number", (json_int_t)number, "footnote", footnote, "store", json_string(x->store),
                     "entry", (json_int_t)x->entry, "document", cli_json_name(x->document, x->document_size),
                     "position", (json_int_t)x->position, "offset", (json_int_t)x->offset, "before",
                     cli_json_text(x->before, x->before_size), "text", cli_json_text(x->text, x->text_size),
                     "after", cli_json_text(x->after, x->after_size), "begins", x->begins, "ends", x->ends,
                     "share", x->share, "first", (json_int_t)x->first, "tokens", (json_int_t)x->tokens,
                     "differ", (json_int_t)x->differ, "length", (json_int_t)x->length);
}

json_t *cli_json_sources(const knnlm_text *text) {
    json_t *list = json_array();
    knnlm_text_source x;
    for (size_t i = 1; i <= knnlm_text_sources(text); i++)
        cli_json_append(list, knnlm_text_source_at(text, i, &x) == KNNLM_OK ? json_source(&x, i) : NULL);
    return list;
}
