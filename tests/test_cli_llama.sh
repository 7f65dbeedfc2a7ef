#!/bin/sh
# Every command with models that run through llama.cpp:  sh tests/test_cli_llama.sh PATH_TO_knnlm SOURCE_DIR
# Both engines agree where both serve; what goes wrong is one line on stderr with exit code 1 (2: wrong usage), and leaves
# nothing behind. Every check prints a line when it fails; the exit code is 1 when one did, 77 where there is no llama.cpp.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/llama_kit.sh"
command -v python3 >/dev/null || skip "no python3, which makes damaged models"

# complains CODE PATTERN COMMAND ARGUMENT...: one line on stderr beside the plan, nothing on stdout, no store x.store.
complains() {
    code=$1 pattern=$2
    shift 2
    run "$code" "$@"
    check test ! -s out
    check test "$(noise | wc -l)" -eq 1
    checks=$((checks + 1))
    grep -q -e "^knnlm $1: .*$pattern" err || failed "does not complain of '$pattern'"
    checks=$((checks + 1))
    [ ! -e x.store ] || failed "leaves x.store: $(ls x.store)"
    rm -rf x.store
}
# refused PATTERN MODEL: no command takes the file.
refused() {
    complains 1 "$1" info "$2"
    complains 1 "$1" eval -m "$2" valid.txt
    complains 1 "$1" build -m "$2" -o x.store texts
}

edit() { # IN OUT CHANGE...
    python3 "$source/tests/gguf_edit.py" "$@" || failed "cannot make $2"
}

# ---- models and texts

cp "$golden/llama.model.gguf" llama.gguf       # a Llama with SentencePiece
cp "$golden/parallel.model.gguf" parallel.gguf # a Falcon
cp "$golden/shared.model.gguf" shared.gguf     # a GPT-2, which both engines run
cp "$golden/plain.model.gguf" plain.gguf       # native only
write_text() { # SEED WORDS
    awk -v seed="$1" -v words="$2" 'BEGIN {
        srand(seed)
        n = split("the cat was in a hat and he sat on that dog of it is not to be at 12", word, " ")
        for (i = 1; i <= words; i++) printf "%s%s", word[int(rand() * n) + 1], i % 9 ? " " : ".\n"
    }'
}
mkdir texts
write_text 1 300 >texts/a.txt
write_text 2 60 >texts/b.txt
write_text 3 60 >more.txt
write_text 4 90 >valid.txt
cat "$source/src/eval/foreign.txt" >corpus.txt # the same whatever becomes of the project
train() { # MODEL STEPS OPTION...
    model=$1 steps=$2
    shift 2
    run 0 train corpus.txt -o "$model" --preset gpt2-tiny --type f32 --steps "$steps" --batch 512 --rate 0.005 \
        --precision f32 --save-seconds 0 --seed 3 "$@"
}
train own.gguf 40 --vocab 600
train narrow.gguf 1 --tokenizer-file own.gguf --width 32

# ---- every command, with either engine

# commands MODEL ENGINE: the life of a store.
commands() {
    model=$1 engine=$2 store=$2.store
    rm -rf "$store" arrays imported.store
    set -- --engine "$engine"
    does info "$model" "$@"
    says "^architecture .* ($engine engine"
    does info "$model" "$@" --json
    says "\"engine\": \"$engine\""
    does eval -m "$model" "$@" valid.txt
    says '^perplexity  *[0-9.]* per token'
    does build -m "$model" "$@" -o "$store" --keys f32 texts
    does add "$store" "$@" more.txt
    says '^documents  *1 added'
    does add "$store" -m "$model" "$@" more.txt
    says '^documents  *0 added, 1 unchanged'
    does index "$store" "$@" --lists 4
    does verify "$store"
    says '^intact  *3 of 3 documents'
    does eval -m "$model" "$@" -s "$store" valid.txt --per-token rows.tsv --report page.html
    says '^with neighbours  *[0-9.]* per token'
    check test "$(wc -l <rows.tsv)" -gt 90
    check grep -q '</html>' page.html
    does tune -m "$model" "$@" -s "$store" valid.txt
    says '^written  *into'
    does eval -m "$model" "$@" -s "$store" valid.txt --json
    within 1e9 "$(number ppl)" "$(number ppl_lm)" # numbers, both of them
    check awk -v a="$(number ppl)" -v b="$(number ppl_lm)" 'BEGIN { exit !(a < b) }'
    does eval -m "$model" "$@" -s "$store" --lambda .5 --cache 40 valid.txt
    does explain -m "$model" "$@" -s "$store" 'the cat sat on'
    says '^context  *[0-9]* tokens'
    says '[ab].txt, token'
    does explain -m "$model" "$@" -s "$store" --text valid.txt --best 2 --worst 2 --json
    does info "$store"
    says "^model  *.*/$model "
    does remove "$store" 'b*'
    does compact "$store"
    does verify "$store"
    does export "$store" -o arrays
    does import arrays -o imported.store -m "$model" "$@"
    does eval -m "$model" "$@" -s imported.store valid.txt
    run 0 build -m "$model" "$@" -o keyless.store --keys none texts
    does index keyless.store "$@" --codes pq8 --lists 4
    does eval -m "$model" "$@" -s keyless.store valid.txt
    rm -rf keyless.store
}
commands shared.gguf native
commands shared.gguf llama
commands llama.gguf llama
does info parallel.gguf
says '^architecture .* (llama engine'
does info shared.gguf # both could: our own does
says '(native engine'
does eval -m parallel.gguf valid.txt

