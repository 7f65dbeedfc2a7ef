#!/bin/sh
# Stores on the command line, as their users meet them:  sh tests/test_cli_store.sh PATH_TO_knnlm SOURCE_DIR
# Every check prints a line when it fails; the exit code is 1 when one did.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
export SOURCE_DATE_EPOCH=1700000000
model=$golden/adaptive.model.gguf # words w1, w2, ...; states of 32 dimensions, a context of 80
other=$golden/gpt2.model.gguf
plan='^knnlm [a-z]*: \(about\|an unknown number\) '

same() { # STORE STORE: byte for byte
    checks=$((checks + 1))
    diff -r -x LOCK "$1" "$2" >diff.out 2>&1 || failed "$1 and $2 differ: $(head -n 2 diff.out)"
}
intact() {
    run 0 verify "$1"
    says "^intact  *$2"
}
documents() { says "^documents  *$1\$"; }
entries() { says "^entries  *$1\$"; }

# json STATEMENT...: of `r`, the object in `out`
json() {
    checks=$((checks + 1))
    [ -x "$python" ] || return
    "$python" -c "import json; r = json.load(open('out')); $*" >python.out 2>&1 || failed "--json: $* $(tail -n 1 python.out)"
}

write_text() { # SEED WORDS: as many tokens, and one more for each end of a line
    awk -v seed="$1" -v words="$2" 'BEGIN {
        srand(seed)
        for (i = 1; i <= words; i++) printf "w%d%s", int(rand() * 90), i % 9 ? " " : "\n"
    }'
}
mkdir texts
write_text 1 45 >texts/a.txt  # 50 tokens
write_text 2 450 >texts/b.txt # 500
write_text 3 90 >texts/c.txt  # 100
build() { # CODE STORE ARGUMENT...
    code=$1 store=$2
    shift 2
    run "$code" build --no-tune -m "$model" -o "$store" "$@"
}
build_complains() { # CODE PATTERN STORE ARGUMENT...
    code=$1 pattern=$2 store=$3
    shift 3
    complains "$code" "$pattern" build -m "$model" -o "$store" "$@"
}

# ---- help and usage

sed 's/\\-/-/g' "$source/man/knnlm.1" >manual
for command in build add remove compact verify info; do
    run 0 "$command" --help
    says "^usage: knnlm $command "
    check test ! -s err
    sed -n '/^options:/,/^$/s/^[^-]*\(-[a-z], \)\{0,1\} *--\([a-z-]*\).*/\2/p' out >options
    check test -s options
    while read -r option; do
        check grep -q -e "--$option" manual # the manual has it
    done <options
    complains 2 'unknown option --nonsense' "$command" --nonsense
done
complains 2 'no -m FILE' build -o new.store texts
complains 2 'no -o STORE' build -m "$model" texts
complains 2 'no -o STORE' build -m "$model" -o '' texts
complains 2 'no text' build -m "$model" -o new.store
build_complains 2 'not a size' new.store --memory nonsense texts
build_complains 2 'not a size' new.store --memory 0 texts
build_complains 2 'range' new.store --segment 0 texts
build_complains 2 'range' new.store --min-context -1 texts
build_complains 2 'one of f16, f32, int8, none' new.store --keys f64 texts
build_complains 2 'one of l2, ip, cosine' new.store --distance l1 texts
build_complains 2 'one of file, wiki' new.store --documents page texts
build_complains 2 'pca:0' new.store --project pca:0 texts
build_complains 2 'pca:4x' new.store --project pca:4x texts
build_complains 2 'pca' new.store --project random:4 texts
complains 2 'no store' add
complains 2 'no text' add some.store
complains 2 'no store' remove
complains 2 'no document' remove some.store
complains 2 'no store' compact
complains 2 'one store' compact a b
complains 2 'no store' verify
complains 2 'one store' verify a b

# ---- what cannot be built, and leaves nothing behind

