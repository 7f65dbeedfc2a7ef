#!/bin/sh
# The command as it is shipped: position-independent, its tables of addresses read-only from the start, canaries on its stacks,
# and copies whose bounds are checked.   sh tests/test_hardening.sh PATH_TO_knnlm SOURCE_DIR
set -u
knnlm=$1
skip() {
    echo "test_hardening: skipped: $*"
    exit 77
}
command -v readelf >/dev/null || skip "no readelf"
grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=Release$' "$(dirname "$knnlm")/CMakeCache.txt" || skip "not a release build"
grep -q '^KNNLM_SANITIZE:STRING=.' "$(dirname "$knnlm")/CMakeCache.txt" && skip "a build with sanitizers"

failures=0
has() { # WHAT PATTERN READELF_OPTION
    LC_ALL=C readelf -W "$3" "$knnlm" | grep -q -e "$2" || {
        echo "FAILED: $1"
        failures=$((failures + 1))
    }
}
has "not position-independent" 'Type: *DYN' -h
has "not an executable of its own kind" 'Flags:.* PIE' -d
has "no RELRO" GNU_RELRO -l
has "addresses are bound lazily" 'BIND_NOW\|Flags:.*NOW' -d
has "no canaries" __stack_chk_fail --dyn-syms
has "no checked copies" '__mem[a-z]*_chk\|__sn*printf_chk\|__vsnprintf_chk' --dyn-syms
LC_ALL=C readelf -W -l "$knnlm" | grep -q 'GNU_STACK.* RWE ' && {
    echo "FAILED: the stack is executable"
    failures=$((failures + 1))
}
echo "7 checks, $failures failed"
[ $failures -eq 0 ]
