#!/bin/sh
# Folders as people have them: what is text is read, out of whatever form; the rest is skipped, and told once.
#   sh tests/test_cli_folder.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
needs_python "to make the folder"
command -v zstd >/dev/null || skip "no zstd"
model=$source/models/small.gguf
[ -f "$model" ] || skip "no bundled model"
plan='tok/s\|skipped'

# Whether this build reads PDF.
printf '%%PDF-1.4\n' >probe.pdf
"$knnlm" eval -m "$model" probe.pdf 2>&1 | grep -q 'without poppler' && pdf='' || pdf=pdf
rm probe.pdf
"$python" -I "$source/tests/make_awkward.py" folder expected.json "$pdf" || exit 1
[ "$(id -u)" -ne 0 ] || echo "left out: files without permission (we are root)"

# ---- one run over all of it

run 0 build -m "$model" -o all.store folder --json
cp out built.json
says '^knnlm build: skipped [0-9]* files: '
says '[0-9]* binary (folder/base.sqlite, folder/data.bin, folder/image.png, …)'
says '2 not UTF-8 (folder/latin1.txt, folder/z.zip/bad.txt; --encoding?)'
says 'link (folder/linked.txt, .*; --follow?)'
check test "$(grep -c skipped err)" -eq 1
run 0 eval -m "$model" folder --per-token rows.tsv --json
ensure "the texts are as they should be" "$python" -I "$source/tests/judge_awkward.py" folder expected.json rows.tsv built.json
ensure "eval tells the same" "$python" -I "$source/tests/judge_awkward.py" folder expected.json rows.tsv out
run 0 build -m "$model" -o all.store folder
says ' 0 added'
run 0 info all.store --documents
says ' z.zip/deep/er/ü.txt\| z.zip/deep/er/\\x'
says ' t.tgz/sub/b.txt'

# ---- strict, and named by hand

complains 1 '' build -m "$model" -o strict.store folder --strict
complains 1 'latin1.txt: not UTF-8 at byte 3.*--encoding' eval -m "$model" folder/latin1.txt
complains 1 'odd16.txt: not UTF-16LE at byte' eval -m "$model" folder/odd16.txt
complains 1 'data.bin: binary data' eval -m "$model" folder/data.bin
complains 1 'image.png: a PNG image: .*OCR' eval -m "$model" folder/image.png
complains 1 'song.mp3: a sound file' eval -m "$model" folder/song.mp3
complains 1 'base.sqlite: an SQLite database: .*dump' eval -m "$model" folder/base.sqlite
complains 1 'letter.docx: a Word document: save it as text, HTML or PDF' eval -m "$model" folder/letter.docx
complains 1 'letter.odt: a LibreOffice document: save it as' eval -m "$model" folder/letter.odt
complains 1 'letter.rtf: a rich text document' eval -m "$model" folder/letter.rtf
complains 1 'files.7z: a 7z archive: unpack it' eval -m "$model" folder/files.7z
complains 1 'cut.gz: the gzip data ends too early' eval -m "$model" folder/cut.gz
complains 1 'cut.xz: the xz data ends too early' eval -m "$model" folder/cut.xz
complains 1 'cut.zip.*damaged zip' eval -m "$model" folder/cut.zip
complains 1 'cut.tar.gz: the gzip data ends too early' eval -m "$model" folder/cut.tar.gz
complains 1 'laughs.epub: not a readable EPUB: .*entities' eval -m "$model" folder/laughs.epub
complains 1 'no.epub: not a readable EPUB' eval -m "$model" folder/no.epub
complains 1 'dangling: No such file' eval -m "$model" folder/dangling
complains 1 'loop1: Too many levels' eval -m "$model" folder/loop1
if [ -n "$pdf" ]; then
    complains 1 'scan.pdf: a PDF without text' eval -m "$model" folder/scan.pdf
else
    complains 1 'paper.pdf: a PDF, and knnlm was built without poppler' eval -m "$model" folder/paper.pdf
fi
run 0 eval -m "$model" folder/linked.txt # a link that was named
run 0 eval -m "$model" folder/latin1.txt --encoding latin1 --per-token rows.tsv
check grep -q 'é' rows.tsv
complains 2 '--encoding klingon: not known' eval -m "$model" folder/latin1.txt --encoding klingon

