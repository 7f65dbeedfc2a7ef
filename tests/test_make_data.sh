#!/bin/sh
# Data folders from public texts:  sh tests/test_make_data.sh PATH_TO_knnlm SOURCE_DIR
# Articles and books become documents; held out are whole ones, and what is asked for is left out.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
[ -x /usr/bin/python3 ] || skip "no Python"
command -v zstd >/dev/null 2>&1 || skip "no zstd"
make() { "$source/scripts/make-data" "$@" >out 2>err; }
titles() { sed -n 's/^= \(.*\) =$/\1/p' "$@"; }

for n in 1 2 3 4 5 6 7 8 9; do
    printf '{"title": "Article %s", "text": "First line of %s.\\n\\n= no title =\\n  Last   line. "}\n' $n $n
done >wiki.json
printf '%s\n' '{"title": "Empty", "text": "\n"}' >>wiki.json
gzip wiki.json
printf ' = Article 4 = \n\n text \n = = A part = = \n' >wikitext.txt
make wiki wiki.json.gz --held 6 --without wikitext.txt
ensure "it ran" test $? -eq 0
zstd -dqc wiki/train.txt.zst >train.txt
ensure "whole articles are held out, all that are left are there" test "$(titles train.txt wiki/valid.txt wiki/test.txt | sort | tr -d '\n')" = \
    "Article 1Article 2Article 3Article 5Article 6Article 7Article 8Article 9"
ensure "one each" test "$(titles wiki/valid.txt | wc -l),$(titles wiki/test.txt | wc -l)" = 1,1
number=$(titles wiki/test.txt | tr -dc 0-9)
printf '\n= Article %s =\nFirst line of %s.\nLast line.\n' "$number" "$number" >wanted
check cmp wiki/test.txt wanted
ensure "the command reads as many documents" test "$("$knnlm" eval -m "$source/models/small.gguf" --documents wiki --json train.txt | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["documents"])')" = 6

for n in 1 2 3; do
    printf 'Title: Book %s\n\n*** START OF THE PROJECT GUTENBERG EBOOK BOOK ***\n\nOne two three.\n*** END OF THE PROJECT GUTENBERG EBOOK BOOK ***\nLicence.\n' $n >book$n.txt
done
make books book1.txt book2.txt book3.txt --held 3 --order given
ensure "books ran" test $? -eq 0
ensure "the last are held out" test "$(titles books/valid.txt),$(titles books/test.txt)" = "Book 3,Book 2"
printf '\n= Book 2 =\nOne two three.\n' >wanted
check cmp books/test.txt wanted

make few book1.txt
ensure "too little is told" test $? -eq 1
check grep -q 'too little text' err
ensure "and nothing is made" test ! -e few
echo '{"title": "no text"}' >bad.json
make bad bad.json
ensure "what is no article is told" test $? -eq 1
check grep -q 'bad.json: line 1 is no JSON object' err
make bad nowhere.json
check grep -q 'nowhere.json: No such file' err
conclude
