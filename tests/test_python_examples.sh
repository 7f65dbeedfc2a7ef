#!/bin/sh
# The examples in Python: a model of torch's with our store, whose perplexity torch confirms, and the notebook's figures.
#   sh tests/test_python_examples.sh PATH_TO_knnlm SOURCE_DIR
# 77 when Debian's torch and matplotlib are both missing.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
needs_python "which the package needs" numpy
library=$(dirname "$knnlm")/libknnlm.so
[ -e "$library" ] || skip "no shared library in this build"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 MPLCONFIGDIR="$work/matplotlib"
export KNNLM_LIBRARY="$library" PYTHONPATH="$source/python"
ran=no

if "$python" -c 'import torch' 2>/dev/null; then
    ran=yes last=torch_knnlm.py
    # As in bench/run: OpenBLAS does not know newer CPUs, and oneDNN's bf16 dies where AMX is told but not there.
    export DNNL_MAX_CPU_ISA=AVX512_CORE
    head -c 12000 "$source/docs/theory.md" | iconv -c -t UTF-8 >text.txt
    checks=$((checks + 1))
    "$python" "$source/examples/torch_knnlm.py" --steps 80 text.txt >out 2>err || failed "torch and we agree, and neighbours help"
    says 'by the formula in torch'
    ensure "it says nothing else" test ! -s err
else
    echo "skipped: torch_knnlm.py (no python3-torch: scripts/install-deps examples)"
fi

if "$python" -c 'import matplotlib' 2>/dev/null; then
    ran=yes last=notebook.py
    head -c 3000 "$source/docs/theory.md" | iconv -c -t UTF-8 >a.txt
    head -c 1500 "$source/docs/format.md" | iconv -c -t UTF-8 >b.txt
    checks=$((checks + 1))
    "$python" "$source/examples/notebook.py" --out shown a.txt b.txt >out 2>err || failed "the notebook runs"
    check test -s shown/lambda.png
    check grep -q '<span style="background: rgba(' shown/text.html
else
    echo "skipped: notebook.py (no python3-matplotlib: scripts/install-deps examples)"
fi
[ $ran = yes ] || skip "neither python3-torch nor python3-matplotlib"
conclude
