#!/bin/sh
# Training from another model, what it never overwrites, and Ctrl-C before the first update:
#   sh tests/test_cli_train.sh PATH_TO_knnlm SOURCE_DIR
# Every check prints a line when it fails; the exit code is 1 when one did.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"

refuses() { complains "$@"; }

awk 'BEGIN { for (i = 0; i < 900; i++) printf "the %s sees %s%s", i % 3 ? "cat" : "dog", i * i % 7, i % 5 == 4 ? "\n" : " " }' >text
awk 'BEGIN { for (i = 0; i < 900; i++) printf "a %s keeps %s%s", i % 4 ? "bird" : "fox", i * i % 5, i % 5 == 4 ? "\n" : " " }' >other
common='-t 1 --batch 48 --schedule constant --warmup 0'
# shellcheck disable=SC2086 # lists of options
{
    run 0 train text -o knnlm.gguf $common --preset tiny --width 16 --layers 1 --heads 2 --ffn 16 --context 16 --vocab 270 --length 12 --steps 4
    run 0 train text -o gpt2.gguf $common --preset gpt2-tiny --vocab 270 --length 24 --steps 4
    # A Llama, whose files have the scale of the embeddings folded in: the square root of 24 is no power of two.
    run 0 train text -o llama.gguf $common --preset tiny --width 24 --layers 1 --heads 2 --ffn 16 --context 16 --positions rotary \
        --norm rms --activation swiglu --no-bias --vocab 270 --length 12 --steps 4
}

# ---- the length of the windows is in the model, and is how it is read

window() { # MODEL WINDOW CONTEXT
    run 0 info --json "$1"
    check test "$(field window) $(field context)" = "$2 $3"
}
window knnlm.gguf 12 16
window gpt2.gguf 24 128
window "$source/models/small.gguf" 512 512 # made before the length was noted
run 0 eval -m knnlm.gguf --json text
usual=$(field ppl)
run 0 eval -m knnlm.gguf --json text --score 6 --context 6
check test "$(field ppl)" = "$usual"
run 0 eval -m knnlm.gguf --json text --score 8 --context 8
check test "$(field ppl)" != "$usual"

# ---- a model goes on from where it stands

for model in knnlm gpt2 llama; do
    # At a rate of 0 the model that comes out is the one that went in, to the last bit, tokenizer and all.
    # shellcheck disable=SC2086 # a list of options
    run 0 train other --from $model.gguf -o same.gguf $common --steps 1 --rate 0 --force
    check cmp -s $model.gguf same.gguf
    # shellcheck disable=SC2086 # a list of options
    run 0 train other --from $model.gguf -o $model-tuned.gguf $common --steps 40 --rate .003 --json
    says "\"from\": \"$model.gguf\""
    run 0 eval -m $model.gguf --json other
    before=$(field ppl)
    run 0 eval -m $model-tuned.gguf --json other
    check awk "BEGIN { exit !($(field ppl) < $before) }"
done
# shellcheck disable=SC2086 # a list of options
run 0 train other --from knnlm.gguf -o short.gguf $common --steps 1 --length 8
window short.gguf 8 16
run 0 info llama.gguf
says '^architecture  *llama (native'
# A checkpoint is a model, too.
for model in knnlm llama; do
    # shellcheck disable=SC2086 # a list of options
    run 0 train other --from $model.gguf.checkpoint -o from-checkpoint.gguf $common --steps 1 --rate 0 --force
    check cmp -s $model.gguf from-checkpoint.gguf
done

# ---- what contradicts the model

while read -r option value; do
    # shellcheck disable=SC2086 # flags have none
    refuses 2 "--$option: with --from" train text --from knnlm.gguf -o new.gguf "--$option" $value
done <<END
preset small
tokenizer bpe
tokenizer-file gpt2.gguf
vocab 16000
vocab-sample 100
width 16
layers 1
heads 2
ffn 16
context 16
positions sinusoidal
activation gelu
norm layer
window 0
no-bias
qk-norm
bands 10
END
refuses 2 '--length 17: the context of knnlm.gguf is 16' train text --from knnlm.gguf -o new.gguf --length 17
refuses 1 'nowhere.gguf: ' train text --from nowhere.gguf -o new.gguf
refuses 1 'parallel.model.gguf: architecture "falcon".*llama.cpp' train text --from "$source/tests/golden/parallel.model.gguf" -o new.gguf
refuses 1 'text: not a GGUF' train text --from text -o new.gguf
cp knnlm.gguf kept.gguf
refuses 1 'kept.gguf: is read as kept.gguf' train text --from kept.gguf -o kept.gguf --force
check cmp -s knnlm.gguf kept.gguf
for log in new.gguf new.gguf.checkpoint; do complains 2 "log $log: is written as $log" train text -o new.gguf --preset gpt2-tiny --vocab 270 --log $log; done
check test ! -e new.gguf

