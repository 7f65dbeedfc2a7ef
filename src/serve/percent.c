// Percent-encoding of paths and queries: names may have slashes of their own, so libmicrohttpd leaves it to
// us.
#include "serve/percent.h"

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool kn_percent_decode(char *text, size_t size, bool plus) {
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        char byte = plus && text[i] == '+' ? ' ' : text[i];
        if (byte == '%') {
            int high = i + 2 < size ? digit(text[i + 1]) : -1, low = high >= 0 ? digit(text[i + 2]) : -1;
            if (high < 0 || low < 0) return false;
            byte = (char)(high * 16 + low);
            i += 2;
        }
        if (byte == 0) return false;
        text[used++] = byte;
    }
    text[used] = 0;
    return true;
}
