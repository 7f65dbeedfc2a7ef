// Parses options, and prints --help.
#include "cli/cli.h"

#include "base/file.h"
#include "cli/complete.h"
#include "cli/guess.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPTIONS_MAX = 96, LONG_BASE = 256 };

const char *const cli_precisions[] = {[KNNLM_PRECISION_AUTO] = "auto",
                                      [KNNLM_PRECISION_F32] = "f32",
                                      [KNNLM_PRECISION_BF16] = "bf16",
                                      [KNNLM_PRECISION_INT16] = "int16",
                                      NULL};

int cli_fail(const cli_command *command) {
    char text[4096];
    cli_progress_clear();
    cli_message(knnlm_message(), text, sizeof text);
    fprintf(stderr, "knnlm %s: ", command->name);
    cli_put_line(stderr, text);
    fputc('\n', stderr);
    return strncmp(text, "--", 2) == 0 ? CLI_USAGE : CLI_FAILED; // about an option, not a file
}

int cli_usage(const cli_command *command, const char *format, ...) {
    va_list args;
    char text[4096];
    cli_progress_clear();
    fprintf(stderr, "knnlm %s: ", command->name);
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_put_line(stderr, text);
    fprintf(stderr, " (knnlm %s --help)\n", command->name);
    return CLI_USAGE;
}

static void print_help(const cli_command *command, const cli_option *options, size_t count) {
    printf("knnlm %s: %s\n\nusage: knnlm %s %s\n\noptions:\n", command->name, command->summary, command->name,
           command->usage);
    for (size_t i = 0; i < count; i++) {
        char left[64];
        const cli_option *o = &options[i];
        if (!o->help) continue;
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
                 o->letter ? "," : " ", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
        printf("  %-28s %s\n", left, o->help);
    }
    printf("  %-28s %s\n\nexamples:\n%s", "-h, --help", "this text", command->examples);
}

// An option and its value. `place`: where it stands, unless it is an argument.
typedef struct given {
    const cli_command *command;
    const cli_option *o;
    const char *text, *place;
} given;

static int bad_value(const given *g, const char *wanted) {
    if (g->place) return cli_usage(g->command, "%s: %s %s: %s", g->place, g->o->name, g->text, wanted);
    return cli_usage(g->command, "--%s %s: %s", g->o->name, g->text, wanted);
}

static int parse_number(const given *g) {
    const cli_option *o = g->o;
    char *end, range[64];
    errno = 0;
    double number = strtod(g->text, &end);
    long long integer = o->kind == CLI_INTEGER ? strtoll(g->text, &end, 10) : 0;
    if (errno || end == g->text || *end)
        return bad_value(g, o->kind == CLI_INTEGER ? "not a whole number" : "not a number");
    if (o->low != o->high && !(number >= o->low && number <= o->high)) {
        snprintf(range, sizeof range, "out of range, %.10g to %.10g", o->low, o->high);
        return bad_value(g, range);
    }
    if (o->kind == CLI_INTEGER)
        *(int64_t *)o->value = integer;
    else
        *(double *)o->value = number;
    return -1;
}

static int parse_choice(const given *g) {
    const cli_option *o = g->o;
    char wanted[256] = "one of";
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(g->text, o->choices[i]) == 0) {
            *(int *)o->value = i;
            return -1;
        }
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s %s", i ? "," : "",
                 o->choices[i]);
    }
    return bad_value(g, wanted);
}

static int parse_bytes(const given *g) {
    static const char units[] = "KMGT";
    char *end;
    double number = strtod(g->text, &end);
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    for (const char *u = units; unit && u <= unit; u++) number *= 1000;
    if (unit) end++;
    if (*end == 'B') end++;
    if (end == g->text || *end || !(number >= 1 && number < 1e18))
        return bad_value(g, "not a size, such as 500M or 2G");
    *(uint64_t *)g->o->value = (uint64_t)number;
    return -1;
}

static int take_item(const given *g) {
    cli_list *list = g->o->value;
    if (list->count == CLI_LIST_MAX) return bad_value(g, "given too many times");
    list->items[list->count++] = g->text;
    return -1;
}

static int take_value(const given *g) {
    switch (g->o->kind) {
    case CLI_FLAG:
        *(bool *)g->o->value = true;
        return -1;
    case CLI_STRING:
        *(const char **)g->o->value = g->text;
        return -1;
    case CLI_LIST:
        return take_item(g);
    case CLI_CHOICE:
        return parse_choice(g);
    case CLI_BYTES:
        return parse_bytes(g);
    case CLI_INTEGER:
    case CLI_NUMBER:
        return parse_number(g);
    }
    return -1;
}

// Values are taken in their order, by cli_parse: what this one sets is set again.
int cli_check_value(const cli_command *command, const cli_option *o, const char *text, const char *place) {
    given g = {command, o, text, place};
    int code = o->kind == CLI_STRING || o->kind == CLI_LIST ? -1 : take_value(&g);
    return code < 0 ? CLI_DONE : code;
}

