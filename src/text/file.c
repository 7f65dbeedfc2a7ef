// Opens files of all forms, layer by layer: input, compression, archive, encoding.
#include "text/file.h"

#include "text/archive.h"
#include "text/encoding.h"
#include "text/epub.h"
#include "text/html.h"
#include "text/input.h"
#include "text/pdf.h"
#include "text/unpack.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAX = 4, ARCHIVES_MAX = 3 }; // of compression; of archives in archives

struct kn_text_file {
    const kn_walk_file *file;
    const kn_text_options *o;
    const kn_progress *progress;
    const kn_stream *input; // below all others, which one of them owns; NULL: not open
    uint64_t done;          // of the input, as far as it was asked
    bool began, packed;     // packed: the whole file is compressed
    struct level {
        kn_archive *archive;
        size_t name; // bytes of its name
    } levels[ARCHIVES_MAX];
    size_t depth;
    kn_buffer name;      // of the text at hand
    kn_buffer place;     // of it, absolute
    size_t typed, real;  // bytes of the file's path in them; real 0: not asked for yet
    kn_stream *text;     // NULL: none
    const char *trouble; // of what failed last; NULL: damage
};

static knnlm_status set_name(kn_text_file *f, size_t kept, const char *more) {
    f->name.size = kept;
    if (kept) KN_TRY(kn_buffer_put_text(&f->name, "/"));
    KN_TRY(kn_buffer_put_text(&f->name, more));
    KN_TRY(kn_buffer_put(&f->name, "", 1));
    f->name.size--;
    return KNNLM_OK;
}

knnlm_status kn_text_file_open(const kn_walk_file *file, const kn_text_options *o,
                               const kn_progress *progress, kn_text_file **out) {
    bool standard = strcmp(file->path, "-") == 0;
    kn_text_file *f = kn_alloc(1, sizeof *f);
    if (!f) return KNNLM_ENOMEM;
    f->file = file;
    f->o = o;
    f->progress = progress;
    knnlm_status status = set_name(f, 0, !standard ? file->path : o->name ? o->name : "<stdin>");
    f->typed = f->name.size;
    if (status == KNNLM_OK)
        *out = f;
    else
        kn_text_file_close(f);
    return status;
}

// Before what owns the input is closed.
static void leave_input(kn_text_file *f) {
    if (!f->input || f->depth) return;
    kn_text_file_done(f);
    f->input = NULL;
}

static void close_text(kn_text_file *f) {
    if (f->text) leave_input(f);
    kn_stream_close(f->text);
    f->text = NULL;
}

static void close_archive(kn_text_file *f) {
    struct level *top = &f->levels[--f->depth];
    leave_input(f);
    kn_archive_close(top->archive);
    f->name.size = top->name;
    f->name.data[f->name.size] = 0;
}

void kn_text_file_close(kn_text_file *f) {
    if (!f) return;
    close_text(f);
    while (f->depth) close_archive(f);
    free(f->name.data);
    free(f->place.data);
    free(f);
}

const char *kn_text_file_name(const kn_text_file *f) {
    return f->name.data;
}

size_t kn_text_file_own(const kn_text_file *f) {
    return f->file->own;
}

static knnlm_status find_place(kn_text_file *f) {
    char *real = strcmp(f->file->path, "-") == 0 ? NULL : realpath(f->file->path, NULL);
    f->place.size = 0;
    knnlm_status status = kn_buffer_put_text(&f->place, real ? real : f->name.data);
    if (!real) f->place.size = f->typed;
    f->real = f->place.size;
    free(real);
    return status;
}

const char *kn_text_file_place(kn_text_file *f) {
    if (!f->real && find_place(f) != KNNLM_OK) return NULL;
    f->place.size = f->real;
    if (kn_buffer_put_text(&f->place, f->name.data + f->typed) != KNNLM_OK) return NULL;
    return kn_buffer_put(&f->place, "", 1) == KNNLM_OK ? f->place.data : NULL;
}