complains 1 'nowhere.gguf: No such file' build -m nowhere.gguf -o new.store texts
complains 1 'a.txt: ' build -m texts/a.txt -o new.store texts
build_complains 1 'nowhere.txt: No such file' new.store texts nowhere.txt
build_complains 2 'tap' new.store --tap nonsense texts
build_complains 1 'layer' new.store --tap ffn@9 texts
build_complains 2 'min-context 80: the model.s context is 80' new.store --min-context 80 texts
build_complains 2 'pca:99999: the model.s states have 32 dimensions' new.store --project pca:99999 texts
build_complains 2 'standard input' new.store --project pca:4 -
build_complains 1 '[0-9] MB of memory, --memory allows 1 ' new.store --memory 1M texts
mkdir bad
cp texts/b.txt bad/a.txt
{ head -c 1000 texts/b.txt && printf 'x\377y'; } >bad/b.txt
build_complains 1 'bad/b.txt: not UTF-8 at byte' new.store bad --strict
check test ! -e new.store
build_complains 1 'nowhere/new.store: ' nowhere/new.store texts
: >file.store
build_complains 1 'file.store: .*Not a directory' file.store texts
check test ! -s file.store
mkdir foreign && echo precious >foreign/letter
build_complains 1 'foreign: holds other files (letter)' foreign texts
check test "$(ls foreign)" = letter
complains 1 'foreign: not a store' verify foreign
complains 1 'foreign: not a store' info foreign
complains 1 'foreign: not a store' add foreign texts
complains 1 'foreign: not a store' remove foreign letter
complains 1 'foreign: not a store' compact foreign
check test "$(ls foreign)" = letter
for command in verify info compact; do
    complains 1 'nowhere.store: No such file' "$command" nowhere.store
    complains 1 'file.store: ' "$command" file.store
done
complains 1 'nowhere.store: No such file' add nowhere.store texts
complains 1 'nowhere.store: No such file' remove nowhere.store a
check test ! -e nowhere.store

# ---- building

build 0 a.store texts
documents '3 added, 0 unchanged, 0 replaced; 3 in all'
entries '650 added, 650 in all'
check grep -q '^knnlm build: about 6[45][0-9] entries, .*B on disk (.*B free), .* of memory$' err
check test "$(wc -l <err)" -eq 1
check test "$(tr -cd '\r\033' <err | wc -c)" -eq 0
intact a.store '3 of 3 documents, 650 of 650 entries'
run 0 info a.store
documents 3
entries 650
says '^keys  *f16, 32 dimensions, tap ffn@1, distance l2'
says '^windows  *80 tokens, at least 40 before'
says "100 tokens .* c.txt$"
run 0 info --json a.store
json 'assert r["entries"] == 650 and r["document_count"] == 3 and r["complete"] and r["created"] == 1700000000'
json 'assert [d["tokens"] for d in r["documents"]] == [50, 500, 100] and not any(d["removed"] for d in r["documents"])'
json 'assert r["model"]["path"].endswith("adaptive.model.gguf") and r["keys"]["type"] == "f16" and r["tuned"] is None'
json "import os; assert r['bytes'] == sum(os.path.getsize('a.store/' + f) for f in os.listdir('a.store'))"
run 0 info a.store --entry 549 --around 3
says '^document  *b.txt$'
says '^position  *token 499 of 500, byte [0-9]* of '
says '^context  *w[0-9]* w[0-9]* w[0-9]* \[\\n\] $'
run 0 info a.store --entry 550 --json
json 'assert r["document"]["name"] == "c.txt" and r["position"] == 0 and r["before"] == "" and r["offset"] == 0'
complains 1 'entr.*650' info a.store --entry 650

