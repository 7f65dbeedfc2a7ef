#!/bin/sh
# The driver of the paper's experiments, on next to no text:  sh tests/test_paper.sh PATH_TO_knnlm SOURCE_DIR
# Rows run to their end, the page has their figures, what was made is not made again, and killed runs go on.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
[ -x /usr/bin/python3 ] || skip "no Python"
[ -r /usr/share/doc/debian-policy/policy.txt.gz ] || skip "no debian-policy (scripts/install-deps paper)"
dpkg -L perl-doc >/dev/null 2>&1 || skip "no perl-doc (scripts/install-deps corpus)"
command -v gnuplot >/dev/null 2>&1 || skip "no gnuplot (scripts/install-deps plots)"
command -v flock >/dev/null 2>&1 || skip "no flock (util-linux)"
export WORK="$PWD/paper" KNNLM="$knnlm"
results=$WORK/small-try page=$WORK/small-try/README.md
paper() { "$source/experiments/paper/run" "$@" >out 2>err; }

# Killed, with all that it started, when the model that is trained first is there, and again when its store is.
for made in "$results/tenth.train.json" "$results/tenth.build.json"; do
    setsid "$source/experiments/paper/run" --try figure2 c10 c15 >out 2>err &
    run=$!
    tries=600
    while [ ! -s "$made" ] && [ $((tries -= 1)) -gt 0 ]; do sleep 0.1; done
    kill -9 -$run 2>/dev/null
    wait $run 2>/dev/null
done
before=$(stat -c %y "$results/tenth.train.json")
paper --try figure2 c10 c15
ensure "killed, it goes on to the end" test $? -eq 0
ensure "the model that was there is not trained again" test "$before" = "$(stat -c %y "$results/tenth.train.json")"
ensure "the page says that it is a trial" grep -q 'the figures mean nothing' "$page"
ensure "it has the distances" grep -q '| squared L2 of the keys | 16.06 | [0-9.]* |' "$page"
ensure "and the growth" grep -q '| 30% | [0-9.]* | [0-9.]* |' "$page"
ensure "and plots" test -s "$results/size.png"
ensure "nothing of what was not run" sh -c "! grep -q '^## Table 1' '$page' && grep -q '^Not run: .*table1' '$page'"
# More of the store is no worse: the page's own figures, a part and all.
# shellcheck disable=SC2016 # of awk
ensure "C5" awk -F'|' '$3 ~ /^ 30% $/ { some = $4 } $3 ~ /^ 100% $/ { all = $4 } END { exit !(all > 0 && all < some) }' "$page"
ensure "and the claims' table says so" grep -q '^| C5 | .* | yes |$' "$page"

before=$(stat -c %y "$results/codes-paper.json")
paper --try c10
ensure "what is done is not done again" test "$before" = "$(stat -c %y "$results/codes-paper.json")"
check grep -q 'c10: done before' err
exec 9>"$results/lock"
flock 9
paper --try c10
ensure "two do not work in one folder" test $? -eq 1
check grep -q 'another run is at work' err
exec 9>&-
cp "$source/models/small.gguf" other.gguf
echo >>other.gguf
MODEL=$PWD/other.gguf paper --try c10
ensure "another model does not go on with it" test $? -eq 1
check grep -q 'another model or other sizes' err
paper --try --cost table1
check grep -q 'minutes on 2 quiet cores' err

paper nonsense
ensure "no such row" test $? -eq 2
KNNLM_DATA=$PWD/nowhere paper --scale full table1
ensure "missing data is told" test $? -eq 1
check grep -q 'nowhere/data/wiki/train.txt.zst: not there' err
MODEL=nowhere.gguf paper
ensure "a missing model is told" test $? -eq 1
check grep -q 'nowhere.gguf: not there' err
conclude
