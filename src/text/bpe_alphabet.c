// Maps bytes to GPT-2's printable characters and back.
#include "text/bpe_alphabet.h"

#include "base/utf8.h"

enum { PRINTABLE = 188, FIRST_EXTRA = 0x100 };

// Latin-1's visible characters stand for themselves; the soft hyphen (173) is invisible.
static bool printable(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 161 && byte <= 172) || byte >= 174;
}

// The hidden bytes in rising order: 0..32, 127..160, 173.
static int hidden_byte(int n) {
    return n <= 32 ? n : n <= 66 ? n + 94 : 173;
}
static int hidden_index(int byte) {
    return byte <= 32 ? byte : byte <= 160 ? byte - 94 : 67;
}

uint8_t kn_alphabet_byte(int n) {
    if (n < 94) return (uint8_t)('!' + n);
    if (n < 106) return (uint8_t)(161 + n - 94);
    if (n < PRINTABLE) return (uint8_t)(174 + n - 106);
    return (uint8_t)hidden_byte(n - PRINTABLE);
}

size_t kn_alphabet_encode(uint8_t byte, char *out) {
    return kn_utf8_encode(printable(byte) ? byte : FIRST_EXTRA + (uint32_t)hidden_index(byte), out);
}

bool kn_alphabet_decode(const char *piece, size_t size, char *out, size_t *out_size) {
    *out_size = 0;
    for (size_t i = 0, n; i < size; i += n) {
        uint32_t c;
        n = kn_utf8_decode(piece + i, size - i, &c);
        if (!n) return false;
        if (c < FIRST_EXTRA ? !printable((int)c) : c > FIRST_EXTRA + 67) return false;
        out[(*out_size)++] = (char)(c < FIRST_EXTRA ? (int)c : hidden_byte((int)c - FIRST_EXTRA));
    }
    return true;
}
