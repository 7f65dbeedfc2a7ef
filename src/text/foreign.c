// Tokenizers of other models: tokens to text here, text to tokens by who made them.
#include "text/tokenizer_kinds.h"

static knnlm_status encode(const kn_tokenizer *t, const char *text, size_t size, kn_tokens *out) {
    const kn_foreign *f = (const kn_foreign *)t;
    if (f->encode) return f->encode(f, text, size, out);
    return kn_fail(KNNLM_ENOTSUP,
                   "this copy of a model's vocabulary turns tokens into text only: text needs the model");
}

static knnlm_status decode(const kn_tokenizer *t, const int32_t *ids, size_t index, kn_buffer *out) {
    const kn_foreign *f = (const kn_foreign *)t;
    const char *text = kn_strings_at(&f->texts, (size_t)ids[index]);
    size_t size = kn_strings_size(&f->texts, (size_t)ids[index]);
    bool drop = f->adds_space && index > 0 && ids[index - 1] == t->start && size && *text == ' ';
    return kn_buffer_put(out, text + drop, size - drop);
}

static const void *rules(const kn_tokenizer *t, size_t *size) {
    const kn_foreign *f = (const kn_foreign *)t;
    *size = sizeof f->rules;
    return f->rules;
}

static void release(kn_tokenizer *t) {
    kn_strings_free(&((kn_foreign *)t)->texts);
}

static const kn_tokenizer_class sentencepiece = {
    KN_TOKENIZER_SENTENCEPIECE, encode, decode, kn_foreign_save, rules, release};
static const kn_tokenizer_class foreign = {KN_TOKENIZER_FOREIGN, encode, decode,
                                           kn_foreign_save,      rules,  release};

knnlm_status kn_foreign_make(kn_tokenizer_kind kind, size_t bytes, kn_strings *pieces, kn_strings *texts,
                             kn_foreign **out) {
    // Pieces need not differ, and nobody looks for one: they have no hash.
    kn_vocab vocab = {.strings = *pieces};
    const kn_tokenizer_class *class = kind == KN_TOKENIZER_SENTENCEPIECE ? &sentencepiece : &foreign;
    kn_foreign *f = (kn_foreign *)kn_tokenizer_make(class, bytes, &vocab);
    if (f) f->texts = *texts;
    if (!f) {
        kn_vocab_free(&vocab);
        kn_strings_free(texts);
    }
    *pieces = *texts = (kn_strings){0};
    *out = f;
    return f ? KNNLM_OK : KNNLM_ENOMEM;
}
