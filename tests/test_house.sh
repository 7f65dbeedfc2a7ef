#!/bin/sh
# scripts/check-house finds what it looks for, in small trees that have one thing wrong each:
#   sh tests/test_house.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
needs_python "which scripts/check-house is written in"

# fresh NAME: a tree with nothing wrong
fresh() {
    tree=$1
    mkdir -p "$tree/src/base" "$tree/src/store" "$tree/src/knn" "$tree/src/cli" "$tree/tests"
    printf '// Memory, for everybody.\n#include "base/base.h"\n\ntypedef struct row {\n    int a;\n} row;\n' >"$tree/src/base/base.c"
    printf '// The door of base.\ntypedef struct kn_thing kn_thing;\ntypedef void kn_visit(kn_thing *t);\n' >"$tree/src/base/base.h"
    printf '// Stores of things.\n#include "base/base.h"\n#include "knnlm.h"\n\nstruct kn_thing {\n    int a;\n};\ntypedef struct row {\n    long b;\n} row;\n' \
        >"$tree/src/store/store.c"
    printf '// The nearest of them.\n#include "store/store.h"\n' >"$tree/src/knn/knn.c"
    printf '// A test of it.\n#include "knn/knn.h"\n' >"$tree/tests/test_knn.c"
}
# finds LINE: the tree at hand is refused, with this line alone
finds() {
    last="check-house $tree"
    checks=$((checks + 1))
    "$source/scripts/check-house" "$tree" >out 2>err
    got=$?
    [ $got -eq 1 ] || failed "exit code $got, not 1"
    check test "$(cat out)" = "$1"
    check test ! -s err
}
# lines FROM NAME: ten lines of code, with a comment and other white space for each name
lines() {
    echo "static int $2(int x) {"
    echo "    // As $2 does."
    for i in 1 2 3 4 5 6 7 8 9 10; do echo "    x +=$3 x * another_$i(x, $1);"; done
    echo '}'
}

fresh good
lines 3 one '' >>good/tests/test_knn.c
ensure "a good tree is refused" "$source/scripts/check-house" good
ensure "the sources themselves are refused" "$source/scripts/check-house"

# ---- rooms

fresh up
echo '#include "store/store.h"' >>up/src/base/base.h
finds 'src/base/base.h:4: base includes store, which it may not know'
fresh beside
echo '#include "text/tokenizer.h"' >>beside/src/store/store.c
finds 'src/store/store.c:11: store includes text, which it may not know'
fresh later
echo '#include "eval/eval.h"' >>later/src/knn/knn.c
finds 'src/knn/knn.c:3: knn includes eval, which it may not know'
fresh around
printf '// A command.\n#include "base/base.h"\n#include "cli/cli.h"\n#include "knnlm.h"\n#include "knn/knn.h"\n' >around/src/cli/go.c
finds 'src/cli/go.c:5: cli includes knn, which it may not know'
fresh beneath
printf '// A command.\n#include "api/api.h"\n' >beneath/src/cli/go.c
finds 'src/cli/go.c:2: cli includes api, which it may not know'
fresh nowhere
mkdir nowhere/src/attic
echo '// Odds and ends.' >nowhere/src/attic/attic.c
finds 'src/attic/attic.c:1: in no room: the rooms are base, ranks, math, text, lm, train, read, store, index, build, mix, knn, eval, generate, serve, api, cli'

# ---- types

fresh struct
printf '\nstruct kn_thing {\n    int c;\n};\n' >>struct/src/knn/knn.c
finds 'src/store/store.c:5: kn_thing is defined in src/knn/knn.c:4 too'
fresh function
echo 'typedef int (*kn_visit)(void);' >>function/src/knn/knn.c
finds 'src/knn/knn.c:3: kn_visit is defined in src/base/base.h:3 too'
fresh header
printf '// One of two.\ntypedef enum place { HERE } place;\n' >header/src/knn/a.h
printf '// Another one.\ntypedef struct place { int x; } place;\n' >header/src/knn/b.h
finds 'src/knn/b.h:2: place is defined in src/knn/a.h:2 too'

# ---- near-copies

fresh copy
lines 3 one '' >>copy/src/store/store.c
lines 42 two '  ' >>copy/tests/test_knn.c
finds 'tests/test_knn.c:5: a copy of src/store/store.c:13, of over 8 lines'

# ---- first lines

fresh silent
sed -i 1d silent/src/knn/knn.c
finds 'src/knn/knn.c:1: does not open with a comment on what it is for'

mkdir empty
finds=$("$source/scripts/check-house" empty)
check test $? -eq 1
check test "$finds" = 'empty: no sources in src'
conclude