# ---- a run that began from a model goes on as that run

# shellcheck disable=SC2086 # a list of options
set -- train other $common --rate .003
run 0 "$@" --from knnlm.gguf -o whole.gguf --steps 6
run 0 "$@" --from knnlm.gguf -o part.gguf --steps 2
run 0 "$@" --from knnlm.gguf -o part.gguf --steps 4 --resume
run 0 "$@" -o part.gguf --steps 6 --resume
check cmp -s whole.gguf part.gguf
refuses 1 'part.gguf.checkpoint: the run began from another model than gpt2.gguf' "$@" --from gpt2.gguf -o part.gguf --steps 8 --resume
refuses 1 'part.gguf.checkpoint: the run began from a model, which decides --width' "$@" -o part.gguf --steps 8 --resume --width 16
refuses 1 'knnlm.gguf.checkpoint: the run began from no model: .* without --from' "$@" --from gpt2.gguf -o knnlm.gguf --steps 8 --resume
check cmp -s whole.gguf part.gguf

# The number of updates and those that warm it up are the run's own; more of them are not warmed up again.
again() { # OUTPUT OPTION...
    output=$1
    shift
    run 0 train other -t 1 --batch 48 --schedule constant --rate .003 -o "$output" "$@"
}
again long.gguf --from knnlm.gguf --steps 120 --warmup 5
again more.gguf --from knnlm.gguf --steps 100
again more.gguf --resume
says '100 updates'
again more.gguf --resume --steps 120
check cmp -s long.gguf more.gguf
# A best loss of one text is not held against that of another.
run 0 "$@" --from knnlm.gguf -o best.gguf --steps 2 --valid text
cp best.gguf before.gguf
run 0 "$@" -o best.gguf --steps 4 --valid other --resume --json
ensure "no model of the second text" not cmp -s before.gguf best.gguf

# ---- what is there already stays

cp part.gguf.checkpoint kept.checkpoint
refuses 1 'part.gguf.checkpoint: has another run: .*--resume.*--force' "$@" -o part.gguf --preset gpt2-tiny --vocab 270 --steps 1
cp part.gguf alone.gguf
refuses 1 'alone.gguf: exists: .*--force' "$@" -o alone.gguf --preset gpt2-tiny --vocab 270 --steps 1
rm part.gguf
refuses 1 'part.gguf.checkpoint: has another run' "$@" -o part.gguf --preset gpt2-tiny --vocab 270 --steps 1
check cmp -s whole.gguf alone.gguf
check cmp -s part.gguf.checkpoint kept.checkpoint
refuses 2 'one of --resume .* and --force' "$@" -o part.gguf --resume --force
for output in alone part; do
    run 0 "$@" -o $output.gguf --preset gpt2-tiny --vocab 270 --steps 1 --force
    run 0 info $output.gguf
    says ' gpt2 '
done
run 0 "$@" -o part.gguf --preset gpt2-tiny --vocab 270 --steps 2 --resume # the new run, not the old

# ---- Ctrl-C while a pipe is read that somebody check open: it cannot be past that

mkfifo pipe
exec 3<>pipe
# Open for reading alone: the shell that becomes knnlm still has our own descriptor, which is for both.
reads_pipe() { find "/proc/$1/fd" -lname "$work/pipe" -perm 0500 2>/dev/null | grep -q .; }
interrupted() { # SIGNAL ARGUMENT...
    signal=$1 waited=0
    shift
    "$knnlm" train "$@" -o stopped.gguf >out 2>err </dev/null 3>&- &
    child=$!
    last="train $*, stopped by $signal"
    while ! reads_pipe $child && kill -0 $child 2>/dev/null && [ $waited -lt 3000 ]; do
        sleep 0.02
        waited=$((waited + 1))
    done
    check reads_pipe $child
    cat text >&3
    kill "-$signal" $child
    wait $child
    check test $? -eq 1
    says '^knnlm train: pipe: stopped while reading'
    check test "$(wc -l <err)" -eq 1
    left=$(find . -name 'stopped*' -o -name '*.tmp')
    check test -z "$left"
}
interrupted INT pipe --vocab 270                            # text for a tokenizer
interrupted TERM pipe --from knnlm.gguf                     # text to be tokenized
interrupted INT text pipe --tokenizer-file knnlm.gguf       # the second of two
interrupted INT text --from knnlm.gguf --valid pipe         # for validation

exec 3>&-
conclude
