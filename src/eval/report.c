// Writes the page of an evaluation.
#include "eval/report.h"

#include "base/file.h"
#include "base/utf8.h"
#include "text/vocab.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// web/report.html, by scripts/embed.cmake.
extern const unsigned char kn_report_page[];
extern const size_t kn_report_page_size;

static const char placeholder[] = "@KNNLM_DATA@";

enum { REPLACEMENT = 0xFFFD };

// A character of which not all bytes came yet.
typedef struct partial {
    char bytes[4];
    size_t size;
} partial;

struct kn_report {
    kn_file_writer *writer;
    kn_vocab names;
    uint64_t tokens;
    bool rows;    // something stands in "tokens"
    bool open;    // the last token's text is not closed: it may still get the end of what it began
    partial text; // of the text of tokens
};

// ---------------------------------------------------------------- JSON
// What fails is kept by the writer, and told by the last call of each function of the door.

static knnlm_status put(kn_report *r, const char *text) {
    return kn_file_writer_put(r->writer, text, strlen(text));
}

static bool is_plain(uint32_t c) {
    bool markup = c == '"' || c == '\\' || c == '<' || c == '>' || c == '&';
    bool control = c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029;
    bool nothing = (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF);
    return !markup && !control && !nothing;
}

static void put_character(kn_report *r, uint32_t c) {
    char out[16];
    if (is_plain(c)) {
        kn_file_writer_put(r->writer, out, kn_utf8_encode(c, out));
    } else if (c == '\n') {
        put(r, "\\n");
    } else if (c < 0x10000) {
        snprintf(out, sizeof out, "\\u%04" PRIx32, c);
        put(r, out);
    } else {
        c -= 0x10000;
        snprintf(out, sizeof out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
        put(r, out);
    }
}

// Whether more bytes can make it a character: of those that can follow a first byte, 0x80 or 0xBF always may.
static bool is_begun(const partial *p) {
    static const unsigned char ends[] = {0x80, 0xBF};
    for (size_t length = p->size + 1; length <= sizeof p->bytes; length++) {
        for (size_t i = 0; i < 2; i++) {
            char whole[4];
            uint32_t c;
            memset(whole, ends[i], sizeof whole);
            memcpy(whole, p->bytes, p->size);
            if (kn_utf8_decode(whole, length, &c) == length) return true;
        }
    }
    return false;
}

// Whether `text` can go on with what was begun.
static bool goes_on(partial p, const char *text, size_t size) {
    uint32_t c;
    if (!size) return true;
    p.bytes[p.size++] = *text;
    return kn_utf8_decode(p.bytes, p.size, &c) || is_begun(&p);
}

// The bytes of `text` inside a JSON string. What is left in `p` has not been written.
static void put_bytes(kn_report *r, partial *p, const char *text, size_t size) {
    uint32_t c;
    for (size_t i = 0; i < size; i++) {
        if (p->size && !goes_on(*p, text + i, 1)) {
            put_character(r, REPLACEMENT);
            p->size = 0;
        }
        p->bytes[p->size++] = text[i];
        if (kn_utf8_decode(p->bytes, p->size, &c))
            put_character(r, c);
        else if (is_begun(p))
            continue;
        else
            put_character(r, REPLACEMENT);
        p->size = 0;
    }
}

static void put_broken(kn_report *r, partial *p) {
    if (p->size) put_character(r, REPLACEMENT);
    p->size = 0;
}

static knnlm_status put_string(kn_report *r, const char *text) {
    partial p = {0};
    put(r, "\"");
    if (text) put_bytes(r, &p, text, strlen(text));
    put_broken(r, &p);
    return put(r, "\"");
}

static void put_number(kn_report *r, double value) {
    char out[32];
    if (isnan(value)) {
        put(r, "null");
    } else if (fabs(value) > 1.7976e308) { // the infinities, and what rounding would make one
        put(r, value < 0 ? "\"-inf\"" : "\"inf\"");
    } else {
        snprintf(out, sizeof out, "%.5g", value);
        char *point = strpbrk(out, ",'"); // of a program's locale
        if (point) *point = '.';
        put(r, out);
    }
}

static void put_numbers(kn_report *r, const double *values, size_t count) {
    put(r, "[");
    for (size_t i = 0; i < count; i++) {
        if (i) put(r, ",");
        put_number(r, values[i]);
    }
    put(r, "]");
}

// JavaScript's integers are exact to 2^53.
static void put_count(kn_report *r, uint64_t count) {
    char out[32];
    snprintf(out, sizeof out, "%" PRIu64, count);
    put(r, count <= (UINT64_C(1) << 53) ? out : "null");
}

// ---------------------------------------------------------------- names

static knnlm_status intern(kn_report *r, const char *name, int32_t *number) {
    return kn_vocab_intern(&r->names, name, strlen(name), number);
}

// All that can run out of memory stands before the first byte of a token.
static knnlm_status intern_neighbors(kn_report *r, const kn_report_token *token) {
    int32_t number;
    for (size_t i = 0; i < token->neighbor_count; i++)
        if (token->neighbors[i].document) KN_TRY(intern(r, token->neighbors[i].document, &number));
    return KNNLM_OK;
}

static void put_name(kn_report *r, const char *name) {
    if (name)
        put_count(r, (uint64_t)kn_vocab_find(&r->names, name, strlen(name)));
    else
        put(r, "null");
}

// ---------------------------------------------------------------- tokens

// Its strings follow each other: a character that begins in one may end in the next.
static void put_snippet(kn_report *r, const kn_report_neighbor *n) {
    const char *pieces[] = {n->before, n->word, n->after};
    partial p = {0};
    for (size_t i = 0; i < 3; i++) {
        const char *text = pieces[i] ? pieces[i] : "";
        for (size_t cut = 0; i == 0 && cut < 3 && (*text & 0xC0) == 0x80; cut++) text++;
        put(r, "\"");
        put_bytes(r, &p, text, strlen(text));
        put(r, "\",");
    }
}

static void put_neighbor(kn_report *r, const kn_report_neighbor *n) {
    put(r, "[");
    put_snippet(r, n);
    put_name(r, n->document);
    put(r, ",");
    put_count(r, n->position);
    put(r, ",");
    put_number(r, n->share);
    put(r, ",");
    put_number(r, n->distance);
    put(r, n->hit ? ",1]" : ",0]");
}

// `next` is the text that follows in the document, NULL when none does.
static void close_token(kn_report *r, const kn_report_token *next) {
    if (!r->open) return;
    if (r->text.size && !(next && goes_on(r->text, next->text, next->size))) put_broken(r, &r->text);
    put(r, "\"]");
    r->open = false;
}

static void begin_row(kn_report *r) {
    put(r, r->rows ? ",\n" : "\n");
    r->rows = true;
}

knnlm_status kn_report_document(kn_report *r, const char *name) {
    int32_t number;
    if (!name) name = "";
    KN_TRY(intern(r, name, &number));
    close_token(r, NULL);
    begin_row(r);
    put_name(r, name);
    return put(r, "");
}

knnlm_status kn_report_add(kn_report *r, const kn_report_token *t) {
    const double numbers[] = {t->lm, t->knn, t->cache, t->mixed, t->lambda, t->nearest, t->entropy};
    KN_TRY(intern_neighbors(r, t));
    close_token(r, t);
    begin_row(r);
    put(r, "[");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        put_number(r, numbers[i]);
        put(r, ",");
    }
    put(r, "[");
    for (size_t i = 0; i < t->neighbor_count; i++) {
        if (i) put(r, ",");
        put_neighbor(r, &t->neighbors[i]);
    }
    put(r, "],\"");
    put_bytes(r, &r->text, t->text, t->size);
    r->open = true;
    r->tokens++;
    return put(r, "");
}

