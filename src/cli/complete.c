// Completion: one source for all shells.
#include "cli/complete.h"

#include <stdio.h>
#include <string.h>

// The words of the command line at hand; NULL: nothing is to be completed.
static char **asked;
static size_t asked_count;

// Values of options that take one of a few words without being a choice in their table.
static const struct {
    const char *option, *words[12];
} values[] = {
    {"codes", {"auto", "none", "pq64", "pq64x4"}},
    {"preset",
     {"tiny", "small", "base", "stream", "stream-tiny", "gpt2-tiny", "gpt2", "paper-bpe", "wiki103"}},
    {"probes", {"auto"}},
    {"tap", {"ffn", "ffn-raw", "attention", "attention-raw", "output-norm", "output"}},
};

static void tell(const char *word, const char *dashes, const char *help) {
    size_t begun = strlen(asked[asked_count - 1]);
    char whole[64];
    snprintf(whole, sizeof whole, "%s%s", dashes, word);
    if (strncmp(whole, asked[asked_count - 1], begun) == 0) printf("%s\t%s\n", whole, help);
}

// The option that the word before stands for, where it takes a value.
static const cli_option *option_before(const cli_option *options, size_t count) {
    const char *word = asked_count >= 2 ? asked[asked_count - 2] : "";
    for (size_t i = 0; word[0] == '-' && i < count; i++) {
        const cli_option *o = &options[i];
        bool letter = o->letter && word[1] == o->letter && !word[2];
        if (o->kind != CLI_FLAG && (letter || (word[1] == '-' && strcmp(word + 2, o->name) == 0))) return o;
    }
    return NULL;
}

static void tell_values(const cli_option *o) {
    bool few = o->kind == CLI_CHOICE;
    for (size_t i = 0; few && o->choices[i]; i++) tell(o->choices[i], "", "");
    for (size_t v = 0; o->kind == CLI_STRING && v < sizeof values / sizeof *values; v++) {
        if (strcmp(values[v].option, o->name) != 0) continue;
        few = true;
        for (size_t i = 0; values[v].words[i]; i++) tell(values[v].words[i], "", "");
    }
    if (!few && o->kind != CLI_INTEGER && o->kind != CLI_NUMBER && o->kind != CLI_BYTES) puts(":files");
}

bool cli_complete_options(const cli_option *options, size_t count) {
    if (!asked) return false;
    const cli_option *before = option_before(options, count);
    if (before) {
        tell_values(before);
    } else if (asked[asked_count - 1][0] != '-' || !asked[asked_count - 1][1]) {
        puts(":files");
    } else {
        for (size_t i = 0; i < count; i++)
            if (options[i].help) tell(options[i].name, "--", options[i].help);
        tell("help", "--", "this text");
    }
    return true;
}

int cli_complete(const cli_command *const *commands, size_t count, char **words, size_t word_count) {
    if (word_count == 0) return CLI_USAGE;
    asked = words;
    asked_count = word_count;
    bool help = word_count == 2 && strcmp(words[0], "help") == 0;
    for (size_t i = 0; i < count; i++) {
        if (word_count == 1 || help) {
            tell(commands[i]->name, "", commands[i]->summary);
        } else if (strcmp(words[0], commands[i]->name) == 0) {
            char *argv[] = {words[0], NULL};
            return commands[i]->run(1, argv);
        }
    }
    if (word_count > 1) return CLI_DONE;
    tell("help", "", "tell about a command");
    tell("help", "--", "the commands");
    tell("version", "--", "the version, and what it runs on");
    return CLI_DONE;
}