build 0 json.store --json texts
check test "$(wc -l <out)" -eq 1
json 'assert r["store"] == "json.store" and r["documents"] == {"added": 3, "unchanged": 0, "replaced": 0, "removed": 0, "total": 3}'
json 'assert r["entries"] == {"added": 650, "total": 650} and not r["resumed"]'
json "import os; assert r['text_bytes'] == sum(os.path.getsize('texts/' + f) for f in os.listdir('texts'))"
same a.store json.store
for threads in 1 3; do
    build 0 threads$threads.store -t $threads --segment 64 --precision f32 texts
done
same threads1.store threads3.store
build 0 a.store --no-index texts # the same command again: nothing to do
documents '0 added, 3 unchanged, 0 replaced; 3 in all'
same a.store json.store
build 0 listed.store texts/a.txt texts/b.txt texts/c.txt
same a.store listed.store # a directory is its files
build 0 empty-directory.store texts/a.txt
mkdir made.store
build 0 made.store/ texts # an empty directory may be there
same a.store made.store

# part BYTES COUNT: of a part with that payload: header, sections up to 64 bytes, one checksum, and the end
part() { echo $((64 + ($1 + 63) / 64 * 64 + ${2:-0} + 8 + 24)); }
for keys in f32 f16 int8 none; do
    build 0 $keys.store --keys $keys texts
    intact $keys.store '3 of 3'
    run 0 info $keys.store
    says "^keys  *$keys, 32 dimensions"
done
check test "$(wc -c <f32.store/000001.keys)" -eq "$(part $((650 * 128)))"
check test "$(wc -c <f16.store/000001.keys)" -eq "$(part $((650 * 64)))"
check test "$(wc -c <int8.store/000001.keys)" -eq "$(part $((650 * 32)) $(((650 * 4 + 63) / 64 * 64)))"
check test ! -e none.store/000001.keys
for keys in f32 int8 none; do check cmp f16.store/000001.text $keys.store/000001.text; done

for tap in ffn ffn-raw@0 attention attention-raw output-norm output; do
    build 0 "tap-$tap.store" --tap $tap texts/a.txt
done
run 0 info tap-ffn-raw@0.store
says 'tap ffn-raw@0'
build 0 context.store --min-context 79 texts
run 0 info context.store
says 'at least 79 before'
build 0 none-before.store --min-context 0 texts
build 0 distance.store --distance cosine texts
run 0 info --json distance.store
json 'assert r["keys"]["distance"] == "cosine"'
build 0 memory.store --memory 4G texts
build 0 forced.store --memory 1M --force texts
same a.store forced.store
build 0 segment.store --segment 1 texts/a.txt
run 0 info segment.store
says ' in 50 segments'
build 0 large.store --segment 268435456 texts
intact large.store '3 of 3'

# ---- projections

build 0 pca.store --project pca:5 texts
run 0 info pca.store
says '5 dimensions (PCA of 32)'
check test -s pca.store/projection.gguf
check test "$(wc -c <pca.store/000001.keys)" -eq "$(part $((650 * 10)))"
export_keys() { # STORE FILE
    rm -rf arrays && run 0 export "$1" -o arrays && mv arrays/keys.npy "$2"
}
for n in 5 32; do # keys are projected again as they were
    build 0 one-$n.store --project pca:$n --keys f32 texts/b.txt
    export_keys one-$n.store one-$n.keys
    run 0 remove one-$n.store b.txt
    run 0 add one-$n.store texts/b.txt
    documents '1 added, 0 unchanged, 0 replaced; 1 in all'
    export_keys one-$n.store one-$n.store.keys
    check cmp one-$n.keys one-$n.store.keys
done
printf 'w1' >one.txt
mkdir short.store
build_complains 2 'pca:30: the texts have only [12] tokens' short.store --project pca:30 one.txt
build 0 short.store one.txt # what that left is no obstacle

# ---- a store keeps its settings

