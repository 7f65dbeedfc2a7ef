// What a file is, told by its first bytes; its name decides only where they leave it open.
#ifndef KN_TEXT_FORM_H
#define KN_TEXT_FORM_H

#include <stdbool.h>
#include <stddef.h>

typedef enum kn_form {
    KN_FORM_TEXT, // whatever is nothing else
    KN_FORM_GZIP,
    KN_FORM_ZSTD,
    KN_FORM_XZ,
    KN_FORM_BZIP2,
    KN_FORM_TAR,
    KN_FORM_ZIP,
    KN_FORM_EPUB,
    KN_FORM_PDF,
    KN_FORM_FOREIGN, // nothing that is read here
} kn_form;

// A form that is not read, and what can be done about it.
typedef struct kn_foreign_form {
    const char *what;   // "a PNG image"
    const char *reason; // of skipping it, the same for all of a kind
    const char *advice;
} kn_foreign_form;

enum { KN_FORM_PEEK = 8192 }; // bytes that tell it

// *foreign is set with KN_FORM_FOREIGN alone; a constant.
kn_form kn_form_tell(const char *data, size_t size, const char *name, const kn_foreign_form **foreign);
const char *kn_form_name(kn_form form); // "gzip", ...
// Whether it is compressed, an archive.
bool kn_form_is_packed(kn_form form);
bool kn_form_is_archive(kn_form form);
// Whether a text, in an encoding that has ASCII as it is, begins as HTML or XHTML does, or is called so.
bool kn_form_is_html(const char *text, size_t size, const char *name);
// A text with NULs is none.
extern const kn_foreign_form kn_form_binary;
// Whether `name` ends with "." and `extension`, in any case; endings of compression are passed over.
bool kn_form_has_extension(const char *name, const char *extension);

#endif
