// Reads EPUB: META-INF/container.xml names the package file, whose spine names the chapters in order.
#include "text/epub.h"

#include "text/archive.h"
#include "text/encoding.h"
#include "text/html.h"
#include "text/vocab.h"

#include <libxml/parser.h>
#include <libxml/tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_BYTES = 4096 };

// Numbers of parts and items are those of their names.
typedef struct book {
    const char *name;
    kn_vocab names;
    kn_buffer *contents; // of the parts
    size_t count, capacity, bytes;
    kn_vocab ids; // of the package's items
    xmlNode **items;
    size_t item_capacity;
    const char **trouble;
    kn_buffer *out;
} book;

// ---- the parts

// Pictures, fonts and sounds are passed over.
static bool is_wanted(const char *name) {
    static const char *const extensions[] = {"xhtml", "html", "htm", "xht", "xml", "opf"};
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        if (kn_form_has_extension(name, extensions[i])) return true;
    return false;
}

static knnlm_status load_part(book *b, kn_archive *a, const char *name) {
    kn_stream *s;
    int32_t number, had = kn_vocab_count(&b->names);
    KN_TRY(kn_vocab_intern(&b->names, name, strlen(name), &number));
    if (number < had) return KNNLM_OK; // a second of that name
    KN_TRY(kn_grow(&b->contents, &b->capacity, (size_t)number + 1, sizeof *b->contents));
    kn_buffer *content = &b->contents[b->count++];
    *content = (kn_buffer){0};
    KN_TRY(kn_archive_read(a, b->name, &s));
    knnlm_status status = kn_stream_read_all(s, KN_WHOLE_MAX - b->bytes, content);
    if (status == KNNLM_ENOTSUP) *b->trouble = s->trouble ? s->trouble : "too large";
    kn_stream_close(s);
    b->bytes += content->size;
    return status;
}

static knnlm_status load_parts(book *b, kn_archive *a) {
    for (;;) {
        kn_member m;
        bool found;
        KN_TRY(kn_archive_next(a, &m, &found));
        if (!found) return KNNLM_OK;
        if (m.kind == KN_MEMBER_FILE && is_wanted(m.name)) KN_TRY(load_part(b, a, m.name));
    }
}

static kn_buffer *find_part(const book *b, const char *name) {
    int32_t number = kn_vocab_find(&b->names, name, strlen(name));
    return number >= 0 ? &b->contents[number] : NULL;
}

// ---- XML

static knnlm_status no_book(const book *b, const char *what) {
    return kn_fail(KNNLM_EDATA, "%s: not a readable EPUB: %s", b->name, what);
}

// Without the network, and without entities from elsewhere. Those of its own no package has, but for one that
// is made of entities in entities, to grow beyond all memory.
static knnlm_status parse(const book *b, const kn_buffer *xml, xmlDoc **out) {
    enum { HOW = XML_PARSE_NONET | XML_PARSE_RECOVER | XML_PARSE_NOERROR | XML_PARSE_NOWARNING };
    *out = xml->size ? xmlReadMemory(xml->data, (int)xml->size, NULL, NULL, HOW) : NULL;
    if (!*out) return no_book(b, "its package file is damaged");
    if (!(*out)->intSubset || !(*out)->intSubset->entities) return KNNLM_OK;
    xmlFreeDoc(*out);
    return no_book(b, "its package file declares entities");
}

// The next element after `node` in the order of the text that is called so; NULL: none.
static xmlNode *next_element(xmlNode *node, const char *name) {
    while (node) {
        if (node->type == XML_ELEMENT_NODE && node->children)
            node = node->children;
        else {
            while (node && !node->next)
                node = node->parent && node->parent->type == XML_ELEMENT_NODE ? node->parent : NULL;
            if (node) node = node->next;
        }
        if (node && node->type == XML_ELEMENT_NODE && strcmp((const char *)node->name, name) == 0)
            return node;
    }
    return NULL;
}

// ---- names

