// Reads documents from files, directories and stdin, block by block; splits WikiText by its titles, and JSON
// lines.
#include "text/documents.h"

#include "base/utf8.h"
#include "text/encoding.h"
#include "text/file.h"
#include "text/jsonl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOCK = 1 << 20 };

const char *const kn_split_names[] = {"file", "wiki", "jsonl", NULL};

knnlm_split kn_split_find(const char *name) {
    for (int i = 0; kn_split_names[i]; i++)
        if (strcmp(name, kn_split_names[i]) == 0) return (knnlm_split)i;
    return KNNLM_SPLIT_FILE;
}

// The text at hand is read block by block into `text`; bytes before `start` were given out already.
struct kn_documents {
    kn_text_options o;
    kn_walk_files files;
    size_t next_file;
    kn_text_file *file; // NULL between files
    bool inside;        // a text of the file is at hand
    const char *path;   // of it, as typed
    const char *place;  // of it, absolute
    kn_buffer text, name;
    size_t start;      // of the next document in text
    size_t line;       // of which it is not yet known whether it begins a document
    size_t searched;   // no line ends between `line` and here
    size_t valid;      // bytes of text known to be UTF-8
    uint64_t offset;   // of text[0] in the file
    uint64_t lines;    // of JSON that were read
    kn_json_line json; // whose text was given
    bool ended;        // text holds the file's end
    bool only_blank;   // the document has nothing but blank lines so far
    bool holding;      // the NUL after the document stands on the byte `held` at `held_at`
    char held;
    size_t held_at;
    uint64_t total, done;
    const kn_progress *progress; // NULL: nobody listens
    kn_progress blocks;          // of the open file, passed on to it
    const kn_document *one;      // given in place of files, until it was handed on
};

bool kn_documents_once(const char *const *paths, size_t count) {
    struct stat st;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(paths[i], "-") == 0) return true;
        if (stat(paths[i], &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return true;
    }
    return false;
}

static knnlm_status list_files(kn_documents *d, const char *const *paths, size_t count) {
    bool standard = false;
    for (size_t i = 0; i < count; i++) {
        bool is_stdin = strcmp(paths[i], "-") == 0;
        standard |= is_stdin;
        KN_TRY(is_stdin ? kn_walk_stdin(&d->files) : kn_walk(paths[i], &d->o, &d->files));
    }
    d->total = standard ? 0 : d->files.bytes;
    return KNNLM_OK;
}

knnlm_status kn_documents_open(const char *const *paths, size_t count, const kn_text_options *options,
                               kn_documents **out) {
    if (!count) return kn_fail(KNNLM_EINVAL, "no text given: name files, directories or - for stdin");
    if (options && options->encoding) KN_TRY(kn_encoding_check(options->encoding));
    kn_documents *d = kn_alloc(1, sizeof *d);
    if (!d) return KNNLM_ENOMEM;
    if (options) d->o = *options;
    if (!d->o.field) d->o.field = "text";
    knnlm_status status = list_files(d, paths, count);
    if (status != KNNLM_OK)
        kn_documents_close(d);
    else
        *out = d;
    return status;
}

knnlm_status kn_documents_open_one(const kn_document *document, kn_documents **out) {
    size_t valid = kn_utf8_valid(document->text, document->size);
    if (valid < document->size)
        return kn_fail(KNNLM_EDATA, "%s: not UTF-8 at byte %zu", document->name, valid);
    kn_documents *d = kn_alloc(1, sizeof *d);
    if (!d) return KNNLM_ENOMEM;
    d->one = document;
    d->total = document->size;
    *out = d;
    return KNNLM_OK;
}

void kn_documents_close(kn_documents *d) {
    if (!d) return;
    kn_text_file_close(d->file);
    kn_walk_free(&d->files);
    kn_json_line_free(&d->json);
    free(d->text.data);
    free(d->name.data);
    free(d);
}

static bool on_block(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    kn_documents *d = context;
    (void)done, (void)total; // of the one file, which does not know all of it
    return kn_progress_report(d->progress, what, kn_documents_done(d), d->total, unit);
}

void kn_documents_watch(kn_documents *d, const kn_progress *progress) {
    d->progress = progress;
    d->blocks = (kn_progress){on_block, d};
}

uint64_t kn_documents_total(const kn_documents *d) {
    return d->total;
}
uint64_t kn_documents_done(const kn_documents *d) {
    return d->done + (d->file ? kn_text_file_done(d->file) : 0);
}

// ---- reading

static knnlm_status open_next(kn_documents *d) {
    const kn_walk_file *file = &d->files.files[d->next_file];
    KN_TRY(kn_text_file_open(file, &d->o, d->progress ? &d->blocks : NULL, &d->file));
    d->next_file++;
    return KNNLM_OK;
}

