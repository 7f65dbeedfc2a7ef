#!/bin/sh
# What the scripts that run knnlm through llama.cpp share; they source it after setting `name`, `knnlm` and `source`.
# KNNLM_LLAMA may name another llama.cpp, or ours with another CPU's backend (scripts/llama-backend).
# Every check prints a line when it fails; conclude ends the script with their count.
# shellcheck disable=SC2154 # those three
export LC_ALL=C
golden=$source/tests/golden

skip() {
    echo "$name: skipped: $*"
    exit 77
}
[ -x "$knnlm" ] || { echo "$knnlm: no such program" && exit 1; }
case $knnlm in /*) ;; *) knnlm=$PWD/$knnlm ;; esac
"$knnlm" --version | grep -q '^llama.cpp: not in this build' && skip "knnlm was built without llama.cpp"
reason=$("$knnlm" info -t 1 "$golden/llama.model.gguf" 2>&1) || { # the library may have gone since
    case $reason in *"library is missing"*) skip "$reason" ;; esac
}

# A folder of its own, which goes with the script, and so does the process `child`.
work=$(mktemp -d)
child=
# shellcheck disable=SC2317 # called by the trap
clean() {
    [ -z "$child" ] || kill -9 "$child" 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1
# shellcheck disable=SC3045 # every sh here has it
ulimit -c 0

checks=0 failures=0 last=
failed() {
    failures=$((failures + 1))
    echo "FAILED: after knnlm $last: $*"
    sed 's/^/    stdout: /' out 2>/dev/null | head -n 5
    sed 's/^/    stderr: /' err 2>/dev/null | head -n 5
}
conclude() {
    echo "$checks checks, $failures failed"
    [ $failures -eq 0 ]
    exit
}

# run CODE COMMAND ARGUMENT...: knnlm on one thread (ggml's wait by spinning), with its output in `out` and `err`; it must
# leave with CODE. A -t among the arguments counts instead.
run() {
    code=$1 verb=$2
    shift 2
    last="$verb $*"
    checks=$((checks + 1))
    "$knnlm" "$verb" -t 1 "$@" >out 2>err </dev/null
    got=$?
    [ $got -eq "$code" ] || failed "exit code $got, not $code"
}
check() { # COMMAND...: must succeed
    checks=$((checks + 1))
    "$@" >/dev/null 2>&1 || failed "not so: $*"
}
says() {
    checks=$((checks + 1))
    grep -q -e "$1" out || failed "does not say '$1'"
}

# Lines on stderr beside plans and advice, which are not of llama.cpp either.
noise() {
    grep -v -e ' of memory$' -e ' for their neighbours$' -e ': only [0-9]* tokens: ' -e ' is not tuned: ' \
        -e ' was tuned on (part of) this text: ' err
}
# does COMMAND ARGUMENT...: it works, and llama.cpp is not heard.
does() {
    run 0 "$@"
    check test -s out
    checks=$((checks + 1))
    noise >/dev/null && failed "says more on stderr"
}

# number NAME: of the JSON object in `out`.
number() {
    sed -n "s/.*\"$1\": \\([-+0-9.e]*\\).*/\\1/p" out
}
within() { # PERCENT A B
    checks=$((checks + 1))
    awk -v most="$1" -v a="$2" -v b="$3" 'BEGIN { d = 100 * (a - b) / b; exit !(b > 1 && d <= most && -d <= most) }' ||
        failed "$2 and $3 are more than $1% apart"
}