cp -R a.store kept.store
complains 1 'was made by model .*adaptive.model.gguf .* not by .*gpt2.model.gguf' build -m "$other" -o a.store texts
complains 1 'was made by model .*adaptive.model.gguf .* not by .*gpt2.model.gguf' add a.store -m "$other" texts
build_complains 1 'was built with --keys f16, not int8' a.store --keys int8 texts
build_complains 1 'was built with --tap ffn@1, not attention@1' a.store --tap attention texts
build_complains 1 'was built with --min-context 40, not 8' a.store --min-context 8 texts
build_complains 1 'was built with --documents file, not wiki' a.store --documents wiki texts
build_complains 1 'was built with --distance l2, not ip' a.store --distance ip texts
build_complains 1 'was built with --segment 65536, not 64' a.store --segment 64 texts
build_complains 1 'was built with --project none, not pca:5' a.store --project pca:5 texts
build_complains 1 'was built with --project none, not pca:32' a.store --project pca:32 texts
build_complains 1 'was built with --project pca:5, not pca:6' pca.store --project pca:6 texts
build_complains 1 'was built with --project pca:32, not none' one-32.store --keys f32 texts
complains 1 'nowhere.txt: No such file' add a.store nowhere.txt
complains 1 'bad/b.txt: not UTF-8 at byte' add a.store bad --strict
same a.store kept.store

# ---- adding

cp -R a.store add.store
run 0 add add.store texts
documents '0 added, 3 unchanged, 0 replaced; 3 in all'
entries '0 added, 650 in all'
same a.store add.store
cp texts/b.txt copy.txt
run 0 add add.store copy.txt # the same content under another name is another document
documents '1 added, 0 unchanged, 0 replaced; 4 in all'
entries '500 added, 1150 in all'
run 0 remove add.store copy.txt
run 0 info add.store
documents '3 (and 1 removed)'
write_text 6 100 >copy.txt
cp copy.txt kept.txt
run 0 add add.store copy.txt
cp texts/b.txt copy.txt # ... and takes the place of what had the name before
run 0 add add.store copy.txt
documents '1 added, 0 unchanged, 1 replaced; 4 in all'
run 0 info --json add.store
json 'live = {d["name"]: d["tokens"] for d in r["documents"] if not d["removed"]}; assert live["copy.txt"] == live["b.txt"] == 500 and len(live) == 4'
run 0 add add.store texts copy.txt
documents '0 added, 4 unchanged, 0 replaced; 4 in all'
intact add.store '4 of 4 documents, 1150 of 1150 entries'
rm -r add.store
cp -R a.store add.store
cp texts/b.txt b.saved
write_text 4 180 >texts/b.txt
run 0 add -s add.store --json texts/b.txt
json 'assert r["documents"] == {"added": 1, "unchanged": 0, "replaced": 1, "removed": 0, "total": 3}'
json 'assert r["entries"] == {"added": 200, "total": 350}'
run 0 info add.store
entries '350 (and 500 removed.*)'
run 0 info --json add.store
json 'assert [(d["name"], d["tokens"], d["removed"]) for d in r["documents"]][1::2] == [("b.txt", 500, True), ("b.txt", 200, False)]'
intact add.store '3 of 3 documents, 350 of 350 entries'
run 0 compact add.store
says '^dropped  *1 documents, 500 entries$'
intact add.store '3 of 3 documents, 350 of 350 entries'
build 0 fresh.store texts/a.txt texts/c.txt texts/b.txt
check cmp add.store/000004.text fresh.store/000001.text # as a store that never had it
check cmp add.store/000004.keys fresh.store/000001.keys
cp b.saved texts/b.txt

cp "$model" moved.gguf
run 0 build -m moved.gguf -o moved.store texts/a.txt
rm moved.gguf
complains 1 'its model (.*moved.gguf) is not there any more: name it with -m' add moved.store texts/b.txt
run 0 add moved.store -m "$model" texts/b.txt
mkdir elsewhere && mv moved.store elsewhere/renamed
intact elsewhere/renamed '2 of 2'
run 0 add elsewhere/renamed -m "$model" texts/c.txt
run 0 info elsewhere/renamed
documents 3

