#!/bin/sh
# The index as its users meet it:  sh tests/test_cli_index.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
export SOURCE_DATE_EPOCH=1700000000
model=$golden/adaptive.model.gguf

# How many files of a kind a store has.
parts() { find "$1" -name "*.$2" | wc -l; }

# Words of the golden model's vocabulary are what its tokenizer says; any will do.
text() { awk -v seed="$1" -v n="$2" 'BEGIN { srand(seed); for (i = 1; i <= n; i++) printf "w%d%s", int(rand() * 95), i % 12 ? " " : "\n" }'; }
text 1 1500 >a.txt
text 2 900 >b.txt
text 3 400 >c.txt

# ---- building, and what build does by itself
run 0 build -m "$model" -o s.store a.txt b.txt
ensure "a small store has no index" test "$(parts s.store lists)" -eq 0
run 0 verify --recall --queries 30 --neighbors 50 s.store
ensure "the recall of a store without lists is that of all" grep -q '^all  *1.0000' out
run 0 index s.store --lists 16
ensure "index tells its lists" grep -q '16 lists, 2600 entries' out
ensure "keys that fit into memory need no codes" test "$(parts s.store codes)" -eq 0
run 0 index s.store --lists 16 --memory 100K
ensure "nor do keys hardly longer than codes" test "$(parts s.store codes)" -eq 0
run 0 build -m "$source/models/small.gguf" -o long.store c.txt
run 0 index long.store --lists 16 --memory 100K
ensure "long keys beyond memory get codes" test "$(parts long.store codes)" -eq 1
run 0 index long.store --lists 16 --memory 100K --codes none
ensure "unless none are wanted" test "$(parts long.store codes)" -eq 0
run 0 index s.store --lists 16 --train 40 --codes pq8
cp s.store/*.codes codes.free
run 0 index s.store --lists 16 --train 40 --codes pq8 --memory 100K
ensure "codes made in a file are the codes made in memory" cmp s.store/*.codes codes.free
run 0 verify s.store
run 0 index --json s.store --lists 9 --probes 4 --codes pq8
ensure "lists are those asked for" test "$(field lists)" -eq 9
ensure "probes are those asked for" test "$(field probes)" -eq 4
ensure "codes are those asked for" test "$(field code_bytes)" -eq 8
ensure "an index replaces the other" test "$(parts s.store lists)" -eq 1
run 0 verify --recall --queries 30 --neighbors 50 --plot recall.svg s.store
ensure "recall has a row for 1 probe" grep -q '^1  ' out
ensure "recall has a row for all" grep -q '^all  *1.0000  *1.0000  *1.0000  *1.0000' out
ensure "the plot is a plot" grep -q '</svg>' recall.svg
[ ! -x "$python" ] || ensure "the plot shows what the table says" "$python" -c '
import re, xml.etree.ElementTree as xml
svg = xml.parse("recall.svg").getroot()
tag = lambda name: svg.iter("{http://www.w3.org/2000/svg}" + name)
at = {t.text: float(t.get("y")) - 4 for t in tag("text") if t.get("text-anchor") == "end"}
shown = set()
for c in tag("circle"):
    title = c.find("{*}title")
    if title is None: continue # of the legend
    depth, probes, rate, recall = re.fullmatch(
        r"recall@(\d+), (\w+) probes\nqueries per second: (.*)\nrecall: (.*)", title.text).groups()
    height = at["0.0"] + (at["1.0"] - at["0.0"]) * float(recall)
    assert abs(float(c.get("cy")) - height) < 0.2 and float(rate) > 0
    shown.add((probes, depth, "%.4f" % float(recall)))
rows = [line.split() for line in open("out") if re.match(r"\d+ |all ", line)]
assert shown == {(r[0], d, v) for r in rows for d, v in zip(("1", "10", "100", "50"), r[1:5])}'
cp out recall.txt
run 0 verify --recall --queries 30 --neighbors 50 --memory 64K s.store
ensure "recall within little memory is the same" test "$(awk '/^[0-9a]/ { print $1, $2, $3, $4, $5 }' out)" = "$(awk '/^[0-9a]/ { print $1, $2, $3, $4, $5 }' recall.txt)"
run 0 verify --recall --json --queries 30 --neighbors 50 s.store
ensure "recall in JSON" grep -q '"recall_10": ' out

# ---- the same whatever the threads
cp -r s.store t.store
run 0 index s.store --lists 12 --codes pq4x4 -t 1
run 0 index t.store --lists 12 --codes pq4x4 -t 3
rm -f s.store/LOCK t.store/LOCK
ensure "one thread or three: the same index" diff -r s.store t.store

# ---- a living store
run 0 add s.store c.txt --json
ensure "a little that is added stays outside the lists" test -z "$(field listed)"
run 0 index s.store --extend --json
ensure "unless that is asked for" test "$(field listed)" -eq 3033
ensure "the drift is told" test -n "$(field drift)"
text 4 1200 >d.txt
run 0 add s.store d.txt --json
ensure "more goes into them by itself" test "$(field listed)" -eq 4333
run 0 remove s.store b.txt d.txt
run 0 verify --recall --queries 20 --neighbors 20 s.store
run 0 compact s.store
ensure "after compaction there is an index" test "$(parts s.store lists)" -eq 1
run 0 verify s.store
run 0 info --json s.store
ensure "compaction dropped the removed" test "$(field entries)" -eq 2058
run 0 compact s.store
ensure "nothing to compact: the index stays" test "$(parts s.store lists)" -eq 1

# ---- a store of version 1, whose index has copies of the keys

# Its keys are of another machine: what it says is held against what it says itself after it was turned into a new one.
# All lists are looked at; distances are measured from other centres, and rounded otherwise.
perplexity() { grep -o '"ppl": [0-9.]*' | sed 's/.*: //'; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 1 && (a - b) ^ 2 < (1e-5 * a) ^ 2) }'; }
mkdir old && cp -R "$golden/store-1" old/s.store
run 0 verify old/s.store
run 0 eval -m "$model" -s old/s.store --json c.txt
said=$(perplexity <out)
ensure "it has its keys twice" test "$(parts old/s.store keys) $(parts old/s.store rows)" = '1 1'
cp -R old/s.store old/again.store
run 0 index old/again.store --lists 3
ensure "a new index leaves them once" test "$(parts old/again.store keys) $(parts old/again.store rows)" = '0 1'
run 0 verify old/again.store
run 0 eval -m "$model" -s old/again.store --json c.txt
ensure "and it says the same" near "$said" "$(perplexity <out)"
run 0 add --no-tune old/s.store a.txt -m "$model" --json # it is long enough to go into the lists
ensure "and so does an addition" test "$(parts old/s.store keys) $(parts old/s.store rows)" = '0 1'
run 0 verify old/s.store
run 0 eval -m "$model" -s old/s.store --json c.txt
said=$(perplexity <out)
run 0 add --no-tune old/again.store a.txt -m "$model"
run 0 eval -m "$model" -s old/again.store --json c.txt
ensure "and both go on saying the same" near "$said" "$(perplexity <out)"
rm -rf old

# ---- damage

# An index that is not what was written is an error, never a worse answer; and it can be made anew.
run 0 build -m "$model" -o z.store --lists 4 a.txt b.txt
for kind in order rows lists listed; do
    rm -rf d.store && cp -R z.store d.store
    part=$(ls d.store/*.$kind)
    size=$(wc -c <"$part")
    head -c "$((size - 64))" /dev/zero | dd of="$part" bs=4096 conv=notrunc 2>/dev/null
    complains 1 "$kind: damaged" eval -m "$model" -s d.store c.txt
    complains 1 "$kind: damaged" explain -m "$model" -s d.store 'w1 w2'
    run 0 info d.store
    ensure "info warns" grep -q "^knnlm info: warning: .*$kind: damaged" err
    cp -R z.store e.store
    rm -f e.store/*.$kind && dd if=/dev/zero of="e.store/${part##*/}" bs=1 count=100 2>/dev/null
    complains 1 "its index is damaged: .*$kind" eval -m "$model" -s e.store c.txt
    run 1 verify e.store
    for broken in d e; do
        run 0 verify --repair $broken.store
        if [ "$kind" = rows ]; then # the keys themselves: nobody else has them
            ensure "the lost documents are named" grep -q '^lost .*b.txt' out
            ensure "and removed" grep -q '2 lost documents removed (knnlm add brings them back)' err
            run 0 verify $broken.store
            continue
        fi
        ensure "repair makes it anew" grep -q 'the index made anew' err
        ensure "no document is lost" sh -c '! grep -q ^lost out'
        run 0 verify $broken.store
        ensure "it has lists again" test "$(parts $broken.store lists)" -eq 1
        run 0 eval -m "$model" -s $broken.store --json c.txt
        cp out $broken.json
        run 0 eval -m "$model" -s z.store --json c.txt
        ensure "and says what it said" test "$(grep -o '"ppl": [0-9.]*' out)" = "$(grep -o '"ppl": [0-9.]*' $broken.json)"
    done
    rm -rf d.store e.store