# The text of an entry, with neither model nor llama.cpp at hand.
mv llama.gguf away.gguf
KNNLM_LLAMA=/nonexistent does info llama.store --entry 3
says '^document  *a.txt'
before=$(head -c 4000 texts/a.txt | tr '\n.' '  ' | cut -d ' ' -f 1)
says "^context  *.*$before.*\\[.*\\]"
KNNLM_LLAMA=/nonexistent does info llama.store --entry 3 --json
KNNLM_LLAMA=/nonexistent does verify llama.store
mv away.gguf llama.gguf

# ---- what either engine says

# same PERCENT MODEL OPTION...: perplexity, in f32 on both sides.
same() {
    most=$1
    shift
    run 0 eval --engine native --precision f32 --json -m "$@" valid.txt
    native=$(number ppl)
    run 0 eval --engine llama --precision f32 --json -m "$@" valid.txt
    within "$most" "$(number ppl)" "$native"
}
for model in shared own; do
    same 0.1 $model.gguf
    for engine in native llama; do
        run 0 build -m $model.gguf --engine $engine --precision f32 -o $model.$engine texts
        same 1 $model.gguf -s $model.$engine -k 1000 --temperature 10 --fixed --lambda .5 # all there are, by one lambda: nothing hangs on a tie
        eval "with_$engine=\$native"
    done
    # shellcheck disable=SC2154 # set by eval
    within 1 "$with_native" "$with_llama"
    does add $model.native -m $model.gguf --engine llama more.txt
    does add $model.llama -m $model.gguf --engine native more.txt
    does verify $model.native
done
check awk -v ppl="$(number ppl)" 'BEGIN { exit !(ppl < 400) }' # of 600 words: it has learnt something
does info shared.gguf --engine native --json
cp out native.json
does info shared.gguf --engine llama --json
check test "$(sed 's/.*\("fingerprint": "[0-9a-f]*", "tokenizer": "[^"]*"\).*/\1/' out)" = \
    "$(sed 's/.*\("fingerprint": "[0-9a-f]*", "tokenizer": "[^"]*"\).*/\1/' native.json)"

# A model is read in windows of the length that it was trained on, whichever engine reads it.
train short.gguf 1 --tokenizer-file own.gguf --length 24
for engine in native llama; do
    does info short.gguf --engine $engine --json
    says '"context": 128, "window": 24'
done

# The number of threads changes nothing but the time.
for model in llama parallel; do
    for threads in 1 2; do
        run 0 build -m $model.gguf -t $threads --tap output -o threads.$threads texts/b.txt
        run 0 eval -m $model.gguf -t $threads -s threads.1 valid.txt --per-token rows.$threads
    done
    check cmp rows.1 rows.2
    check cmp threads.1/000001.keys threads.2/000001.keys
    rm -rf threads.*
done

# ---- taps

