// Words with their sources: write MODEL STORE "PROMPT"
#include <knnlm.h>

#include <stdio.h>
#include <string.h>

static int fail(void) {
    fprintf(stderr, "write: %s\n", knnlm_message());
    return 1;
}

// Words as they come.
static int grow(knnlm_text *text) {
    knnlm_finish finish = KNNLM_FINISH_NOT;
    size_t shown = 0, size;
    while (finish == KNNLM_FINISH_NOT) {
        if (knnlm_text_step(text, &finish) != KNNLM_OK) return fail();
        const char *words = knnlm_text_read(text, &size);
        fwrite(words + shown, 1, size - shown, stdout);
        shown = size;
    }
    printf("\n");
    return 0;
}

static int tell_sources(const knnlm_text *text) {
    for (size_t i = 1; i <= knnlm_text_sources(text); i++) {
        knnlm_text_source s;
        if (knnlm_text_source_at(text, i, &s) != KNNLM_OK) return fail();
        if (!s.footnote) continue; // a single word
        printf("[%zu] %s, token %llu, %.0f%%: ...%s[%s]%s...\n", s.footnote, s.document,
               (unsigned long long)s.position, 100 * s.share, s.before, s.text, s.after);
    }
    return 0;
}

static int write_text(knnlm_model *model, const char *store, const char *prompt) {
    knnlm_mixture_options options = knnlm_mixture_options_default();
    knnlm_mixture *mixture = NULL;
    knnlm_text *text = NULL;
    int32_t *tokens = NULL;
    size_t count;
    options.stores = &store;
    options.store_count = 1;
    int code = 1;
    if (knnlm_mixture_open(model, &options, &mixture) == KNNLM_OK &&
        knnlm_model_encode(model, prompt, strlen(prompt), &tokens, &count) == KNNLM_OK &&
        knnlm_text_open(mixture, tokens, count, NULL, &text) == KNNLM_OK)
        code = grow(text) || tell_sources(text);
    else
        fail();
    knnlm_text_close(text);
    knnlm_free(tokens);
    knnlm_mixture_close(mixture);
    return code;
}

int main(int argc, char **argv) {
    knnlm_model *model;
    if (argc != 4) {
        fprintf(stderr, "usage: write MODEL STORE \"PROMPT\"\n");
        return 2;
    }
    if (knnlm_model_open(argv[1], NULL, &model) != KNNLM_OK) return fail();
    int code = write_text(model, argv[2], argv[3]);
    knnlm_model_close(model);
    return code;
}
