#!/bin/sh
# knnlm eval --ngram beside a model of dictionaries in Python:  sh tests/test_cli_ngram.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
needs_python "the peer"
export PYTHONDONTWRITEBYTECODE=1
head -c 12000 "$source/docs/theory.md" | iconv -c -t UTF-8 >one.txt
head -c 9000 "$source/docs/format.md" | iconv -c -t UTF-8 >two.txt
head -c 1000 "$source/README.md" | iconv -c -t UTF-8 >asked.txt
for order in 1 3 5; do
    last="eval --ngram --ngram-order $order"
    check "$python" "$source/tests/oracle_ngram.py" "$knnlm" "$source" $order one.txt two.txt -- asked.txt
done

model=$source/models/small.gguf
run 0 eval -m "$model" --ngram one.txt asked.txt
says '^with n-grams '
says '^n-gram model  *order 5, .* tokens, lambda 0.1; alone .* best on this text: lambda '
run 0 build -m "$model" -o one.store one.txt
run 0 eval -s one.store --ngram one.txt --ngram-lambda 0 asked.txt --json
with=$(field ppl)
run 0 eval -s one.store asked.txt --json
ensure "a weight of 0 leaves the mixture as it is" test "$with" = "$(field ppl)"
complains 1 'nowhere.txt' eval -m "$model" --ngram nowhere.txt asked.txt
complains 2 '1 to 5' eval -m "$model" --ngram one.txt --ngram-order 6 asked.txt
complains 2 '0 to 1' eval -m "$model" --ngram one.txt --ngram-lambda 1.5 asked.txt
complains 2 'neighbours' eval -m "$model" --ngram one.txt --report page.html asked.txt
complains 1 'page.html: .*n-grams' eval -s one.store --ngram one.txt --report page.html asked.txt
complains 1 'one.txt' eval -m "$model" --ngram one.txt --per-token one.txt asked.txt
: >empty.txt
complains 1 'no text to learn n-grams from' eval -m "$model" --ngram empty.txt asked.txt
conclude
