// What `knnlm generate` prints: text as it comes, with the passages it came from, or one JSON object.
#ifndef KN_CLI_GENERATE_SHOW_H
#define KN_CLI_GENERATE_SHOW_H

#include "cli/cli.h"

// How far a sequence has been printed.
typedef struct cli_stream {
    bool sources; // passages are marked
    bool terminal;
    bool colors; // by underlining rather than brackets
    size_t tokens;
    size_t open, footnote; // the source whose mark is open, 0: none; its footnote, 0: a lone word
    char last;             // byte printed; 0: none
} cli_stream;

void cli_stream_begin(cli_stream *s, const char *prompt, size_t size, bool sources);
// What is final since the last call.
void cli_stream_more(cli_stream *s, const knnlm_text *text);
// The end of the line, then the sources as footnotes.
void cli_stream_end(cli_stream *s, const knnlm_text *text);

json_t *cli_json_generated(const knnlm_text *text);
json_t *cli_json_sources(const knnlm_text *text);

#endif
