#!/bin/sh
# The Python package, with the library of this build and Debian's NumPy:  sh tests/test_python.sh PATH_TO_knnlm SOURCE_DIR
# Runs tests/python (unittest); 77 when there is no NumPy, or no shared library in this build.
# shellcheck disable=SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
needs_python "which the package needs (scripts/install-deps test)" numpy
library=$(dirname "$knnlm")/libknnlm.so
[ -e "$library" ] || skip "no shared library in this build"
# One thread of OpenBLAS: several spin while they wait for each other, for long where the machine is busy.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
export KNNLM_LIBRARY="$library" KNNLM_COMMAND="$knnlm" PYTHONPATH="$source/python:$source/tests/python"
"$python" -W error -m unittest discover -s "$source/tests/python" -t "$source/tests/python"