// libarchive reads far ahead, and a zip file's end first: its own place counts where it is one of the file.
uint64_t kn_text_file_done(kn_text_file *f) {
    uint64_t done = 0;
    if (f->depth && !f->packed)
        done = kn_archive_done(f->levels[0].archive);
    else if (f->input)
        done = kn_input_done(f->input);
    if (f->file->size && done > f->file->size) done = f->file->size;
    if (done > f->done) f->done = done;
    return f->done;
}

// ---- skipping

static bool can_be_skipped(knnlm_status status) {
    return status == KNNLM_EDATA || status == KNNLM_ENOTSUP || status == KNNLM_EIO;
}

// An archive that can give nothing more is what is damaged, not its member.
knnlm_status kn_text_file_skip(kn_text_file *f, knnlm_status status, const char *reason) {
    if (!reason) reason = f->trouble ? f->trouble : "damaged";
    close_text(f);
    while (f->depth && kn_archive_broken(f->levels[f->depth - 1].archive)) close_archive(f);
    if (!can_be_skipped(status) || (f->file->named && !f->depth)) return status;
    return kn_walk_skip(f->o, f->name.data, reason, status);
}

// ---- forms

static knnlm_status refuse(kn_text_file *f, kn_stream *s, const kn_foreign_form *form) {
    f->trouble = form->reason;
    kn_fail(KNNLM_ENOTSUP, "%s: %s: %s", s->name, form->what, form->advice);
    kn_stream_close(s);
    return KNNLM_ENOTSUP;
}

static knnlm_status push_archive(kn_text_file *f, kn_stream *s, kn_form form) {
    static const kn_foreign_form nested = {"an archive in archives in an archive",
                                           "unsupported: archives in archives",
                                           "unpack it, and name what was in it"};
    if (f->depth == ARCHIVES_MAX) return refuse(f, s, &nested);
    struct level *level = &f->levels[f->depth];
    level->name = f->name.size;
    KN_TRY(kn_archive_open(s, form, &level->archive));
    f->depth++;
    return KNNLM_OK;
}

// A form that is read whole; its text is kept in memory.
static knnlm_status read_whole(kn_text_file *f, kn_stream *s, kn_form form) {
    kn_buffer text = {0};
    if (!f->depth) { // the input is closed with the stream
        f->input = NULL;
        f->done = f->file->size;
    }
    knnlm_status status = form == KN_FORM_PDF    ? kn_pdf_read(s, &f->trouble, &text)
                          : form == KN_FORM_EPUB ? kn_epub_read(s, &f->trouble, &text)
                                                 : kn_html_read(s, true, &f->trouble, &text);
    if (status == KNNLM_OK) return kn_stream_of_memory(&text, f->name.data, &f->text);
    free(text.data);
    return status;
}

// What is text, in UTF-8 or made so: of HTML the words, else all of it.
static knnlm_status open_decoded(kn_text_file *f, kn_stream *s) {
    const char *first;
    size_t size;
    f->text = s;
    knnlm_status status = kn_stream_peek(s, KN_FORM_PEEK, &first, &size);
    if (status != KNNLM_OK) f->trouble = s->trouble;
    if (status != KNNLM_OK || !size) return status;
    bool binary = memchr(first, 0, kn_min(size, KN_FORM_PEEK)),
         html = kn_form_is_html(first, size, f->name.data);
    if (!binary && !html) return KNNLM_OK;
    f->text = NULL;
    return binary ? refuse(f, s, &kn_form_binary) : read_whole(f, s, KN_FORM_TEXT);
}

// By its byte-order mark, by what HTML says itself, as the options say.
static knnlm_status open_plain(kn_text_file *f, kn_stream *s, const char *first, size_t size) {
    size_t mark;
    char declared[64];
    const char *encoding = kn_encoding_mark(first, size, &mark);
    bool tells =
        !encoding && kn_form_is_html(first, size, f->name.data) && kn_html_declares(first, size, declared);
    if (!encoding) encoding = tells ? declared : f->o->encoding;
    kn_stream_take(s, mark);
    KN_TRY(kn_encoding_open(s, encoding, &s));
    return open_decoded(f, s);
}