# ---- which files

names() { cut -f1 rows.tsv | sed 1d | uniq | sed 's|^folder/||' | sort | tr '\n' ' '; }
chosen() { # NAMES OPTION...
    wanted=$1
    shift
    run 0 eval -m "$model" folder --per-token rows.tsv "$@"
    checks=$((checks + 1))
    [ "$(names)" = "$wanted " ] || failed "$* reads $(names)"
}
chosen 'code.c notes.md' --include '*.md' --include code.c
chosen 'plain.txt' --include 'plain.*' --exclude '*.gz'
chosen 't.tar/a.txt t.tar/sub/b.txt' --include 't.tar'
chosen 't.tar/a.txt' --include 't.tar' --exclude sub
chosen '.git/config' --include config --hidden
chosen 'linked.txt' --include linked.txt --follow
run 0 eval -m "$model" folder/z.zip --include '*.html' --per-token rows.tsv # an archive that was named
check test "$(names)" = 'z.zip/x.html '
mkdir round && echo once >round/a.txt && ln -s . round/again
run 0 eval -m "$model" round --follow --per-token rows.tsv
check test "$(cut -f1 rows.tsv | sed 1d | sort -u)" = a.txt
says '1 link loop (round/again)'

# ---- JSON lines, and standard input

printf '{"id": "a", "body": "one\\u0000two"}\n{"id": "b\\u0000", "body": "x"}\n' >nul.jsonl
complains 1 'nul.jsonl:2: "id" has a NUL character' build -m "$model" -o nul.store --documents jsonl --field body --name-field id nul.jsonl
run 0 eval -m "$model" --documents jsonl --field body nul.jsonl
printf '{"id": 7, "body": "first text"}\n\n{"id": "b", "body": "second\\ntext"}\n{"id": 8, "body": ""}\n' >lines.jsonl
run 0 build -m "$model" -o lines.store --documents jsonl --field body --name-field id lines.jsonl --json
check test "$(field added)" -eq 2
run 0 info lines.store --documents
says 'lines.jsonl#7'
says 'lines.jsonl#b'
run 0 eval -m "$model" --documents jsonl --field body lines.jsonl --per-token rows.tsv
check test "$(cut -f1 rows.tsv | sed 1d | uniq | tr '\n' ' ')" = 'lines.jsonl#1 lines.jsonl#3 '
gzip -k lines.jsonl
run 0 add lines.store --field body --name-field id lines.jsonl.gz --json
check test "$(field added)" -eq 2
complains 1 'lines.jsonl:1: it has no member "text"' eval -m "$model" --documents jsonl lines.jsonl
echo '{"id": 9, "body": "third"' >>lines.jsonl
complains 1 'lines.jsonl:5: not JSON' eval -m "$model" --documents jsonl --field body lines.jsonl
run 0 eval -m "$model" --documents jsonl folder --include '*.jsonl' --include plain.txt --json
says '{"path": "folder/plain.txt", "reason": "not JSON lines"}'
input=folder/page.html
run 0 eval -m "$model" - --name page --per-token rows.tsv
check test "$(cut -f1 rows.tsv | sed 1d | uniq)" = page
input=folder/t.tgz
run 0 eval -m "$model" - --name packed --per-token rows.tsv
check test "$(cut -f1 rows.tsv | sed 1d | uniq | tr '\n' ' ')" = 'packed/a.txt packed/sub/b.txt '
input=/dev/null

# ---- the other commands skip, and tell, alike

run 0 tune -m "$model" -s all.store folder --dry-run --json
check test "$(grep -c skipped err)" -eq 1
ensure "tune tells the same" "$python" -I -c 'import json, sys; a, b = (sorted(json.load(open(f))["skipped_files"], key=str) for f in sys.argv[1:]); assert a == b' out built.json
run 0 explain -m "$model" -s all.store --text folder
says '^knnlm explain: skipped'
run 0 train folder --exclude '*.html' -o tiny.gguf --preset tiny --vocab 300 --width 16 --layers 1 --heads 2 --ffn 16 --context 16 \
    --batch 64 --steps 1
check test "$(grep -c 'skipped [0-9]* files' err)" -eq 1
run 0 add all.store folder/plain.txt
conclude
