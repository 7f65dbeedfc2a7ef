#!/bin/sh
# knnlm sync: a store has what its folders have.
#   sh tests/test_cli_sync.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
model=$source/models/small.gguf
[ -f "$model" ] || skip "no bundled model"
plan='tok/s\|skipped'

state() { cat "$1"/MANIFEST; } # STORE
counts() { says "^documents  *$1\$"; }

mkdir -p notes/sub beside
echo 'the first of the texts' >notes/one.txt
echo 'another one, further down' >notes/sub/two.txt
echo 'a third, that will go' >notes/three.txt
echo 'of another folder' >beside/four.txt
run 0 build -m "$model" -o n.store notes beside
echo 'from nowhere' | "$knnlm" add n.store - --name typed >out 2>err

# ---- nothing to do

run 0 sync n.store notes
counts '0 added, 3 unchanged, 0 replaced; 5 in all'
run 0 sync n.store ./notes/../notes --dry-run
counts '0 to add, 0 to replace, 0 to remove; 3 unchanged'

# ---- a look before it is done

echo 'new here' >notes/sub/five.txt
echo 'the first, changed' >notes/one.txt
rm notes/three.txt beside/four.txt
state n.store >before
run 0 sync n.store notes --dry-run -m nowhere.gguf # no model is needed
counts '1 to add, 1 to replace, 1 to remove; 1 unchanged'
check grep -qx '+ sub/five.txt' out
check grep -qx '~ one.txt' out
check grep -qx -e '- three.txt' out
check not grep -q 'four' out
check not grep -q 'typed' out
run 0 sync n.store notes --dry-run --json
says '"dry_run": true'
check test "$(field added)$(field replaced)$(field removed)$(field unchanged)" = 1111
says '{"change": "-", "name": "three.txt"}'
state n.store >after
check cmp before after

# ---- done

run 0 sync n.store notes
counts '2 added, 1 unchanged, 1 replaced, 1 removed; 5 in all'
run 0 info n.store --documents
check not grep -q '^[^(]*three.txt$' out
says 'four.txt' # of a folder that was not named
says 'typed'
run 0 verify n.store
run 0 sync n.store notes --json
check test "$(field added)$(field unchanged)$(field removed)" = 030
mkdir -p beside && echo 'something else' >beside/six.txt
run 0 sync n.store notes beside
counts '1 added, 3 unchanged, 0 replaced, 1 removed; 5 in all'

# ---- what is skipped now, or left out, goes too

printf 'x\377' >notes/one.txt
run 0 sync n.store notes
says ' 1 removed; 4 in all'
says 'skipped 1 file: 1 not UTF-8 (notes/one.txt'
run 0 sync n.store notes --exclude nothing --dry-run
says 'skipped'
rm notes/one.txt
echo 'to keep one' >notes/kept.txt
run 0 sync n.store notes --exclude sub
counts '1 added, 0 unchanged, 0 replaced, 2 removed; 3 in all'

# ---- what cannot be

complains 2 'no store given' sync
complains 2 'no directory to follow' sync n.store
complains 1 'notes/kept.txt: not a directory (knnlm add adds files)' sync n.store notes/kept.txt
complains 1 'nowhere: No such file' sync n.store nowhere
complains 1 'nowhere: No such file' sync n.store nowhere --dry-run
complains 1 'no.store' sync no.store notes --dry-run
mkdir empty
complains 1 'empty: no files in this directory' sync n.store empty

conclude
