// The types of GGUF's keys and tensors: their names and sizes.
#include "base/convert.h"
#include "base/gguf_file.h"

static const struct {
    const char *name;
    size_t size;
} kinds[KN_GGUF_KINDS] = {
    [KN_GGUF_KIND_U8] = {"u8", 1},         [KN_GGUF_KIND_I8] = {"i8", 1},
    [KN_GGUF_KIND_U16] = {"u16", 2},       [KN_GGUF_KIND_I16] = {"i16", 2},
    [KN_GGUF_KIND_U32] = {"u32", 4},       [KN_GGUF_KIND_I32] = {"i32", 4},
    [KN_GGUF_KIND_F32] = {"f32", 4},       [KN_GGUF_KIND_BOOL] = {"bool", 1},
    [KN_GGUF_KIND_STRING] = {"string", 0}, [KN_GGUF_KIND_ARRAY] = {"array", 0},
    [KN_GGUF_KIND_U64] = {"u64", 8},       [KN_GGUF_KIND_I64] = {"i64", 8},
    [KN_GGUF_KIND_F64] = {"f64", 8},
};

size_t kn_gguf_kind_size(kn_gguf_kind kind) {
    return kinds[kind].size;
}

const char *kn_gguf_kind_name(kn_gguf_kind kind) {
    return kinds[kind].name;
}

bool kn_gguf_type_block(int32_t type, size_t *values, size_t *bytes) {
    *values = 1;
    switch (type) {
    case KN_GGUF_F32:
    case KN_GGUF_I32:
        *bytes = 4;
        return true;
    case KN_GGUF_F16:
    case KN_GGUF_BF16:
        *bytes = 2;
        return true;
    case KN_GGUF_I64:
        *bytes = 8;
        return true;
    case KN_GGUF_Q8_0:
        *values = KN_Q8_0_VALUES;
        *bytes = KN_Q8_0_BYTES;
        return true;
    default:
        return false;
    }
}

const char *kn_gguf_type_name(int32_t type) {
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",    [2] = "Q4_0",     [3] = "Q4_1",    [6] = "Q5_0",     [7] = "Q5_1",
        [8] = "Q8_0",    [9] = "Q8_1",   [10] = "Q2_K",    [11] = "Q3_K",   [12] = "Q4_K",    [13] = "Q5_K",
        [14] = "Q6_K",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
        [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",      [25] = "I16",
        [26] = "I32",    [27] = "I64",   [28] = "F64",     [29] = "IQ1_M",  [30] = "BF16",    [34] = "TQ1_0",
        [35] = "TQ2_0",  [39] = "MXFP4",
    };
    const char *name = type >= 0 && type < (int32_t)(sizeof names / sizeof *names) ? names[type] : NULL;
    return name ? name : "?";
}

const char *kn_gguf_tensor_measure(int32_t type, uint32_t n_dims, const int64_t *dims, size_t *size) {
    size_t elements = 1, block_values, block_bytes;
    *size = 0;
    if (n_dims < 1 || n_dims > KN_GGUF_DIMS_MAX) return "a tensor has 1 to 4 dimensions";
    for (uint32_t i = 0; i < n_dims; i++) {
        if (dims[i] <= 0) return "a dimension is not positive";
        if (!kn_mul(elements, (size_t)dims[i], &elements) || elements > INT64_MAX)
            return "its dimensions overflow";
    }
    if (!kn_gguf_type_block(type, &block_values, &block_bytes)) return NULL;
    if ((size_t)dims[0] % block_values) return "its columns are no multiple of the block size";
    return kn_mul(elements / block_values, block_bytes, size) ? NULL : "its dimensions overflow";
}

bool kn_gguf_alignment_valid(uint64_t alignment) {
    return alignment >= KN_GGUF_ALIGNMENT_MIN && (alignment & (alignment - 1)) == 0;
}

bool kn_gguf_align(size_t value, size_t alignment, size_t *out) {
    if (!kn_add(value, alignment - 1, out)) return false;
    *out &= ~(alignment - 1);
    return true;
}
