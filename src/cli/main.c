// The command: finds the subcommand and runs it.
#include "cli/cli.h"
#include "cli/complete.h"
#include "cli/guess.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const cli_command *const commands[] = {
    &cli_train,   &cli_build,    &cli_index,  &cli_add,    &cli_sync,     &cli_remove,
    &cli_compact, &cli_verify,   &cli_import, &cli_export, &cli_tune,     &cli_eval,
    &cli_explain, &cli_generate, &cli_serve,  &cli_search, &cli_tokenize, &cli_info};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out) {
    fprintf(out,
            "knnlm %s: nearest-neighbour language models\n\nusage: knnlm COMMAND [options]\n\ncommands:\n",
            knnlm_version());
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\nknnlm help COMMAND tells more; man knnlm tells all.\n");
}

static void print_version(void) {
    printf("knnlm %s\nkernels:", knnlm_version());
    for (size_t i = 0; knnlm_kernels(i); i++) printf(" %s", knnlm_kernels(i));
    if (!knnlm_llama_release())
        printf("\nllama.cpp: not in this build\n");
    else if (!knnlm_llama_folder())
        printf("\nllama.cpp: %s, but its library is missing\n", knnlm_llama_release());
    else
        printf("\nllama.cpp: %s in %s\n", knnlm_llama_release(), knnlm_llama_folder());
    printf("MPI: %s\n", knnlm_mpi() ? knnlm_mpi() : "no MPI in this build");
}

// Files opened later must not become the standard ones: a closed one is taken by something that cannot be
// used.
static void hold_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(CLI_FAILED);
}

static int run_command(int argc, char **argv) {
    cli_guess guess = {.word = argv[0]};
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[0], commands[i]->name) == 0) return commands[i]->run(argc, argv);
        cli_guess_try(&guess, commands[i]->name);
    }
    fprintf(stderr, "knnlm: no command \"");
    cli_put_line(stderr, argv[0]);
    if (guess.best)
        fprintf(stderr, "\": did you mean %s? (knnlm --help)\n", guess.best);
    else
        fprintf(stderr, "\" (knnlm --help)\n");
    return CLI_USAGE;
}

static int help(int argc, char **argv) {
    if (argc > 0) {
        char *asking[] = {argv[0], (char[]){"--help"}, NULL};
        return run_command(2, asking);
    }
    print_help(stdout);
    return CLI_DONE;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "help") == 0) return help(argc - 2, argv + 2);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return help(0, NULL);
    if (strcmp(argv[1], "__complete") == 0)
        return cli_complete(commands, COMMANDS, argv + 2, (size_t)(argc - 2));
    if (strcmp(argv[1], "--version") == 0) {
        print_version();
        return CLI_DONE;
    }
    return run_command(argc - 1, argv + 1);
}

static int drive(int argc, char **argv) {
    int code = dispatch(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "knnlm %s: cannot write to standard output\n", argv[1]);
    return CLI_FAILED;
}

// Of the processes of a job the first runs the command, and the others work for it: they print nothing.
int main(int argc, char **argv) {
    hold_standard_files();
    cli_catch_truncation();
    knnlm_status status = knnlm_ranks_begin();
    if (status != KNNLM_OK && knnlm_rank() == 0) fprintf(stderr, "knnlm: %s\n", knnlm_message());
    if (status != KNNLM_OK) return CLI_FAILED;
    if (knnlm_rank() > 0) return knnlm_ranks_serve();
    return knnlm_ranks_end(drive(argc, argv));
}
