// Tells the form of a file from its first bytes.
#include "text/form.h"

#include "base/utf8.h"

#include <string.h>
#include <strings.h>

#define IMAGE "an image has no text: leave it out, or make a text of it by OCR"
#define SOUND "make a text of it by transcription, or leave it out"
#define SAVE_AS "save it as text, HTML or PDF"
#define UNPACK "unpack it, and name what was in it"

static const char binary[] = "binary";

// `mark` stands at byte `at`.
typedef struct mark {
    size_t at, size;
    const char *mark;
    kn_form form;
    kn_foreign_form foreign;
} mark;
#define MARK(at, mark, form) at, sizeof mark - 1, mark, form
#define FOREIGN(at, mark) MARK(at, mark, KN_FORM_FOREIGN)

// One a line; the first that fits counts.
// clang-format off
static const mark marks[] = {
    {MARK(0, "\x1F\x8B", KN_FORM_GZIP), {0}},
    {MARK(0, "\x28\xB5\x2F\xFD", KN_FORM_ZSTD), {0}},
    {MARK(0, "\xFD" "7zXZ\0", KN_FORM_XZ), {0}},
    {MARK(0, "BZh", KN_FORM_BZIP2), {0}},
    {MARK(0, "%PDF-", KN_FORM_PDF), {0}},
    {MARK(0, "PK\x03\x04", KN_FORM_ZIP), {0}},
    {MARK(0, "PK\x05\x06", KN_FORM_ZIP), {0}}, // empty
    {FOREIGN(0, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"), {"a Word, Excel or PowerPoint file of the old kind", "unsupported: Office document", SAVE_AS}},
    {FOREIGN(0, "{\\rtf"), {"a rich text document (RTF)", "unsupported: RTF document", SAVE_AS}},
    {FOREIGN(0, "%!PS"), {"a PostScript file", "unsupported: PostScript", "make a PDF of it (ps2pdf)"}},
    {FOREIGN(60, "BOOKMOBI"), {"a Kindle book", "unsupported: Kindle book", "make an EPUB of it (ebook-convert)"}},
    {FOREIGN(0, "AT&TFORM"), {"a DjVu document", "unsupported: DjVu document", "make a text of it (djvutxt)"}},
    {FOREIGN(0, "SQLite format 3"), {"an SQLite database", binary, "write its text into files (sqlite3 FILE .dump)"}},
    {FOREIGN(0, "\x89PNG\r\n"), {"a PNG image", binary, IMAGE}},
    {FOREIGN(0, "\xFF\xD8\xFF"), {"a JPEG image", binary, IMAGE}},
    {FOREIGN(0, "GIF8"), {"a GIF image", binary, IMAGE}},
    {FOREIGN(0, "II*\0"), {"a TIFF image", binary, IMAGE}},
    {FOREIGN(0, "MM\0*"), {"a TIFF image", binary, IMAGE}},
    {FOREIGN(8, "WEBP"), {"a WebP image", binary, IMAGE}},
    {FOREIGN(4, "ftypheic"), {"a HEIC image", binary, IMAGE}},
    {FOREIGN(4, "ftypavif"), {"an AVIF image", binary, IMAGE}},
    {FOREIGN(8, "WAVEfmt"), {"a sound file (WAV)", binary, SOUND}},
    {FOREIGN(0, "ID3"), {"a sound file (MP3)", binary, SOUND}},
    {FOREIGN(0, "OggS"), {"a sound file (Ogg)", binary, SOUND}},
    {FOREIGN(0, "fLaC"), {"a sound file (FLAC)", binary, SOUND}},
    {FOREIGN(0, "MThd"), {"a sound file (MIDI)", binary, "it has no text: leave it out"}},
    {FOREIGN(4, "ftypM4A"), {"a sound file (MPEG-4)", binary, SOUND}},
    {FOREIGN(4, "ftyp"), {"a video (MPEG-4)", binary, SOUND}},
    {FOREIGN(8, "AVI LIST"), {"a video (AVI)", binary, SOUND}},
    {FOREIGN(0, "\x1A\x45\xDF\xA3"), {"a video (Matroska or WebM)", binary, SOUND}},
    {FOREIGN(0, "7z\xBC\xAF\x27\x1C"), {"a 7z archive", "unsupported: 7z archive", UNPACK}},
    {FOREIGN(0, "Rar!\x1A\x07"), {"a RAR archive", "unsupported: RAR archive", UNPACK}},
    {FOREIGN(0, "!<arch>\n"), {"an archive (ar) of code or a Debian package", binary, UNPACK}},
    {FOREIGN(0, "\x04\x22\x4D\x18"), {"compressed by lz4", "unsupported: lz4", UNPACK}},
    {FOREIGN(0, "LZIP\x01"), {"compressed by lzip", "unsupported: lzip", UNPACK}},
    {FOREIGN(0, "\x1F\x9D"), {"compressed by compress", "unsupported: compress", UNPACK}},
    {FOREIGN(0, "PAR1"), {"a Parquet table", binary, "write its text as JSON lines"}},
    {FOREIGN(0, "ARROW1"), {"an Arrow table", binary, "write its text as JSON lines"}},
    {FOREIGN(0, "\x89HDF\r\n"), {"an HDF5 file", binary, "write its text as JSON lines"}},
    {FOREIGN(0, "\x93NUMPY"), {"a NumPy array", binary, "it has no text: leave it out"}},
    {FOREIGN(0, "GGUF"), {"a model (GGUF)", binary, "it has no text: leave it out"}},
    {FOREIGN(0, "\x7F" "ELF"), {"a program or library (ELF)", binary, "it has no text: leave it out"}},
    {FOREIGN(0, "\xCA\xFE\xBA\xBE"), {"a compiled program", binary, "it has no text: leave it out"}},
    {FOREIGN(0, "\0asm"), {"a compiled program (WebAssembly)", binary, "it has no text: leave it out"}},
    {FOREIGN(0, "OTTO\0"), {"a font", binary, "it has no text: leave it out"}},
    {FOREIGN(0, "wOF"), {"a font", binary, "it has no text: leave it out"}},
};
// clang-format on

const kn_foreign_form kn_form_binary = {"binary data (it has NUL bytes)", binary,
                                        "if it is a text in UTF-16 or UTF-32, say so by `encoding`"};

static const kn_foreign_form office[] = {
    {"a Word document", "unsupported: Word document", SAVE_AS},
    {"a spreadsheet", "unsupported: spreadsheet", SAVE_AS " (or a table as CSV)"},
    {"a presentation", "unsupported: presentation", SAVE_AS},
    {"a LibreOffice document", "unsupported: LibreOffice document", SAVE_AS},
    {"an Office document", "unsupported: Office document", SAVE_AS},
};

static bool has(const char *data, size_t size, size_t at, const char *mark) {
    size_t length = strlen(mark);
    return size >= at + length && memcmp(data + at, mark, length) == 0;
}

// Marks of letters alone may begin a text about such files: what follows tells.
static bool looks_binary(const char *data, size_t size) {
    enum { CUT = 3 }; // bytes of a character at the end of what is seen
    return memchr(data, 0, size) || kn_utf8_valid(data, size) + CUT < size;
}

// bzip2 has numbers after its mark: of a block, or of an end.
static bool is_bzip2(const char *data, size_t size) {
    return has(data, size, 4, "1AY&SY") || has(data, size, 4, "\x17\x72\x45\x38\x50\x90");
}

// ---- zip files

// Where the first member's name begins, and (of a member that is stored as it is, of 8 bytes' name) its
// content.
enum { ZIP_NAME = 30, ZIP_MIMETYPE = ZIP_NAME + 8 };

static const char *const office_folders[] = {"word/", "xl/", "ppt/", NULL};
static const char *const office_extensions[] = {"docx", "xlsx", "pptx", NULL};

static const kn_foreign_form *tell_office(const char *data, size_t size, const char *name) {
    bool office_like = has(data, size, ZIP_NAME, "[Content_Types].xml") ||
                       has(data, size, ZIP_NAME, "_rels/.rels") || has(data, size, ZIP_NAME, "docProps/");
    for (size_t i = 0; office_folders[i]; i++)
        if (has(data, size, ZIP_NAME, office_folders[i]) || kn_form_has_extension(name, office_extensions[i]))
            return &office[i];
    if (has(data, size, ZIP_MIMETYPE, "application/vnd.oasis.opendocument")) return &office[3];
    return office_like ? &office[4] : NULL;
}

static kn_form tell_zip(const char *data, size_t size, const char *name, const kn_foreign_form **foreign) {
    if (has(data, size, ZIP_MIMETYPE, "application/epub+zip") || kn_form_has_extension(name, "epub"))
        return KN_FORM_EPUB;
    *foreign = tell_office(data, size, name);
    return *foreign ? KN_FORM_FOREIGN : KN_FORM_ZIP;
}

// ---- tar files

// The sum of a header's bytes, its own field taken as spaces, stands in it in octal: the only mark of old
// ones.
static bool is_tar(const char *data, size_t size) {
    enum { HEADER = 512, SUM = 148, SUM_END = 156 };
    unsigned sum = 0, said = 0;
    size_t at = SUM;
    if (size < HEADER || !data[0]) return false;
    for (size_t i = 0; i < HEADER; i++) sum += i >= SUM && i < SUM_END ? ' ' : (unsigned char)data[i];
    while (at < SUM_END && data[at] == ' ') at++;
    for (; at < SUM_END && data[at] >= '0' && data[at] <= '7'; at++)
        said = said * 8 + (unsigned)(data[at] - '0');
    return said == sum;
}

// ---- all of them

kn_form kn_form_tell(const char *data, size_t size, const char *name, const kn_foreign_form **foreign) {
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const mark *m = &marks[i];
        if (size < m->at + m->size || memcmp(data + m->at, m->mark, m->size) != 0) continue;
        if (m->form == KN_FORM_ZIP) return tell_zip(data, size, name, foreign);
        if (m->form == KN_FORM_BZIP2 && !is_bzip2(data, size)) continue;
        if (m->foreign.reason == binary && !looks_binary(data, size)) continue;
        if (m->form == KN_FORM_FOREIGN) *foreign = &m->foreign;
        return m->form;
    }
    return is_tar(data, size) ? KN_FORM_TAR : KN_FORM_TEXT;
}

const char *kn_form_name(kn_form form) {
    static const char *const names[] = {"text", "gzip", "zstd", "xz",  "bzip2",
                                        "tar",  "zip",  "EPUB", "PDF", "?"};
    return names[form];
}

bool kn_form_is_packed(kn_form form) {
    return form >= KN_FORM_GZIP && form <= KN_FORM_BZIP2;
}

bool kn_form_is_archive(kn_form form) {
    return form == KN_FORM_TAR || form == KN_FORM_ZIP;
}

// ---- by name

static bool ends(const char *name, size_t size, const char *extension) {
    size_t length = strlen(extension);
    return size > length && name[size - length - 1] == '.' &&
           strncasecmp(name + size - length, extension, length) == 0;
}

bool kn_form_has_extension(const char *name, const char *extension) {
    static const char *const packed[] = {"gz", "zst", "xz", "bz2"};
    size_t size = strlen(name);
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (ends(name, size, packed[i])) return ends(name, size - strlen(packed[i]) - 1, extension);
    return ends(name, size, extension);
}

// ---- HTML

static size_t skip_space(const char *text, size_t size, size_t at) {
    while (at < size && text[at] && strchr(" \t\r\n\f", text[at])) at++;
    return at;
}

static bool begins(const char *text, size_t size, size_t at, const char *with) {
    size_t length = strlen(with);
    return size - at >= length && strncasecmp(text + at, with, length) == 0;
}

// After white space, comments and what XML says of itself.
static size_t skip_prologue(const char *text, size_t size) {
    size_t at = has(text, size, 0, "\xEF\xBB\xBF") ? 3 : 0;
    for (;;) {
        at = skip_space(text, size, at);
        const char *close = begins(text, size, at, "<!--")    ? "-->"
                            : begins(text, size, at, "<?xml") ? "?>"
                                                              : NULL;
        const char *end = close ? memmem(text + at, size - at, close, strlen(close)) : NULL;
        if (!end) return at;
        at = (size_t)(end - text) + strlen(close);
    }
}

bool kn_form_is_html(const char *text, size_t size, const char *name) {
    static const char *const starts[] = {"<!doctype html", "<html", "<head>", "<body"};
    static const char *const extensions[] = {"html", "htm", "xhtml", "xht"};
    size_t at = skip_prologue(text, size);
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (begins(text, size, at, starts[i])) return true;
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        if (kn_form_has_extension(name, extensions[i])) return true;
    return false;
}
