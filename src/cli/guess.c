// What a mistyped word may have meant: the nearest of the names that there are.
#include "cli/guess.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 32 }; // nobody mistypes longer names than there are

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

// Letters put in, left out, changed, or swapped with their neighbour (optimal string alignment).
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
    size_t rows[3][LONGEST + 1], *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= m; j++) last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t changed = last[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = least(changed, least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[m];
}

// A beginning of a name is nearer than a word with a mistake in it.
void cli_guess_try(cli_guess *g, const char *name) {
    size_t n = strcspn(g->word, "="), m = strlen(name);
    if (n < 2 || n > LONGEST || m > LONGEST) return;
    bool begins = m > n && strncmp(g->word, name, n) == 0;
    size_t d = begins ? 0 : distance(g->word, n, name, m);
    if (d > (n < 4 ? 1 : n / 3) || (g->best && d >= g->distance)) return;
    g->best = name;
    g->distance = d;
}
