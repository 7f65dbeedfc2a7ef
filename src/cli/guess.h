// What a mistyped word may have meant.
#ifndef KN_CLI_GUESS_H
#define KN_CLI_GUESS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cli_guess {
    const char *word; // what was typed, up to a "="
    const char *best; // NULL: nothing is near it
    size_t distance;
} cli_guess;

// Keeps the name where it is nearer than those before.
void cli_guess_try(cli_guess *guess, const char *name);

#endif
