#!/bin/sh
# What every script that tests the command shares. A script is called with the path of knnlm and the folder of the sources,
# and begins with
#   set -u
#   . "$2/tests/cli_kit.sh"
# It is then in a folder of its own, which goes with the script. Every check prints a line when it fails; conclude ends the
# script with their count. Scripts about llama.cpp and the server have kits on top of this one.
# shellcheck disable=SC2034 # some names only the scripts use
export LC_ALL=C
script=$(basename "$0" .sh)
knnlm=$1
[ -x "$knnlm" ] || { echo "$knnlm: no such program" && exit 1; }
case $knnlm in /*) ;; *) knnlm=$PWD/$knnlm ;; esac
source=$(cd "$2" && pwd) || exit 1
golden=$source/tests/golden
data=${KNNLM_DATA:-$source/../shared} # docs/data.md
python=/usr/bin/python3

skip() {
    echo "$script: skipped: $*"
    exit 77
}
needs_python() { # WHAT_FOR MODULE...
    purpose=$1
    shift
    for module in sys "$@"; do
        "$python" -c "import $module" 2>/dev/null || skip "no $python with $module, $purpose"
    done
}

# What is to end with the script: processes, and a mount.
child='' server='' helper='' mounted=''
# In memory where there is plenty, for a sync of a disk takes long; TMPDIR says otherwise. Some tests run programs there.
roomy() { # FOLDER
    [ -w "$1" ] && ! grep -q "^[^ ]* $1 .*noexec" /proc/mounts && [ "$(df -Pk "$1" | awk 'NR == 2 { print $4 }')" -ge 4000000 ]
}
work=$(
    [ -n "${TMPDIR:-}" ] || ! roomy /dev/shm || TMPDIR=/dev/shm
    mktemp -d "${TMPDIR:-/tmp}/knnlm-test.XXXXXX"
)
# shellcheck disable=SC2317 # called by the trap
clean() {
    for process in $child $server $helper; do
        kill -9 "$process" 2>/dev/null || continue
        wait "$process" 2>/dev/null || continue
    done
    [ -z "$mounted" ] || umount "$mounted"
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1
# shellcheck disable=SC3045 # every sh here has it
ulimit -c 0

checks=0 failures=0 last='the beginning'
evidence() {
    sed 's/^/    stdout: /' out 2>/dev/null | head -n 5
    sed 's/^/    stderr: /' err 2>/dev/null | head -n 5
    sed 's/^/    said: /' said 2>/dev/null | tail -n 3
}
failed() {
    failures=$((failures + 1))
    echo "FAILED: after $last: $*"
    evidence
}
finish() { :; } # a kit's last look
conclude() {
    finish
    echo "$checks checks, $failures failed"
    [ $failures -eq 0 ]
    exit
}

# ensure WHAT COMMAND...: it must succeed; what it says is shown when it does not.
ensure() {
    claim=$1
    shift
    checks=$((checks + 1))
    "$@" >said 2>&1 || failed "$claim"
}
check() { ensure "not so: $*" "$@"; } # COMMAND...
not() { ! "$@"; }

# run CODE COMMAND ARGUMENT...: knnlm with its output in `out` and `err`; it must leave with CODE.
options='' input=/dev/null
run() {
    code=$1
    shift
    last="knnlm $*"
    [ $# -eq 0 ] || {
        verb=$1
        shift
        # shellcheck disable=SC2086 # words
        set -- "$verb" $options "$@"
    }
    checks=$((checks + 1))
    "$knnlm" "$@" >out 2>err <$input
    got=$?
    [ $got -eq "$code" ] || failed "exit code $got, not $code"
}
says() { ensure "does not say '$1'" grep -q -e "$1" out err; } # PATTERN

# complains CODE PATTERN COMMAND ARGUMENT...: one line on stderr, beside lines of a plan; nothing on stdout.
plan='^a line of a plan$'
complains() {
    code=$1 pattern=$2
    shift 2
    run "$code" "$@"
    complained "$1" "$pattern"
}
complained() { # COMMAND PATTERN
    check test ! -s out
    check test "$(grep -vc -e "$plan" err)" -eq 1
    check grep -q -e "^knnlm $1: .*$2" err
}

# field NAME [FILE]: the first number of that name in the JSON of a file, or of `out`.
field() { grep -o "\"$1\": [-0-9.e+]*" "${2:-out}" | sed -n '1s/.*: //p'; }
