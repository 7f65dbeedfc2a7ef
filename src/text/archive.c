// Reads archives by libarchive, fed from a stream.
#include "text/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct kn_archive {
    struct archive *reader;
    struct archive_entry *entry; // libarchive's
    kn_stream *source;
    kn_form form;
    size_t lent;         // bytes of the source that libarchive has in hand
    knnlm_status failed; // of the source
    uint64_t read;       // bytes of the member at hand
    bool broken;
};

typedef struct member {
    kn_stream base;
    kn_archive *archive;
    bool owns; // the archive goes with the stream
} member;

// libarchive gives names in the charset of the thread's locale. Loaded once, and kept: it is a file.
static pthread_once_t utf8_once = PTHREAD_ONCE_INIT;
static locale_t utf8;

static void load_utf8(void) {
    utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

// ---- what libarchive calls

static la_ssize_t feed(struct archive *reader, void *context, const void **data) {
    kn_archive *a = context;
    size_t size;
    kn_stream_take(a->source, a->lent);
    a->lent = 0;
    a->failed = kn_stream_peek(a->source, 1, (const char **)data, &size);
    if (a->failed != KNNLM_OK) {
        archive_set_error(reader, -1, "the source failed");
        return ARCHIVE_FATAL;
    }
    a->lent = size;
    return (la_ssize_t)size;
}

static la_int64_t seek(struct archive *reader, void *context, la_int64_t offset, int whence) {
    kn_archive *a = context;
    int64_t place;
    (void)reader;
    kn_stream_take(a->source, a->lent);
    a->lent = 0;
    return a->source->seek(a->source, offset, whence, &place) == KNNLM_OK ? place : ARCHIVE_FATAL;
}

// ---- archives

static knnlm_status cut_off(const char *what, const char *name) {
    return kn_fail(KNNLM_EDATA, "%s: the %s data ends too early: the file is cut off", name, what);
}

// The source's own message stands where the source failed.
static knnlm_status fail(kn_archive *a, int result, const char *what, const char *name) {
    a->broken = result == ARCHIVE_FATAL;
    if (a->failed != KNNLM_OK) return a->failed;
    const char *why = archive_error_string(a->reader);
    if (why && (strcasestr(why, "truncated") || strstr(why, "No progress"))) return cut_off(what, name);
    return kn_fail(KNNLM_EDATA, "%s: damaged %s: %s", name, what, why ? why : "it cannot be read");
}

static void choose(struct archive *reader, kn_form form) {
    if (form == KN_FORM_TAR) archive_read_support_format_tar(reader);
    if (form == KN_FORM_ZIP) archive_read_support_format_zip(reader);
    if (form != KN_FORM_XZ && form != KN_FORM_BZIP2) return;
    archive_read_support_format_raw(reader);
    archive_read_support_format_empty(reader);
    if (form == KN_FORM_XZ)
        archive_read_support_filter_xz(reader);
    else
        archive_read_support_filter_bzip2(reader);
}

knnlm_status kn_archive_open(kn_stream *source, kn_form form, kn_archive **out) {
    kn_archive *a = kn_alloc(1, sizeof *a);
    if (a) a->reader = archive_read_new();
    if (!a || !a->reader) {
        kn_stream_close(source);
        free(a);
        return kn_fail(KNNLM_ENOMEM, "out of memory");
    }
    a->source = source;
    a->form = form;
    pthread_once(&utf8_once, load_utf8);
    choose(a->reader, form);
    archive_read_set_read_callback(a->reader, feed);
    if (source->seek) archive_read_set_seek_callback(a->reader, seek);
    archive_read_set_callback_data(a->reader, a);
    int result = archive_read_open1(a->reader);
    if (result != ARCHIVE_OK) {
        knnlm_status status = fail(a, result, kn_form_name(form), source->name);
        kn_archive_close(a);
        return status;
    }
    *out = a;
    return KNNLM_OK;
}

void kn_archive_close(kn_archive *a) {
    if (!a) return;
    archive_read_free(a->reader);
    kn_stream_close(a->source);
    free(a);
}

uint64_t kn_archive_done(const kn_archive *a) {
    return (uint64_t)archive_read_header_position(a->reader) + a->read;
}

bool kn_archive_broken(const kn_archive *a) {
    return a->broken;
}

static int next_header(kn_archive *a) {
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    int result = archive_read_next_header(a->reader, &a->entry);
    if (before) uselocale(before);
    return result;
}

static kn_member_kind kind_of(struct archive_entry *entry) {
    if (archive_entry_hardlink(entry)) return KN_MEMBER_LINK;
    switch (archive_entry_filetype(entry)) {
    case AE_IFDIR:
        return KN_MEMBER_FOLDER;
    case AE_IFLNK:
        return KN_MEMBER_LINK;
    case AE_IFREG:
    case 0: // a zip file need not say it
        return KN_MEMBER_FILE;
    }
    return KN_MEMBER_OTHER;
}

// "./a" and "/a" are a.
static const char *tidy(const char *name) {
    for (;;) {
        if (name[0] == '/')
            name++;
        else if (name[0] == '.' && name[1] == '/')
            name += 2;
        else
            return name;
    }
}

knnlm_status kn_archive_next(kn_archive *a, kn_member *out, bool *found) {
    *found = false;
    if (a->broken) return KNNLM_OK;
    int result;
    while ((result = next_header(a)) == ARCHIVE_RETRY) {
    }
    if (result == ARCHIVE_EOF) return KNNLM_OK;
    if (result < ARCHIVE_WARN) {
        a->broken = true;
        return fail(a, ARCHIVE_FATAL, kn_form_name(a->form), a->source->name);
    }
    const char *name = archive_entry_pathname(a->entry);
    *out = (kn_member){.name = tidy(name ? name : "?"), .kind = kind_of(a->entry)};
    *found = true;
    a->read = 0;
    return KNNLM_OK;
}

// ---- their members

static knnlm_status read_member(kn_stream *s, char *data, size_t size, size_t *got) {
    member *m = (member *)s;
    kn_archive *a = m->archive;
    la_ssize_t n;
    while ((n = archive_read_data(a->reader, data, size)) == ARCHIVE_RETRY) {
    }
    if (n >= 0) {
        *got = (size_t)n;
        a->read += (size_t)n;
        return KNNLM_OK;
    }
    if (a->entry && archive_entry_is_data_encrypted(a->entry)) {
        s->trouble = "encrypted";
        return kn_fail(KNNLM_ENOTSUP, "%s: encrypted: unpack it with its password", s->name);
    }
    return fail(a, (int)n, kn_form_name(a->form), s->name);
}

static void release(kn_stream *s) {
    member *m = (member *)s;
    if (m->owns) kn_archive_close(m->archive);
}

knnlm_status kn_archive_read(kn_archive *a, const char *name, kn_stream **out) {
    member *m = (member *)kn_stream_make(sizeof *m, name);
    if (!m) return KNNLM_ENOMEM;
    m->base.read = read_member;
    m->base.release = release;
    m->archive = a;
    *out = &m->base;
    return KNNLM_OK;
}

knnlm_status kn_archive_unpack(kn_stream *source, kn_form form, kn_stream **out) {
    kn_archive *a;
    kn_member nameless;
    bool found;
    KN_TRY(kn_archive_open(source, form, &a));
    knnlm_status status = kn_archive_next(a, &nameless, &found);
    // What is too short to be known by libarchive is passed on as it is.
    if (status == KNNLM_OK && archive_filter_code(a->reader, 0) == ARCHIVE_FILTER_NONE)
        status = cut_off(kn_form_name(form), a->source->name);
    if (status == KNNLM_OK) status = kn_archive_read(a, a->source->name, out);
    if (status == KNNLM_OK)
        ((member *)*out)->owns = true;
    else
        kn_archive_close(a);
    return status;
}
