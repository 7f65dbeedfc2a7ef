#!/bin/sh
# What the scripts that run knnlm through llama.cpp share, on top of tests/cli_kit.sh. They begin with
#   set -u
#   . "$2/tests/llama_kit.sh"
# KNNLM_LLAMA may name another llama.cpp, or ours with another CPU's backend (scripts/llama-backend).
# shellcheck disable=SC2034,SC2154 # names of the other kit and of the scripts
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
"$knnlm" --version | grep -q '^llama.cpp: not in this build' && skip "knnlm was built without llama.cpp"
reason=$("$knnlm" info -t 1 "$golden/llama.model.gguf" 2>&1) || { # the library may have gone since
    case $reason in *"library is missing"*) skip "$reason" ;; esac
}
options='-t 1' # ggml's threads wait by spinning; a -t among a command's arguments counts instead

says() { ensure "does not say '$1'" grep -q -e "$1" out; }

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
