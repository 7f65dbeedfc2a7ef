#!/bin/sh
# The command line as its users meet it:  sh tests/test_cli.sh PATH_TO_knnlm SOURCE_DIR
# Every check prints a line when it fails; the exit code is 1 when one did.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
plan=' updates of ' # which `train` prints before it begins

# Everything of a result but the time that it took and the name of the model.
numbers() { sed 's/"seconds_lm": [^,]*, "seconds_search": [^,]*, "seconds": [^,]*, "tokens_per_second": [^,]*,//; s/"threads": [0-9]*,//' "$1"; }

same_numbers() {
    numbers "$1" >left
    numbers "$2" >right
    [ -s left ] && cmp -s left right
}

# near A B PART: numbers apart by at most that part of the first
near() { echo "$1 $2 $3" | awk '{ d = $1 - $2; if (d < 0) d = -d; exit !($1 > 0 && d <= $3 * $1) }'; }

# ---- material: text of a small language, with some letters beyond ASCII

write_text() { # SEED SENTENCES
    awk -v seed="$1" -v sentences="$2" 'BEGIN {
        srand(seed)
        n = split("cat dog river mountain caf\303\251 \346\274\242\345\255\227 stone letter window garden", noun, " ")
        v = split("sees finds keeps leaves paints follows", verb, " ")
        for (i = 0; i < sentences; i++) {
            if (i % 40 == 0) printf "\n= Chapter %d =\n\n", i / 40 + 1
            printf "The %s %s the %s.%s", noun[int(rand() * n) + 1], verb[int(rand() * v) + 1],
                noun[int(rand() * n) + 1], i % 5 == 4 ? "\n" : " "
        }
    }'
}
write_text 1 1200 >train.txt
write_text 2 120 >valid.txt
write_text 3 200 >test.txt
: >empty.txt
printf '\n\n \n' >blank.txt
{ head -c 100 test.txt && printf 'x\377y' && cat test.txt; } >latin.txt
shape='--preset gpt2-tiny --vocab 320 --batch 512 --length 64'

train() { # OUTPUT ARGUMENT...
    output=$1
    shift
    # shellcheck disable=SC2086 # a list of options
    run 0 train train.txt --valid valid.txt -o "$output" $shape "$@"
}

# ---- help and usage

run 0 --help
for command in train eval info; do
    ensure "--help names $command" grep -q "^  $command " out
done
for command in train eval info; do
    run 0 "$command" --help
    ensure "$command --help tells the usage" grep -q "^usage: knnlm $command " out
    ensure "$command --help: nothing on stderr" test ! -s err
    # The manual knows every option.
    sed -n '/^options:/,/^$/s/^[^-]*\(-[a-z], \)\{0,1\} *--\([a-z-]*\).*/\2/p' out >options
    ensure "$command --help lists options" test -s options
    sed 's/\\-/-/g' "$source/man/knnlm.1" >manual
    while read -r option; do
        ensure "the manual has --$option of $command" grep -q -e "--$option" manual
    done <options
    run 0 "$command" -h
done
run 0 --version
ensure "--version names a version" grep -q '^knnlm [0-9]*\.[0-9]*\.[0-9]*$' out
run 2
run 2 nonsense
ensure "an unknown command is named" grep -q 'nonsense' err
complains 2 'MODEL\|-m' eval train.txt
complains 2 'text' eval -m model.gguf
complains 2 'unknown option --nonsense' eval --nonsense
complains 2 'unknown option -y' eval -vy
complains 2 'needs a value' eval -m
complains 2 'not a whole number' eval -m model.gguf --score many train.txt
complains 2 'range' eval -m model.gguf --score 0 train.txt
complains 2 'range' eval -m model.gguf -t -1 train.txt
complains 2 'one of' eval -m model.gguf --documents pages train.txt
complains 2 'one of' eval -m model.gguf --precision f99 train.txt
complains 2 '\-o' train train.txt
complains 2 'text' train -o model.gguf
complains 2 'one of' train train.txt -o model.gguf --steps 1 --epochs 1
complains 2 'one of' train train.txt -o model.gguf --tokenizer letters
complains 2 'one' info
complains 2 'one' info a b

