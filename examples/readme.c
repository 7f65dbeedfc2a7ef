// The example of the README: remember texts, then ask what comes next. Usage: readme MODEL STORE TEXT PROMPT
#include <knnlm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void try(knnlm_status status) {
    if (status == KNNLM_OK) return;
    fprintf(stderr, "%s\n", knnlm_message());
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    const char *store = argv[2], *text = argv[3], *prompt = argv[4];
    knnlm_model *model;
    knnlm_mixture *mixture;
    knnlm_text *answer;
    int32_t *tokens;
    size_t count;
    knnlm_finish finish = KNNLM_FINISH_NOT;
    try(knnlm_model_open(argv[1], NULL, &model));
    try(knnlm_build(model, store, &text, 1, NULL, NULL)); // remembers every context of the text
    knnlm_mixture_options options = knnlm_mixture_options_default();
    options.stores = &store;
    options.store_count = 1;
    try(knnlm_mixture_open(model, &options, &mixture));
    try(knnlm_model_encode(model, prompt, strlen(prompt), &tokens, &count));
    try(knnlm_text_open(mixture, tokens, count, NULL, &answer));
    while (finish == KNNLM_FINISH_NOT) try(knnlm_text_step(answer, &finish));
    printf("%s%s\n", prompt, knnlm_text_read(answer, &count));
    knnlm_text_close(answer);
    knnlm_free(tokens);
    knnlm_mixture_close(mixture);
    knnlm_model_close(model);
}
