#!/bin/sh
# The command line at its edges, with tiny inputs:  sh tests/test_cli_edges.sh PATH_TO_knnlm SOURCE_DIR
# Every check prints a line when it fails; the exit code is 1 when one did.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
plan=' updates of '

refuses() { # PATTERN ARGUMENT...
    pattern=$1
    shift
    complains 1 "$pattern" "$@"
}

awk 'BEGIN { for (i = 0; i < 300; i++) printf "the %s sees %s%s", i % 3 ? "cat" : "dog", i * i % 7, i % 5 == 4 ? "\n" : " " }' >text
head -n 3 text >valid
printf 'the' >one
printf '\n \n' >blank
: >empty
train="train text -t 1 --preset tiny --width 16 --layers 1 --heads 2 --ffn 16 --context 16 --batch 48 --vocab 270"
# shellcheck disable=SC2086 # a list of options
train() { run "$1" $train $2; }
# shellcheck disable=SC2086 # a list of options
train_refuses() { refuses "$1" $train $2; }

# ---- what is short: a text of one token, a validation text below a window, a batch that is no multiple

train 0 '-o a.gguf --valid valid --steps 4 --valid-every 2'
train 0 '-o short.gguf --valid one --steps 2'
says 'best validation perplexity'
train 0 '-o odd.gguf --steps 2 --batch 50 --micro 33'
says '2 updates of 64 tokens'
train 0 '-o vocab.gguf --steps 1 --tokenizer word --vocab 3 --json'
run 0 eval -m vocab.gguf text
run 1 train one -o no.gguf --context 16
says 'a window of 16 needs 17'
run 0 train one -o one.gguf --preset tiny --width 8 --heads 1 --layers 1 --ffn 8 --context 4 --length 1 --batch 2 --epochs 1
train_refuses 'validation text is empty' '-o no.gguf --valid empty --steps 1'
run 0 eval -m a.gguf one
says '^tokens  *1$'
run 0 eval -m a.gguf one --score 16 --context 0
run 0 eval -m a.gguf blank
says 'perplexity  *[0-9.]* per token; '
run 0 eval -m a.gguf blank --json
says '"ppl_word": null'
refuses 'empty: no text' eval -m a.gguf empty

# ---- going on: a run that is over, more steps, another rate; never another model

train 0 '-o a.gguf --valid valid --steps 4 --resume --log none.csv'
says ' 4 updates in 0s.*best validation perplexity [0-9]'
check test ! -s none.csv
train 0 '-o a.gguf --valid valid --steps 4 --resume --json'
says '"steps": 4, .*"loss": null'
train 0 '-o a.gguf --valid valid --steps 6 --resume --rate .0001'
says ' 6 updates in'
train_refuses 'a.gguf.checkpoint: made with --heads 2, not 4' '-o a.gguf --steps 9 --resume --heads 4'
train_refuses 'a.gguf.checkpoint: made with --layers 1, not 2' '-o a.gguf --steps 9 --resume --layers 2'
train_refuses 'a.gguf.checkpoint: made with another --activation' '-o a.gguf --steps 9 --resume --activation relu'
train_refuses 'a.gguf.checkpoint: made with another --positions' '-o a.gguf --steps 9 --resume --positions learned'
train_refuses 'a.gguf.checkpoint: made with another batch' '-o a.gguf --steps 9 --resume --batch 96'

# ---- results that could not be kept are refused before the work: no plan is printed then

early() { check test "$(grep -c ' updates of ' err)" -eq 0; }
train_refuses 'none/a.gguf: cannot create: No such file' '-o none/a.gguf --steps 1' && early
train_refuses '\.: cannot create: Is a directory' '-o . --steps 1' && early
train_refuses '/dev/null: cannot create: not a regular file' '-o /dev/null --steps 1' && early
check test -c /dev/null
cp text text.copy
train_refuses 'text: is read as text' '-o text --steps 1' && early
train_refuses 'text: is read as text' '-o b.gguf --log text --steps 1' && early
ln text link
train_refuses 'link: is read as text' '-o link --steps 1' && early
cmp -s text text.copy || failed "the text was overwritten"
refuses '/dev/stdout: cannot create' eval -m a.gguf one --per-token /dev/stdout
refuses 'a.gguf: is read as a.gguf' eval -m a.gguf one --per-token a.gguf

# ---- names that are not UTF-8, numbers that leave, interruption while the speed is measured

name=$(printf 'n\377.gguf')
cp a.gguf "$name"
run 0 info --json "$name"
says '"model": null'
train_refuses 'no longer a number at step' '-o wild.gguf --optimizer nesterov --rate 1e6 --warmup 0 --clip 0 --steps 50'
# shellcheck disable=SC2086 # a list of options
timeout -s INT 2 "$knnlm" $train -o slow.gguf --minutes 9 >out 2>err
last='train --minutes, interrupted'
says 'stopped before the training began'
check test ! -e slow.gguf

left=$(find . -name '*.tmp')
[ -z "$left" ] || failed "temporary files are left: $left"
conclude
