#!/bin/sh
# What the server says of itself in /openapi.json, held against what it answers; requests are those of clients that people
# have (tests/golden/serve_requests.json).   sh tests/test_serve_openapi.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

run 0 build -m "$model" -o told.store told.txt asked.txt
start -m "$model" -s told.store
last="the document and the answers"
checks=$((checks + 1))
"$python" -I "$source/tests/serve_openapi.py" "$url" told "$golden/serve_requests.json" "$source/src/serve/routes.c" >judged.out 2>&1 ||
    failed "$(cat judged.out)"
tail -n 1 judged.out
stop
conclude