# ---- training

train model.gguf --steps 20 --log log.csv
ensure "train writes the model" test -s model.gguf
ensure "train tells the parameters" grep -q 'parameters' out
ensure "train draws no progress where stderr is no terminal" test "$(tr -cd '\r\033' <err | wc -c)" -eq 0
ensure "the log has a header" grep -q '^step,tokens,seconds,loss,valid_loss,rate,norm$' log.csv
ensure "the log has the last step" grep -q '^20,' log.csv
train again.gguf --steps 20 --json
ensure "the same run gives the same model" cmp model.gguf again.gguf
ensure "train --json tells the steps" test "$(field steps out)" = 20
train threads.gguf --steps 20 -t 1
ensure "one thread gives the same model" cmp model.gguf threads.gguf
train other.gguf --steps 20 --seed 2
ensure "another seed gives another model" sh -c '! cmp -s model.gguf other.gguf'
for kind in f32 bf16 q8_0; do
    train "$kind.gguf" --steps 2 --type "$kind"
    run 0 eval -m "$kind.gguf" --json test.txt
done
train word.gguf --steps 4 --tokenizer word --vocab 0 --preset tiny --bands 8,12 --width 32 --heads 2 --layers 1
run 0 eval -m word.gguf --json test.txt

# ---- scoring

run 0 eval -m model.gguf --json test.txt
cp out plain.json
ensure "eval is silent on stderr where it is no terminal" test ! -s err
for name in documents tokens words bytes ppl ppl_word bits_per_byte seconds tokens_per_second; do
    ensure "eval --json has $name" test -n "$(field $name plain.json)"
done
ensure "eval counts the bytes" test "$(field bytes plain.json)" = "$(wc -c <test.txt | tr -d ' ')"
ensure "eval counts the words" test "$(field words plain.json)" = "$(awk '{ n += NF } END { print n }' test.txt)"
if [ -x "$python" ]; then
    ensure "eval --json is JSON" "$python" -c '
import json, math
r = json.load(open("plain.json"))
assert math.isclose(r["ppl"], math.exp(r["nll"] / r["tokens"]), rel_tol=1e-6)
assert math.isclose(r["ppl_word"], math.exp(r["nll"] / r["words"]), rel_tol=1e-6)
assert math.isclose(r["bits_per_byte"], r["nll"] / math.log(2) / r["bytes"], rel_tol=1e-6)
assert r["settings"]["score"] > 0'
fi
run 0 eval -m model.gguf test.txt
ensure "eval tells people the perplexity" grep -q '^perplexity ' out
ensure "20 updates teach something" near 100 "$(field ppl plain.json)" 0.99

run 0 eval -m model.gguf --json --per-token rows.tsv test.txt
ensure "--per-token changes no number" same_numbers plain.json out
ensure "--per-token has a row a token" test "$(sed 1d rows.tsv | wc -l)" -eq "$(field tokens out)"
ensure "--per-token adds up" near "$(field nll out)" "$(awk -F'\t' 'NR > 1 { s -= $6 } END { print s }' rows.tsv)" 1e-5
printf '\360\237\230\200 caf\303\251\n' >split.txt # tokens end inside characters
run 0 eval -m model.gguf --per-token split.tsv split.txt
ensure "--per-token is UTF-8 whatever the tokens" iconv -f UTF-8 -t UTF-8 -o /dev/null split.tsv

"$knnlm" eval -m model.gguf --json - <test.txt >stdin.json 2>err
ensure "stdin gives the same numbers" same_numbers plain.json stdin.json
gzip -kc test.txt >test.txt.gz
run 0 eval -m model.gguf --json test.txt.gz
ensure ".gz gives the same numbers" same_numbers plain.json out
if command -v zstd >/dev/null 2>&1; then
    zstd -q test.txt
    run 0 eval -m model.gguf --json test.txt.zst
    ensure ".zst gives the same numbers" same_numbers plain.json out
