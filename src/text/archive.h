// Archives (tar, zip): their members one after another, as streams; and xz and bzip2, which libarchive
// unpacks too.
#ifndef KN_TEXT_ARCHIVE_H
#define KN_TEXT_ARCHIVE_H

#include "text/form.h"
#include "text/stream.h"

typedef struct kn_archive kn_archive;

typedef enum kn_member_kind {
    KN_MEMBER_FILE,
    KN_MEMBER_FOLDER,
    KN_MEMBER_LINK,
    KN_MEMBER_OTHER, // a device or the like
} kn_member_kind;

typedef struct kn_member {
    const char *name; // valid until the next one
    kn_member_kind kind;
} kn_member;

// KN_FORM_TAR or _ZIP. The source is the archive's, whatever is returned; a zip file whose source can seek is
// read by its directory.
knnlm_status kn_archive_open(kn_stream *source, kn_form form, kn_archive **out);
// KNNLM_OK with *found false at the end.
knnlm_status kn_archive_next(kn_archive *a, kn_member *out, bool *found);
// The content of the member at hand; the stream is called `name`, and ends before the next one.
knnlm_status kn_archive_read(kn_archive *a, const char *name, kn_stream **out);
// About how many bytes of the source are behind what was read: where the member begins, and its content.
uint64_t kn_archive_done(const kn_archive *a);
// After a failure: whether nothing more can be read from it.
bool kn_archive_broken(const kn_archive *a);
// NULL is allowed.
void kn_archive_close(kn_archive *a);

// xz or bzip2 unpacked. The source is the result's, whatever is returned.
knnlm_status kn_archive_unpack(kn_stream *source, kn_form form, kn_stream **out);

#endif
