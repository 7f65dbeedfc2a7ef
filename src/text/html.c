// Makes plain text of HTML: libxml2 reads the tags, and what they mean for lines is decided here.
#include "text/html.h"

#include <libxml/HTMLparser.h>
#include <libxml/parserInternals.h>
#include <string.h>

// What stands between two words; the strongest that was met counts.
typedef enum gap { NO_GAP, SPACE, CELL, LINE, PARAGRAPH } gap;

typedef enum tag_kind {
    BLOCK,  // on lines of its own
    APART,  // with empty lines around
    HIDDEN, // with all that is in it
    HEAD,   // hidden, but for the title
    TITLE,
    LIST,
    ITEM,
    PRE,
    BREAK,
    TABLE_CELL,
} tag_kind;

typedef struct tag {
    const char *name;
    tag_kind kind;
} tag;

// clang-format off
static const tag tags[] = {
    {"address", BLOCK}, {"article", APART}, {"aside", APART}, {"blockquote", APART}, {"body", APART}, {"br", BREAK},
    {"canvas", HIDDEN}, {"caption", BLOCK}, {"dd", BLOCK}, {"details", APART}, {"dialog", BLOCK}, {"div", BLOCK}, {"dl", APART},
    {"dt", BLOCK}, {"fieldset", APART}, {"figcaption", BLOCK}, {"figure", APART}, {"footer", APART}, {"form", APART},
    {"h1", APART}, {"h2", APART}, {"h3", APART}, {"h4", APART}, {"h5", APART}, {"h6", APART}, {"head", HEAD},
    {"header", APART}, {"hr", APART}, {"iframe", HIDDEN}, {"legend", BLOCK}, {"li", ITEM}, {"main", APART}, {"menu", LIST},
    {"nav", HIDDEN}, {"noscript", HIDDEN}, {"object", HIDDEN}, {"ol", LIST}, {"option", BLOCK}, {"p", APART}, {"pre", PRE},
    {"script", HIDDEN}, {"section", APART}, {"style", HIDDEN}, {"summary", BLOCK}, {"svg", HIDDEN}, {"table", APART},
    {"td", TABLE_CELL}, {"template", HIDDEN}, {"textarea", PRE}, {"th", TABLE_CELL}, {"title", TITLE}, {"tr", BLOCK},
    {"ul", LIST},
};
// clang-format on

enum {
    INDENT_MAX = 16, // lists in lists that are seen as such
    DEPTH_MAX = 2048 // of tags in tags: every end of a tag that never began makes libxml2 look at them all
};

typedef struct page {
    kn_buffer *out;
    size_t began; // of the page in `out`
    gap gap;
    bool want_title, fresh_pre;
    size_t hidden, head, title, pre, lists; // how many of them are open
    bool item;                              // a list item has begun, and has no text yet
    htmlParserCtxtPtr parser;
    knnlm_status status;
} page;

