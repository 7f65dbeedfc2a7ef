# A file as an array of a C source: cmake -D IN=page.html -D OUT=page.c -D NAME=kn_page -P embed.cmake
# gives `const unsigned char kn_page[]` and `const size_t kn_page_size`. An array because compilers need not take
# string literals beyond 4095 characters; CMake because it is here anyway, and xxd may not be.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
get_filename_component(source ${IN} NAME)
file(WRITE ${OUT} "// ${source}, by scripts/embed.cmake: edit that.
#include <stddef.h>
extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_size;
const unsigned char ${NAME}[] = {
${bytes}
};
const size_t ${NAME}_size = sizeof ${NAME};
")
