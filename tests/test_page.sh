#!/bin/sh
# The page of `knnlm serve` in a browser, by tests/page.mjs.
#   test_page.sh KNNLM SOURCES     KNNLM_NODE: the folder that scripts/get-node filled; SHOTS: a folder for screenshots
# Skipped without Chromium, node or playwright-core, which nothing else needs.
set -eu
export LC_ALL=C
knnlm=$1 sources=$2
model=$sources/models/small.gguf
KNNLM_NODE=${KNNLM_NODE:-$sources/third_party/node}
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || { echo "no Chromium: skipped" && exit 77; }
export KNNLM_NODE CHROMIUM
command -v node >/dev/null || { echo "no node: skipped" && exit 77; }
[ -d "$KNNLM_NODE/node_modules/playwright-core" ] || { echo "no playwright-core in $KNNLM_NODE (scripts/get-node fetches it): skipped" && exit 77; }

work=$(mktemp -d)
servers=
# shellcheck disable=SC2086 # numbers are words
trap '[ -z "$servers" ] || kill $servers 2>/dev/null; wait; rm -rf "$work"' EXIT
cd "$work"
export HOME="$work"

mkdir told letters
printf 'The nearest neighbours of a context have their say. The context of a word is what stands before it, and the nearest
neighbours of the context are those that the model finds most like it. A store has the context of every word.\n' >told/told.txt
printf '<script>window.pwned=1</script> The nearest <img src=x onerror="window.pwned=1"> of a store. Every word of it is data.\n' \
    >'told/<img src=x onerror="window.pwned=1">.txt'
for i in 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do
    echo "Letter $i. Dear reader, the weather is fine, and the store has the context of every word." >letters/$i.txt
done
"$knnlm" build -m "$model" -o told.store told >build.log 2>&1 || { cat build.log && exit 1; }
"$knnlm" build -m "$model" -o letters.store letters >build.log 2>&1 || { cat build.log && exit 1; }

serve() { # NAME OPTION...: the address is in NAME.url
    name=$1
    shift
    "$knnlm" serve -m "$model" -s told.store -s letters.store --port 0 "$@" >"$name.out" 2>"$name.err" </dev/null &
    servers="$servers $!"
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        grep -os 'http://127\.0\.0\.1:[0-9]*/' "$name.out" >"$name.url" && return 0
        sleep .25
    done
    echo "the server does not come up: $(cat "$name.out" "$name.err")"
    exit 1
}
serve open
serve locked --api-key sesame --read-only

timeout 600 node "$sources/tests/page.mjs" "$(cat open.url)" "$(cat locked.url)" sesame ${SHOTS:+"$SHOTS"}