done
cp -r s.store d.store
lists=$(find d.store -name "*.lists")
printf '\377' | dd of="$lists" bs=1 seek=200 conv=notrunc 2>/dev/null
run 1 verify d.store
ensure "verify names the damaged part" grep -q "damaged .*\.lists" out
run 0 index d.store --lists 5
run 0 verify d.store

# ---- keys that go straight into codes
run 0 build -m "$model" -o n.store --keys none a.txt b.txt
ensure "no keys, no codes: no index" test "$(parts n.store lists)" -eq 0
complains 1 'codes' index n.store
run 0 index n.store --codes pq16 --lists 8
ensure "no key was ever written" test "$(($(parts n.store keys) + $(parts n.store rows)))" -eq 0
complains 1 'already' index n.store --codes pq16
run 0 build -m "$model" -o n.store --keys none a.txt b.txt c.txt
ensure "a build puts the new ones into codes too" grep -q '3033 entries;' out
run 0 build -m "$model" -o o.store --keys none --codes pq16 --lists 8 a.txt
run 0 verify o.store
complains 1 'no keys' verify --recall o.store

run 0 remove n.store b.txt
run 0 eval -m "$model" -s n.store --json a.txt
cp out before.json
run 0 compact n.store
ensure "the codes, which nobody could make anew, stay" test "$(parts n.store codes)" -eq 2
run 0 verify n.store
run 0 eval -m "$model" -s n.store --json a.txt
ensure "and say what they said" test "$(grep -o '"ppl": [0-9.]*' out)" = "$(grep -o '"ppl": [0-9.]*' before.json)"
codes=$(find n.store -name "*.codes" | head -n 1) && : >"$codes"
run 0 remove n.store c.txt
complains 1 'keeps no keys' compact n.store
run 0 compact --force n.store

# ---- wrong usage
complains 2 'store' index
complains 2 'one store' index s.store t.store
complains 2 'codes' index s.store --codes nonsense
complains 2 'codes' index s.store --codes pq
complains 2 'range' index s.store --lists 0
complains 2 'paper' index s.store --paper --lists 5
complains 2 'parts\|multiple' index s.store --codes pq7
complains 1 'nowhere' index nowhere
run 0 index s.store --lists 300
ensure "more lists than the data deserves" grep -q '300 lists' out
run 0 build -m "$model" -o f.store --lists 4 a.txt
ensure "a recipe given to build is followed" grep -q '4 lists' out
run 0 build -m "$model" -o g.store --no-index --lists 4 a.txt
ensure "--no-index stops before" test "$(parts g.store lists)" -eq 0

conclude
