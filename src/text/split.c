// Splits text as GPT-2's pattern does: ASCII by hand, the rest by PCRE2.
#include "text/split.h"

#include "base/memory.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static const char PATTERN[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct kn_splitter {
    pcre2_code *code;
    pcre2_match_data *match;
};

knnlm_status kn_splitter_open(kn_splitter **out) {
    int error;
    PCRE2_SIZE where;
    kn_splitter *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->code = pcre2_compile((PCRE2_SPTR)PATTERN, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &where, NULL);
    s->match = s->code ? pcre2_match_data_create(1, NULL) : NULL;
    if (!s->match) {
        kn_splitter_close(s);
        return kn_fail(KNNLM_ENOMEM, "cannot compile the pre-tokenizer's pattern");
    }
    pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE); // where there is no JIT the interpreter serves
    *out = s;
    return KNNLM_OK;
}

void kn_splitter_close(kn_splitter *s) {
    if (!s) return;
    pcre2_match_data_free(s->match);
    pcre2_code_free(s->code);
    free(s);
}

knnlm_status kn_split_pattern(kn_splitter *s, const char *text, size_t size, size_t at, size_t *end) {
    int found = pcre2_match(s->code, (PCRE2_SPTR)text, size, at, PCRE2_NO_UTF_CHECK, s->match, NULL);
    if (found < 0)
        return kn_fail(KNNLM_EDATA, "the pre-tokenizer failed at byte %zu (PCRE2 error %d)", at, found);
    *end = pcre2_get_ovector_pointer(s->match)[1];
    return KNNLM_OK;
}

enum { MARK, LETTER, DIGIT, SPACE, BEYOND };

static inline int class_of(char c) {
    static const uint8_t classes[256] = {
        ['\t' ... '\r'] = SPACE, [' '] = SPACE,          ['0' ... '9'] = DIGIT,
        ['A' ... 'Z'] = LETTER,  ['a' ... 'z'] = LETTER, [0x80 ... 0xFF] = BEYOND,
    };
    return classes[(uint8_t)c];
}

static size_t contraction(const char *text, size_t size, size_t at) {
    if (at + 1 >= size) return 0;
    char a = text[at + 1], b = at + 2 < size ? text[at + 2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    return 0;
}

// A run of white space leaves its last character to the word that follows.
static size_t white_space(const char *text, size_t size, size_t at) {
    size_t end = at;
    while (end < size && class_of(text[end]) == SPACE) end++;
    if (end == size || end == at + 1) return end < size && class_of(text[end]) == BEYOND ? 0 : end;
    return class_of(text[end]) == BEYOND ? 0 : end - 1;
}

size_t kn_split_ascii(const char *text, size_t size, size_t at) {
    if (text[at] == '\'') {
        size_t end = contraction(text, size, at);
        if (end) return end;
    }
    size_t end = at + (text[at] == ' ' && at + 1 < size);
    int class = class_of(text[end]);
    if (class == BEYOND) return 0;
    if (class == SPACE) return white_space(text, size, at);
    while (end < size && class_of(text[end]) == class) end++;
    return end < size && class_of(text[end]) == BEYOND ? 0 : end;
}

knnlm_status kn_splitter_next(kn_splitter *s, const char *text, size_t size, size_t at, size_t *end) {
    *end = kn_split_ascii(text, size, at);
    return *end ? KNNLM_OK : kn_split_pattern(s, text, size, at, end);
}