# ---- texts of all kinds

cp texts/a.txt twin.txt
build 0 twins.store texts/a.txt twin.txt
documents '2 added, 0 unchanged, 0 replaced; 2 in all'
cp -R twins.store twins.kept
build 0 twins.store texts/a.txt twin.txt
documents '0 added, 2 unchanged, 0 replaced; 2 in all'
run 0 add twins.store twin.txt # one of them alone is no reason to drop the other
documents '0 added, 1 unchanged, 0 replaced; 2 in all'
run 0 add twins.store texts/a.txt
same twins.store twins.kept
build 0 repeated.store texts/a.txt ./texts # the same file, typed in two ways
documents '3 added, 1 unchanged, 0 replaced; 3 in all'

: >empty.txt
build 0 empty.store empty.txt
documents '0 added, 0 unchanged, 0 replaced; 0 in all'
intact empty.store '0 of 0 documents, 0 of 0 entries'
run 0 compact empty.store
run 0 add empty.store empty.txt one.txt
documents '1 added, 0 unchanged, 0 replaced; 1 in all'
entries '1 added, 1 in all'
intact empty.store '1 of 1 documents, 1 of 1 entries'

last='build - <texts/b.txt'
"$knnlm" build -m "$model" -o stdin.store - <texts/b.txt >out 2>err
documents '1 added, 0 unchanged, 0 replaced; 1 in all'
check grep -q '^knnlm build: an unknown number of entries, ' err
"$knnlm" add stdin.store - <texts/c.txt >out 2>err # another text of the same name is no new version of it
documents '1 added, 0 unchanged, 0 replaced; 2 in all'
"$knnlm" add stdin.store - <texts/b.txt >out 2>err
documents '0 added, 1 unchanged, 0 replaced; 2 in all'
write_text 5 40000 >many.txt
last='build many.txt - <bad/b.txt'
"$knnlm" build -m "$model" -o broken.store --segment 1000 many.txt - <bad/b.txt >out 2>err
check test $? -eq 1
complained build '<stdin>: not UTF-8 at byte'
run 0 verify broken.store # earlier commits stand
run 0 info broken.store
says 'not complete'
last='build many.txt - <texts/b.txt'
"$knnlm" build -m "$model" -o broken.store --segment 1000 many.txt - <texts/b.txt >out 2>err
documents '2 added, 0 unchanged, 0 replaced; 2 in all'
says 'an interrupted run was continued'
"$knnlm" build -m "$model" -o unbroken.store --segment 1000 many.txt - <texts/b.txt >out 2>err
same broken.store unbroken.store
last='build - <a large text --memory 60M'
yes 'w1 w2 w3' | head -c 9000000 | "$knnlm" build -m "$model" -o large-document.store --memory 60M - >out 2>err
check test $? -eq 1
complained build 'memory'

if command -v zstd >/dev/null 2>&1; then
    zstd -q -c texts/b.txt >b.txt.zst
    build 0 zst.store b.txt.zst
    entries '500 added, 500 in all'
    "$knnlm" build -m "$model" -o plain.store texts/b.txt >out 2>err
    check cmp zst.store/000001.keys plain.store/000001.keys
else
    echo "skipped: .zst (no zstd here)"
fi

printf '= One =\n w1 w2 w3\n\n= Two =\n w4 w5\n\n= One =\n w6 w7 w8 w9\n\n= Two =\n w4 w5\n\n' >wiki.txt
build 0 wiki.store --documents wiki wiki.txt
documents '4 added, 0 unchanged, 0 replaced; 4 in all'
run 0 info wiki.store
says 'documents by wiki'
says 'wiki.txt#One$'
run 0 add wiki.store wiki.txt # split as the store is
documents '0 added, 4 unchanged, 0 replaced; 4 in all'
sed 's/w7/w17/' wiki.txt >wiki.new && mv wiki.new wiki.txt
run 0 add wiki.store wiki.txt # only the second "One"
documents '1 added, 3 unchanged, 1 replaced; 4 in all'
run 0 add wiki.store --documents file wiki.txt
documents '1 added, 0 unchanged, 0 replaced; 5 in all'
run 0 remove wiki.store 'wiki.txt#One'
says '^removed  *2 documents'

