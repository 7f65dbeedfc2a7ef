#!/bin/sh
# The command as it is shipped: position-independent, its tables of addresses read-only from the start, canaries on its stacks,
# copies whose bounds are checked, and no code of an instruction set that runs before the CPU is asked.   sh tests/test_hardening.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
command -v readelf >/dev/null || skip "no readelf"
settings=$(dirname "$knnlm")/CMakeCache.txt
grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=Release$' "$settings" || skip "not a release build"
grep -q '^KNNLM_SANITIZE:STRING=.' "$settings" && skip "a build with sanitizers"

has() { # WHAT_IF_NOT PATTERN READELF_OPTION
    readelf -W "$3" "$knnlm" >out
    ensure "$1" grep -q -e "$2" out
}
has "not position-independent" 'Type: *DYN' -h
has "not an executable of its own kind" 'Flags:.* PIE' -d
has "no RELRO" GNU_RELRO -l
has "addresses are bound lazily" 'BIND_NOW\|Flags:.*NOW' -d
has "no canaries" __stack_chk_fail --dyn-syms
has "no checked copies" '__mem[a-z]*_chk\|__sn*printf_chk\|__vsnprintf_chk' --dyn-syms
readelf -W -l "$knnlm" >out
ensure "the stack is executable" not grep -q 'GNU_STACK.* RWE ' out
# Tables of kernels are read on every CPU: code in them, compiled for AVX-512, would end the command on one of AVX2.
for table in "$(dirname "$knnlm")"/CMakeFiles/isa_*.dir/src/math/isa/table.c.o; do
    nm "$table" >out
    ensure "no table of kernels: $table" grep -q ' kn_isa_kernels_' out
    ensure "code beside a table of kernels: $table" not grep -q ' [Tt] ' out
done
conclude