// Takes the stream, whatever it returns, and puts it under f->text or another archive.
static knnlm_status enter(kn_text_file *f, kn_stream *s) {
    const kn_foreign_form *foreign = NULL;
    const char *first;
    size_t size;
    for (int layer = 0;; layer++) {
        knnlm_status status = kn_stream_peek(s, KN_FORM_PEEK, &first, &size);
        if (status != KNNLM_OK) {
            f->trouble = s->trouble;
            kn_stream_close(s);
            return status;
        }
        kn_form form = kn_form_tell(first, size, f->name.data, &foreign);
        if (kn_form_is_archive(form)) return push_archive(f, s, form);
        if (form == KN_FORM_FOREIGN) return refuse(f, s, foreign);
        if (form == KN_FORM_PDF || form == KN_FORM_EPUB) return read_whole(f, s, form);
        if (form == KN_FORM_TEXT) return open_plain(f, s, first, size);
        if (layer == LAYERS_MAX)
            return refuse(f, s,
                          &(kn_foreign_form){"compressed again and again",
                                             "unsupported: compressed again and again", "unpack it"});
        if (!f->depth) f->packed = true;
        KN_TRY(kn_unpack_open(s, form, &s));
    }
}

// ---- from text to text

static knnlm_status open_input(kn_text_file *f) {
    kn_stream *s;
    f->began = true;
    KN_TRY(kn_input_open(f->file->path, f->progress, &f->trouble, &s));
    f->input = s;
    knnlm_status status = enter(f, s);
    if (!f->text && !f->depth) f->input = NULL; // it was closed
    return status;
}

// Members are taken as the files of a folder are; of an archive in a folder all, as of a file of that folder.
static bool wants_member(const kn_text_file *f, const kn_member *m) {
    const char *below = f->name.data + (f->file->named ? f->levels[0].name + 1 : f->file->root);
    if (m->kind == KN_MEMBER_FOLDER || kn_walk_hides(f->o, m->name)) return false;
    return f->file->named ? kn_walk_wants(f->o, below) : kn_walk_enters(f->o, below);
}

static knnlm_status open_member(kn_text_file *f, const kn_member *m) {
    kn_stream *s;
    if (m->kind == KN_MEMBER_FILE) {
        KN_TRY(kn_archive_read(f->levels[f->depth - 1].archive, f->name.data, &s));
        return enter(f, s);
    }
    f->trouble = m->kind == KN_MEMBER_LINK ? "link" : "not a file";
    return kn_fail(KNNLM_ENOTSUP, "%s: %s", f->name.data,
                   m->kind == KN_MEMBER_LINK ? "a link in an archive" : "a device in an archive, not a file");
}

// The next member of the innermost archive, which ends with its last.
static knnlm_status next_member(kn_text_file *f) {
    struct level *top = &f->levels[f->depth - 1];
    kn_member m;
    bool found;
    KN_TRY(kn_archive_next(top->archive, &m, &found));
    if (!found) {
        close_archive(f);
        return KNNLM_OK;
    }
    KN_TRY(set_name(f, top->name, m.name));
    return wants_member(f, &m) ? open_member(f, &m) : KNNLM_OK;
}

knnlm_status kn_text_file_next(kn_text_file *f, bool *found) {
    close_text(f);
    while (!f->text && (!f->began || f->depth)) {
        f->trouble = NULL;
        knnlm_status status = f->began ? next_member(f) : open_input(f);
        if (status != KNNLM_OK) KN_TRY(kn_text_file_skip(f, status, NULL));
    }
    *found = f->text;
    return KNNLM_OK;
}

knnlm_status kn_text_file_read(kn_text_file *f, char *data, size_t size, size_t *got) {
    knnlm_status status = kn_stream_read(f->text, data, size, got);
    if (status != KNNLM_OK) f->trouble = f->text->trouble;
    return status;
}
