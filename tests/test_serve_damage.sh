#!/bin/sh
# What is damaged says so, in every command and in the server: models whose numbers are none, files that are cut short while
# they are read, names that speak to the terminal.   sh tests/test_serve_damage.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

complains() { # PATTERN ARGUMENT...: exit code 1, one line (beside the plan) on stderr that says so, nothing on stdout
    pattern=$1
    shift
    run 1 "$@"
    check test "$(grep -vc '^knnlm [a-z]*: \(about\|an unknown number\|[0-9.]*[KM]* tokens,\|only [0-9]* tokens:\) ' err)" -eq 1
    check grep -q "^knnlm $1: .*$pattern" err
    [ "$1" = generate ] || check test ! -s out # the prompt comes first
}
edit() { $python "$source/tests/gguf_edit.py" "$@"; }

run 0 build -m "$tiny" --precision f32 -o told.store told.txt

# ---- a model whose numbers are none

for tensor in blk.0.ffn_up.weight output_norm.bias token_embd.weight position_embd.weight; do
    edit "$tiny" nan.gguf @$tensor=nan
    complains "tensor \"$tensor\" has a value that is not finite" eval -m nan.gguf asked.txt
done
cp -R told.store kept.store
for tensor in blk.1.ffn_norm.weight output_norm.weight; do # of numbers that are, others are computed that are not
    edit "$tiny" huge.gguf @$tensor=huge
    for command in 'eval asked.txt' 'eval -s told.store asked.txt' 'tune -s told.store asked.txt' 'build -o new.store told.txt' \
        'explain -s told.store The' 'generate -s told.store -p The' 'eval -s told.store --per-token rows.tsv asked.txt'; do
        # shellcheck disable=SC2086 # words
        set -- $command
        verb=$1
        shift
        accept=--accept-model
        [ "$verb" = build ] && [ "$tensor" = output_norm.weight ] && continue # keys are taken before it
        [ "$verb" = build ] && accept=
        # shellcheck disable=SC2086
        complains 'not finite' "$verb" -m huge.gguf $accept "$@"
        rm -rf new.store
    done
    check test ! -e rows.tsv
    check diff -r kept.store told.store # nothing was tuned
    start -m huge.gguf --accept-model -s told.store
    expect 500 POST /v1/score '{"text": "The nearest"}'
    holds '"not finite" in r["error"]["message"]'
    expect 500 POST /v1/explain '{"context": "The nearest"}'
    expect 500 POST /v1/completions '{"prompt": "The nearest", "max_tokens": 3}'
    expect 500 POST /v1/completions '{"prompt": "The nearest", "max_tokens": 0, "echo": true, "logprobs": 1}'
    expect 200 GET /v1/stores
    stop
done

# ---- a configuration that is not the file's

edit "$tiny" short.gguf gpt2.block_count=1
complains 'short.gguf: has a tensor "blk.1.*block_count is 1' eval -m short.gguf asked.txt

# ---- names that speak to the terminal

bell=$(printf 'x\033]0;title\007\033[2Jy\302\2331m')
cp told.txt "$bell.txt"
run 0 build -m "$tiny" --precision f32 -o bell.store "$bell.txt"
start -m "$tiny" --precision f32 -s bell.store
expect 201 POST /v1/stores/bell/documents '{"name": "\u001b[31mred\u0007\u009b1m", "text": "A text of another kind."}'
stop
quiet() { # no control character but the line's end
    check not grep -q "$(printf '[\001-\011\013-\037\177]')" out
    check not grep -q "$(printf '[\001-\011\013-\037\177]')" err
    check not grep -q "$(printf '\302[\200-\237]')" out
}
for command in 'info bell.store' 'info --documents bell.store' 'info --entry 3 bell.store' 'remove --dry-run bell.store *' \
    "explain -m $tiny --precision f32 -s bell.store --show 50 The" "explain -m $tiny --precision f32 -s bell.store --text $bell.txt"; do
    set -f
    # shellcheck disable=SC2086
    run 0 $command
    set +f
    quiet
done
check grep -q 'x.x1b]0;title' out
complains 'no document is called' remove bell.store "$bell"
quiet
cp -R bell.store broken.store
printf '\377\377' | dd of=broken.store/000001.text bs=1 seek=70 conv=notrunc 2>/dev/null
run 1 verify broken.store
quiet
check grep -q '^lost .*x.x1b' out

# ---- a file that is cut short while it is served

for part in keys text; do
    cp -R told.store cut.store
    : >serve.err
    start -m "$tiny" --precision f32 -s cut.store
    expect 200 POST /v1/score '{"text": "The nearest"}'
    : >cut.store/000001.$part
    ask POST /v1/explain '{"context": "The nearest neighbours of a context", "neighbors": 5}'
    ends 1 30
    check test "$(grep -c "^knnlm serve: .*cut.store/000001.$part: was cut short" serve.err)" -eq 1
    complains "cut.store/000001.$part: has 0 bytes" eval -m "$tiny" -s cut.store asked.txt
    rm -rf cut.store
done
conclude