static const tag *find_tag(const char *name) {
    size_t low = 0, high = sizeof tags / sizeof *tags;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcasecmp(name, tags[middle].name);
        if (order == 0) return &tags[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

// ---- writing

static void put(page *p, const char *text, size_t size) {
    if (p->status == KNNLM_OK) p->status = kn_buffer_put(p->out, text, size);
}

static void want(page *p, gap gap) {
    if (gap > p->gap) p->gap = gap;
}

// What was wanted between the words, before the next word; nothing at the beginning of the page.
static void put_gap(page *p) {
    static const char *const gaps[] = {"", " ", "\t", "\n", "\n\n"};
    if (p->out->size > p->began) put(p, gaps[p->gap], strlen(gaps[p->gap]));
    p->gap = NO_GAP;
    if (!p->item) return;
    for (size_t i = 1; i < p->lists && i < INDENT_MAX; i++) put(p, "  ", 2);
    put(p, "- ", 2);
    p->item = false;
}

// White space of a character, 0: it is none. A no-break space is one, and a soft hyphen is nothing at all.
static size_t space_size(const char *text, size_t size) {
    if (strchr(" \t\r\n\f", *text) && *text) return 1;
    return size > 1 && text[0] == '\xC2' && (text[1] == '\xA0' || text[1] == '\xAD') ? 2 : 0;
}

static void put_words(page *p, const char *text, size_t size) {
    for (size_t at = 0, n; at < size;) {
        if ((n = space_size(text + at, size - at))) {
            if (!(n == 2 && text[at + 1] == '\xAD')) want(p, SPACE);
            at += n;
            continue;
        }
        size_t end = at + 1;
        while (end < size && !space_size(text + end, size - end)) end++;
        put_gap(p);
        put(p, text + at, end - at);
        at = end;
    }
}

// As it is; the end of the line on which the tag stands does not count.
static void put_pre(page *p, const char *text, size_t size) {
    if (p->fresh_pre && size && *text == '\n') text++, size--;
    if (!size) return;
    p->fresh_pre = false;
    put_gap(p);
    put(p, text, size);
}

static void drop_line_ends(page *p) {
    while (p->out->size > p->began && p->out->data[p->out->size - 1] == '\n') p->out->size--;
}

// ---- what libxml2 tells

static void on_text(void *context, const xmlChar *text, int size) {
    page *p = context;
    if (p->hidden || (p->head && !p->title) || (p->title && !p->want_title)) return;
    if (p->pre)
        put_pre(p, (const char *)text, (size_t)size);
    else
        put_words(p, (const char *)text, (size_t)size);
}

// What is wanted before and after a tag of a kind.
static gap gap_of(const page *p, tag_kind kind) {
    static const gap gaps[] = {
        [BLOCK] = LINE,     [APART] = PARAGRAPH, [HIDDEN] = NO_GAP, [HEAD] = NO_GAP,  [TITLE] = PARAGRAPH,
        [LIST] = PARAGRAPH, [ITEM] = LINE,       [PRE] = PARAGRAPH, [BREAK] = NO_GAP, [TABLE_CELL] = CELL};
    return kind == LIST && p->lists ? LINE : gaps[kind];
}

// How many of a kind are open is counted here; NULL: it does not matter.
static size_t *count_of(page *p, tag_kind kind) {
    return kind == HIDDEN  ? &p->hidden
           : kind == HEAD  ? &p->head
           : kind == TITLE ? &p->title
           : kind == LIST  ? &p->lists
           : kind == PRE   ? &p->pre
                           : NULL;
}

static void on_start(void *context, const xmlChar *name, const xmlChar **attributes) {
    page *p = context;
    const tag *t = find_tag((const char *)name);
    (void)attributes;
    if (p->parser->nameNr > DEPTH_MAX && p->status == KNNLM_OK) {
        p->status = kn_fail(KNNLM_EDATA, "a page whose tags are more than %d deep in each other", DEPTH_MAX);
        xmlStopParser(p->parser);
    }
    if (!t) return;
    size_t *open = count_of(p, t->kind);
    want(p, gap_of(p, t->kind));
    if (open) ++*open;
    if (t->kind == ITEM) p->item = true;
    if (t->kind == PRE) p->fresh_pre = true;
    if (t->kind == BREAK) p->gap = p->gap >= LINE ? PARAGRAPH : LINE;
}

static void on_end(void *context, const xmlChar *name) {
    page *p = context;
    const tag *t = find_tag((const char *)name);
    if (!t) return;
    size_t *open = count_of(p, t->kind);
    if (open && *open) --*open;
    if (t->kind == ITEM) p->item = false;
    if (t->kind == PRE) drop_line_ends(p);
    want(p, gap_of(p, t->kind));
}

// ---- the page

static void end_page(page *p) {
    kn_buffer *out = p->out;
    while (out->size > p->began && strchr(" \t\r\n", out->data[out->size - 1])) out->size--;
    if (out->size > p->began) put(p, "\n", 1);
}

// No tree is made: what the parser meets is told as it comes. Nothing is fetched, and HTML has no entities of
// its own.
knnlm_status kn_html_text(const char *html, size_t size, bool title, kn_buffer *out) {
    page p = {.out = out, .began = out->size, .want_title = title};
    xmlSAXHandler told = {.startElement = on_start,
                          .endElement = on_end,
                          .characters = on_text,
                          .ignorableWhitespace = on_text,
                          .cdataBlock = on_text};
    if (!size) return KNNLM_OK;
    htmlParserCtxtPtr parser = htmlCreateMemoryParserCtxt(html, (int)size);
    if (!parser) return kn_fail(KNNLM_ENOMEM, "out of memory");
    *parser->sax = told;
    parser->userData = &p;
    p.parser = parser;
    htmlCtxtUseOptions(parser, HTML_PARSE_RECOVER | HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING |
                                   HTML_PARSE_NONET | HTML_PARSE_IGNORE_ENC | HTML_PARSE_COMPACT);
    xmlSwitchEncoding(parser, XML_CHAR_ENCODING_UTF8);
    htmlParseDocument(parser);
    bool starved = parser->errNo == XML_ERR_NO_MEMORY;
    htmlFreeParserCtxt(parser);
    end_page(&p);
    return starved ? kn_fail(KNNLM_ENOMEM, "out of memory") : p.status;
}
