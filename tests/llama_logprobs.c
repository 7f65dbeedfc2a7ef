// What llama.cpp makes of one of our models. Built by test_llama.sh against third_party/llama.
//
//   llama_logprobs LIBRARIES MODEL score WINDOWS   a window a line: how many of its targets are not to be
//   printed, then
//                                                  its tokens ("start": the model's). Prints the natural
//                                                  logarithm of each token's probability given those before
//                                                  it, one per line
//   llama_logprobs LIBRARIES MODEL tokenize TEXT   prints the ids of the file's tokens, one per line
#include <ggml-backend.h>
#include <llama.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const char *name) {
    fprintf(stderr, "llama_logprobs: %s: %s\n", name, what);
    exit(1);
}

static void *allocate(size_t size) {
    void *memory = malloc(size ? size : 1);
    if (!memory) die("out of memory", "allocate");
    return memory;
}

static void log_errors(enum ggml_log_level level, const char *text, void *context) {
    (void)context;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) die("cannot be read", path);
    *size = (size_t)ftell(file);
    char *data = allocate(*size + 1);
    rewind(file);
    if (fread(data, 1, *size, file) != *size) die("cannot be read", path);
    data[*size] = 0;
    fclose(file);
    return data;
}

static struct llama_model *load_model(const char *libraries, const char *path) {
    struct llama_model_params params = llama_model_default_params();
    llama_log_set(log_errors, NULL);
    ggml_backend_load_all_from_path(libraries);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(path, params);
    if (!model) die("llama.cpp cannot load it", path);
    return model;
}

// Full precision where llama.cpp would save: its cache of keys and values is f16 by default.
static struct llama_context *make_context(struct llama_model *model) {
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = (uint32_t)llama_model_n_ctx_train(model);
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *context = llama_init_from_model(model, params);
    if (!context) die("no context", "llama_init_from_model");
    return context;
}

static double log_probability(const float *logits, int vocabulary, llama_token token) {
    double top = logits[0], sum = 0;
    for (int i = 1; i < vocabulary; i++) top = logits[i] > top ? logits[i] : top;
    for (int i = 0; i < vocabulary; i++) sum += exp(logits[i] - top);
    return logits[token] - top - log(sum);
}

// Reads all tokens but the last; scores those after the first `unwanted` targets.
static void score_window(struct llama_context *context, const llama_token *tokens, int count, int unwanted) {
    int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context)));
    struct llama_batch batch = llama_batch_init(count - 1, 0, 1);
    llama_memory_clear(llama_get_memory(context), true);
    for (int i = 0; i + 1 < count; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = i >= unwanted;
    }
    batch.n_tokens = count - 1;
    if (llama_decode(context, batch) != 0) die("failed", "llama_decode");
    for (int i = unwanted; i + 1 < count; i++)
        printf("%.9g\n", log_probability(llama_get_logits_ith(context, i), vocabulary, tokens[i + 1]));
    llama_batch_free(batch);
}

static llama_token read_token(struct llama_context *context, const char *word) {
    const struct llama_vocab *vocab = llama_model_get_vocab(llama_get_model(context));
    return strcmp(word, "start") == 0 ? llama_vocab_bos(vocab) : (llama_token)atoi(word);
}

static void score_line(struct llama_context *context, char *line) {
    int limit = (int)llama_n_ctx(context) + 1, count = 0;
    llama_token *tokens = allocate((size_t)limit * sizeof *tokens);
    const char *unwanted = strtok(line, " ");
    for (char *word = strtok(NULL, " "); word; word = strtok(NULL, " ")) {
        if (count == limit) die("a window is longer than the context", "windows");
        tokens[count++] = read_token(context, word);
    }
    if (count > 1) score_window(context, tokens, count, atoi(unwanted));
    free(tokens);
}

static void score(struct llama_model *model, const char *path) {
    struct llama_context *context = make_context(model);
    size_t size;
    char *text = read_file(path, &size);
    for (char *line = text, *end; line < text + size; line = end + 1) {
        end = strchr(line, '\n');
        if (!end) end = text + size;
        *end = 0;
        score_line(context, line);
    }
    free(text);
    llama_free(context);
}

static void tokenize(struct llama_model *model, const char *path) {
    size_t size;
    char *text = read_file(path, &size);
    llama_token *tokens = allocate((size + 1) * sizeof *tokens);
    int count = llama_tokenize(llama_model_get_vocab(model), text, (int32_t)size, tokens, (int32_t)size + 1,
                               false, false);
    if (count < 0) die("llama.cpp cannot tokenize it", path);
    for (int i = 0; i < count; i++) printf("%d\n", tokens[i]);
    free(tokens);
    free(text);
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: llama_logprobs LIBRARIES MODEL score|tokenize FILE\n");
        return 2;
    }
    struct llama_model *model = load_model(argv[1], argv[2]);
    if (strcmp(argv[3], "score") == 0)
        score(model, argv[4]);
    else
        tokenize(model, argv[4]);
    llama_model_free(model);
    llama_backend_free();
    return 0;
}