static void close_file(kn_documents *d) {
    uint64_t size = d->files.files[d->next_file - 1].size;
    d->done += size ? size : kn_text_file_done(d->file);
    kn_text_file_close(d->file);
    d->file = NULL;
}

static knnlm_status next_text(kn_documents *d) {
    KN_TRY(kn_text_file_next(d->file, &d->inside));
    d->path = kn_text_file_name(d->file);
    d->place = d->inside ? kn_text_file_place(d->file) : NULL;
    if (d->inside && !d->place) return KNNLM_ENOMEM;
    d->text.size = d->start = d->line = d->searched = d->valid = 0;
    d->offset = d->lines = 0;
    d->ended = false;
    return KNNLM_OK;
}

// A character cut by the block's end is looked at again with the next block.
static bool check_utf8(kn_documents *d) {
    d->valid += kn_utf8_valid(d->text.data + d->valid, d->text.size - d->valid);
    size_t left = d->text.size - d->valid;
    return !(left >= 4 || (left && d->ended));
}

static void drop_given(kn_documents *d) {
    if (!d->start) return;
    memmove(d->text.data, d->text.data + d->start, d->text.size - d->start);
    d->text.size -= d->start;
    d->valid -= d->start;
    d->line -= d->start;
    d->searched -= d->start;
    d->offset += d->start;
    d->start = 0;
}

// What cannot be read any further is skipped where that is allowed: *d is then inside no text.
static knnlm_status skip(kn_documents *d, knnlm_status status, const char *reason) {
    d->inside = false;
    return kn_text_file_skip(d->file, status, reason);
}

static knnlm_status read_block(kn_documents *d) {
    size_t got = 0;
    drop_given(d);
    KN_TRY(kn_grow(&d->text.data, &d->text.capacity, d->text.size + BLOCK + 1, 1)); // one more for the NUL
    knnlm_status status = kn_text_file_read(d->file, d->text.data + d->text.size, BLOCK, &got);
    if (status != KNNLM_OK) return skip(d, status, NULL);
    d->text.size += got;
    d->ended = got == 0;
    if (check_utf8(d)) return KNNLM_OK;
    kn_fail(KNNLM_EDATA, "%s: not UTF-8 at byte %llu (`encoding` names another)", d->path,
            (unsigned long long)(d->offset + d->valid));
    return skip(d, KNNLM_EDATA, "not UTF-8");
}

// ---- splitting

