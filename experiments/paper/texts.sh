# The texts of experiments/paper: what is remembered, tuned on and reported on, of a home and of a second domain.
# All are files of documents, each after a line "= Title =" (--documents wiki).
# shellcheck shell=sh disable=SC2034,SC2154 # names are of experiments/paper/run, sizes.sh and rows.sh

# part FILE BYTES OUT: its beginning, whole lines; all of it where that is less. What is there is there whole.
part() {
    [ ! -s "$3" ] || return 0
    case $1 in *.zst) zstd -dqc "$1" ;; *) cat "$1" ;; esac 2>/dev/null | head -c "$2" >"$3.all"
    if [ "$(wc -c <"$3.all")" -lt "$2" ]; then
        mv "$3.all" "$3.new"
    else
        sed '$d' "$3.all" >"$3.new" && rm "$3.all"
    fi
    [ -s "$3.new" ] || fail "$1: nothing could be read of it"
    mv "$3.new" "$3"
}

# page NAME: a page of Perl's manual as documents of some 8 KB, cut where a section begins
page() {
    awk -v page="$1" -v least=8000 '
        NR == 1 || (size >= least && /^=(head|item)/) { print "\n= " page " " ++part " =\n"; size = 0 }
        { print; size += length($0) + 1 }' "$pods/$1.pod"
}

# pages NAME...: those that this Perl has
pages() {
    for name; do
        [ ! -r "$pods/$name.pod" ] || page "$name"
    done
}

# The manual in its own order: tutorials, then the reference. Left out: tables of contents and of characters, changes of old versions,
# and the questions and answers, of which one page is for validation and two are for the test.
small_texts() {
    pods=$(dirname "$(dpkg -L perl-doc | grep '/perlintro\.pod$' | head -n 1)")
    names=$(sed -n 's/^    \(perl[a-z0-9]*\)\t.*/\1/p' "$pods/perl.pod" | grep -v -e delta -e faq -e '^perltoc$' -e '^perluniprops$')
    home=$work/home.txt home_valid=$work/home.valid home_test=$work/home.test
    # shellcheck disable=SC2086 # words
    pages $names >"$work/manual.txt"
    pages perlfaq4 >"$work/valid.txt"
    pages perlfaq3 perlfaq8 >"$work/test.txt"
    part "$work/manual.txt" "$home_bytes" "$home"
    part "$work/valid.txt" "$valid_bytes" "$home_valid"
    part "$work/test.txt" "$test_bytes" "$home_test"
    small_second
    # Perl's manual is the other domain of the bundled model, which is of Wikipedia.
    part "$home" "$other_bytes" "$work/other.txt"
    other=$work/other.txt other_valid=$home_valid other_test=$home_test
    part "$home" "$some_bytes" "$work/some.txt"
    tokenizer="--tokenizer bpe --vocab 4000"
}

# sections KIND: the policy's sections as documents of some 6 KB, behind its table of contents: of ten of them one is for validation,
# one for the test, the rest are the text.
sections() {
    gzip -dc /usr/share/doc/debian-policy/policy.txt.gz | awk -v kind="$1" -v least=6000 '
        /^1\. About this manual/ { begun = 1 }
        !begun { next }
        !part || (size >= least && /^[0-9A-Z]+\.[0-9]+\. /) { title = "\n= policy " ++part " =\n"; size = 0 }
        { size += length($0) + 1 }
        kind == (part % 10 == 3 ? "valid" : part % 10 == 7 ? "test" : "text") { print title $0; title = "" }'
}

small_second() {
    second=$work/second.txt second_valid=$work/second.valid second_test=$work/second.test
    for kind in text valid test; do
        sections $kind >"$work/sections.$kind"
    done
    part "$work/sections.text" "$second_bytes" "$second"
    part "$work/sections.valid" "$valid_bytes" "$second_valid"
    part "$work/sections.test" "$test_bytes" "$second_test"
}

full_texts() {
    home=$work/home.txt home_valid=$work/home.valid home_test=$work/home.test
    part "$data/wiki/train.txt.zst" "$home_bytes" "$home"
    part "$data/wiki/valid.txt" "$valid_bytes" "$home_valid"
    part "$data/wiki/test.txt" "$test_bytes" "$home_test"
    second=$work/second.txt second_valid=$work/second.valid second_test=$work/second.test
    part "$data/books/train.txt.zst" "$second_bytes" "$second"
    part "$data/books/valid.txt" "$valid_bytes" "$second_valid"
    part "$data/books/test.txt" "$test_bytes" "$second_test"
    part "$second" "$other_bytes" "$work/other.txt"
    other=$work/other.txt other_valid=$second_valid other_test=$second_test
    part "$home" "$some_bytes" "$work/some.txt"
    tokenizer="--tokenizer-file $bundled"
    words_text=$work/words.txt words_valid=$work/words.valid words_test=$work/words.test
    part "$data/wikitext-2/train.txt" "$words_bytes" "$words_text"
    part "$data/wikitext-2/valid.txt" "$words_bytes" "$words_valid"
    part "$data/wikitext-2/test.txt" "$words_bytes" "$words_test"
}
