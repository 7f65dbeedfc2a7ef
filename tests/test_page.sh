#!/bin/sh
# The page of `knnlm serve` in a browser, by tests/page.mjs and what is beside it.
#   test_page.sh KNNLM SOURCES     KNNLM_NODE: the folder that scripts/get-node filled; SHOTS: a folder for screenshots;
#                                  SCRIPTS: which of them
# Skipped without Chromium, node or playwright-core, which nothing else needs.
# shellcheck disable=SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
set -e
model=$source/models/small.gguf
KNNLM_NODE=${KNNLM_NODE:-$source/third_party/node}
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "no Chromium"
export KNNLM_NODE CHROMIUM
command -v node >/dev/null || skip "no node"
[ -d "$KNNLM_NODE/node_modules/playwright-core" ] || skip "no playwright-core in $KNNLM_NODE (scripts/get-node fetches it)"
export HOME="$work"

mkdir told letters
printf 'The nearest neighbours of a context have their say. The context of a word is what stands before it, and the nearest
neighbours of the context are those that the model finds most like it. A store has the context of every word.\n' >told/told.txt
printf '<script>window.pwned=1</script> The nearest <img src=x onerror="window.pwned=1"> of a store. Every word of it is data.\n' \
    >'told/<img src=x onerror="window.pwned=1">.txt'
for i in 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do
    echo "Letter $i. Dear reader, the weather is fine, and the store has the context of every word." >letters/$i.txt
done
run 0 build -m "$model" -o told.store told
run 0 build -m "$model" -o letters.store letters
[ "$failures" -eq 0 ]

serve() { # NAME OPTION...: the address is in NAME.url
    title=$1
    shift
    "$knnlm" serve --port 0 "$@" >"$title.out" 2>"$title.err" </dev/null &
    child="$child $!"
    tries=0
    while [ $tries -lt 240 ]; do # a minute, which only a failure takes
        grep -os 'http://127\.0\.0\.1:[0-9]*/' "$title.out" >"$title.url" && return 0
        sleep .25
        tries=$((tries + 1))
    done
    echo "the server does not come up: $(cat "$title.out" "$title.err")"
    exit 1
}
both="-s told.store -s letters.store"
# shellcheck disable=SC2086 # options are words
serve open -m "$model" $both
# shellcheck disable=SC2086
serve locked -m "$model" $both --api-key sesame --read-only
cp -R told.store again.store
run 0 build --no-tune -m "$golden/shared.model.gguf" -o bytes.store told/told.txt
serve two -m "$model" -m "$golden/shared.model.gguf" -s again.store -s bytes.store
TWO_URL=$(cat two.url)
export TWO_URL

for script in ${SCRIPTS:-page page_work page_talk}; do
    timeout 600 node "$source/tests/$script.mjs" "$(cat open.url)" "$(cat locked.url)" sesame ${SHOTS:+"$SHOTS"}
done
