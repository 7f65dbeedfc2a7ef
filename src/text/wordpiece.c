// BERT's uncased WordPiece: text is cleaned, stripped of accents and lowered, cut at white space and marks,
// and each word is covered by the longest pieces of the vocabulary from left to right; pieces within a word
// begin with "##".
#include "base/utf8.h"
#include "text/tokenizer_kinds.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define UNK "[UNK]"
#define CLS "[CLS]"

enum { WORD_MAX = 100, CHARACTER_BYTES = 4, PARTS_MAX = 32, MARK = 2 };

typedef struct wordpiece {
    kn_tokenizer base;
    int32_t unk;
} wordpiece;

// A word while it is gathered; past WORD_MAX characters only its length matters. bytes[0..1] hold "##".
typedef struct word {
    char bytes[MARK + WORD_MAX * CHARACTER_BYTES];
    size_t starts[WORD_MAX + 1];    // of characters in bytes
    uint64_t offsets[WORD_MAX + 1]; // of characters in the text
    size_t length;
} word;

// ---- characters

static bool is_space(uint32_t c, utf8proc_category_t category) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || category == UTF8PROC_CATEGORY_ZS;
}

static bool is_dropped(uint32_t c, utf8proc_category_t category) {
    return c == 0 || c == 0xFFFD || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_CS;
}