uint64_t kn_report_tokens(const kn_report *r) {
    return r->tokens;
}

// ---------------------------------------------------------------- the page

static const char *page_data(void) {
    return memmem(kn_report_page, kn_report_page_size, placeholder, sizeof placeholder - 1);
}

static void report_free(kn_report *r) {
    kn_vocab_free(&r->names);
    free(r);
}

knnlm_status kn_report_open(const char *path, kn_report **out) {
    kn_report *r = kn_alloc(1, sizeof *r);
    if (!r) return KNNLM_ENOMEM;
    knnlm_status status = kn_file_writer_open(path, &r->writer);
    if (status != KNNLM_OK) {
        report_free(r);
        return status;
    }
    const char *page = (const char *)kn_report_page;
    kn_file_writer_put(r->writer, page, (size_t)(page_data() - page));
    put(r, "{\"tokens\":[");
    *out = r;
    return KNNLM_OK;
}

static void put_names(kn_report *r) {
    put(r, "\"names\":[");
    for (int32_t i = 0; i < kn_vocab_count(&r->names); i++) {
        if (i) put(r, ",\n");
        put_string(r, kn_strings_at(&r->names.strings, (size_t)i));
    }
    put(r, "]");
}

static void put_rows(kn_report *r, const kn_report_summary *s) {
    put(r, "\"rows\":[");
    for (size_t i = 0; i < s->row_count; i++) {
        put(r, i ? ",\n[" : "[");
        put_string(r, s->rows[i].label);
        put(r, ",");
        put_string(r, s->rows[i].value);
        put(r, "]");
    }
    put(r, "]");
}

static void put_curve(kn_report *r, const kn_report_curve *c) {
    put(r, "{\"title\":");
    put_string(r, c->title);
    put(r, ",\"x_label\":");
    put_string(r, c->x_label);
    put(r, ",\"y_label\":");
    put_string(r, c->y_label);
    put(r, c->log_x ? ",\"log_x\":true,\"marked_x\":" : ",\"log_x\":false,\"marked_x\":");
    put_number(r, c->marked_x);
    put(r, ",\"x\":");
    put_numbers(r, c->x, c->count);
    put(r, ",\"y\":");
    put_numbers(r, c->y, c->count);
    put(r, "}");
}

static void put_summary(kn_report *r, const kn_report_summary *s) {
    put(r, "\"title\":");
    put_string(r, s->title);
    put(r, ",\n");
    put_rows(r, s);
    put(r, ",\n\"curves\":[");
    for (size_t i = 0; i < s->curve_count; i++) {
        if (i) put(r, ",\n");
        put_curve(r, &s->curves[i]);
    }
    put(r, "],\n\"scored\":");
    put_count(r, s->tokens_scored);
}

knnlm_status kn_report_commit(kn_report *r, const kn_report_summary *summary) {
    close_token(r, NULL);
    put(r, "\n],\n");
    put_names(r);
    put(r, ",\n");
    put_summary(r, summary);
    put(r, "}");
    const char *rest = page_data() + sizeof placeholder - 1, *page = (const char *)kn_report_page;
    kn_file_writer_put(r->writer, rest, kn_report_page_size - (size_t)(rest - page));
    knnlm_status status = kn_file_writer_commit(r->writer);
    report_free(r);
    return status;
}

void kn_report_abort(kn_report *r) {
    if (!r) return;
    kn_file_writer_abort(r->writer);
    report_free(r);
}
