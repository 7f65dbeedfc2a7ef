#!/bin/sh
# A model of ours in llama.cpp: every token's log-probability, and the tokens themselves, are the same there. Through our
# engine on llama.cpp they are the same as llama.cpp's own, on models of others too.
# usage: test_llama.sh KNNLM SOURCE_FOLDER [data]; exit code 77: llama.cpp cannot be had here. With "data", a real model of
# the data folder (docs/data.md) instead, and 77 without it.
# shellcheck disable=SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
set -e
part=${3-}
stories=$data/models/stories15M-f16.gguf
llama=$source/third_party/llama

fail() {
    echo "$script: $*" >&2
    exit 1
}

[ "$part" != data ] || [ -r "$stories" ] || skip "no $stories"
reason=$("$source/scripts/get-llama" 2>&1) || skip "$reason"
command -v "${CC:-cc}" >/dev/null || skip "no C compiler"

"${CC:-cc}" -std=c17 -O1 -Wall -Wextra -Werror -I"$llama/include" "$source/tests/llama_logprobs.c" -o "$work/judge" \
    -L"$llama/lib" -lllama -lggml -lggml-base -lm
libraries=${KNNLM_LLAMA:-$llama/lib} # the same for both
ask() { # MODEL score|tokenize FILE
    LD_LIBRARY_PATH="$libraries" "$work/judge" "$libraries" "$@"
}

# Our own comments are the corpus; the text that is scored has what tokenizers stumble over.
cat "$source"/src/*/*.h >"$work/corpus.txt"
{
    head -c 3000 "$source/src/lm/lm.h"
    printf "It's we'll they'VE I'm he'd  two spaces   three\tand a tab\r\nDOS line\n\n\n   indented 12345 3.14 1,000\n"
    printf 'caf\303\251 na\303\257ve \316\261\316\262\316\263 \320\274\320\270\321\200 \344\275\240\345\245\275 \360\237\230\200 e\314\201 \302\240nbsp \302\2735\302\253 \330\271\n'
    printf 'x=y+z;/*c*/ ___ ...!?<|endoftext|><unk> #$%%^&*()~`"\\ \342\200\234quoted\342\200\235 \342\200\224 end   '
} >"$work/text.txt"

# FILE: a column of a per-token table, by its name.
column() {
    awk -F '\t' -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } { print $c }' "$1"
}

# The windows that eval reads: SCORE targets at a time, CONTEXT tokens and no more before the first of them. The start
# token stands before the document.
windows() { # SCORE CONTEXT <tokens
    awk -v score="$1" -v context="$2" '
        { t[NR] = $1 }
        END {
            t[0] = "start"
            for (first = 0; first < NR; first += score) {
                from = first > context ? first - context : 0
                end = first + score < NR ? first + score : NR
                line = first - from
                for (i = from; i <= end; i++) line = line " " t[i]
                print line
            }
        }'
}

# Largest difference of two columns of numbers; "differ in length" when they do.
difference() {
    paste "$1" "$2" | awk 'NF != 2 { bad = 1 } { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d }
        END { print bad ? "differ in length" : most + 0 }'
}

compare() { # NAME ENGINE SCORE CONTEXT TOLERANCE
    name=$1 engine=$2
    shift 2
    "$knnlm" eval -t 1 -m "$work/$name.gguf" --engine "$engine" --precision f32 --score "$1" --context "$2" \
        --per-token "$work/rows.tsv" "$work/text.txt" >/dev/null
    column "$work/rows.tsv" token >"$work/tokens"
    column "$work/rows.tsv" logprob >"$work/ours"
    ask "$work/$name.gguf" tokenize "$work/text.txt" >"$work/their_tokens"
    cmp "$work/tokens" "$work/their_tokens" || fail "$name: llama.cpp tokenizes otherwise"
    windows "$1" "$2" <"$work/tokens" >"$work/windows"
    ask "$work/$name.gguf" score "$work/windows" >"$work/theirs"
    worst=$(difference "$work/ours" "$work/theirs")
    echo "$name, $engine: $(wc -l <"$work/ours") tokens, $1 after $2: log-probabilities differ by $worst at most ($3 allowed)"
    awk -v worst="$worst" -v most="$3" 'BEGIN { exit !(worst + 0 == worst && worst <= most) }' ||
        fail "$name: log-probabilities differ: $worst"
}

train() { # NAME TYPE OPTION...
    name=$1 type=$2
    shift 2
    "$knnlm" train "$work/corpus.txt" -o "$work/$name.gguf" --preset gpt2-tiny --vocab 600 --type "$type" --steps 80 \
        --batch 512 --rate 0.005 --precision f32 --save-seconds 0 --seed 3 "$@" >/dev/null 2>"$work/train.log" ||
        fail "train: $(tail -n 1 "$work/train.log")"
}

# A model that has learnt nothing would agree too easily.
learnt() {
    column "$work/rows.tsv" logprob | awk '{ sum += $1 } END { exit !(sum / NR > -log(600) + 0.5) }' ||
        fail "the model has learnt nothing"
}

case $("$knnlm" --version) in
*"llama.cpp: not in this build"*) has_engine=no ;;
*) has_engine=yes ;;
esac
if [ "$part" = data ]; then
    [ $has_engine = yes ] || skip "knnlm was built without llama.cpp"
    cp "$stories" "$work/stories.gguf"
    compare stories llama 128 128 2e-5
    exit
fi

# llama.cpp looks GELU up in a table of f16; with weights of f16 it rounds what meets them, too.
train full f32
compare full native 64 64 2e-3
learnt
compare full native 37 91 2e-3
train half f16
compare half native 64 64 2e-2

# Llama's and Qwen3's shapes, ours: the sliding window is as wide as the windows that are read.
set -- --positions rotary --norm rms --no-bias --activation swiglu --window 128
train swiglu f32 "$@"
"$knnlm" info "$work/swiglu.gguf" | grep -q 'llama (native engine' || fail "swiglu: not a native llama"
compare swiglu native 64 64 1e-3
learnt
train normed f32 "$@" --qk-norm
"$knnlm" info "$work/normed.gguf" | grep -q 'qwen3 (native engine' || fail "normed: not a native qwen3"
compare normed native 37 91 1e-3
learnt

[ $has_engine = yes ] || exit 0
# What is left is the rounding of the softmax, which we sum otherwise, in f32: of 600 terms 75 in each of 8 lanes, so that the
# sum is off by 75 half units in the last place (75 * 2^-24 of it, 4.5e-6 in its logarithm), and two numbers below 32 are
# rounded (2 * 2^-20, 1.9e-6): 6.4e-6.
compare full llama 64 64 6.4e-6
compare full llama 37 91 6.4e-6
compare half llama 64 64 6.4e-6
compare swiglu llama 64 64 6.4e-6
compare normed llama 64 64 6.4e-6
cp "$source/tests/golden/llama.model.gguf" "$work/llama.gguf"
compare llama llama 32 32 2e-5 # its log-probabilities go down to -40
cp "$source/tests/golden/parallel.model.gguf" "$work/parallel.gguf"
compare parallel llama 16 16 6.4e-6