// Marks of Unicode, and all of ASCII that is neither letter nor digit.
static bool is_mark(uint32_t c, utf8proc_category_t category) {
    if (c < 0x80)
        return c > ' ' && c != 0x7F && !((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9');
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

static bool is_han(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// ---- words to pieces

// The longest piece that begins at character `from`; 0 when none does. "##" overwrites what is before it,
// which has been covered already.
static size_t longest_piece(const kn_vocab *vocab, word *w, size_t from, int32_t *id) {
    char *begin = w->bytes + w->starts[from];
    if (from > 0) {
        begin -= MARK;
        memcpy(begin, "##", MARK);
    }
    for (size_t to = w->length; to > from; to--) {
        *id = kn_vocab_find(vocab, begin, (size_t)(w->bytes + w->starts[to] - begin));
        if (*id >= 0) return to - from;
    }
    return 0;
}

static knnlm_status end_word(const wordpiece *t, word *w, kn_tokens *out) {
    size_t before = out->count;
    bool known = w->length <= WORD_MAX;
    for (size_t from = 0, n; known && from < w->length; from += n) {
        int32_t id;
        n = longest_piece(&t->base.vocab, w, from, &id);
        known = n > 0;
        if (known) KN_TRY(kn_tokens_push(out, id, w->offsets[from]));
    }
    if (!known) {
        out->count = before;
        KN_TRY(kn_tokens_push(out, t->unk, w->offsets[0]));
    }
    w->length = 0;
    return KNNLM_OK;
}

static void add_character(word *w, uint32_t c, uint64_t offset) {
    if (w->length < WORD_MAX) {
        size_t start = w->starts[w->length];
        w->offsets[w->length] = offset;
        w->starts[w->length + 1] = start + kn_utf8_encode(c, w->bytes + start);
    }
    w->length++;
}

static knnlm_status take_character(const wordpiece *t, word *w, uint32_t c, uint64_t offset, kn_tokens *out) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    bool alone = is_mark(c, category) || is_han(c);
    if (alone && w->length) KN_TRY(end_word(t, w, out));
    add_character(w, c, offset);
    return alone ? end_word(t, w, out) : KNNLM_OK;
}

// ---- text to characters

static knnlm_status take_decomposed(const wordpiece *t, word *w, uint32_t c, uint64_t offset,
                                    kn_tokens *out) {
    utf8proc_int32_t parts[PARTS_MAX];
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, parts, PARTS_MAX, UTF8PROC_DECOMPOSE, &boundary);
    if (n < 0 || n > PARTS_MAX) return kn_fail(KNNLM_EDATA, "U+%04X cannot be decomposed", c);
    for (utf8proc_ssize_t i = 0; i < n; i++)
        if (utf8proc_category(parts[i]) != UTF8PROC_CATEGORY_MN)
            KN_TRY(take_character(t, w, (uint32_t)utf8proc_tolower(parts[i]), offset, out));
    return KNNLM_OK;
}

static knnlm_status take(const wordpiece *t, word *w, uint32_t c, uint64_t offset, kn_tokens *out) {
    if (c > ' ' && c < 0x7F) return take_character(t, w, c >= 'A' && c <= 'Z' ? c + 32 : c, offset, out);
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    if (is_space(c, category)) return w->length ? end_word(t, w, out) : KNNLM_OK;
    return is_dropped(c, category) ? KNNLM_OK : take_decomposed(t, w, c, offset, out);
}

static knnlm_status encode(const kn_tokenizer *base, const char *text, size_t size, kn_tokens *out) {
    const wordpiece *t = (const wordpiece *)base;
    word w = {.starts = {MARK}};
    for (size_t at = 0, n; at < size; at += n) {
        uint32_t c;
        n = kn_utf8_decode(text + at, size - at, &c);
        if (!n) return kn_fail(KNNLM_EDATA, "not UTF-8 at byte %zu", at);
        KN_TRY(take(t, &w, c, at, out));
    }
    return w.length ? end_word(t, &w, out) : KNNLM_OK;
}

static knnlm_status decode_token(const kn_tokenizer *t, const int32_t *ids, size_t index, kn_buffer *out) {
    size_t id = (size_t)ids[index], size = kn_strings_size(&t->vocab.strings, id);
    const char *piece = kn_strings_at(&t->vocab.strings, id);
    if (size > MARK && memcmp(piece, "##", MARK) == 0) return kn_buffer_put(out, piece + MARK, size - MARK);
    if (index > 0) KN_TRY(kn_buffer_put(out, " ", 1));
    return kn_buffer_put(out, piece, size);
}

static const kn_tokenizer_class wordpiece_class = {
    .kind = KNNLM_TOKENIZER_WORDPIECE, .encode = encode, .decode = decode_token, .save = kn_wordpiece_save};

knnlm_status kn_wordpiece_make(kn_vocab *vocab, kn_tokenizer **out) {
    int32_t unk = kn_vocab_find(vocab, UNK, strlen(UNK)), cls = kn_vocab_find(vocab, CLS, strlen(CLS));
    if (unk < 0 || cls < 0) {
        kn_vocab_free(vocab);
        return kn_fail(KNNLM_EDATA, "no %s in the vocabulary: not BERT's vocab.txt", unk < 0 ? UNK : CLS);
    }
    wordpiece *t = (wordpiece *)kn_tokenizer_make(&wordpiece_class, sizeof *t, vocab);
    if (!t) {
        kn_vocab_free(vocab);
        return KNNLM_ENOMEM;
    }
    t->unk = unk;
    t->base.start = cls;
    *out = &t->base;
    return KNNLM_OK;
}

static knnlm_status parse_lines(const char *data, size_t size, kn_vocab *vocab) {
    size_t valid = kn_utf8_valid(data, size);
    if (valid < size) return kn_fail(KNNLM_EDATA, "not UTF-8 at byte %zu", valid);
    for (size_t at = 0; at < size;) {
        const char *newline = memchr(data + at, '\n', size - at);
        size_t end = newline ? (size_t)(newline - data) : size, length = end - at;
        if (length && data[end - 1] == '\r') length--;
        KN_TRY(kn_vocab_add(vocab, data + at, length));
        at = end + 1;
    }
    return KNNLM_OK;
}

knnlm_status kn_wordpiece_parse(const char *data, size_t size, kn_tokenizer **out) {
    kn_vocab vocab = {0};
    if (!size) return kn_fail(KNNLM_EDATA, "the vocabulary is empty");
    knnlm_status status = parse_lines(data, size, &vocab);
    if (status == KNNLM_OK) return kn_wordpiece_make(&vocab, out);
    kn_vocab_free(&vocab);
    return status;
}
