// How fast a model trains: tokens per second of a whole step (forward, backward, clipping, AdamW).
#include "harness.h"

#include "train/gradient.h"
#include "train/optimizer.h"

#define USAGE                                                                                                \
    "bench_train paper|stream REPEATS     a line a repeat: tokens per second of a training step\n"           \
    "  paper: the paper's kind, 6 layers of width 256; stream: the bundled model's preset\n"

enum { ROWS = 4096 };

// As bench/peer_torch.py has them.
static kn_config stream_shape(void) {
    kn_config c;
    bench_check(kn_config_preset("stream", &c));
    kn_config_set_vocabulary(&c, 16000);
    return c;
}

static kn_config paper_shape(void) {
    kn_config c;
    bench_check(kn_config_preset("paper-bpe", &c));
    c.width = 256;
    c.embedding_scale = 16;
    c.layers = 6;
    c.heads = 4;
    c.ffn = 1024;
    c.context = 256;
    kn_config_set_vocabulary(&c, 10000);
    return c;
}

typedef struct trainer {
    kn_config config;
    kn_layout layout;
    float *params, *grads;
    kn_gradient *gradient;
    kn_optimizer optimizer;
    int32_t *tokens; // targets are the inputs, one later
} trainer;

static void trainer_open(trainer *t, kn_config shape) {
    const kn_kernels *k = kn_math_kernels(KNNLM_PRECISION_AUTO);
    kn_optimizer_options adamw = {.kind = KNNLM_OPTIMIZER_ADAMW,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.999f,
                                  .epsilon = 1e-8f,
                                  .decay = 0.01f,
                                  .clip = 1.0f};
    t->config = shape;
    bench_check(kn_layout_init(&t->config, &t->layout));
    t->params = bench_need(kn_alloc_aligned(t->layout.total, sizeof *t->params));
    t->grads = bench_need(kn_alloc_aligned(t->layout.total, sizeof *t->grads));
    kn_layout_fill(&t->config, &t->layout, 1, t->params);
    bench_check(kn_gradient_open(&t->config, &t->layout, k, ROWS, &t->gradient));
    bench_check(kn_optimizer_init(&t->optimizer, &adamw, &t->layout, k));
    t->tokens = bench_tokens(ROWS + 1, shape.vocabulary);
}

static void trainer_close(trainer *t) {
    free(t->tokens);
    kn_optimizer_free(&t->optimizer);
    kn_gradient_close(t->gradient);
    kn_free_aligned(t->grads);
    kn_free_aligned(t->params);
    kn_layout_free(&t->layout);
}

static void step(trainer *t) {
    double loss = 0, norm;
    size_t length = (size_t)t->config.context; // of a window
    memset(t->grads, 0, t->layout.total * sizeof *t->grads);
    kn_gradient_set(t->gradient, t->params);
    bench_check(kn_gradient_add(t->gradient, t->tokens, t->tokens + 1, ROWS / length, length, 1.0f / ROWS,
                                NULL, t->grads, &loss));
    kn_optimizer_update(&t->optimizer, t->params, t->grads, 1e-4, &norm);
}

int main(int argc, char **argv) {
    trainer t;
    bool stream = argc > 1 && strcmp(argv[1], "stream") == 0;
    if (argc != 3 || (!stream && strcmp(argv[1], "paper") != 0) || atoi(argv[2]) < 1)
        return bench_usage(USAGE);
    trainer_open(&t, stream ? stream_shape() : paper_shape());
    step(&t);
    for (int i = 0; i < atoi(argv[2]); i++) {
        double start = kn_seconds();
        step(&t);
        printf("%.1f\n", ROWS / (kn_seconds() - start));
    }
    trainer_close(&t);
    return 0;
}
