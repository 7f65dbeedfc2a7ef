// A tokenizer whose encoder another engine brings along.
#include "text/foreign.h"

#include "base/utf8.h"
#include "text/tokenizer_kinds.h"

#include <stdlib.h>

typedef struct foreign_tokenizer {
    kn_tokenizer base; // its vocabulary holds the pieces
    kn_foreign_parts parts;
} foreign_tokenizer;

static const foreign_tokenizer *of(const kn_tokenizer *t) {
    return (const foreign_tokenizer *)t;
}

static knnlm_status encode(const kn_tokenizer *t, const char *text, size_t size, kn_tokens *out) {
    const kn_foreign_parts *p = &of(t)->parts;
    size_t valid = kn_utf8_valid(text, size);
    if (valid != size) return kn_fail(KNNLM_EDATA, "not UTF-8 at byte %zu", valid);
    if (p->encode) return size ? p->encode(t, p->context, text, size, out) : KNNLM_OK;
    return kn_fail(KNNLM_ENOTSUP,
                   "this copy of a model's vocabulary turns tokens into text only: text needs the model");
}

static knnlm_status decode(const kn_tokenizer *t, const int32_t *ids, size_t index, kn_buffer *out) {
    const kn_foreign_parts *p = &of(t)->parts;
    const char *text = kn_strings_at(&p->texts, (size_t)ids[index]);
    size_t size = kn_strings_size(&p->texts, (size_t)ids[index]);
    bool drop = p->adds_space && index > 0 && ids[index - 1] == t->start && size && *text == ' ';
    return kn_buffer_put(out, text + drop, size - drop);
}

static const void *rules(const kn_tokenizer *t, size_t *size) {
    *size = sizeof of(t)->parts.rules;
    return of(t)->parts.rules;
}

static void release(kn_tokenizer *t) {
    kn_foreign_parts_free(&((foreign_tokenizer *)t)->parts);
}

static const kn_tokenizer_class sentencepiece = {
    KNNLM_TOKENIZER_SENTENCEPIECE, encode, decode, kn_foreign_save, rules, release};
static const kn_tokenizer_class foreign = {KNNLM_TOKENIZER_FOREIGN, encode, decode,
                                           kn_foreign_save,         rules,  release};

void kn_foreign_parts_free(kn_foreign_parts *p) {
    kn_strings_free(&p->pieces);
    kn_strings_free(&p->texts);
    free(p->context);
    *p = (kn_foreign_parts){0};
}

knnlm_status kn_foreign_make(kn_foreign_parts *parts, kn_tokenizer **out) {
    const kn_tokenizer_class *class =
        parts->kind == KNNLM_TOKENIZER_SENTENCEPIECE ? &sentencepiece : &foreign;
    kn_vocab vocab = {.strings = parts->pieces}; // without a hash: nobody looks for a piece
    foreign_tokenizer *t = (foreign_tokenizer *)kn_tokenizer_make(class, sizeof *t, &vocab);
    if (!t) {
        kn_foreign_parts_free(parts);
        return KNNLM_ENOMEM;
    }
    parts->pieces = (kn_strings){0};
    t->parts = *parts;
    t->base.start = parts->start;
    *parts = (kn_foreign_parts){0};
    *out = &t->base;
    return KNNLM_OK;
}

const kn_foreign_parts *kn_foreign_parts_of(const kn_tokenizer *t) {
    return t->class == &sentencepiece || t->class == &foreign ? &of(t)->parts : NULL;
}
