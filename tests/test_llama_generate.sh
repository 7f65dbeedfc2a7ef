#!/bin/sh
# Generation through llama.cpp:  sh tests/test_llama_generate.sh PATH_TO_knnlm SOURCE_DIR
# Greedy words are explain's first; both engines write the same; texts of stores come back word for word. Every check prints
# a line when it fails; the exit code is 1 when one did, 77 where there is no llama.cpp.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/llama_kit.sh"
needs_python "to read JSON with"

member() { # EXPRESSION over r, the object in FILE
    $python -c 'import json, sys; r = json.load(open(sys.argv[2])); print(eval(sys.argv[1]), end="")' "$1" "$2"
}

cp "$golden/llama.model.gguf" llama.gguf   # a Llama with SentencePiece, which puts a space before the text
cp "$golden/shared.model.gguf" shared.gguf # a GPT-2, which both engines run
printf 'the cat sat on that hat and he was not at it.\n' >text.txt

# ---- greedy words, one context after another

for model in llama shared; do
    run 0 build -m $model.gguf -o $model.store --keys f32 --engine llama text.txt
    with="-m $model.gguf --engine llama --precision f32 -s $model.store --temperature 5 --lambda 0.4"
    # shellcheck disable=SC2086 # options are words
    {
        run 0 generate $with -p 'the dog' -n 8 --temp 0 --no-fallback --ignore-end --json
        cp out made.json
        i=0
        while [ $i -lt 8 ]; do
            context=$(member 'r["prompt"] + "".join(t["text"] for t in r["tokens"]['"0:$i"'])' made.json)
            case $context in *$(printf '\357\277\275')*) break ;; esac # what is no character cannot be asked for
            run 0 explain $with "$context" --words 1 --show 0 --json
            check test "$(member 'r["words"][0]["token"]' out)" = "$(member 'r["tokens"]['$i']["token"]' made.json)"
            i=$((i + 1))
        done
    }
done

# ---- both engines

for engine in native llama; do
    run 0 generate -m shared.gguf --engine $engine --precision f32 -p 'the cat' -n 100 --seed 4 --ignore-end
    mv out $engine.txt
done
check cmp native.txt llama.txt

# ---- a text that is remembered: spaces are where they were

sure='--lambda 1 --temperature 0.001 --no-fallback --temp 0 --precision f32 --sources'
# shellcheck disable=SC2086 # options are words
{
    does generate -m llama.gguf -s llama.store $sure -p 'the cat' -n 12 --stop ' at'
    says '^the cat \[sat on that hat and he was not\]\[1\]$'
    does generate -m llama.gguf -s llama.store $sure -p '' -n 4 --json
    check test "$(member 'r["text"]' out)" = 'the cat sat'
    check test "$(member 'r["sources"][0]["text"].strip()' out)" = 'the cat sat'
}
run 1 generate -m llama.gguf -p the --engine native
conclude
