// Words in UTF-8: where they begin and end, in any script.
//
// A word is a run of letters, digits and the marks on them; an apostrophe between two of them is part of it.
// Scripts that write no space between words (Chinese, Japanese, Thai, ...) have a word per character.
#ifndef KN_BASE_WORDS_H
#define KN_BASE_WORDS_H

#include <stdbool.h>
#include <stddef.h>

// Whether no word, and no character, goes across byte `at`; true at both ends of the text.
bool kn_word_border(const char *text, size_t size, size_t at);
// Words that begin in the text; punctuation is none.
size_t kn_word_count(const char *text, size_t size);
// The nearest border at `at` or after it, and at it or before it.
size_t kn_word_border_after(const char *text, size_t size, size_t at);
size_t kn_word_border_before(const char *text, size_t size, size_t at);

#endif
