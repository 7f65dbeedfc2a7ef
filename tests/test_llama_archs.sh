#!/bin/sh
# Architectures that run through llama.cpp, each as a tiny model:
#   sh tests/test_llama_archs.sh PATH_TO_knnlm SOURCE_DIR [ARCHITECTURE...]
# tests/golden/make_archs.py makes the models and says what they are. Of each: info, eval and explain work; a tap is there
# and is what it is called, or is refused with the list of those that are there; neither other documents nor threads
# change a byte. Every check prints a line when it fails; the exit code is 1 when one did, 77 where there is no llama.cpp
# or no NumPy.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
export PYTHONDONTWRITEBYTECODE=1
# shellcheck source=/dev/null
. "$2/tests/llama_kit.sh"
shift 2
needs_python "which makes the models" numpy

# ---- models and texts

mkdir models
"$python" "$golden/make_archs.py" models "$@" || { echo "FAILED: cannot make the models" && exit 1; }
write_text() { # SEED WORDS
    awk -v seed="$1" -v words="$2" 'BEGIN {
        srand(seed)
        n = split("the cat was in a hat and he sat on that dog of it is not to be at 12", word, " ")
        for (i = 1; i <= words; i++) printf "%s%s", word[int(rand() * n) + 1], i % 9 ? " " : ".\n"
    }'
}
write_text 1 70 >long.txt # several windows of each model's 64 tokens
write_text 2 23 >middle.txt
write_text 3 21 >near.txt # side by side with it
write_text 4 3 >short.txt
# A window of 64 tokens scores its second half: of 97 tokens, the last is alone in its window, of 98 there are two. The
# space that SentencePiece puts before a text may be one more.
for count in 96 97 98; do
    awk -v count=$count 'BEGIN { while (count--) printf "%s", count % 5 ? "x" : "q" }' >row$count.txt
done

# The taps of each, by the names in llama.cpp's src/models: one that gives no tensor the name ffn_inp has no ffn-raw (the
# Gemma calls it sa_out, the Phi nothing; in the GPT-NeoX there is none), a Mamba has no feed-forward part.
some='attention attention-raw output-norm output'
taps_of() { # ARCHITECTURE
    case $1 in
    qwen2 | qwen2moe | mellum | jamba | falcon-h1 | gemma3 | phi3 | gptneox) echo "ffn ffn-raw $some" ;;
    mamba) echo "$some" ;;
    *) failed "a model of architecture $1, which nobody expects" ;;
    esac
}

# ---- taps

# taps MODEL: every one of the first layer and the last, and what the first gives to the second. Those that are there agree
# with each other and with what the model answers.
taps() {
    model=$1
    mkdir taps
    there=$(taps_of "$model")
    list=$(echo "$there" | sed 's/ /, /g')
    for layer in 0 1 -1; do
        name=${layer#-}
        [ $layer -ge 0 ] || name=2
        for tap in ffn ffn-raw attention attention-raw output-norm output; do
            case $layer,$tap in 1,ffn* | 1,output*) continue ;; esac
            set -- -m "models/$model.gguf" --tap "$tap@$layer" --keys f32 --no-index -o tap.store long.txt
            case " $there " in
            *" $tap "*)
                does build "$@"
                run 0 export tap.store -o "taps/$tap@$name"
                ;;
            *)
                run 1 build "$@"
                check test ! -s out
                check test "$(noise | wc -l)" -eq 1
                check grep -q "^knnlm build: .*/$model.gguf: .*\"$model\" has no tap \"$tap\" .* it has $list\$" err
                check test ! -e tap.store
                ;;
            esac
            rm -rf tap.store
        done
    done
    run 0 eval -m "models/$model.gguf" long.txt --per-token rows
    does build -m "models/$model.gguf" --tap output-norm --min-context 0 --keys f32 --no-index -o tap.store long.txt
    run 0 export tap.store -o whole
    run 0 eval -m "models/$model.gguf" --score 64 --context 0 long.txt --per-token whole.rows
    checks=$((checks + 1))
    "$python" "$golden/make_archs.py" --check "$model" taps rows whole >said 2>&1 || failed "$(cat said)"
    rm -rf taps tap.store whole
}

# ---- what must not matter

# rows_of FILE: the log-probabilities of a document in `rows`.
rows_of() {
    grep "^$1	" rows
}
# states MODEL OPTION... TEXT...: into `states`, those of the layers' outputs; into `rows`, what is said of each token.
states() {
    model=$1
    shift
    rm -rf some.store arrays
    run 0 build -m "models/$model.gguf" --tap output --keys f32 --no-index -o some.store "$@"
    run 0 export some.store -o arrays
    tail -c +129 arrays/keys.npy >states
    run 0 eval -m "models/$model.gguf" "$@" --per-token rows
}
# company MODEL: a document is read as if it were alone.
company() {
    model=$1
    documents='long.txt middle.txt near.txt short.txt row96.txt row97.txt row98.txt'
    : >one.states
    for document in $documents; do
        states "$model" "$document"
        cat states >>one.states
        mv states "$document.states"
        cp rows "$document.all"
        rows_of "$document" >"$document.rows"
        check test -s "$document.rows"
    done
    # shellcheck disable=SC2086 # words
    states "$model" $documents
    check cmp states one.states
    for document in $documents; do
        rows_of "$document" >together
        check cmp together "$document.rows"
    done
}
threads() { # MODEL: after company
    states "$1" -t 2 near.txt # little: ggml's threads wait by spinning, on a busy machine for long
    check cmp states near.txt.states
    check cmp rows near.txt.all
}

# ---- each

for file in models/*.gguf; do
    arch=$(basename "$file" .gguf)
    check test "$(wc -c <"$file")" -lt 100000
    does info "$file"
    says "^architecture  *$arch (llama engine"
    says '^shape  *3 layers, width 16, '
    does eval -m "$file" long.txt --json
    usual=$(number ppl)
    does eval -m "$file" --precision f32 long.txt --json
    within 1 "$(number ppl)" "$usual"
    taps "$arch"
    company "$arch"
    threads "$arch"
    for layer in 0 -1; do
        does build -m "$file" --tap attention@$layer -o it.store long.txt middle.txt
        does eval -m "$file" -s it.store near.txt
        says '^with neighbours  *[0-9.]* per token'
        does explain -m "$file" -s it.store 'the cat was in a hat and'
        says '^context  *[0-9]* tokens'
        does explain -m "$file" -s it.store the # one token
        does explain -m "$file" -s it.store --text short.txt --best 1 --worst 1
        rm -rf it.store
    done
done

# The window of those that have one is a window: a longer one gives other answers.
for arch in gemma3 mellum; do
    [ -e models/$arch.gguf ] || continue
    "$python" "$source/tests/gguf_edit.py" models/$arch.gguf wide.gguf "$arch.attention.sliding_window=64" ||
        failed "cannot make wide.gguf"
    run 0 eval -m models/$arch.gguf long.txt --json
    narrow=$(number ppl)
    run 0 eval -m wide.gguf long.txt --json
    check test "$(number ppl)" != "$narrow"
done

conclude
