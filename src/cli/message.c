// The library's messages name fields and functions, in `quotes`; a user of the command knows options and
// commands.
#include "cli/cli.h"

#include <string.h>

// What is not a field with another name here is not touched: a file may be called anything.
static const struct {
    const char *field, *shown;
} names[] = {
    {"accept", "--accept-model"},
    {"activation", "--activation"},
    {"allowed_hosts", "--allowed-host"},
    {"api_key", "--api-key-file"}, // of the ways to give it, the one that others do not see
    {"bands", "--bands"},
    {"batch", "--batch"},
    {"best", "--best"},
    {"cache", "--cache"},
    {"codes", "--codes"},
    {"context", "--context"},
    {"dimension", "--dim"},
    {"distance", "--distance"},
    {"encoding", "--encoding"},
    {"entries", "--entries"},
    {"except", "--not"},
    {"extend", "--extend"},
    {"ffn", "--ffn"},
    {"field", "--field"},
    {"follow", "--follow"},
    {"force", "--force"},
    {"fraction", "--fraction"},
    {"from", "--from"},
    {"heads", "--heads"},
    {"host", "--host"},
    {"key_type", "--key-type"},
    {"keys", "--keys"},
    {"layers", "--layers"},
    {"length", "--length"},
    {"memory", "--memory"},
    {"micro", "--micro"},
    {"min_context", "--min-context"},
    {"model", "-m"},
    {"name_field", "--name-field"},
    {"no_bias", "--no-bias"},
    {"no_key", "--no-key"},
    {"norm", "--norm"},
    {"only", "--only"},
    {"port", "--port"},
    {"positions", "--positions"},
    {"preset", "--preset"},
    {"project", "--project"},
    {"qk_norm", "--qk-norm"},
    {"rate", "--rate"},
    {"resume", "--resume"},
    {"score", "--score"},
    {"segment", "--segment"},
    {"split", "--documents"},
    {"steps", "--steps"},
    {"tap", "--tap"},
    {"tokenizer", "--tokenizer"},
    {"tokenizer_file", "--tokenizer-file"},
    {"value_type", "--value-type"},
    {"vocabulary", "--vocab"},
    {"vocabulary_sample", "--vocab-sample"},
    {"width", "--width"},
    {"window", "--window"},
    {"worst", "--worst"},
    {"knnlm_build_add", "knnlm add"},
    {"knnlm_build_sync", "knnlm sync"},
    {"knnlm_import", "knnlm import"},
    {"knnlm_index", "knnlm index"},
    {"knnlm_store_repair", "knnlm verify --repair"},
    {"knnlm_store_verify", "knnlm verify"},
};

static const char *option_of(const char *field, size_t size) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].field) == size && memcmp(names[i].field, field, size) == 0) return names[i].shown;
    return NULL;
}

void cli_message(const char *message, char *out, size_t size) {
    size_t used = 0;
    while (*message && used + 1 < size) {
        const char *end = *message == '`' ? strchr(message + 1, '`') : NULL;
        const char *shown = end ? option_of(message + 1, (size_t)(end - message - 1)) : NULL;
        if (!shown) {
            out[used++] = *message++;
            continue;
        }
        size_t length = strlen(shown) < size - 1 - used ? strlen(shown) : size - 1 - used;
        memcpy(out + used, shown, length);
        used += length;
        message = end + 1;
    }
    out[used] = 0;
}
