#!/bin/sh
# Searching by vectors, filters by document, and tokens:  sh tests/test_cli_search.sh PATH_TO_knnlm SOURCE_DIR
# Neighbours are held against NumPy's brute force over the exported keys. Every check prints a line when it fails.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
model=$source/models/small.gguf
needs_python "to search with" numpy

mkdir texts
printf 'The nearest neighbours of a context have their say. The context of a word is what stands before it.\n' >texts/say.txt
printf 'Rivers of the north carry ice. The nearest river carries none, and the context of a river is its valley.\n' >texts/rivers.txt
printf 'The nearest neighbours of the king were dukes. Their word was law, and the word of the king was not.\n' >texts/kings.txt
printf 'The nearest neighbours of the context of a word have their say.\n' >asked.txt
run 0 build -m "$model" -o all.store texts
run 0 export all.store -o arrays --keys f32
$python - <<'END'
import numpy as np
keys = np.load("arrays/keys.npy")
queries = keys[[3, 20, 40]] + np.random.default_rng(1).normal(0, .1, (3, keys.shape[1])).astype("f4")
np.save("queries.npy", queries)
np.save("half.npy", queries.astype("f2"))
np.save("wide.npy", np.zeros((2, 5), "f4"))
np.save("flat.npy", np.zeros(5, "f4"))
np.save("double.npy", queries.astype("f8"))
np.save("nan.npy", queries * np.nan)
END

holds() { # EXPRESSION over ids, distances (found), true, near (by brute force of all documents, or of NAME), r (out as JSON)
    checks=$((checks + 1))
    $python - "$@" <<'END' || failed "not so: $*"
import csv, json, os, sys
import numpy as np
keys, queries = np.load("arrays/keys.npy"), np.load("queries.npy")
d = ((queries[:, None, :].astype("f8") - keys[None]) ** 2).sum(2)
documents = [line.rstrip("\n").split("\t") for line in open("arrays/documents.tsv")]
origins = np.load("arrays/origins.npy")
name = lambda i: next(f for row in documents[1:] for f in row if f.endswith(".txt") and row[0] == str(origins[i][0]))
if len(sys.argv) > 2:
    d[:, [i for i in range(len(keys)) if not any(p in name(i) for p in sys.argv[2:])]] = np.inf
true = np.argsort(d, 1, kind="stable")
near = np.sort(d, 1)
if os.path.exists("found/ids.npy"):
    ids, distances = np.load("found/ids.npy"), np.load("found/distances.npy")
try:
    r = json.load(open("out"))
except ValueError:
    r = None
sys.exit(not eval(sys.argv[1]))
END
}

# ---- vectors

run 0 search all.store queries.npy -k 5 -o found
holds 'ids.dtype == np.int64 and distances.dtype == np.float32 and ids.shape == (3, 5)'
holds '(ids == true[:, :5]).all() and np.allclose(distances, near[:, :5], rtol=1e-3, atol=1e-2)'
run 0 search all.store queries.npy -k 100000 -o found
holds '(ids[:, :len(keys)] == true).all() and (ids[:, len(keys):] == -1).all() and np.isinf(distances[:, len(keys):]).all()'
run 0 search all.store half.npy -k 3 -o found
holds '(ids[:, 0] == true[:, 0]).all()'
run 0 search all.store queries.npy -k 4 --json
holds '[[n["entry"] for n in row] for row in r["neighbors"]] == true[:, :4].tolist() and r["vectors"] == 3'
holds 'all(n["document"] == name(n["entry"]) for row in r["neighbors"] for n in row)'
input=queries.npy
run 0 search -s all.store - -k 4 --json
holds '[[n["entry"] for n in row] for row in r["neighbors"]] == true[:, :4].tolist()'
input=/dev/null
run 0 search all.store queries.npy -k 2
says '^vector 2'
says '\.txt, token [0-9]'
run 0 index all.store --lists 8
run 0 search all.store queries.npy -k 5 --exact -o found
holds '(ids == true[:, :5]).all()'
run 0 search all.store queries.npy -k 5 --probes 8 -o found
holds '(ids == true[:, :5]).all()'
run 0 search all.store queries.npy -k 5 --probes 1 -o found
holds '(ids[:, 0] == true[:, 0]).all()'
run 0 search all.store queries.npy -k 5 --exact --only '*rivers*' -o found
holds '(ids == true[:, :5]).all()' rivers
run 0 search all.store queries.npy -k 5 --exact --not '*rivers*' -o found
holds '(ids == true[:, :5]).all()' say kings

complains 1 'wide.npy: vectors of 5 dimensions' search all.store wide.npy
complains 1 'flat.npy: 1 dimensions of float32' search all.store flat.npy
complains 1 'double.npy: ' search all.store double.npy
complains 1 'not finite\|finite' search all.store nan.npy
complains 1 'asked.txt' search all.store asked.txt
complains 1 'nowhere.npy' search all.store nowhere.npy
complains 1 'nowhere.store' search nowhere.store queries.npy
complains 2 'one file' search all.store
complains 2 'one file' search all.store queries.npy half.npy
complains 2 'one of' search all.store queries.npy --exact --probes 3
complains 2 'directory' search all.store queries.npy -o -
complains 1 'asked.txt' search all.store queries.npy -o asked.txt
complains 1 '\-\-only and --not leave none of its 3 documents' search all.store queries.npy --only nothing

