#!/bin/sh
# What the scripts about the server share, on top of tests/cli_kit.sh: a small text, and what it takes to start a server, to ask
# it, and to judge its answer. They begin with
#   set -u
#   . "$2/tests/serve_kit.sh"
# shellcheck disable=SC2154,SC2034 # names of the other kit and of the scripts
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
unset KNNLM_API_KEY http_proxy HTTP_PROXY all_proxy ALL_PROXY
model=$source/models/small.gguf
tiny=$golden/shared.model.gguf # random weights, a context of 48 tokens, tokens that are single bytes
needs_python "to read JSON with"
command -v curl >/dev/null || skip "no curl"

evidence() {
    [ ! -s body ] || { head -c 400 body | sed 's/^/    body: /' && echo; }
    tail -n 5 serve.err 2>/dev/null | sed 's/^/    server: /'
    sed 's/^/    stderr: /' err 2>/dev/null | head -n 5
}
finish() { # what a sanitizer found in the server counts as well
    if grep -q -e 'ERROR: [A-Za-z]*Sanitizer' -e 'runtime error' serve.err 2>/dev/null; then
        failed "a sanitizer's report" && cat serve.err
    fi
}

# ---- material

printf 'The nearest neighbours of a context have their say. The context of a word is what stands before it, and the nearest
neighbours of the context are those that the model finds most like it. A store has the context of every word.\n' >told.txt
printf 'The nearest neighbours of the context of a word have their say.\n' >asked.txt

# ---- the server

# patiently SECONDS COMMAND...: until it succeeds.
patiently() {
    tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}
listens() { grep -q 'http://' serve.out || not kill -0 "$server"; }
healthy() { curl -s -f -m 5 "$url/health"; }

# begin ARGUMENT...: a server on a free port; `url` is where, without the last slash. It may be opening its model still.
begin() {
    last="knnlm serve $*"
    : >serve.out
    "$knnlm" serve --port 0 "$@" >serve.out 2>>serve.err </dev/null &
    server=$!
    patiently 30 listens
    url=$(sed -n 's|.*\(http://[^ /]*\).*|\1|p' serve.out | head -n 1)
    [ -n "$url" ] || {
        failed "it does not listen"
        conclude
    }
}

# start ARGUMENT...: as begin; it answers when this returns.
start() {
    begin "$@"
    patiently 30 healthy || {
        failed "it does not become healthy"
        conclude
    }
}

# ends CODE SECONDS: the server leaves by itself.
ends() {
    checks=$((checks + 1))
    if patiently "$2" not kill -0 "$server"; then
        wait "$server"
        got=$?
        [ $got -eq "$1" ] || failed "exit code $got, not $1"
    else
        failed "the server does not end" && kill -9 "$server"
        wait "$server" 2>/dev/null
    fi
    server=
}

stop() {
    kill -TERM "$server"
    ends 0 15
}

# ---- asking. The answer is in `body`, its headers in `head`, `status` is its number.

key=
# ask METHOD PATH [BODY [CURL_OPTION...]]: BODY may be empty, or @FILE.
ask() {
    method=$1 path=$2 sent=${3:-}
    last="$method $path $(printf %.300s "$sent")"
    if [ $# -gt 3 ]; then shift 3; else shift $#; fi
    case "$*" in
    *Content-Type:*) ;;
    *) [ -z "$sent" ] || set -- -H 'Content-Type: application/json' "$@" ;;
    esac
    [ -z "$sent" ] || set -- --data-binary "$sent" "$@"
    [ -z "$key" ] || set -- -H "Authorization: Bearer $key" "$@"
    case $method in
    HEAD) set -- -I "$@" ;;
    *) set -- -X "$method" "$@" ;;
    esac
    : >body
    status=$(curl -s -m 60 --path-as-is -o body -D head -w '%{http_code}' "$@" "$url$path")
}

# expect STATUS METHOD PATH [BODY [CURL_OPTION...]]: every error must be of OpenAI's shape, too.
expect() {
    wanted=$1
    shift
    ask "$@"
    checks=$((checks + 1))
    [ "$status" = "$wanted" ] || failed "status $status, not $wanted"
    case $wanted,$1 in
    *,HEAD) ;;
    4*,* | 5*,*) holds 'set(r) == {"error"} and set(r["error"]) == {"message", "type", "param", "code"} and r["error"]["message"]' ;;
    esac
}
refused() { # STATUS TYPE CODE METHOD PATH [BODY...]
    type=$2 code=$3
    wanted=$1
    shift 3
    expect "$wanted" "$@"
    holds "r['error']['type'] == '$type' and r['error']['code'] == ($code)"
}

keep() { cp body "$1.json"; } # NAME: the answer, for later judgements

# holds EXPRESSION over r (the answer), h (its headers), kept(NAME), rows(FILE) of eval, events() of a stream, near(a, b)
holds() {
    checks=$((checks + 1))
    $python -I -c '
import csv, json, math, re, sys
def load(path):
    try: return json.load(open(path, encoding="utf-8"))
    except ValueError: return None
def rows(path):
    out = list(csv.DictReader(open(path, encoding="utf-8"), delimiter="\t", quoting=csv.QUOTE_NONE))
    for x in out:
        x.setdefault("logprob_lm", x["logprob"])
        for name in x:
            if name not in ("document", "text"): x[name] = float(x[name]) if x[name] else None
    return out
def near(a, b, most=1e-4):
    if a is None or b is None: return a is b
    return a == b or abs(a - b) <= most * (1 + abs(b))
def all_near(a, b, most=1e-4):
    a, b = list(a), list(b)
    return len(a) == len(b) and all(near(x, y, most) for x, y in zip(a, b))
def events(path="body"):
    lines = open(path, encoding="utf-8").read().split("\n\n")
    assert lines[-1] == "", "the stream does not end with an empty line"
    assert all(x.startswith("data: ") for x in lines[:-1]), "an event without data"
    return [x[6:] if x[6:] == "[DONE]" else json.loads(x[6:]) for x in lines[:-1]]
def log(p): return math.log(p) if p > 0 else -math.inf
kept = lambda name: load(name + ".json")
text = lambda name: open(name, encoding="utf-8").read()
r = load("body")
h = {a.lower(): b.strip() for a, b in (x.split(":", 1) for x in open("head", encoding="latin-1") if ":" in x)}
try: sys.exit(not eval(sys.argv[1]))
except Exception as e: sys.exit("%s: %s" % (type(e).__name__, e))
' "$1" 2>why </dev/null || { failed "not so: $1" && sed 's/^/    why: /' why; }
}