static void to_getopt(const cli_option *options, size_t count, struct option *longs, char *letters) {
    *letters++ = ':';
    *letters++ = 'h';
    for (size_t i = 0; i < count; i++) {
        longs[i] =
            (struct option){options[i].name, options[i].kind == CLI_FLAG ? no_argument : required_argument,
                            NULL, LONG_BASE + (int)i};
        if (!options[i].letter) continue;
        *letters++ = options[i].letter;
        if (options[i].kind != CLI_FLAG) *letters++ = ':';
    }
    longs[count] = (struct option){"help", no_argument, NULL, 'h'};
    longs[count + 1] = (struct option){0};
    *letters = 0;
}

static int unknown_option(const cli_command *command, const cli_option *options, size_t count,
                          const char *word) {
    if (word[1] != '-') return cli_usage(command, "unknown option %s", word);
    cli_guess guess = {.word = word + 2};
    for (size_t i = 0; i < count; i++)
        if (options[i].help) cli_guess_try(&guess, options[i].name);
    int size = (int)strcspn(word, "=");
    if (guess.best && strlen(guess.best) == (size_t)size - 2 &&
        strncmp(guess.best, word + 2, (size_t)size - 2) == 0)
        return cli_usage(command, "%.*s takes no value", size, word);
    if (!guess.best) return cli_usage(command, "unknown option %.*s", size, word);
    return cli_usage(command, "unknown option %.*s: did you mean --%s?", size, word, guess.best);
}

// getopt takes any beginning of a name for it: one option would have many spellings, and a new option could
// take one of them away from another.
static bool is_spelt_out(const cli_option *o, int c, const char *word) {
    size_t size = strlen(o->name);
    return c < LONG_BASE ||
           (strncmp(word + 2, o->name, size) == 0 && (!word[2 + size] || word[2 + size] == '='));
}

static const cli_command *current;

const cli_command *cli_current(void) {
    return current;
}

int cli_parse(const cli_command *command, const cli_option *options, size_t count, int argc, char **argv,
              char ***rest, size_t *rest_count) {
    struct option longs[OPTIONS_MAX + 2];
    char letters[2 * OPTIONS_MAX + 4];
    current = command;
    if (cli_complete_options(options, count)) return CLI_DONE;
    to_getopt(options, count, longs, letters);
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        if (c == 'h') {
            print_help(command, options, count);
            return CLI_DONE;
        }
        // A letter may stand among others, before the end of its argument.
        if (c == '?' && optopt > 0 && optopt < LONG_BASE)
            return cli_usage(command, "unknown option -%c", optopt);
        if (c == '?') return unknown_option(command, options, count, argv[optind - 1]);
        if (c == ':') return cli_usage(command, "%s needs a value", argv[optind - 1]);
        size_t i = 0;
        while (i < count && c != LONG_BASE + (int)i && c != options[i].letter) i++;
        const char *word = argv[optind - (optarg && optarg == argv[optind - 1] ? 2 : 1)];
        if (!is_spelt_out(&options[i], c, word)) return unknown_option(command, options, count, word);
        int code = take_value(&(given){command, &options[i], optarg, NULL});
        if (code >= 0) return code;
    }
    *rest = argv + optind;
    *rest_count = (size_t)(argc - optind);
    return -1;
}

void cli_results_to_stderr(void) {
    fflush(stdout);
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

int cli_start(const cli_command *command, const cli_common *common) {
    return knnlm_threads_set((int)common->threads) == KNNLM_OK ? CLI_DONE : cli_fail(command);
}

knnlm_status cli_check_output(const char *output, const char *const *inputs, size_t count) {
    const char *slash = strrchr(output, '/');
    if (strcmp(output, "-") == 0) return KNNLM_OK;
    bool exists = kn_file_same(output, output), hidden = *(slash ? slash + 1 : output) == '.';
    for (size_t i = 0; i < count; i++) {
        if (!inputs[i] || strcmp(inputs[i], "-") == 0) continue;
        if (kn_file_same(output, inputs[i]))
            return kn_fail(KNNLM_EINVAL, "%s: is read as %s: write to another file", output, inputs[i]);
        if (exists && !hidden && kn_file_within(output, inputs[i]))
            return kn_fail(KNNLM_EINVAL, "%s: is in %s, which is read: write to another file", output,
                           inputs[i]);
    }
    return KNNLM_OK;
}

static bool json_lacks; // an item of some array

void cli_json_append(json_t *array, json_t *item) {
    json_lacks |= json_array_append_new(array, item) != 0;
}

// jansson gives NULL for numbers that are not finite, and without memory: half an answer is worse than none.
void cli_print_json(json_t *object) {
    char *text = object && !json_lacks ? json_dumps(object, JSON_REAL_PRECISION(10)) : NULL;
    if (!text) {
        kn_fail(KNNLM_EDATA, "the result cannot be said in JSON: a number is not finite, or memory ran out");
        exit(cli_fail(cli_current()));
    }
    puts(text);
    free(text);
    json_decref(object);
}