for layer in 0 -1; do
    for tap in ffn ffn-raw attention attention-raw output-norm output; do
        does build -m llama.gguf --tap $tap@$layer -o tap.store texts/b.txt
        run 0 info tap.store
        says "tap $tap@$((layer == 0 ? 0 : 2)),"
        does eval -m llama.gguf -s tap.store texts/a.txt
        rm -rf tap.store
        case $tap in
        ffn*)
            complains 1 "parallel.gguf: .*\"$tap\" .* it has attention, attention-raw, output-norm, output\$" \
                build -m parallel.gguf --tap $tap@$layer -o x.store texts/b.txt
            ;;
        *)
            does build -m parallel.gguf --tap $tap@$layer -o tap.store texts/b.txt
            does explain -m parallel.gguf -s tap.store 'the cat'
            rm -rf tap.store
            ;;
        esac
    done
done
complains 1 'parallel.gguf: .*"ffn"' build -m parallel.gguf -o x.store texts # the default
complains 1 'the model has 3 layers' build -m llama.gguf --tap ffn@3 -o x.store texts
complains 1 'the model has 3 layers' build -m llama.gguf --tap ffn@-4 -o x.store texts

# ---- a model that is not the store's

edit llama.gguf half.gguf @output.weight=f16 @token_embd.weight=f16 @blk.1.ffn_up.weight=f16
cp llama.gguf bit.gguf
printf '\001' | dd of=bit.gguf bs=1 seek=$(($(wc -c <bit.gguf) - 64)) conv=notrunc 2>/dev/null
cp -R llama.store before.store
for model in half bit; do
    both="llama.store: was made by model .*/llama.gguf .* not by $model.gguf .*--accept-model"
    for engine in auto llama; do
        set -- --engine $engine
        complains 1 "$both" eval -m $model.gguf "$@" -s llama.store valid.txt
        does eval -m $model.gguf "$@" -s llama.store --accept-model valid.txt
    done
    complains 1 "$both" tune -m $model.gguf -s llama.store valid.txt
    does tune -m $model.gguf -s llama.store --accept-model --dry-run valid.txt
    complains 1 "$both" explain -m $model.gguf -s llama.store 'the cat'
    does explain -m $model.gguf -s llama.store --accept-model 'the cat'
    complains 1 "$both" add llama.store -m $model.gguf valid.txt
    complains 1 "$both" build -o llama.store -m $model.gguf valid.txt
    check diff -r llama.store before.store
    cp -R llama.store grown.store
    does add grown.store -m $model.gguf --accept-model valid.txt
    does verify grown.store
    does eval -m llama.gguf -s grown.store valid.txt # it is still the first model's
    rm -rf grown.store
done
# Nothing helps where tokens or states are others, and then nothing is promised.
edit llama.gguf words.gguf 'tokenizer.ggml.tokens[300]=zzz'
edit llama.gguf scores.gguf 'tokenizer.ggml.scores[300]=-1000'
hopeless() { # PATTERN MODEL STORE OPTION...
    pattern=$1 model=$2 store=$3
    shift 3
    complains 1 "$pattern" eval -m "$model" "$@" -s "$store" --accept-model valid.txt
    complains 1 "$store" eval -m "$model" "$@" -s "$store" valid.txt
    checks=$((checks + 1))
    grep -q -e --accept-model err && failed "promises that --accept-model helps"
}
for model in words scores parallel shared plain; do
    hopeless "llama.store: .*tokenizer.*$model.gguf" $model.gguf llama.store
done
hopeless 'own.llama: .*\(width\|dimension\)' narrow.gguf own.llama
hopeless 'own.llama: .*\(width\|dimension\)' narrow.gguf own.llama --engine llama
check diff -r llama.store before.store

# ---- engines that do not serve

complains 1 'llama.gguf: "llama.attention.head_count_kv" is 2' eval -m llama.gguf --engine native valid.txt
complains 1 'parallel.gguf: .*"falcon"' build -m parallel.gguf --engine native -o x.store texts
complains 1 "plain.gguf: .*'knnlm'" eval -m plain.gguf --engine llama valid.txt
complains 1 'llama.gguf: .*bf16' eval -m llama.gguf --precision bf16 valid.txt
complains 1 'llama.gguf: .*int16' eval -m llama.gguf --precision int16 valid.txt
complains 1 'shared.gguf: .*bf16' eval -m shared.gguf --engine llama --precision bf16 valid.txt
does eval -m llama.gguf --precision f32 valid.txt
for command in info eval build add tune explain index import; do
    complains 2 '\-\-engine x: one of auto, native, llama' $command --engine x
