// The files of the page, which are part of the library. Not a door: only this room includes it.
#ifndef KN_SERVE_PAGE_H
#define KN_SERVE_PAGE_H

#include <stddef.h>

typedef struct kn_page_file {
    const char *path, *type;
    const unsigned char *data;
    const size_t *size;
} kn_page_file;

// NULL: no such file.
const kn_page_file *kn_page_find(const char *path);

#endif