else
    echo "skipped: .zst (no zstd here)"
fi
for threads in 1 2; do
    run 0 eval -m model.gguf --json -t $threads test.txt
    ensure "$threads threads give the same numbers" same_numbers plain.json out
    ensure "eval --json tells the threads" test "$(field threads out)" = $threads
done
mkdir folder && cp test.txt folder/b.txt && cp valid.txt folder/a.txt
run 0 eval -m model.gguf --json folder
cp out folder.json
run 0 eval -m model.gguf --json folder/a.txt folder/b.txt
ensure "a directory is its files" same_numbers folder.json out
run 0 eval -m model.gguf --json --documents wiki test.txt
ensure "--documents wiki finds the chapters" test "$(field documents out)" = 5
run 0 eval -m model.gguf --json --score 32 --context 0 test.txt
ensure "less context predicts no better" near "$(field ppl plain.json)" "$(field ppl out)" 0.5
run 0 eval -m model.gguf --json --precision f32 test.txt
ensure "f32 and the default agree" near "$(field ppl plain.json)" "$(field ppl out)" 0.01
KNNLM_CPU=portable "$knnlm" eval -m model.gguf --json test.txt >portable.json 2>err
ensure "portable kernels agree" near "$(field ppl plain.json)" "$(field ppl portable.json)" 0.01
run 0 eval -m model.gguf --json blank.txt
ensure "text without words has no perplexity per word" grep -q '"ppl_word": null' out

run 0 info model.gguf
ensure "info tells the shape" grep -q 'layers' out
run 0 info --json model.gguf
ensure "info --json tells the vocabulary" test "$(field vocabulary out)" = 320

# ---- what goes wrong with files

complains 1 'nowhere.txt: .*No such file' eval -m model.gguf nowhere.txt
complains 1 'nowhere.gguf: .*No such file' eval -m nowhere.gguf test.txt
complains 1 'latin.txt: not UTF-8 at byte 101' eval -m model.gguf latin.txt
complains 1 'latin.txt: not UTF-8 at byte 101' train latin.txt -o new.gguf
complains 1 'empty.txt: no text' eval -m model.gguf empty.txt
complains 1 'empty.txt: no text' train empty.txt -o new.gguf
complains 1 'folder: ' eval -m folder test.txt
complains 1 'test.txt: ' eval -m test.txt test.txt
complains 1 'test.txt: ' info test.txt
size=$(wc -c <model.gguf)
for part in 0 4 100 $((size / 2)) $((size - 1)); do
    head -c "$part" model.gguf >short.gguf
    complains 1 'short.gguf: ' eval -m short.gguf test.txt
done
head -c 50 test.txt.gz >short.gz
complains 1 'short.gz: ' eval -m model.gguf short.gz
complains 1 'nowhere/rows.tsv: ' eval -m model.gguf --per-token nowhere/rows.tsv test.txt
complains 2 'context' eval -m model.gguf --score 100000 test.txt
complains 2 'preset' train train.txt -o new.gguf --preset enormous
complains 1 'more text\|smaller' train blank.txt -o new.gguf --preset gpt2-tiny --vocab 300
# shellcheck disable=SC2086 # a list of options
run 1 train train.txt -o nowhere/new.gguf $shape --steps 1
ensure "an output that cannot be written is named" grep -q 'knnlm train: nowhere/new.gguf' err
ensure "failures write no model" test ! -e new.gguf
cp model.gguf kept.gguf
complains 1 'kept.gguf: exists: .*--force' train latin.txt -o kept.gguf
complains 1 'not UTF-8' train latin.txt -o kept.gguf --force
complains 1 'kept.gguf: ' eval -m kept.gguf --per-token kept.gguf test.txt
ensure "a failure leaves the old model alone" cmp model.gguf kept.gguf
cp test.txt kept.txt
complains 1 'kept.txt: ' eval -m model.gguf --per-token kept.txt kept.txt
complains 1 'kept.txt: ' train kept.txt -o kept.txt
complains 1 'kept.txt: ' train train.txt --valid kept.txt -o kept.txt
complains 1 'kept.txt: ' train kept.txt -o new.gguf --log kept.txt
ensure "no text is written over" cmp test.txt kept.txt
"$knnlm" eval -m model.gguf test.txt >/dev/full 2>err
ensure "a full device is a failure" test $? -eq 1
ensure "a full device is told" test "$(wc -l <err)" -eq 1
"$knnlm" eval -m model.gguf test.txt >&- 2>err
ensure "a closed standard output is a failure" test $? -eq 1
"$knnlm" eval -m model.gguf - <&- >out 2>err
ensure "a closed standard input is a failure" test $? -eq 1

