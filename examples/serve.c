// A model and a store over HTTP, until Ctrl-C: serve MODEL STORE
#include <knnlm.h>

#include <signal.h>
#include <stdio.h>

static knnlm_server *server;

static void stop(int signal) {
    (void)signal;
    knnlm_server_stop(server);
}

static int fail(void) {
    fprintf(stderr, "serve: %s\n", knnlm_message());
    return 1;
}

static int serve(knnlm_model *model, const char *store) {
    knnlm_mixture_options mixed = knnlm_mixture_options_default();
    mixed.stores = &store;
    mixed.store_count = 1;
    if (knnlm_server_load(server, model, &mixed) != KNNLM_OK) return fail();
    signal(SIGINT, stop);
    signal(SIGPIPE, SIG_IGN);
    printf("%s\n", knnlm_server_url(server));
    fflush(stdout);
    return knnlm_server_run(server) == KNNLM_OK ? 0 : fail();
}

int main(int argc, char **argv) {
    knnlm_server_options options = knnlm_server_options_default();
    knnlm_model *model = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: serve MODEL STORE\n");
        return 2;
    }
    options.port = 0;
    if (knnlm_server_open(&options, &server) != KNNLM_OK) return fail();
    int code = knnlm_model_open(argv[1], NULL, &model) == KNNLM_OK ? serve(model, argv[2]) : fail();
    knnlm_server_close(server);
    knnlm_model_close(model);
    return code;
}