odd=$(printf 'odd\n n\377me.txt')
cp texts/c.txt "$odd"
build 0 odd.store "$odd"
run 0 info --json odd.store
json 'assert r["documents"][0]["name"] is None and r["documents"][0]["tokens"] == 100'
run 0 remove odd.store --json "$odd"
json 'assert r["documents"] == 1 and r["names"] == [None]'

# ---- removing and compacting

cp -R a.store remove.store
complains 1 'no document is called "nowhere.txt": nothing was removed' remove remove.store nowhere.txt
complains 1 'no document is called "nowhere.txt": nothing was removed' remove remove.store -v a.txt nowhere.txt
complains 1 'no document' remove remove.store '[x-z]*'
same a.store remove.store
run 0 remove remove.store --dry-run '*.txt' a.txt # "*" goes beyond slashes; a.txt counts once
says '^b.txt$'
says '^matching  *3 documents, 650 entries$'
run 0 remove remove.store --dry-run --json '?.txt'
json 'assert r["dry_run"] and r["documents"] == 3 and r["entries"] == 650 and len(r["names"]) == 3'
same a.store remove.store
run 0 remove -s remove.store --json a.txt '[ac].txt'
json 'assert not r["dry_run"] and r["documents"] == 2 and r["entries"] == 150 and r["names"] == ["a.txt", "c.txt"]'
complains 1 'no document is called "a.txt"' remove remove.store a.txt
run 0 info remove.store
entries '500 (and 150 removed.*)'
documents '1 (and 2 removed)'
check not grep -q '^a.txt' out
run 0 info --entry 3 remove.store
says '(removed)'
intact remove.store '1 of 1 documents, 500 of 500 entries'
cp -R remove.store again.store
run 0 add again.store texts # what was removed can come back
documents '2 added, 1 unchanged, 0 replaced; 3 in all'
run 0 compact again.store
says '^dropped  *2 documents, 150 entries$'
intact again.store '3 of 3 documents, 650 of 650 entries'
run 0 compact remove.store --json
json 'assert r["documents_dropped"] == 2 and r["entries_dropped"] == 150 and r["bytes"]["after"] < r["bytes"]["before"]'
json "import os; assert r['bytes']['after'] == sum(os.path.getsize('remove.store/' + f) for f in os.listdir('remove.store'))"
cp -R remove.store compacted.store
run 0 compact remove.store # nothing to do
says '^dropped  *0 documents, 0 entries$'
same remove.store compacted.store
run 0 remove remove.store '*'
run 0 compact remove.store
says '^segments  *0, were 1$'
intact remove.store '0 of 0 documents, 0 of 0 entries'
run 0 add remove.store texts
documents '3 added, 0 unchanged, 0 replaced; 3 in all'
check cmp f16.store/000001.keys "$(find remove.store -name '*.keys')"
for threads in 1 3; do # many small additions become full segments
    for text in a b c; do
        if [ $text = a ]; then set -- build -m "$model" -o merge$threads.store --keys int8 --segment 200; else set -- add merge$threads.store; fi
        run 0 "$@" -t $threads texts/$text.txt
    done
    run 0 compact -t $threads merge$threads.store
    says '^segments  *4, were 4$' # the last addition began with the segment before it, which was not full
done
same merge1.store merge3.store
run 0 verify merge1.store

# ---- damage

