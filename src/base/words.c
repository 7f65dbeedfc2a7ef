// Finds the borders of words, by Unicode's categories.
#include "base/words.h"

#include "base/utf8.h"

#include <utf8proc.h>

typedef enum kind {
    KIND_OTHER,      // spaces, punctuation, symbols
    KIND_LETTER,     // digits too, and what is no character: it may be a part of one
    KIND_MARK,       // belongs to the character before it
    KIND_ALONE,      // a word by itself
    KIND_APOSTROPHE, // part of a word where it has letters on both sides
} kind;

static bool is_alone(uint32_t c) {
    static const uint32_t ranges[][2] = {
        {0x0E00, 0x0EFF},   // Thai, Lao
        {0x1000, 0x109F},   // Myanmar
        {0x1780, 0x17FF},   // Khmer
        {0x2E80, 0xA4CF},   // Chinese, Japanese, Yi
        {0xF900, 0xFAFF},   // more of the Chinese
        {0x20000, 0x3FFFF}, // and still more
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

static kind kind_of(uint32_t c) {
    if (c == '\'' || c == 0x2019) return KIND_APOSTROPHE;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) return KIND_MARK;
    bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO;
    if (letter) return is_alone(c) ? KIND_ALONE : KIND_LETTER;
    return category == UTF8PROC_CATEGORY_PC ? KIND_LETTER : KIND_OTHER; // names_like_this
}

static bool is_continuation(char byte) {
    return ((unsigned char)byte & 0xC0) == 0x80;
}

// The kind of the character that begins at `at`, and where the next one begins.
static kind kind_after(const char *text, size_t size, size_t at, size_t *next) {
    uint32_t c;
    size_t whole = kn_utf8_decode(text + at, size - at, &c);
    *next = at + (whole ? whole : 1);
    return whole ? kind_of(c) : KIND_LETTER;
}

// The kind of the character that ends at `at`, above 0, and where it begins.
static kind kind_before(const char *text, size_t at, size_t *first) {
    uint32_t c;
    *first = at - 1;
    while (*first > 0 && at - *first < 4 && is_continuation(text[*first])) --*first;
    if (kn_utf8_decode(text + *first, at - *first, &c) == at - *first) return kind_of(c);
    *first = at - 1;
    return KIND_LETTER;
}

static bool is_letter_after(const char *text, size_t size, size_t at) {
    size_t next;
    return at < size && kind_after(text, size, at, &next) == KIND_LETTER;
}

static bool is_letter_before(const char *text, size_t at) {
    size_t first;
    kind k = at ? kind_before(text, at, &first) : KIND_OTHER;
    return k == KIND_LETTER || k == KIND_MARK;
}

bool kn_word_border(const char *text, size_t size, size_t at) {
    size_t first, next;
    if (at == 0 || at >= size) return true;
    if (is_continuation(text[at])) return false;
    kind right = kind_after(text, size, at, &next), left = kind_before(text, at, &first);
    if (right == KIND_MARK) return false;
    if (right == KIND_APOSTROPHE) return !is_letter_before(text, at) || !is_letter_after(text, size, next);
    if (right != KIND_LETTER) return true;
    if (left == KIND_APOSTROPHE) return !is_letter_before(text, first);
    return left != KIND_LETTER && left != KIND_MARK;
}

size_t kn_word_count(const char *text, size_t size) {
    size_t count = 0;
    for (size_t at = 0, next; at < size; at = next) {
        kind k = kind_after(text, size, at, &next);
        count += (k == KIND_LETTER || k == KIND_ALONE) && kn_word_border(text, size, at);
    }
    return count;
}

size_t kn_word_border_after(const char *text, size_t size, size_t at) {
    while (!kn_word_border(text, size, at)) at++;
    return at;
}

size_t kn_word_border_before(const char *text, size_t size, size_t at) {
    while (!kn_word_border(text, size, at)) at--;
    return at;
}