done

# ---- llama.cpp is heard with -v only

for command in 'info llama.gguf' 'eval -m llama.gguf valid.txt' 'info shared.gguf --engine llama'; do
    # shellcheck disable=SC2086 # words
    run 0 $command -v
    check grep -q '^llama_model_loader: ' err
    # shellcheck disable=SC2086 # words
    run 0 $command
    check test ! -s err
done

# ---- no library

given=${KNNLM_LLAMA-} # the tests may have been given another than ours
# without PATTERN FOLDER: models that need it are refused, others not.
without() {
    export KNNLM_LLAMA="$2"
    refused "$1" llama.gguf
    complains 1 "$1" eval -m shared.gguf --engine llama valid.txt
    does eval -m shared.gguf valid.txt
    does eval -m plain.gguf valid.txt
    does eval -m shared.gguf -s shared.llama valid.txt
    does add shared.llama valid.txt
    export KNNLM_LLAMA="$given" # empty is as good as unset
}
mkdir none garbage short other folder folder/libllama.so
head -c 20000 corpus.txt >garbage/libllama.so
printf x >short/libllama.so
ln -s libllama.so none/libllama.so # to itself
without '/nonexistent.*\(get-llama\|unset\)' /nonexistent # what to do about it
without 'none.*libllama.so' none
without 'garbage/libllama.so' "$work/garbage"
without 'short/libllama.so' "$work/short"
without 'folder/libllama.so' "$work/folder"
if command -v "${CC:-cc}" >/dev/null; then
    echo 'int nothing;' >other.c
    "${CC:-cc}" -shared -fPIC other.c -o other/libllama.so
    without 'other: llama.cpp of another release' "$work/other"
fi
KNNLM_LLAMA='' does eval -m llama.gguf valid.txt # as if it were not there

# ---- files that are no models

: >empty
mkdir folder.gguf
refused 'empty: ' empty
refused 'valid.txt: not a GGUF file' valid.txt
complains 1 'folder.gguf: ' eval -m folder.gguf valid.txt
refused 'nowhere.gguf: No such file' nowhere.gguf
refused 'encoder.model.gguf: .*"bert"' "$golden/encoder.model.gguf"
refused 'llama.golden.gguf: ' "$golden/llama.golden.gguf"
cp llama.gguf split-00001-of-00002.gguf
refused 'split-00002-of-00002.gguf: No such file' split-00001-of-00002.gguf

size=$(wc -c <llama.gguf)
for bytes in 5 23 24 600 3000 8000 9900 20000 $((size - 1)); do # in the header, the keys, the table, the data
    head -c "$bytes" llama.gguf >broken.gguf
    complains 1 'broken.gguf: ' info broken.gguf
    complains 1 'broken.gguf: ' build -m broken.gguf --engine llama -o x.store texts
done

# broken CHANGE...: cannot be opened.
broken() {
    edit llama.gguf broken.gguf "$@"
    complains 1 'broken.gguf: ' build -m broken.gguf -o x.store texts
}
broken general.architecture=
broken general.architecture=nosuch
broken general.architecture=mamba
broken general.architecture=t5
for change in context_length=0 context_length=4294967295 context_length= embedding_length=0 embedding_length=4294967295 \
    embedding_length=64 block_count=0 block_count=2 block_count=4 block_count=100000 block_count=4294967295 \
    feed_forward_length=0 attention.head_count=0 attention.head_count=3 attention.head_count=4294967295 \
    attention.head_count_kv=0 attention.head_count_kv=3 rope.dimension_count=7; do
    broken llama.$change
done
broken tokenizer.ggml.model=
broken tokenizer.ggml.model=none
broken tokenizer.ggml.model=nosuch
broken tokenizer.ggml.model=bert
broken tokenizer.ggml.model=gpt2
broken tokenizer.ggml.tokens=
broken 'tokenizer.ggml.tokens[5]=<0x01>' # twice
broken @token_embd.weight=
broken @blk.1.attn_q.weight=
broken @output.weight.type=999
broken @output.weight.offset=7
broken @output.weight.offset=999999999968
broken @output.weight.shape=32,363
broken @output.weight.shape=32,0
broken @blk.0.attn_q.weight.shape=16,64