# ---- stopping and going on

train whole.gguf --steps 200
: >part.csv
# shellcheck disable=SC2086 # a list of options
"$knnlm" train train.txt --valid valid.txt -o part.gguf $shape --steps 200 --report-every 1 --log part.csv >out 2>err &
child=$!
waited=0
while [ "$(wc -l <part.csv)" -lt 4 ] && [ $waited -lt 1200 ]; do
    sleep 0.02
    waited=$((waited + 1))
done
kill -INT $child
wait $child
ensure "Ctrl-C is a failure" test $? -eq 1
ensure "Ctrl-C tells how to go on" grep -q '^knnlm train: .*--resume' err
ensure "Ctrl-C leaves a checkpoint" test -s part.gguf.checkpoint
ensure "Ctrl-C came before the end" sh -c '! grep -q ^200, part.csv'
train part.gguf --steps 200 --resume --log part.csv
ensure "a run that went on ends as one that never stopped" cmp whole.gguf part.gguf
ensure "the log goes on where it stopped" test "$(grep -c '^200,' part.csv)" -eq 1
# shellcheck disable=SC2086 # a list of options
complains 1 'another seed' train train.txt -o part.gguf $shape --steps 300 --resume --seed 9
# shellcheck disable=SC2086 # a list of options
complains 1 'another text' train test.txt -o part.gguf $shape --steps 300 --resume
complains 1 'never.gguf.checkpoint: ' train train.txt -o never.gguf --resume

# Every optimiser goes on from what its checkpoint holds.
for optimizer in adamw nesterov muon; do
    # shellcheck disable=SC2086 # a list of options
    set -- train train.txt $shape --optimizer $optimizer --schedule constant --warmup 1 --rate 0.01 --dropout 0.1
    run 0 "$@" -o "$optimizer-whole.gguf" --steps 6
    run 0 "$@" -o "$optimizer.gguf" --steps 3
    run 0 "$@" -o "$optimizer.gguf" --steps 6 --resume
    ensure "$optimizer goes on bit for bit" cmp "$optimizer-whole.gguf" "$optimizer.gguf"
done
# shellcheck disable=SC2086 # a list of options
complains 1 'made with nesterov' train train.txt -o nesterov.gguf $shape --steps 9 --resume
# shellcheck disable=SC2086 # a list of options
complains 1 'made with adamw or muon' train train.txt -o muon.gguf $shape --steps 9 --resume --optimizer nesterov

# ---- a disk that fills up

mkdir disk
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=64k none disk 2>/dev/null; then
    mounted=$work/disk
    # shellcheck disable=SC2086 # a list of options
    complains 1 'disk/model.gguf: ' train train.txt -o disk/model.gguf $shape --steps 2
    complains 1 'disk/rows.tsv: ' eval -m model.gguf --per-token disk/rows.tsv train.txt
    ensure "a full disk keeps nothing half-written" test -z "$(ls -A disk)"
    umount disk && mounted=
else
    echo "skipped: a disk that fills up (needs root, to mount a small one)"
fi

conclude