# flip FILE OFFSET: another byte there
flip() {
    printf '\125' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
    cmp -s "$1" "$3" && printf '\252' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
build 0 whole.store --segment 100 --keys f16 texts
intact whole.store '3 of 3'
for file in 000003.keys 000003.text; do
    rm -rf damaged.store && cp -R whole.store damaged.store
    flip damaged.store/$file 400 whole.store/$file
    run 1 verify damaged.store
    says "^damaged  *$file: "
    says '^lost  *b.txt (document 1)$'
    says '^intact  *2 of 3 documents, 550 of 650 entries$'
    check not grep -q 'lost  *[ac].txt' out
    check test "$(wc -l <err)" -eq 1
    check grep -q '^knnlm verify: damaged.store: 1 problems: remove the lost documents' err
    run 1 verify --json damaged.store
    json 'assert not r["intact"] and r["damaged_entries"] == 100 and r["damaged_documents"] == 1 and r["lost"] == ["b.txt"]'
    json "assert r['problems'][0]['file'] == '$file' and r['problems'][0]['entries'] == {'first': 200, 'count': 100}"
    run 0 remove damaged.store b.txt # the remedy
    run 0 add damaged.store texts/b.txt
    run 0 compact damaged.store
    intact damaged.store '3 of 3 documents, 650 of 650 entries'
done
# One record overwritten: its document is lost, and nothing else stops working.
write_text 7 30 >small1.txt
write_text 8 20 >small2.txt
build 0 records.store --segment 100 small1.txt small2.txt one.txt
for byte in '\0' '\377'; do
    rm -rf damaged.store && cp -R records.store damaged.store
    run 0 info damaged.store
    n=$(sed -n 's/^entries  *\([0-9]*\).*/\1/p' out)
    for _ in $(seq 0 71); do printf '%b' "$byte"; done |
        dd of=damaged.store/000001.text bs=1 seek=$((64 + 2 * ((4 * n + 63) / 64 * 64) + 72)) conv=notrunc 2>/dev/null
    run 0 info damaged.store
    check grep -q '^knnlm info: warning: 1 of 3 documents is damaged' err
    says ' 1 *damaged$'
    says 'small1.txt$'
    run 0 info --json damaged.store
    json 'assert [d.get("damaged", False) for d in r["documents"]] == [False, True, False]'
    run 0 eval -m "$model" -s damaged.store texts/a.txt
    check grep -q '^knnlm eval: warning: damaged.store: 1 of 3 documents is damaged and left out' err
    check grep -q '^knnlm eval: warning: damaged.store/000001.text: damaged at block 0' err
    run 0 explain -m "$model" -s damaged.store --show 100 'w1 w2'
    check not grep -q small2.txt out
    cp -R damaged.store removed.store
    complains 1 'no document is called' remove damaged.store small2.txt
    complains 1 'no document has the number 3' remove damaged.store --document 3
    complains 1 'no document has the number x' remove damaged.store --document x
    run 0 remove removed.store --document 1
    complains 1 'document 1 is removed already' remove removed.store --document 1
    run 0 add removed.store small2.txt
    documents '1 added, 0 unchanged, 0 replaced; 3 in all'
    rm -rf removed.store
    run 0 add damaged.store one.txt # passes it over
    check grep -q '^knnlm add: warning: damaged.store: 1 damaged documents were passed over' err
    run 1 verify damaged.store
    check grep -q 'knnlm verify --repair' err
    run 0 verify --repair damaged.store
    check grep -q '^knnlm verify: damaged.store: repaired: 3 lost documents removed' err
    run 0 verify damaged.store
    run 0 add damaged.store small1.txt small2.txt one.txt
    documents '3 added, 0 unchanged, 0 replaced; 3 in all'
    intact damaged.store '3 of 3'
done

rm -rf damaged.store && cp -R whole.store damaged.store
flip damaged.store/MANIFEST 700 whole.store/MANIFEST
for command in verify info compact; do complains 1 'damaged.store/MANIFEST: ' "$command" damaged.store; done
build_complains 1 'damaged.store/MANIFEST: ' damaged.store --segment 100 texts
rm -rf damaged.store && cp -R whole.store damaged.store
flip damaged.store/tokenizer.gguf 700 whole.store/tokenizer.gguf
run 1 verify damaged.store
says '^damaged  *tokenizer.gguf: '
for change in shorter longer gone; do
    rm -rf damaged.store && cp -R whole.store damaged.store
    case $change in
    shorter) head -c 500 whole.store/000002.keys >damaged.store/000002.keys ;;
    longer) echo more >>damaged.store/000002.keys ;;
    gone) rm damaged.store/000002.keys ;;
    esac
    for command in verify info compact; do complains 1 'damaged.store/000002.keys: ' "$command" damaged.store; done
