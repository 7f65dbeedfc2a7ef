// Settings: a file's lines and the environment become arguments, which stand before those that were typed.
#include "cli/settings.h"

#include "base/memory.h"
#include "cli/guess.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char config[] = "config"; // the option that names the file

// ---------------------------------------------------------------- words

static knnlm_status push(cli_arguments *a, char *word) {
    knnlm_status status =
        word ? kn_grow(&a->words, &a->capacity, (size_t)a->count + 2, sizeof *a->words) : KNNLM_ENOMEM;
    if (status != KNNLM_OK) {
        free(word);
        return status;
    }
    a->words[a->count++] = word;
    a->words[a->count] = NULL;
    a->own++;
    return KNNLM_OK;
}

static knnlm_status push_option(cli_arguments *a, const char *name, const char *value) {
    char *word = NULL;
    int n = value ? asprintf(&word, "--%s=%s", name, value) : asprintf(&word, "--%s", name);
    return push(a, n < 0 ? NULL : word);
}

void cli_arguments_free(cli_arguments *a) {
    for (size_t i = 1; i <= a->own; i++) free(a->words[i]);
    free(a->words);
    *a = (cli_arguments){0};
}

// ---------------------------------------------------------------- one option

static const cli_option *find(const cli_option *options, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(options[i].name, name) == 0) return &options[i];
    return NULL;
}

// Flags are said to be on or off. `place` is where it stands, for who reads the message.
static int take_flag(const cli_command *command, const cli_option *o, const char *value, const char *place,
                     cli_arguments *a) {
    static const char *const words[] = {"false", "no", "off", "0", "true", "yes", "on", "1"};
    enum { OFF = 4, ALL = 8 };
    size_t i = 0;
    while (i < ALL && strcasecmp(value, words[i]) != 0) i++;
    if (i == ALL) return cli_usage(command, "%s: %s is on or off, not \"%s\"", place, o->name, value);
    if (i < OFF) return CLI_DONE;
    return push_option(a, o->name, NULL) == KNNLM_OK ? CLI_DONE : cli_fail(command);
}

static int take(const cli_command *command, const cli_option *o, const char *value, const char *place,
                cli_arguments *a) {
    if (o->kind == CLI_FLAG) return take_flag(command, o, value, place, a);
    if (!*value) return cli_usage(command, "%s: %s has no value", place, o->name);
    int code = cli_check_value(command, o, value, place);
    if (code != CLI_DONE) return code;
    return push_option(a, o->name, value) == KNNLM_OK ? CLI_DONE : cli_fail(command);
}

// ---------------------------------------------------------------- the file

static char *trimmed(char *text) {
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n && strchr(" \t\r\n", text[n - 1])) text[--n] = 0;
    return text;
}

static int take_line(const cli_command *command, const cli_option *options, size_t count, char *line,
                     const char *place, cli_arguments *a) {
    char *text = trimmed(line), *equals = strchr(text, '=');
    if (!*text || *text == '#') return CLI_DONE;
    if (equals) *equals = 0;
    char *name = trimmed(text), *value = equals ? trimmed(equals + 1) : NULL;
    const cli_option *o = find(options, count, name);
    if (o && strcmp(name, config) != 0) return take(command, o, value ? value : "on", place, a);
    cli_guess guess = {.word = name};
    for (size_t i = 0; i < count; i++)
        if (options[i].help) cli_guess_try(&guess, options[i].name);
    if (guess.best && strcmp(guess.best, config) != 0)
        return cli_usage(command, "%s: no option is called %s: did you mean %s?", place, name, guess.best);
    return cli_usage(command, "%s: no option is called %s", place, name);
}

static int take_file(const cli_command *command, const cli_option *options, size_t count, const char *path,
                     cli_arguments *a) {
    FILE *file = fopen(path, "re");
    char *line = NULL, place[600];
    size_t room = 0;
    int code = CLI_DONE;
    if (!file) {
        kn_fail_errno(KNNLM_EIO, errno, "%s", path);
        return cli_fail(command);
    }
    for (size_t number = 1; code == CLI_DONE && getline(&line, &room, file) >= 0; number++) {
        snprintf(place, sizeof place, "%.500s: line %zu", path, number);
        code = take_line(command, options, count, line, place, a);
    }
    if (code == CLI_DONE && ferror(file)) {
        kn_fail_errno(KNNLM_EIO, errno, "%s", path);
        code = cli_fail(command);
    }
    free(line);
    fclose(file);
    return code;
}