static bool blank(const char *line, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

// "= Title =" with one '=' a side, white space around; the title's place within the line.
static bool title_line(const char *line, size_t size, size_t *at, size_t *length) {
    size_t from = 0, to = size;
    while (from < to && blank(line + from, 1)) from++;
    while (to > from && blank(line + to - 1, 1)) to--;
    if (to - from < 5 || line[from] != '=' || line[from + 1] != ' ' || line[to - 1] != '=' ||
        line[to - 2] != ' ')
        return false;
    *at = from + 2;
    *length = to - from - 4;
    return !blank(line + *at, *length) && line[*at] != '=' && line[*at + *length - 1] != '=';
}

// Whether the line at `at` begins a document: a title after a blank line. Blank lines before the first title
// are that document's own, so that the documents of a file are the whole file.
static bool begins_document(const kn_documents *d, size_t at, size_t size) {
    size_t title, length, previous = at - 1;
    if (!title_line(d->text.data + at, size, &title, &length)) return false;
    while (previous > d->start && d->text.data[previous - 1] != '\n') previous--;
    return blank(d->text.data + previous, at - 1 - previous) && !d->only_blank;
}

// Where the document at d->start ends: the next title line, or the text's end. Reads on as needed; what turns
// out to be unreadable is left.
static knnlm_status find_end(kn_documents *d, size_t *end) {
    d->only_blank = true;
    for (;;) {
        const char *newline = NULL;
        if (d->o.split == KNNLM_SPLIT_WIKI && d->searched < d->text.size)
            newline = memchr(d->text.data + d->searched, '\n', d->text.size - d->searched);
        if (!newline && !d->ended) {
            d->searched = d->text.size;
            KN_TRY(read_block(d));
            if (!d->inside) return KNNLM_OK;
            continue;
        }
        size_t stop = newline ? (size_t)(newline - d->text.data) : d->text.size, size = stop - d->line;
        *end = d->line;
        if (d->o.split == KNNLM_SPLIT_WIKI && d->line > d->start && begins_document(d, d->line, size))
            return KNNLM_OK;
        if (!blank(d->text.data + d->line, size)) d->only_blank = false;
        *end = d->line = d->searched = newline ? stop + 1 : stop;
        if (!newline) return KNNLM_OK;
    }
}

// "path#Title" when the document's first line with anything on it is a title.
static knnlm_status make_name(kn_documents *d, size_t end) {
    const char *text = d->text.data;
    size_t line = d->start, at, length;
    d->name.size = 0;
    KN_TRY(kn_buffer_put(&d->name, d->path, strlen(d->path)));
    for (size_t stop = line; d->o.split == KNNLM_SPLIT_WIKI && line < end; line = stop + 1) {
        const char *newline = memchr(text + line, '\n', end - line);
        stop = newline ? (size_t)(newline - text) : end;
        if (title_line(text + line, stop - line, &at, &length)) {
            KN_TRY(kn_buffer_put(&d->name, "#", 1));
            KN_TRY(kn_buffer_put(&d->name, text + line + at, length));
        }
        if (!blank(text + line, stop - line)) break;
    }
    return kn_buffer_put(&d->name, "", 1);
}

// Of the text at hand, at `offset` of the file.
static kn_document describe(const kn_documents *d, uint64_t offset, const char *text, size_t size) {
    return (kn_document){.name = d->name.data + kn_text_file_own(d->file),
                         .typed = d->name.data,
                         .path = d->place,
                         .offset = offset,
                         .text = text,
                         .size = size};
}

static knnlm_status give(kn_documents *d, size_t end, kn_document *out) {
    KN_TRY(make_name(d, end));
    d->holding = true;
    d->held_at = end;
    d->held = d->text.data[end];
    d->text.data[end] = 0;
    *out = describe(d, d->offset + d->start, d->text.data + d->start, end - d->start);
    d->start = end;
    return KNNLM_OK;
}

// ---- JSON lines

// The line at d->start, without its end; *found false: there is none left.
static knnlm_status find_line(kn_documents *d, size_t *end, bool *found) {
    const char *newline = NULL;
    while (!newline) {
        if (d->searched < d->text.size)
            newline = memchr(d->text.data + d->searched, '\n', d->text.size - d->searched);
        if (newline || d->ended) break;
        d->searched = d->text.size;
        KN_TRY(read_block(d));
        if (!d->inside) return KNNLM_OK;
    }
    *end = newline ? (size_t)(newline - d->text.data) : d->text.size;
    *found = newline || d->text.size > d->start;
    return KNNLM_OK;
}

// The text of the next line that has any.
static knnlm_status next_json(kn_documents *d, kn_document *out, bool *found) {
    for (;;) {
        size_t end, at = d->start;
        bool more = false;
        KN_TRY(find_line(d, &end, &more));
        if (!more) return KNNLM_OK;
        at = d->start; // reading on may have moved it
        knnlm_status status = kn_json_line_read(d->text.data + at, end - at, d->path, ++d->lines, d->o.field,
                                                d->o.name_field, &d->name, &d->json);
        if (status != KNNLM_OK) return skip(d, status, "not JSON lines");
        d->start = d->searched = kn_min(end + 1, d->text.size);
        d->line = d->start;
        *found = d->json.size > 0;
        if (*found) {
            *out = describe(d, d->offset + at, d->json.text, d->json.size);
            return KNNLM_OK;
        }
        kn_json_line_free(&d->json);
    }
}

// ---- documents

static knnlm_status next_section(kn_documents *d, kn_document *out, bool *found) {
    size_t end;
    KN_TRY(find_end(d, &end));
    *found = d->inside && end > d->start;
    return *found ? give(d, end, out) : KNNLM_OK;
}

static knnlm_status next_of_text(kn_documents *d, kn_document *out, bool *found) {
    KN_TRY(d->o.split == KNNLM_SPLIT_JSONL ? next_json(d, out, found) : next_section(d, out, found));
    if (!*found) d->inside = false;
    return KNNLM_OK;
}

static void take_back(kn_documents *d) {
    if (d->holding) d->text.data[d->held_at] = d->held;
    d->holding = false;
    kn_json_line_free(&d->json);
}

static void give_one(kn_documents *d, kn_document *out) {
    *out = *d->one;
    d->done = d->total;
    d->one = NULL;
}

knnlm_status kn_documents_next(kn_documents *d, kn_document *out, bool *found) {
    *found = d->one;
    take_back(d);
    if (d->one) give_one(d, out);
    while (!*found && (d->file || d->next_file < d->files.count)) {
        if (!d->file) KN_TRY(open_next(d));
        if (!d->inside) KN_TRY(next_text(d));
        if (d->inside)
            KN_TRY(next_of_text(d, out, found));
        else
            close_file(d);
    }
    return KNNLM_OK;
}
