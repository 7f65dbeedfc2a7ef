#!/bin/sh
# Many ranks:  sh tests/test_mpi.sh PATH_TO_knnlm SOURCE_DIR
# 1 to 4 ranks with 1 to 5 shards find, count and say what one process does with a store without shards; failures are one
# line that names the rank; a rank that is killed loses nothing.
#   MPI_KILLS    how often a random rank of a build is killed (4)
#   MPI_SEED     of the random moments (the time)
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/shards_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/mpi_kit.sh"
write_texts texts
{ cat begin && write_text 6 60; } >valid.txt
ranks 0
drive 0 build -m "$model" -o one.store texts
looked one.store one

# ---- the same digits

# pair RANKS SHARDS: built, and looked at
pair() {
    ranks "$1"
    drive 0 build -m "$model" -o "r$1s$2.store" --shards "$2" texts
    looked "r$1s$2.store" "r$1s$2"
    alike one "r$1s$2"
}
pair 1 3
pair 2 1
pair 2 5
pair 3 2
pair 4 4

# A store is the same whoever built it, and is read by any number.
ranks 0
drive 0 build -m "$model" -o plain.store --shards 5 texts
ensure "shards depend on the ranks that built them" diff -r plain.store r2s5.store
conclude