// ---------------------------------------------------------------- the environment

// KNNLM_SERVE_READ_ONLY of "read-only".
static const char *variable(const cli_command *command, const char *name, char *out, size_t size) {
    snprintf(out, size, "KNNLM_%s_%s", command->name, name);
    for (char *c = out; *c; c++) *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return getenv(out);
}

static int take_list(const cli_command *command, const cli_option *o, const char *value, const char *place,
                     cli_arguments *a) {
    char *copy = kn_strdup(value), *rest = copy, *one;
    int code = copy ? CLI_DONE : cli_fail(command);
    while (code == CLI_DONE && (one = strsep(&rest, ":")))
        if (*one) code = take(command, o, one, place, a);
    free(copy);
    return code;
}

// Passed over: it may be somebody else's.
static void warn_unknown(const cli_command *command, const cli_option *options, size_t count,
                         const char *entry) {
    char prefix[40], known[80];
    size_t size = (size_t)snprintf(prefix, sizeof prefix, "KNNLM_%s_", command->name);
    size_t length = strcspn(entry, "=");
    for (char *c = prefix; *c; c++) *c = (char)toupper((unsigned char)*c);
    if (strncmp(entry, prefix, size) != 0) return;
    for (size_t i = 0; i < count; i++) {
        variable(command, options[i].name, known, sizeof known);
        if (length == strlen(known) && strncmp(entry, known, length) == 0) return;
    }
    fprintf(stderr, "knnlm %s: warning: ", command->name);
    cli_put_text(stderr, entry, length);
    fprintf(stderr, ": no option is called so: not used\n");
}

static int take_environment(const cli_command *command, const cli_option *options, size_t count,
                            cli_arguments *a) {
    int code = CLI_DONE;
    for (size_t i = 0; i < count && code == CLI_DONE; i++) {
        char name[80];
        const cli_option *o = &options[i];
        const char *value = variable(command, o->name, name, sizeof name);
        if (!o->help || !value || !*value || strcmp(o->name, config) == 0) continue;
        code = o->kind == CLI_LIST ? take_list(command, o, value, name, a) : take(command, o, value, name, a);
    }
    for (char **entry = environ; *entry && code == CLI_DONE; entry++)
        warn_unknown(command, options, count, *entry);
    return code;
}

// ---------------------------------------------------------------- all of it

// The last --config FILE or --config=FILE; NULL: none.
static const char *config_of(const cli_command *command, int argc, char **argv) {
    char name[80];
    const char *found = variable(command, config, name, sizeof name);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) found = argv[++i];
        if (strncmp(argv[i], "--config=", 9) == 0) found = argv[i] + 9;
    }
    return found && *found ? found : NULL;
}

int cli_settings_read(const cli_command *command, const cli_option *options, size_t count, int argc,
                      char **argv, cli_arguments *out) {
    const char *path = config_of(command, argc, argv);
    *out = (cli_arguments){0};
    if (kn_grow(&out->words, &out->capacity, (size_t)argc + 1, sizeof *out->words) != KNNLM_OK)
        return cli_fail(command);
    out->words[out->count++] = argv[0];
    int code = path ? take_file(command, options, count, path, out) : CLI_DONE;
    if (code == CLI_DONE) code = take_environment(command, options, count, out);
    if (code == CLI_DONE &&
        kn_grow(&out->words, &out->capacity, (size_t)(out->count + argc), sizeof *out->words) != KNNLM_OK)
        code = cli_fail(command);
    for (int i = 1; i < argc && code == CLI_DONE; i++) out->words[out->count++] = argv[i];
    if (code == CLI_DONE) out->words[out->count] = NULL;
    return code;
}
