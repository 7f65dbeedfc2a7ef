#!/bin/sh
# The demo of ./quickstart: right answers with the store, from the right documents, and other ones without it.
#   sh tests/test_demo.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
model=$source/models/tinyllama.gguf
[ -e "$model" ] || skip "no models/tinyllama.gguf (scripts/get-model tinyllama)"
"$knnlm" --version | grep -q '^llama.cpp: .* in ' || skip "built without llama.cpp, or it is missing: run scripts/get-llama"

cp -r "$source/examples/demo" demo
run 0 build -m "$model" -o demo.store demo/*.txt
while IFS='	' read -r question answer; do
    base="--temp 0 -n 30 --stop . --no-echo"
    # shellcheck disable=SC2086 # options are words
    {
        run 0 generate -m "$model" -p "$question" $base
        ensure "the model alone does not know it: $answer" not grep -q "$answer" out
        run 0 generate -s demo.store -p "$question" $base
        ensure "with the store: $answer" test "$(cat out)" = " $answer"
        run 0 generate -s demo.store -p "$question " $base
        ensure "and after a space at the end: $answer" test "$(cat out)" = " $answer"
        run 0 generate -s demo.store -p "$question" $base --sources
    }
    ensure 'one document told so' test "$(grep -c '^\[[0-9]*\] [a-z0-9-]*\.txt, ' out)" -eq 1
done <demo/questions.tsv

conclude
