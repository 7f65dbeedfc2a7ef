// Selection among items, numbers of 64 bits, without a branch on any of them; and the places of one value.
#include "math/isa/isa.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

void kn_isa(item_range)(const uint64_t *items, size_t n, uint64_t *min, uint64_t *max) {
    uint64_t low = items[0], high = items[0];
    for (size_t i = 1; i < n; i++) {
        low = items[i] < low ? items[i] : low;
        high = items[i] > high ? items[i] : high;
    }
    *min = low;
    *max = high;
}

size_t kn_isa(count_below)(const uint64_t *items, size_t n, uint64_t pivot) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += items[i] < pivot;
    return count;
}

// cut_items from item i on, where `kept` and `met` were found before it.
static inline size_t cut_from(uint64_t *items, size_t i, size_t n, uint64_t low, uint64_t high,
                              uint64_t *middle, size_t kept, size_t met) {
    for (; i < n; i++) {
        uint64_t x = items[i];
        items[kept] = middle[met] = x;
        kept += x < low;
        met += x >= low && x < high;
    }
    return kept;
}

#if defined(__AVX512F__)
// Compressed in a register, then stored whole: compressing into memory is slow on some CPUs.
size_t kn_isa(cut_items)(uint64_t *items, size_t n, uint64_t low, uint64_t high, uint64_t *middle) {
    const __m512i from = _mm512_set1_epi64((long long)low), to = _mm512_set1_epi64((long long)high);
    size_t kept = 0, met = 0, i = 0;
    for (; i + 8 <= n; i += 8) {
        __m512i x = _mm512_loadu_si512(items + i);
        __mmask8 below = _mm512_cmplt_epu64_mask(x, from);
        __mmask8 between = (__mmask8)(_mm512_cmplt_epu64_mask(x, to) & ~below);
        _mm512_storeu_si512(items + kept, _mm512_maskz_compress_epi64(below, x));
        _mm512_storeu_si512(middle + met, _mm512_maskz_compress_epi64(between, x));
        kept += (size_t)__builtin_popcount(below);
        met += (size_t)__builtin_popcount(between);
    }
    return cut_from(items, i, n, low, high, middle, kept, met);
}

size_t kn_isa(find_equal)(uint32_t *places, const int32_t *values, size_t n, int32_t value) {
    const __m512i wanted = _mm512_set1_epi32(value), step = _mm512_set1_epi32(16);
    __m512i at = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    size_t found = 0;
    for (size_t i = 0; i < n; i += 16, at = _mm512_add_epi32(at, step)) {
        __mmask16 there = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        __mmask16 equal =
            _mm512_mask_cmpeq_epi32_mask(there, _mm512_maskz_loadu_epi32(there, values + i), wanted);
        if (!equal) continue;
        _mm512_storeu_si512(places + found, _mm512_maskz_compress_epi32(equal, at));
        found += (size_t)__builtin_popcount(equal);
    }
    return found;
}
#else
size_t kn_isa(cut_items)(uint64_t *items, size_t n, uint64_t low, uint64_t high, uint64_t *middle) {
    return cut_from(items, 0, n, low, high, middle, 0, 0);
}

size_t kn_isa(find_equal)(uint32_t *places, const int32_t *values, size_t n, int32_t value) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        places[found] = (uint32_t)i;
        found += values[i] == value;
    }
    return found;
}
#endif
