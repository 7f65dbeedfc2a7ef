// When lists are worth their making. Not a door: only this room includes it.
#ifndef KN_BUILD_LISTS_H
#define KN_BUILD_LISTS_H

#include <stdbool.h>
#include <stdint.h>

// Of so many entries; and of so many outside the lists that there are.
bool kn_lists_worth(uint64_t entries);
bool kn_lists_worth_extending(uint64_t outside);

#endif
