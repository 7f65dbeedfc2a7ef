// knnlm tokenize: the tokens of a text.
#include "base/file.h"
#include "cli/input.h"
#include "cli/model.h"
#include "cli/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct {
    cli_common common;
    const char *model, *store;
} args;

// One option a line.
// clang-format off
static const cli_option options[] = {
    {'m', "model", CLI_STRING, &args.model, "FILE", "the model whose tokenizer is asked", 0, 0, NULL},
    {'s', "store", CLI_STRING, &args.store, "STORE", "in its place: the tokenizer that a store keeps", 0, 0, NULL},
    CLI_ENGINE_OPTION(args.common),
    CLI_COMMON_OPTIONS(args.common),
};
// clang-format on

// Whose tokenizer: one of the two.
typedef struct tokenizer {
    knnlm_model *model;
    knnlm_store *store;
} tokenizer;

static knnlm_status encode(const tokenizer *t, const cli_text *text, int32_t **tokens, size_t *count) {
    return t->model ? knnlm_model_encode(t->model, text->data, text->size, tokens, count)
                    : knnlm_store_encode(t->store, text->data, text->size, tokens, count);
}

static knnlm_status decode(const tokenizer *t, int32_t token, char **text, size_t *size) {
    return t->model ? knnlm_model_decode(t->model, &token, 1, text, size)
                    : knnlm_store_decode(t->store, &token, 1, text, size);
}

static knnlm_status print_one(const tokenizer *t, int32_t token, json_t *list) {
    char *text;
    size_t size;
    KN_TRY(decode(t, token, &text, &size));
    if (list) {
        cli_json_append(list, json_pack("{s:i, s:o}", "token", token, "text", cli_json_text(text, size)));
    } else {
        char *line = cli_line(text, size, SIZE_MAX, false);
        printf("%7d  \"%s\"\n", token, line ? line : "");
        free(line);
    }
    knnlm_free(text);
    return KNNLM_OK;
}

static knnlm_status print_all(const tokenizer *t, const cli_text *text, const int32_t *tokens, size_t count) {
    json_t *list = args.common.json ? json_array() : NULL;
    knnlm_status status = KNNLM_OK;
    for (size_t i = 0; i < count && status == KNNLM_OK; i++) status = print_one(t, tokens[i], list);
    if (status != KNNLM_OK)
        json_decref(list);
    else if (list)
        cli_print_json(json_pack("{s:I, s:I, s:o}", "count", (json_int_t)count, "bytes",
                                 (json_int_t)text->size, "tokens", list));
    else
        fprintf(stderr, "%zu tokens, %zu bytes\n", count, text->size);
    return status;
}

static knnlm_status tokenize(const tokenizer *t, const cli_text *text) {
    int32_t *tokens;
    size_t count;
    KN_TRY(cli_text_check(text, "the text"));
    KN_TRY(encode(t, text, &tokens, &count));
    knnlm_status status = print_all(t, text, tokens, count);
    knnlm_free(tokens);
    return status;
}

// A file of this name, else the argument itself.
static knnlm_status read_text(const char *argument, cli_text *text) {
    struct stat st;
    if (cli_is_standard(argument) || stat(argument, &st) != 0 || !S_ISREG(st.st_mode))
        return cli_text_take(text, argument);
    return kn_file_read(argument, &text->data, &text->size);
}

static knnlm_status read_and_tokenize(const char *argument) {
    tokenizer t = {0};
    cli_text text = {0};
    KN_TRY(read_text(argument, &text));
    knnlm_status status = args.model ? cli_open_model(args.model, &args.common, &t.model)
                                     : knnlm_store_open(args.store, &t.store);
    if (status == KNNLM_OK) status = tokenize(&t, &text);
    knnlm_model_close(t.model);
    knnlm_store_close(t.store);
    cli_text_free(&text);
    return status;
}

static int run(int argc, char **argv) {
    char **rest;
    size_t count;
    int code = cli_parse(&cli_tokenize, options, sizeof options / sizeof *options, argc, argv, &rest, &count);
    if (code >= 0) return code;
    if (!args.model == !args.store) return cli_usage(&cli_tokenize, "one of -m FILE and -s STORE");
    if (count > 1) return cli_usage(&cli_tokenize, "one text, in quotes, or one file");
    code = cli_start(&cli_tokenize, &args.common);
    if (code != CLI_DONE) return code;
    cli_catch_interrupts();
    return read_and_tokenize(count ? rest[0] : NULL) == KNNLM_OK ? CLI_DONE : cli_fail(&cli_tokenize);
}

const cli_command cli_tokenize = {
    .name = "tokenize",
    .summary = "show the tokens of a text: their numbers, and what each stands for",
    .usage = "-m MODEL|-s STORE [TEXT|FILE|-] [options]",
    .examples = "  knnlm tokenize -m models/small.gguf \"The capital of France\"\n"
                "  knnlm tokenize -s my.store notes.txt --json\n"
                "  echo \"some text\" | knnlm tokenize -m my.gguf -\n",
    .run = run,
};
