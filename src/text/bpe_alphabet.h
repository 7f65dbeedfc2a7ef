// GPT-2's printable alphabet: a character for each byte, so that any bytes can be written as text.
#ifndef KN_TEXT_BPE_ALPHABET_H
#define KN_TEXT_BPE_ALPHABET_H

#include "text/vocab.h"

// The n-th byte in GPT-2's order (0..255): printable ones first.
uint8_t kn_alphabet_byte(int n);
// Appends the character of the byte to `out` (at most 2 bytes); returns its size.
size_t kn_alphabet_encode(uint8_t byte, char *out);
// The bytes that `piece` stands for, into `out` (as long as the piece); false when a character is no byte's.
bool kn_alphabet_decode(const char *piece, size_t size, char *out, size_t *out_size);

#endif
