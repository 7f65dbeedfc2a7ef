#!/bin/sh
# The driver of the paper's experiments on very little text:  sh tests/test_paper.sh PATH_TO_knnlm SOURCE_DIR
# Its cheapest rows run to the end, the page has their figures, and what was made is not made again.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
[ -x /usr/bin/python3 ] || skip "no Python"
[ -r /usr/share/doc/debian-policy/policy.txt.gz ] || skip "no debian-policy (scripts/install-deps paper)"
dpkg -L perl-doc >/dev/null 2>&1 || skip "no perl-doc (scripts/install-deps corpus)"
command -v gnuplot >/dev/null 2>&1 || skip "no gnuplot (scripts/install-deps plots)"
export WORK="$PWD/paper" BYTES=24000 KNNLM="$knnlm"
paper() { "$source/experiments/paper/run" "$@" >out 2>err; }

paper c10 c15 figure2
ensure "it ran to the end" test $? -eq 0
page=$WORK/small/README.md
ensure "the page has the distances" grep -q '| squared L2 of full keys | 16.06 | [0-9.]* |' "$page"
ensure "and the growth" grep -q '^| 0.3 | [0-9.]* | [0-9.]* |' "$page"
ensure "nothing of what was not run" sh -c "! grep -q 'Table 1' '$page'"
# More of the store is no worse: the page's own figures, smallest part and all.
# shellcheck disable=SC2016 # of awk
ensure "C5" awk -F'|' '$2 ~ /^ 0.01 $/ { small = $3 } $2 ~ /^ 1 $/ { all = $3 } END { exit !(all > 0 && all < small) }' "$page"
before=$(stat -c %y "$WORK/small/codes-16.json")
paper c10
ensure "what is there is not made again" test "$before" = "$(stat -c %y "$WORK/small/codes-16.json")"
paper nonsense
ensure "no such row" test $? -eq 2
KNNLM_DATA=$PWD/nowhere paper --scale full table1
ensure "missing data is told" test $? -eq 1
check grep -q 'nowhere/data/wiki/train.txt.zst: not there' err
conclude
