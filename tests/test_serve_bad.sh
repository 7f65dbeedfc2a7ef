#!/bin/sh
# What nobody should ask a server: see tests/serve_bad.py. It lives, says what is wrong, and leaks nothing.
#   sh tests/test_serve_bad.sh PATH_TO_knnlm SOURCE_DIR     SERVE_BAD=full: more of it
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

# A sanitizer keeps freed memory for a while: little of it, so that growth can be told from that.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=8"
run 0 build -m "$tiny" -o told.store told.txt
start -m "$tiny" -s told.store --api-key sesame --max-tokens 400 --max-body 1m --timeout 5 --connections 150
last="tests/serve_bad.py"
checks=$((checks + 1))
"$python" -I "$source/tests/serve_bad.py" "$url" sesame "$server" told || failed "see above"
stop
run 0 verify told.store
conclude