# What is only found out when the model runs. With -v as well: llama.cpp then speaks before us.
edit llama.gguf broken.gguf llama.attention.layer_norm_rms_epsilon=-1
complains 1 'broken.gguf: ' eval -m broken.gguf valid.txt
complains 1 'broken.gguf: ' build -m broken.gguf -o x.store texts
edit llama.gguf broken.gguf @output_norm.weight=f16 # no kernel multiplies so
complains 1 'broken.gguf: ' eval -m broken.gguf valid.txt
run 1 eval -m broken.gguf -v valid.txt
edit llama.gguf broken.gguf llama.block_count=0
run 1 eval -m broken.gguf -v valid.txt
# A vocabulary that cannot spell everything, as those without bytes.
edit llama.gguf broken.gguf 'tokenizer.ggml.tokens[74]=Gnone' 'tokenizer.ggml.token_type[74]=1'
complains 1 'broken.gguf.* no token for byte 71' eval -m broken.gguf valid.txt
complains 1 'broken.gguf.* no token for byte 71' build -m broken.gguf -o x.store valid.txt

# A model in two parts is the same model, and its identity covers both.
does eval -m llama.gguf --json valid.txt
whole=$(number ppl)
edit llama.gguf parts-00001-of-00002.gguf
does eval -m parts-00001-of-00002.gguf --json valid.txt
within 0 "$(number ppl)" "$whole"
does build -m parts-00001-of-00002.gguf -o parts.store texts
does eval -m parts-00001-of-00002.gguf -s parts.store valid.txt
printf 'x' | dd of=parts-00002-of-00002.gguf bs=1 seek="$(($(wc -c <parts-00002-of-00002.gguf) - 5))" conv=notrunc 2>/dev/null
complains 1 'parts.store: was made by model .*--accept-model' eval -m parts-00001-of-00002.gguf -s parts.store valid.txt
does eval -m parts-00001-of-00002.gguf --accept-model -s parts.store valid.txt
rm parts-00002-of-00002.gguf
complains 1 'parts-00002-of-00002.gguf' eval -m parts-00001-of-00002.gguf valid.txt

# Tokens that are cut out of a text before it is split bring a space of their own: every token is still found where it is.
edit llama.gguf marks.gguf 'tokenizer.ggml.token_type[279]=4' # "ing"
echo 'sing that thing in the morning, the king is singing at the end of it and that is that' >marks.txt
run 0 eval -m marks.gguf --per-token marks.tsv marks.txt
checks=$((checks + 1))
python3 - marks.txt marks.tsv <<'END' || failed "tokens are not where their offsets say"
import sys
text = open(sys.argv[1], encoding="utf-8").read()
rows = [line.rstrip("\n").split("\t") for line in open(sys.argv[2], encoding="utf-8")][1:]
assert any(row[4] == "ing" for row in rows)
for row in rows:
    piece, at = row[4].replace("\\n", "\n"), int(row[2])
    assert text.startswith(piece, at) or text.startswith(piece.lstrip(" "), at), row
END

# What llama.cpp says of a graph that we end at the tap is not for anybody.
run 0 build -m llama.gguf -o said.store -v texts
checks=$((checks + 1))
! grep -q 'failed' err || failed "complains without need"

# Unusual, and no fault.
for change in llama.context_length=1 llama.context_length=1000000 tokenizer.ggml.scores= tokenizer.ggml.token_type= \
    tokenizer.ggml.bos_token_id=4294967295 tokenizer.ggml.eos_token_id=1000000 @output.weight=; do
    edit llama.gguf odd.gguf "$change"
    does eval -m odd.gguf valid.txt
    does build -m odd.gguf -o odd.store texts/b.txt
    does eval -m odd.gguf -s odd.store valid.txt
    rm -rf odd.store
done

# ---- texts

printf 'the cat \377\n' >bad.txt
printf 'the' >short.txt
for model in llama parallel; do
    set -- -m $model.gguf
    complains 1 'bad.txt: not UTF-8 at byte 8' eval "$@" bad.txt
    complains 1 'bad.txt: not UTF-8 at byte 8' build "$@" -o x.store --tap output bad.txt
    complains 1 'empty: no text' eval "$@" empty
    complains 1 'nowhere.txt: No such file' eval "$@" nowhere.txt
    does build "$@" -o text.store --tap output texts
    complains 1 'bad.txt: not UTF-8 at byte 8' add text.store bad.txt
    complains 1 'bad.txt: not UTF-8 at byte 8' eval "$@" -s text.store bad.txt
    complains 1 'bad.txt: not UTF-8 at byte 8' tune "$@" -s text.store bad.txt
    does verify text.store
    rm -rf text.store
