// What is printed for people may come from anyone: a name of a document over HTTP, a file on a stick. No byte
// of it may speak to the terminal.
#include "base/utf8.h"
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

// Control characters, C1 (U+0080 to U+009F) included, and what is no character.
static bool is_harmful(uint32_t codepoint, size_t size) {
    return !size || codepoint < 0x20 || (codepoint >= 0x7f && codepoint < 0xa0);
}

void cli_put_text(FILE *out, const char *text, size_t size) {
    for (size_t i = 0, step; i < size; i += step) {
        uint32_t codepoint = 0;
        size_t whole = kn_utf8_decode(text + i, size - i, &codepoint);
        step = whole ? whole : 1;
        if (!is_harmful(codepoint, whole))
            fwrite(text + i, 1, step, out);
        else
            for (size_t j = i; j < i + step; j++) fprintf(out, "\\x%02x", (unsigned char)text[j]);
    }
}

void cli_put_line(FILE *out, const char *text) {
    cli_put_text(out, text, strlen(text));
}

void cli_warn(const char *message) {
    char text[4096];
    cli_progress_clear();
    cli_message(message, text, sizeof text);
    fprintf(stderr, "knnlm %s: warning: ", cli_current() ? cli_current()->name : "");
    cli_put_line(stderr, text);
    fputc('\n', stderr);
}