static int digit_of(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// "%20" is a space, and what follows a '#' is a place in the file.
static void unescape(char *path) {
    char *to = path;
    for (const char *from = path; *from && *from != '#'; from++) {
        int high = *from == '%' ? digit_of(from[1]) : -1, low = high >= 0 ? digit_of(from[2]) : -1;
        if (low > 0 || (low == 0 && high > 0)) {
            *to++ = (char)(high * 16 + low);
            from += 2;
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
}

// "a/./b" is a/b, "a/../b" is b.
static void tidy(char *path) {
    char *to = path;
    for (const char *from = path; *from;) {
        size_t size = strcspn(from, "/"), whole = size + (from[size] == '/');
        if (size == 2 && memcmp(from, "..", 2) == 0) {
            if (to > path) to--;
            while (to > path && to[-1] != '/') to--;
        } else if (!(size == 0 || (size == 1 && *from == '.'))) {
            memmove(to, from, whole);
            to += whole;
        }
        from += whole;
    }
    *to = 0;
}

// The part that `href` names, seen from the part called `base`.
static kn_buffer *find_by_href(const book *b, const char *base, const char *href) {
    char path[PATH_MAX_BYTES];
    const char *slash = strrchr(base, '/');
    int folder = slash ? (int)(slash - base) + 1 : 0;
    if (snprintf(path, sizeof path, "%.*s%s", folder, base, href) >= (int)sizeof path) return NULL;
    unescape(path);
    tidy(path);
    return find_part(b, path);
}

// ---- the book

static knnlm_status list_items(book *b, xmlNode *root) {
    for (xmlNode *item = root; (item = next_element(item, "item"));) {
        int32_t number, had = kn_vocab_count(&b->ids);
        xmlChar *id = xmlGetProp(item, (const xmlChar *)"id");
        knnlm_status status =
            id ? kn_vocab_intern(&b->ids, (const char *)id, strlen((const char *)id), &number) : KNNLM_OK;
        bool fresh = id && status == KNNLM_OK && number == had;
        if (fresh) status = kn_grow(&b->items, &b->item_capacity, (size_t)number + 1, sizeof *b->items);
        if (fresh && status == KNNLM_OK) b->items[number] = item;
        xmlFree(id);
        KN_TRY(status);
    }
    return KNNLM_OK;
}

// The chapter of a spine's entry: a page of the manifest.
static kn_buffer *find_chapter(const book *b, const char *package, xmlNode *entry) {
    xmlChar *id = xmlGetProp(entry, (const xmlChar *)"idref");
    int32_t number = id ? kn_vocab_find(&b->ids, (const char *)id, strlen((const char *)id)) : -1;
    xmlChar *href = number >= 0 ? xmlGetProp(b->items[number], (const xmlChar *)"href") : NULL;
    kn_buffer *found = href ? find_by_href(b, package, (const char *)href) : NULL;
    xmlFree(id);
    xmlFree(href);
    return found;
}

// A chapter that the spine names twice is read once: its content is handed on.
static knnlm_status put_chapter(book *b, kn_buffer *chapter) {
    kn_stream *s;
    size_t mark;
    char declared[64];
    if (!chapter || !chapter->size) return KNNLM_OK;
    const char *encoding = kn_encoding_mark(chapter->data, chapter->size, &mark);
    if (!encoding && kn_html_declares(chapter->data, chapter->size, declared)) encoding = declared;
    if (b->out->size) KN_TRY(kn_buffer_put_text(b->out, "\n"));
    KN_TRY(kn_stream_of_memory(chapter, b->name, &s));
    kn_stream_take(s, mark);
    KN_TRY(kn_encoding_open(s, encoding, &s));
    return kn_html_read(s, false, b->trouble, b->out);
}

static knnlm_status put_title(book *b, xmlNode *root) {
    xmlNode *node = next_element(root, "title");
    xmlChar *title = node ? xmlNodeGetContent(node) : NULL;
    knnlm_status status = KNNLM_OK;
    if (title && *title) {
        status = kn_buffer_put_text(b->out, (const char *)title);
        if (status == KNNLM_OK) status = kn_buffer_put_text(b->out, "\n");
    }
    xmlFree(title);
    return status;
}

static knnlm_status put_spine(book *b, const char *package, xmlNode *root) {
    KN_TRY(put_title(b, root));
    KN_TRY(list_items(b, root));
    for (xmlNode *entry = root; (entry = next_element(entry, "itemref"));)
        KN_TRY(put_chapter(b, find_chapter(b, package, entry)));
    return KNNLM_OK;
}

// *out is released with xmlFree.
static knnlm_status find_package(const book *b, xmlChar **out) {
    xmlDoc *document;
    const kn_buffer *container = find_part(b, "META-INF/container.xml");
    if (!container) return no_book(b, "it has no META-INF/container.xml");
    KN_TRY(parse(b, container, &document));
    xmlNode *node = next_element(xmlDocGetRootElement(document), "rootfile");
    *out = node ? xmlGetProp(node, (const xmlChar *)"full-path") : NULL;
    xmlFreeDoc(document);
    return *out ? KNNLM_OK : no_book(b, "its container names no package file");
}

static knnlm_status put_package(book *b, const char *path) {
    xmlDoc *document;
    const kn_buffer *package = find_part(b, path);
    if (!package) return no_book(b, "its package file is missing");
    KN_TRY(parse(b, package, &document));
    xmlNode *root = xmlDocGetRootElement(document);
    knnlm_status status = root ? put_spine(b, path, root) : no_book(b, "its package file is empty");
    xmlFreeDoc(document);
    return status;
}

static knnlm_status put_book(book *b) {
    xmlChar *package;
    if (find_part(b, "META-INF/encryption.xml") && find_part(b, "META-INF/rights.xml")) {
        *b->trouble = "encrypted";
        return kn_fail(KNNLM_ENOTSUP, "%s: an encrypted book (DRM): it cannot be read", b->name);
    }
    KN_TRY(find_package(b, &package));
    knnlm_status status = put_package(b, (const char *)package);
    xmlFree(package);
    return status;
}

knnlm_status kn_epub_read(kn_stream *source, const char **trouble, kn_buffer *out) {
    kn_archive *a;
    char *name = kn_strdup(source->name);
    book b = {.name = name, .trouble = trouble, .out = out};
    if (!name) {
        kn_stream_close(source);
        return KNNLM_ENOMEM;
    }
    knnlm_status status = kn_archive_open(source, KN_FORM_ZIP, &a);
    if (status == KNNLM_OK) {
        status = load_parts(&b, a);
        kn_archive_close(a);
    }
    if (status == KNNLM_OK) status = put_book(&b);
    for (size_t i = 0; i < b.count; i++) free(b.contents[i].data);
    free(b.contents);
    free(b.items);
    kn_vocab_free(&b.names);
    kn_vocab_free(&b.ids);
    free(name);
    return status;
}
