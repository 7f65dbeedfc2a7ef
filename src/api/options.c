// Structs of options from callers that may have been compiled with an older header.
#include "api/api.h"

#include <string.h>

API_DEFAULTS(knnlm_input_options, .field = "text")

knnlm_status api_take_texts(const knnlm_input_options *given, knnlm_split split, kn_text_options *out) {
    KN_TRY(API_TAKE(knnlm_input_options, given, out));
    if ((unsigned)split > KNNLM_SPLIT_JSONL)
        return kn_fail(KNNLM_EINVAL, "`split` %d: not a knnlm_split", (int)split);
    out->split = split;
    return KNNLM_OK;
}

void api_give(const void *defaults, size_t ours, void *out, size_t size) {
    memset(out, 0, size);
    memcpy(out, defaults, kn_min(ours, size));
    if (size >= sizeof size) memcpy(out, &size, sizeof size);
}

knnlm_status api_take(const char *name, const void *given, void *out, size_t size) {
    size_t theirs;
    if (!given) return KNNLM_OK;
    memcpy(&theirs, given, sizeof theirs);
    if (theirs < sizeof theirs || theirs > size)
        return kn_fail(KNNLM_EINVAL, "%s: its size is %zu, not up to %zu (%s_default() sets it)", name,
                       theirs, size, name);
    memcpy(out, given, theirs);
    memcpy(out, &size, sizeof size);
    return KNNLM_OK;
}
