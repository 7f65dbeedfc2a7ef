#include "cli/cli.h"
static int run(int argc, char **argv) { (void)argc; (void)argv; return CLI_USAGE; }
const cli_command cli_eval = {"eval","score text","","",run};