# ---- filters of what neighbours are of

# What commands say that does not depend on the names of stores and documents.
summary() {
    "$python" -c '
import json
r = json.load(open("out"))
words = r["words"] if isinstance(r.get("words"), list) else []
print(r.get("ppl"), r.get("text"), [w["p"] for w in words], sorted(n["distance"] for n in r.get("neighbors", [])))'
}

for documents in '*kings*' '*say* *rivers*'; do
    set --
    rm -rf part
    mkdir part
    for document in $documents; do
        set -- "$@" --only "$document"
        # shellcheck disable=SC2086 # a pattern
        cp texts/$document part/
    done
    rm -rf part.store
    run 0 build -m "$model" -o part.store part
    for command in 'eval asked.txt --json' 'explain --json The --show 50' 'generate -p The -n 8 --temp 0 --json'; do
        # shellcheck disable=SC2086 # words
        {
            run 0 $command -s part.store -m "$model" -k 500 --temperature 20 --lambda .6
            summary >alone
            run 0 $command -s all.store -m "$model" -k 500 --temperature 20 --lambda .6 --probes 8 "$@"
            summary >filtered
        }
        ensure "$command with $* is that of a store of these documents alone" "$python" -c '
import re
numbers = lambda name: re.findall(r"[0-9.e-]*[0-9]|[^0-9]+", open(name).read())
a, b = numbers("alone"), numbers("filtered")
def same(x, y):
    try: return abs(float(x) - float(y)) <= 1e-3 * (1 + abs(float(x)))
    except ValueError: return x == y
assert len(a) == len(b) and all(map(same, a, b)), (a, b)'
    done
done
run 0 explain -s all.store -m "$model" --json The --not '*kings*' --show 100 --around 0
ensure 'a document that is left out is not found' not grep -q kings.txt out
run 0 eval -s all.store -m "$model" asked.txt --only '*say*' --only '*kings*' --not '*kings*'
says '^documents        of their neighbours: only \*say\*, \*kings\*; not \*kings\*$'
complains 1 'all.store: --only and --not leave none' eval -s all.store asked.txt --not '*'
# A part of the documents by a hash of their text: as a store of those alone.
mkdir many some
for i in 1 2 3 4 5 6 7 8 9; do echo "the king of $i and the river $i say that $i is the number" >many/$i.txt; done
run 0 build -m "$model" -o many.store --no-tune many
run 0 info --json many.store
"$python" -c 'import json; print(*(d["name"] for d in json.load(open("out"))["documents"] if int(d["hash"][:16], 16) < 0.5 * 2**64), sep="\n")' >chosen
ensure "some are chosen, some are not" test "$(wc -l <chosen)" -gt 0 -a "$(wc -l <chosen)" -lt 9
while read -r name; do cp "many/$name" some; done <chosen
run 0 build -m "$model" -o some.store --no-tune some
run 0 eval -s many.store --fraction .5 --lambda .5 --per-token - asked.txt
cp out fraction.tsv
run 0 eval -s some.store --lambda .5 --per-token - asked.txt
ensure "a fraction is a smaller store" cmp out fraction.tsv
complains 1 'many.store: --fraction leaves none of its 9 documents' eval -s many.store --fraction .00001 asked.txt
complains 2 'fraction' eval -s many.store --fraction 2 asked.txt
complains 2 'name it with -s' eval -m "$model" asked.txt --only x

# ---- tokens

run 0 eval -m "$model" --per-token rows.tsv asked.txt
sed 1d rows.tsv | cut -f 4 >expected
run 0 tokenize -m "$model" asked.txt --json
ensure 'the tokens are those that eval scores' sh -c "$python -c 'import json; [print(t[\"token\"]) for t in json.load(open(\"out\"))[\"tokens\"]]' | cmp - expected"
ensure 'they make up the text' sh -c "$python -c 'import json; print(\"\".join(t[\"text\"] for t in json.load(open(\"out\"))[\"tokens\"]), end=\"\")' | cmp - asked.txt"
cp out by_model
run 0 tokenize -s all.store asked.txt --json
ensure 'a store keeps its tokenizer' cmp out by_model
run 0 tokenize -m "$model" 'The nearest'
ensure 'a text is a text' test "$(grep -c . out)" -eq 2
says '"The"$'
says '" nearest"$'
printf 'The nearest\n' >in
cp out given
input=in
run 0 tokenize -m "$model" -
ensure 'standard input is a text' cmp out given
run 0 tokenize -m "$model"
ensure 'without a text, too' cmp out given
input=/dev/null
run 0 tokenize -m "$model" ''
ensure 'an empty text has no tokens' test ! -s out
complains 2 'one of -m' tokenize 'The'
complains 2 'one of -m' tokenize -m "$model" -s all.store 'The'
complains 2 'one text' tokenize -m "$model" The nearest
complains 1 'not UTF-8 at byte 1' tokenize -m "$model" "$(printf 'a\377')"
complains 1 'nowhere.gguf' tokenize -m nowhere.gguf The

# ---- what is read, and stores, are not written over

mkdir mine && cp queries.npy mine/ids.npy
complains 1 'mine/ids.npy would be written over' search all.store mine/ids.npy -o mine
check cmp -s queries.npy mine/ids.npy
complains 1 'all.store: is a store' search all.store queries.npy -o all.store

conclude
