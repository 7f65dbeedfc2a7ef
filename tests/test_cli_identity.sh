#!/bin/sh
# Who a document is: the file it came from, however that is typed; then its name.
#   sh tests/test_cli_identity.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
model=$source/models/small.gguf
[ -f "$model" ] || skip "no bundled model"

# names STORE: of what is in it, sorted.
names() {
    "$knnlm" info "$1" --documents --json | tr '{' '\n' | sed -n '/"removed": false/s/.*"name": "\([^"]*\)".*/\1/p' | sort | tr '\n' ' '
}
named() { ensure "$1 holds $(names "$1"), not $2" test "$(names "$1")" = "$2"; } # STORE NAMES
counts() { says "documents  *$1 added, $2 unchanged, $3 replaced; $4 in all"; }   # ADDED UNCHANGED REPLACED TOTAL

mkdir -p docs/sub
echo 'the first of the texts' >docs/one.txt
echo 'another one, further down' >docs/sub/two.txt

# ---- one folder, typed in many ways

run 0 build -m "$model" -o d.store docs
counts 2 0 0 2
named d.store 'one.txt sub/two.txt '
run 0 info d.store --documents --json
says "\"path\": \"$(pwd -P)/docs/sub/two.txt\""
for typed in docs ./docs docs/ docs//. docs/../docs "$PWD/docs"; do
    run 0 add d.store "$typed"
    counts 0 2 0 2
done
(cd docs && "$knnlm" add ../d.store . >../out 2>../err)
counts 0 2 0 2
(cd docs/sub && "$knnlm" add ../../d.store .. two.txt >../../out 2>../../err)
counts 0 3 0 2
run 0 add d.store docs/sub # a folder of it, or a file: the same documents
counts 0 1 0 2
run 0 add d.store docs/sub/two.txt docs/one.txt
counts 0 2 0 2
ln -s docs linked
run 0 add d.store linked
counts 0 2 0 2
echo 'now it is something else' >docs/sub/two.txt
run 0 add d.store docs/sub
counts 1 0 1 2
named d.store 'one.txt sub/two.txt '
run 0 build -m "$model" -o d.store ./docs
counts 0 2 0 2
says 'of them there, 0B on disk' # ... and no model was asked how long it takes
check not grep -q 'tok/s' err

# ---- messages tell what was typed

printf 'x\377' >docs/bad.txt
run 0 add d.store ./docs
says 'not UTF-8 (./docs/bad.txt'
rm docs/bad.txt

# ---- equal names from several folders

mkdir -p x/a x/b y/b
for folder in x/a x/b y/b; do echo "read me, of $folder" >$folder/README; done
run 0 build -m "$model" -o r.store x/a x/b y/b
counts 3 0 0 3
named r.store 'README b/README y/b/README '
for again in 'x/a x/b y/b' 'y/b x/b x/a' ./x/b y/b/README; do
    # shellcheck disable=SC2086 # words
    run 0 add r.store $again
    says ' 0 added, . unchanged, 0 replaced; 3 in all'
done
(cd x/b && "$knnlm" add ../../r.store README >../../out 2>../../err)
counts 0 1 0 3
echo 'read it again' >x/b/README
run 0 add r.store x/b
counts 1 0 1 3
named r.store 'README b/README y/b/README '
run 0 build -m "$model" -o s.store x/a # ... in several runs
run 0 add s.store x/b
run 0 add s.store y/b
named s.store 'README b/README y/b/README '
run 0 add s.store x/a x/b y/b
counts 0 3 0 3

# ---- a folder that was moved

mv docs moved
rm linked
run 0 add d.store moved
counts 0 2 0 2
echo 'changed since' >moved/one.txt
run 0 add d.store moved
counts 1 1 1 2
named d.store 'one.txt sub/two.txt '
run 0 add d.store moved
counts 0 2 0 2

# ---- titles and lines

printf '\n = Cats = \n\n they purr\n\n = Dogs = \n\n they bark\n' >wiki#1.txt
run 0 build -m "$model" -o w.store --documents wiki wiki#1.txt
named w.store 'wiki#1.txt#Cats wiki#1.txt#Dogs '
run 0 add w.store "./wiki#1.txt"
counts 0 2 0 2
mkdir more && printf '\n = Cats = \n\n they sleep\n' >more/wiki#1.txt
run 0 add w.store more
counts 1 0 0 3
named w.store 'more/wiki#1.txt#Cats wiki#1.txt#Cats wiki#1.txt#Dogs '
run 0 add w.store more wiki#1.txt
counts 0 3 0 3

# ---- standard input, as it was called

echo 'typed by hand' | "$knnlm" add d.store - --name note >out 2>err
counts 1 0 0 3
echo 'typed by hand' | "$knnlm" add d.store - --name note >out 2>err
counts 0 1 0 3
echo 'typed anew' | "$knnlm" add d.store - --name note >out 2>err
counts 1 0 1 3

# ---- a store of an older version, whose names and paths are as they were typed: an import makes such

mkdir old && echo 'an old text' >old/a.txt && echo 'and one more' >old/b.txt
run 0 build -m "$model" -o o.store old --keys f32 --no-index --no-tune
run 0 export o.store -o dump
sed -i "s#	\([ab].txt\)	$(pwd -P)/old/#	./old/\1	./old/#" dump/documents.tsv
check grep -q "	./old/a.txt	./old/a.txt	" dump/documents.tsv
run 0 import dump -o older.store -m "$model"
named older.store './old/a.txt ./old/b.txt '
cp -R older.store typed.store
run 0 add older.store old
counts 0 2 0 2
(cd old && "$knnlm" add ../typed.store -m "$model" b.txt >../out 2>../err) # from where the old paths lead nowhere
says ' 1 added, 0 unchanged'
echo 'an old text, made new' >old/a.txt
run 0 add older.store old
counts 1 1 1 2
named older.store './old/a.txt ./old/b.txt '
run 0 add older.store "$PWD/old"
counts 0 2 0 2

conclude
