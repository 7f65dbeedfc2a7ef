#!/bin/sh
# What a server may be made to spend (tests/serve_limits.py): memory is budgeted, slow readers and crowds are limited.
#   sh tests/test_serve_limits.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

# A sanitizer keeps freed memory for a while: little of it. Under one, no memory is no memory, too.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=8:allocator_may_return_null=1"
run 0 build -m "$tiny" -o told.store told.txt

limits() { # STAGE MORE...
    last="tests/serve_limits.py $1"
    checks=$((checks + 1))
    "$python" -I "$source/tests/serve_limits.py" "$1" "$url" "$server" ${2+"$2"} || failed "see above"
    stop
}
start -m "$tiny" -s told.store --max-memory 100M
limits memory 100000000
start -m "$tiny" -s told.store --max-memory 100G
case $(readlink -f "/proc/$server/exe"),$(cat "/proc/$server/maps") in
*libtsan* | *libasan*) stop ;; # they reserve address space by the terabyte, and abort where there is none
*) limits exhausted ;;
esac
start -m "$tiny" -s told.store --connections 20 --timeout 10
limits readers
start -m "$tiny" -s told.store --connections-per-address 4
limits addresses
run 0 verify told.store
conclude
