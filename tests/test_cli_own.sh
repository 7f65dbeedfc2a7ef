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
# The same of each of its copies, and of many small ones; one that is there a hundred times is not tuned on.
mkdir copies many && head -n 60 long.txt >copies/1.txt && cp copies/1.txt copies/2.txt && cp texts/2.txt texts/3.txt many
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do cp texts/1.txt many/copy-$i.txt; done
for name in copies many; do
    run 0 build -m "$model" -o "$name.store" "$name"
    is $name.store 'r["temperature"] > 5 * '"$itself"' and r["lambda"] < 0.99'
done
mkdir hundred && words 8 12 >line.txt && i=0
while [ "$i" -lt 100 ]; do cp line.txt "hundred/$i.txt" && i=$((i + 1)); done
run 0 build -m "$model" -o hundred.store hundred
ensure "it says why" grep -q 'not tuned' err
is hundred.store 'r is None'
# A text that is all that the store has tells nothing.
plan=' for their neighbours'
complains 1 'long.store: no token has a neighbour beside the text itself' tune -s long.store long.txt
is long.store 'r["quick"]'
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

# A gate is not for any number of neighbours; where it is, it needs no falling back; and weights that leave it nothing are numbers.
gated() { # EXPRESSION OPTION...: of the store, in the JSON of eval
    expression=$1
    shift
    run 0 eval -m "$model" -s own.store --json "$@" other.txt
    ensure "$expression by $*" "$python" -c "import json, sys; r = json.load(open('out')); s = r['stores'][0]; sys.exit(not ($expression))"
}
gated 's["gated"] and not s["fallback"] and not r["fallback"]' --fallback
gated 'not s["gated"] and s["fallback"]' --fallback --fixed
gated 'not s["gated"]' -k 8
gated 's["gated"]' -k 512
gated 's["lambda"] < 0.01 and r["ppl"] is None' --cache 100 --cache-lambda 1
# Texts that are cut otherwise than the store's are not known for its own.
echo '{"text": "abc def"}' >lines.jsonl
run 0 eval -m "$model" -s own.store --documents jsonl --json lines.jsonl
ensure "a warning" grep -q 'own.store was cut into documents by --documents file, this text by jsonl' err

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
# What it says of the gate is what eval finds, document by document, with the cache and without.
cp -R own.store same.store
words 41 70 >short.txt
for cache in 0 100; do
    run 0 tune -m "$model" -s same.store --cache $cache --json valid.txt short.txt texts/1.txt
    cp out tuned.json
    run 0 eval -m "$model" -s same.store --json valid.txt short.txt texts/1.txt
    ensure "the gate of a cache of $cache" "$python" -c 'import json, sys; a, b = json.load(open("tuned.json"))["ppl_gate"], json.load(open("out"))["ppl"]; sys.exit(not abs(a / b - 1) < 1e-4)'
done
words 23 2000 >more.txt
run 0 add own.store more.txt
is own.store 'not r["quick"]'
complains 2 'no text to tune on' tune -s own.store
is own.store 'not r["quick"]'
complains 2 'one at a time' tune -s own.store --own valid.txt
run 0 tune -s own.store --own
is own.store 'r["quick"]'

conclude
