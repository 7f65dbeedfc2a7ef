// Bytes one after another, whatever they come from: a file, a member of an archive, another stream unpacked
// or decoded. What comes next can be looked at before it is taken.
#ifndef KN_TEXT_STREAM_H
#define KN_TEXT_STREAM_H

#include "text/buffer.h"

typedef struct kn_stream kn_stream;
// Every kind of stream begins with this.
struct kn_stream {
    // Up to `size` bytes, of which there are at least KN_STREAM_ROOM; *got is 0 only at the end.
    knnlm_status (*read)(kn_stream *s, char *data, size_t size, size_t *got);
    void (*release)(kn_stream *s); // what the kind holds
    // To `offset` bytes from the beginning (`whence` as lseek has it), and where that is; NULL: cannot.
    knnlm_status (*seek)(kn_stream *s, int64_t offset, int whence, int64_t *place);
    char *name;          // in messages
    const char *trouble; // why it failed, where that is not damage: a constant
    kn_buffer ahead;     // looked at: [taken, size) was not taken yet
    size_t taken;
    bool ended;
};
enum { KN_STREAM_ROOM = 4096 };

// A stream of `bytes` bytes (its own struct, zeroed); NULL: no memory.
kn_stream *kn_stream_make(size_t bytes, const char *name);
// NULL is allowed.
void kn_stream_close(kn_stream *s);
// What comes next: at least `wanted` bytes, fewer only at the end, more where they are at hand. Valid until
// the next call.
knnlm_status kn_stream_peek(kn_stream *s, size_t wanted, const char **data, size_t *size);
// The same of the source of another stream, which has the source's trouble when it fails.
knnlm_status kn_stream_peek_source(kn_stream *s, kn_stream *source, size_t wanted, const char **data,
                                   size_t *size);
// Passes over what was looked at.
void kn_stream_take(kn_stream *s, size_t size);
// Up to `size` bytes; *got is 0 only at the end.
knnlm_status kn_stream_read(kn_stream *s, char *data, size_t size, size_t *got);
// All that is left. KNNLM_ENOTSUP: more than `max` bytes.
knnlm_status kn_stream_read_all(kn_stream *s, size_t max, kn_buffer *out);

// Bytes in memory, which are the stream's from now on, whatever is returned (`text` is left empty).
knnlm_status kn_stream_of_memory(kn_buffer *text, const char *name, kn_stream **out);

#endif
