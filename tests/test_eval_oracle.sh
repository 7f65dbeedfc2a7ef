#!/bin/sh
# knnlm eval and tune beside brute force in NumPy:  sh tests/test_eval_oracle.sh PATH_TO_knnlm SOURCE_DIR
# tests/oracle_eval.py does it: every check prints a line when it fails; the exit code is 1 when one did, 77 when there is
# no NumPy.
# shellcheck disable=SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
# One thread: those of OpenBLAS spin while they wait for each other, for long where the machine is busy.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
needs_python "the peer" numpy
"$python" "$source/tests/oracle_eval.py" "$knnlm" "$source" -v
