// One file as texts: unpacked, decoded, out of whatever form it has. Most files are one text; every member of
// an archive is one. Not a door: only this room includes it.
#ifndef KN_TEXT_FILE_H
#define KN_TEXT_FILE_H

#include "base/progress.h"
#include "text/walk.h"

typedef struct kn_text_file kn_text_file;

// `file`, `options` and `progress` (or NULL) outlive the result.
knnlm_status kn_text_file_open(const kn_walk_file *file, const kn_text_options *options,
                               const kn_progress *progress, kn_text_file **out);
// Goes to the next text; *found false: there is none left. What cannot be read is skipped, or fails the call
// where it was named itself.
knnlm_status kn_text_file_next(kn_text_file *f, bool *found);
// Up to `size` bytes of the text at hand, of which it is not known yet whether they are UTF-8; *got is 0 only
// at its end.
knnlm_status kn_text_file_read(kn_text_file *f, char *data, size_t size, size_t *got);
// The text at hand turned out to be unreadable after all (`reason` NULL: as the failed read tells): KNNLM_OK
// when the rest of it is skipped, else `status`.
knnlm_status kn_text_file_skip(kn_text_file *f, knnlm_status status, const char *reason);
// Of the text at hand: the path, and after a slash the name of the member.
const char *kn_text_file_name(const kn_text_file *f);
// The same, of the file wherever it is typed from: absolute, without links. What no path leads to (standard
// input, a pipe) keeps its name. Valid until the next call; NULL: no memory.
const char *kn_text_file_place(kn_text_file *f);
// Bytes of that name before the document's own.
size_t kn_text_file_own(const kn_text_file *f);
// Bytes of the file that were read, about; it never falls.
uint64_t kn_text_file_done(kn_text_file *f);
// NULL is allowed.
void kn_text_file_close(kn_text_file *f);

#endif
