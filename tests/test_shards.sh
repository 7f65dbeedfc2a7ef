#!/bin/sh
# Stores of shards, by one process:  sh tests/test_shards.sh PATH_TO_knnlm SOURCE_DIR
# The same figures, neighbours and words as a store without shards, whatever their number; and what is refused.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/shards_kit.sh"
write_texts texts
{ cat begin && write_text 6 60; } >valid.txt

# ---- the same as one store

drive 0 build -m "$model" -o one.store texts
looked one.store one
for shards in 1 2 3 5; do
    drive 0 build -m "$model" -o "s$shards.store" --shards $shards texts
    looked "s$shards.store" "s$shards"
    alike one "s$shards"
done
conclude
