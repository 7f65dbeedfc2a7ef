// The files of the page, by path.
#include "serve/page.h"

#include <string.h>

const kn_page_file *kn_page_find(const char *path) {
    extern const kn_page_file kn_page_files[]; // made of the files in web/
    extern const size_t kn_page_file_count;
    if (strcmp(path, "/") == 0) path = "/index.html";
    for (size_t i = 0; i < kn_page_file_count; i++)
        if (strcmp(kn_page_files[i].path, path) == 0) return &kn_page_files[i];
    return NULL;
}
