#!/bin/sh
# A store that is tuned on its own text:  sh tests/test_cli_own.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
model=$source/models/small.gguf
[ -x "$python" ] || skip "no Python"

# is EXPRESSION: of r, the JSON of info on the store.
is() { # STORE EXPRESSION
    run 0 info --json "$1"
    ensure "$2" "$python" -c "import json, sys; r = json.load(open('out'))['tuned']; sys.exit(not ($2))"
}

# Words drawn by chance: what follows a context in one document is nothing to another. Each knows itself by heart.
words() { awk -v seed="$1" -v n="$2" 'BEGIN { srand(seed); for (i = 1; i <= n; i++) printf "%c%c%c%s", 97 + rand() * 26, 97 + rand() * 26, 97 + rand() * 26, i % 9 ? " " : "\n" }'; }
mkdir texts
for i in 1 2 3 4 5 6; do words $i 120 >texts/$i.txt; done

run 0 build -m "$model" -o none.store --no-tune texts
is none.store 'r is None'
run 0 build -m "$model" -o own.store texts
says '^tuned .*on its own text'
is own.store 'r["quick"] and r["gate"] and r["entries"] > 600'
# Were they not left out of their own search, every word would be found at distance 0 and nothing else would count.
cp -R own.store itself.store
run 0 tune -m "$model" -s itself.store --include-self texts
is itself.store 'r["lambda"] > 0.99'
itself=$("$python" -c 'import json; print(json.load(open("out"))["tuned"]["temperature"])')
is own.store 'r["temperature"] > 5 * '"$itself"' and r["lambda"] < 0.99'
# Copies are left out too.
mkdir twins && cp texts/1.txt texts/2.txt texts/3.txt twins
for i in 1 2 3; do cp texts/$i.txt twins/again-$i.txt; done
run 0 build -m "$model" -o twins.store twins
is twins.store 'r["temperature"] > 5 * '"$itself"' and r["lambda"] < 0.99'
# One document alone: what is around a piece is left out.
words 9 2000 >long.txt
run 0 build -m "$model" -o long.store long.txt
is long.store 'r["temperature"] > 5 * '"$itself"' and r["lambda"] < 0.99'
# What they were left out for: other text of the kind is as good as with a tuning on such text, or nearly.
words 32 600 >other.txt
for store in own itself; do
    run 0 eval -m "$model" -s $store.store --json other.txt
    cp out $store.json
done
ensure "it serves other text of its kind" "$python" -c 'import json, sys; r, w = (json.load(open(f))["ppl"] for f in ("own.json", "itself.json")); sys.exit(not r < 0.6 * w)'

# A text that the store knows nothing of is as probable as by the model alone, but for a factor of 2.
run 0 eval -m "$model" -s own.store --json "$source/docs/data.md"
cp out foreign.json
ensure "never worse by more than ln 2" "$python" -c 'import json, math, sys; r = json.load(open("foreign.json")); sys.exit(not r["nll"] < r["nll_lm"] + math.log(2) + 1e-6)'

# It stands until the store has grown by a quarter, and what somebody tuned stays.
words 21 20 >little.txt
run 0 add own.store little.txt
is own.store 'r["entries"] < 9999 and r["quick"]'
ensure "a little more is not tuned for" not grep -q '^tuned' out
words 22 600 >much.txt
run 0 add own.store much.txt
is own.store 'r["quick"]'
words 31 200 >valid.txt
# Letters drawn by chance are best known by all neighbours there are: the most that were tried, unless the store has no more.
edges() { # EDGES OPTION...: the list, as JSON
    edges=$1
    shift
    run 0 tune -m "$model" -s own.store --dry-run --json "$@" valid.txt
    ensure "edges $edges of $*" "$python" -c "import json, sys; r = json.load(open('out'))['stores'][0]['edges']; sys.exit(r != $edges)"
}
edges '["k max"]' -k 16
edges '[]' -k 100000
run 0 tune -m "$model" -s own.store --dry-run -k 16 valid.txt
says '^at the edge  *k 16 is the most that was tried: try -k 32$'
run 0 tune -m "$model" -s own.store valid.txt
is own.store 'not r["quick"]'
words 23 2000 >more.txt
run 0 add own.store more.txt
is own.store 'not r["quick"]'
complains 2 'no text to tune on' tune -s own.store
is own.store 'not r["quick"]'
complains 2 'one at a time' tune -s own.store --own valid.txt
run 0 tune -s own.store --own
is own.store 'r["quick"]'

conclude
