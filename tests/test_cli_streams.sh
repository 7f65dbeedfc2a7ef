#!/bin/sh
# Standard input and output in place of files, models that stores remember, terminals:
#   sh tests/test_cli_streams.sh PATH_TO_knnlm SOURCE_DIR
# Every check prints a line when it fails; the exit code is 1 when one did.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
unset NO_COLOR
cp "$source/models/small.gguf" model.gguf
printf 'The nearest neighbours of a context have their say. The context of a word is what stands before it, and the nearest
neighbours of the context are those that the model finds most like it.\n' >told.txt
printf 'The nearest neighbours of the context of a word have their say.\n' >asked.txt
run 0 build -m model.gguf -o told.store told.txt

# ---- - is standard output

run 0 eval -m model.gguf --per-token rows.tsv asked.txt
cp out figures
run 0 eval -m model.gguf --per-token - asked.txt
ensure 'rows on standard output are those of a file' cmp out rows.tsv
ensure 'the figures are on standard error' test "$(grep '^perplexity' err)" = "$(grep '^perplexity' figures)"
run 0 eval -m model.gguf --per-token - --json asked.txt
ensure 'JSON is there too' grep -q '"ppl": ' err
input=asked.txt
run 0 eval -m model.gguf --per-token - -
ensure 'from standard input to standard output' test "$(wc -l <out)" -eq "$(wc -l <rows.tsv)"
input=/dev/null
run 0 eval -s told.store --report - asked.txt
ensure 'a report on standard output' grep -qi '^<!doctype html>' out
complains 1 'two files' eval -s told.store --report - --per-token - asked.txt
run 0 verify told.store --recall --queries 5 -k 10 --plot -
ensure 'a plot on standard output' grep -q '^<svg' out
ensure 'its table on standard error' grep -q '^probes' err
run 0 index told.store --lists 4 --codes pq4
run 0 export told.store --faiss index.faiss
run 0 export told.store --faiss -
ensure 'a FAISS index on standard output' cmp out index.faiss
"$knnlm" eval -m model.gguf --per-token - asked.txt 2>err >/dev/full
ensure 'a full device is a failure' test $? -eq 1
ensure 'no file is called -' test ! -e ./-
complains 2 'directory' build -m model.gguf -o - told.txt
complains 2 'directory' export told.store -o -
complains 2 'directory' import keys.npy values.npy -o -
complains 2 'a model is a file' train told.txt -o -
run 0 train told.txt -o tiny.gguf --preset gpt2-tiny --vocab 300 --batch 64 --length 32 --steps 2 --log -
ensure 'a log on standard output' grep -q '^2,' out
ensure 'its result on standard error' grep -q '^tiny.gguf: ' err

# ---- - is standard input

run 0 explain -s told.store --json 'The nearest'
cp out given
printf 'The nearest\n' >in
input=in
run 0 explain -s told.store --json -
ensure 'a context on standard input' cmp out given
input=asked.txt
run 0 explain -s told.store --text -
says '^== where neighbours helped most'
# Tuning reads its text twice.
run 0 tune -s told.store --dry-run asked.txt
grep -v '^time' out >given
run 0 tune -s told.store --dry-run -
grep -v '^time' out >again
ensure 'a text to tune on from standard input' cmp again given
input=/dev/null
# A pipe, as a shell's <(command) is: can be read only once too.
mkfifo texts
cat asked.txt >texts &
run 0 tune -s told.store --dry-run texts
grep -v '^time' out >again
ensure 'a text to tune on from a pipe' cmp again given
cat told.txt >texts &
run 0 build -m model.gguf -o piped.store texts
ensure 'a pipe is remembered' test "$("$knnlm" info piped.store | grep '^entries')" = "$("$knnlm" info told.store | grep '^entries')"
rm texts

# ---- Ctrl-C while it is waited for

for command in 'generate -m model.gguf' 'generate -s told.store -p -' 'explain -s told.store -' 'eval -m model.gguf -' \
    'tune -s told.store -' \
    'build -m model.gguf -o new.store -'; do
    mkfifo pipe
    exec 3<>pipe
    last="knnlm $command, interrupted"
    # shellcheck disable=SC2086 # words
    "$knnlm" $command <pipe >out 2>err &
    child=$!
    sleep 1.5
    kill -INT $child
    waited=0
    while kill -0 $child 2>/dev/null && [ $waited -lt 30 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    ensure 'it ends at once' test $waited -lt 30
    kill -9 $child 2>/dev/null
    wait $child
    ensure 'with status 1' test $? -eq 1
    child=
    ensure 'and a line' test "$(grep -vc 'an unknown number of entries' err)" -eq 1
    says "^knnlm ${command%% *}: .*\\(interrupted while waiting\\|stopped while reading\\)"
    exec 3>&-
    rm -f pipe
done

# ---- the model that a store remembers

for command in 'eval asked.txt' 'explain The' 'generate -p The -n 2 --temp 0' 'tune --dry-run asked.txt'; do
    # shellcheck disable=SC2086 # words
    {
        run 0 $command -s told.store
        grep -v '^time' out >without
        run 0 $command -s told.store -m model.gguf
        grep -v '^time' out >with
    }
    ensure "$command finds the model" cmp with without
done
mv model.gguf moved.gguf
for command in 'eval asked.txt' 'explain The' 'generate -p The' 'tune asked.txt' serve 'add told.store told.txt'; do
    # shellcheck disable=SC2086 # words
    complains 1 'told.store: its model (.*model.gguf) is not there any more: name it with -m' $command -s told.store
done
run 0 eval -s told.store -m moved.gguf asked.txt
cp "$source/tests/golden/gpt2.model.gguf" model.gguf
complains 1 'told.store: was made by model .*: name that one (-m)' eval -s told.store asked.txt
rm model.gguf

# ---- terminals: no escape codes where they mean nothing

if command -v script >/dev/null 2>&1; then
    shown() { # ENVIRONMENT...: generation with a source, and a bar, on a terminal
        last="on a terminal with $*"
        env "$@" script -qec "'$knnlm' generate -m moved.gguf -s told.store --lambda 1 --temperature .01 --no-fallback --temp 0 \
            --sources -p 'The nearest' -n 5; '$knnlm' train told.txt -o t.gguf --force --preset gpt2-tiny --vocab 300 --batch 64 \
            --length 32 --steps 30" /dev/null </dev/null >out 2>err
    }
    has_escapes() { grep -q "$(printf '\033')" out; }
    shown TERM=xterm
    ensure 'a terminal is written to as one' has_escapes
    says 'neighbours of a context'
    shown TERM=xterm NO_COLOR=1
    ensure 'NO_COLOR: no escape codes' not has_escapes
    says '\[neighbours of a context\]\[1\]'
    shown TERM=dumb
    ensure 'a dumb terminal: no escape codes' not has_escapes
    ensure 'a dumb terminal: nothing is drawn over' test "$(sed 's/\r$//' out | tr -cd '\r' | wc -c)" -eq 0
fi

conclude