done
rm -rf damaged.store && cp -R whole.store damaged.store
sed '1s/knnlm-store 2/knnlm-store 9/' whole.store/MANIFEST >damaged.store/MANIFEST
complains 1 'version\|newer' info damaged.store
echo note >whole.store/NOTES # what is not the store's is left alone
run 0 remove whole.store c.txt
run 0 compact whole.store
check grep -q note whole.store/NOTES

# ---- one writer, many readers

# Trying for the lock would take it away from the writer.
holds_lock() { find "/proc/$child/fd" -lname '*/busy.store/LOCK' 2>/dev/null | grep -q .; }
mkfifo pipe
build 0 busy.store texts/a.txt
cp -R busy.store busy.kept
"$knnlm" add busy.store - <pipe >busy.out 2>busy.err &
child=$!
exec 5>pipe # the writer waits for its text, with the store locked
waited=0
while not holds_lock && [ $waited -lt 500 ]; do
    sleep 0.02
    waited=$((waited + 1))
done
sleep 0.05
for command in 'compact' 'remove a.txt' 'add texts/b.txt'; do
    # shellcheck disable=SC2086 # command and arguments
    set -- $command
    verb=$1
    shift
    complains 1 'busy.store: another process is writing to it' "$verb" busy.store "$@"
done
build_complains 1 'busy.store: another process is writing to it' busy.store texts
run 0 info busy.store
intact busy.store '1 of 1'
run 0 remove busy.store --dry-run a.txt
same busy.store busy.kept
cat texts/c.txt >&5
exec 5>&-
wait $child
check test $? -eq 0
child=''
intact busy.store '2 of 2'

write_text 6 6000 >long.txt
head -c 60000 many.txt >live.txt
"$knnlm" build -m "$model" -o live.store --segment 100 live.txt >busy.out 2>busy.err &
child=$!
seen=0
while kill -0 $child 2>/dev/null; do
    [ -f live.store/MANIFEST ] || continue
    run 0 verify live.store
    run 0 info live.store
    seen=$((seen + 1))
done
wait $child
check test $? -eq 0
child=''
check test $seen -ge 1
intact live.store '1 of 1'

# ---- a disk without room

mkdir disk
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=64k none disk 2>/dev/null; then
    mounted=$work/disk
    build_complains 1 'disk/new.store: needs about [0-9.]* kB of disk, [0-9.]* kB are free (--force tries anyway)' disk/new.store long.txt
    check test ! -e disk/new.store
    build_complains 1 'No space left' disk/new.store --segment 100 --force long.txt
    run 0 verify disk/new.store
    rm -rf disk/new.store
    build 0 disk/small.store texts/a.txt texts/c.txt
    run 0 remove disk/small.store a.txt
    head -c 60000 many.txt >disk/filler 2>/dev/null
    complains 1 'bytes, .* are free (--force tries anyway)' compact disk/small.store
    rm disk/filler
    run 0 compact disk/small.store
    umount disk && mounted=''
else
    echo "skipped: a disk without room (needs root, to mount a small one)"
fi

left=$(find . -name '*.tmp')
[ -z "$left" ] || failed "temporary files are left: $left"
conclude