done
does eval -m llama.gguf short.txt
says '^tokens  *1$'
does build -m llama.gguf -o one.store short.txt
says '^entries  *1 added'
does eval -m llama.gguf -s one.store short.txt valid.txt
does explain -m llama.gguf -s one.store ''
printf 'a\001b \357\273\277 \360\237\230\200 \342\226\201 <s> </s> <unk>\r\n' >odd.txt
for model in llama parallel shared; do # all of it is text, and each byte has its token
    does eval -m $model.gguf --engine llama odd.txt --per-token rows.tsv
    checks=$((checks + 1))
    awk -F '\t' -v size="$(wc -c <odd.txt)" 'NR > 2 && ($3 < at || $3 >= size) { bad = 1 } { at = $3 } END { exit bad }' rows.tsv ||
        failed "$model.gguf: offsets of tokens are not in order"
done

# ---- interrupted

write_text 5 300000 >long.txt
rm -f out err
"$knnlm" eval -m llama.gguf -s llama.store -t 1 long.txt >out 2>err </dev/null &
child=$! last='eval, interrupted'
sleep 0.5
kill -INT $child
wait $child
check test $? -eq 1
child=''
check test "$(noise | wc -l)" -eq 1
check grep -q '^knnlm eval: stopped ' err
check test ! -s out

# ---- too little memory

# shellcheck disable=SC3045 # every sh here has it
scarcely() { # KB ARGUMENT...
    (ulimit -v "$1" && shift && exec "$knnlm" "$@" -t 1) >out 2>err </dev/null
}
# Just above what is too little for loading it, the library's own constructors may crash inside dlopen(): that is not ours either.
# Nothing is said then, and with a little less it cannot be loaded.
crashed_loading() { # LIMIT STEP ARGUMENT...
    [ ! -s err ] || return 1
    less=$(($1 - $2))
    shift 2
    rm -rf scarce.store
    scarcely $less "$@"
    grep -q '^knnlm .*llama.cpp cannot be loaded\|no backends are loaded' err
}
# scarce STEPS COMMAND ARGUMENT...: with ever less of it, from what is enough down to where the library cannot be loaded
# (below that nothing is ours). A store that was begun may stay, for the same command goes on with it.
scarce() {
    steps=$1 enough=16384 got=0
    shift
    while ! scarcely $enough "$@"; do
        enough=$((enough * 6 / 5))
        [ $enough -lt 4000000 ] || { last="$*" && failed "fails with 4 GB" && return; }
    done
    limit=$enough
    while [ $limit -gt $((enough / steps)) ]; do
        limit=$((limit - enough / steps))
        rm -rf scarce.store
        scarcely $limit "$@"
        got=$? last="$* (ulimit -v $limit)"
        [ $got -ne 127 ] || break
        ! grep -q '^knnlm .*llama.cpp cannot be loaded\|no backends are loaded' err || break
        cat err >>messages
        checks=$((checks + 1))
        case $got in
        0) ;;
        1) [ "$(noise | wc -l)" -eq 1 ] || failed "more than a line" ;;
        139) crashed_loading $limit $((enough / steps)) "$@" || failed "exit code $got" ;;
        *) failed "exit code $got" ;;
        esac
    done
}
if scarcely 1000000 info plain.gguf; then
    train large.gguf 1 --tokenizer-file own.gguf --width 512 --length 16 --batch 16
    scarce 150 eval -m llama.gguf valid.txt
    scarce 40 eval -m large.gguf --engine llama short.txt
    scarce 40 build -m llama.gguf -o scarce.store texts/b.txt
    for message in 'cannot load it' 'has no room for'; do
        checks=$((checks + 1))
        grep -q "llama.cpp $message" messages || failed "never says '$message'"
    done
    does build -m llama.gguf -o scarce.store texts/b.txt
    does verify scarce.store
else
    echo "too little memory: not tried (this build needs much to begin with: a sanitizer's)"
fi

conclude
