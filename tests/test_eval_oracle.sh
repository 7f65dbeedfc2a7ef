#!/bin/sh
# knnlm eval and tune beside brute force in NumPy:  sh tests/test_eval_oracle.sh PATH_TO_knnlm SOURCE_DIR
# tests/oracle_eval.py does it: every check prints a line when it fails; the exit code is 1 when one did, 77 when there is
# no NumPy.
set -u
# One thread: those of OpenBLAS spin while they wait for each other, for long where the machine is busy.
export LC_ALL=C OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1

knnlm=$1
source=$2
python=/usr/bin/python3
[ -x "$knnlm" ] || { echo "$knnlm: no such program" && exit 1; }
"$python" -c 'import numpy' 2>/dev/null || { echo "skipped: no NumPy here ($python)" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1

"$python" "$source/tests/oracle_eval.py" "$knnlm" "$source" -v
