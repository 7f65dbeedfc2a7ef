# The rows of experiments/paper: each leaves JSON in $work, which page.py reads. What is there already is not made again.
# shellcheck shell=sh disable=SC2154,SC2086,SC2046 # names are of experiments/paper/run, sizes.sh and texts.sh; options are words

documents="--documents wiki"

# step NAME COMMAND...: its JSON
step() {
    [ ! -s "$work/$1.json" ] || return 0
    result=$work/$1
    shift
    say "  $*"
    "$@" >"$result.new" || fail "failed: $*"
    mv "$result.new" "$result.json"
}

# number FILE NAME...: a number of a JSON in $work, by the names of the members on the way to it
number() {
    /usr/bin/python3 -c 'import json, sys
found = json.load(open(sys.argv[1]))
for name in sys.argv[2:]: found = found[name]
print(found)' "$work/$1.json" "$2" ${3:+"$3"}
}

# remember NAME MODEL TEXT OPTION...: the store at hand, with its index. What an interrupted build has is gone on with.
remember() {
    store=$work/$1.store
    name=$1 model=$2 text=$3
    shift 3
    [ -d "$store" ] || rm -f "$work/$name.build.json" "$work/$name.index.json"
    step "$name.build" "$knnlm" build -m "$model" -o "$store" $documents --no-index --no-tune --json "$@" "$text"
    step "$name.index" "$knnlm" index "$store" --json
}

# measure NAME MODEL VALID TEST OPTION...: the store at hand, tuned on one text, reported on another: one lambda, and its gate
measure() {
    name=$1 model=$2 valid=$3 test=$4
    shift 4
    # Settings are in the store, and two rows tune the same one: what is reported follows its own tuning at once.
    [ -s "$work/$name.gate.json" ] || rm -f "$work/$name.tune.json" "$work/$name.fixed.json"
    step "$name.tune" "$knnlm" tune -m "$model" -s "$store" $documents --json "$@" "$valid"
    step "$name.fixed" "$knnlm" eval -m "$model" -s "$store" $documents --fixed --json "$test"
    step "$name.gate" "$knnlm" eval -m "$model" -s "$store" $documents --json "$test"
}

# try_out NAME OPTION...: the store at hand by one lambda, on the validation text of the home
try_out() {
    name=$1
    shift
    step "$name" "$knnlm" tune -m "$home_model" -s "$store" $documents --fixed --dry-run --json "$@" "$home_valid"
}

# learn NAME TEXT OPTION...: a model of its own, $work/NAME.gguf. A checkpoint a minute: a killed training goes on there.
learn() {
    name=$1 text=$2
    shift 2
    [ ! -s "$work/$name.train.json" ] || return 0
    resume=--force
    [ ! -s "$work/$name.gguf.checkpoint" ] || resume=--resume
    step "$name.train" "$knnlm" train "$text" $documents -o "$work/$name.gguf" --save-seconds 60 --json $resume "$@"
    rm -f "$work/$name.gguf.checkpoint"
}

muon="--optimizer muon --rate 0.006 --decay 0.1 --schedule linear --valid-tokens 32768"

# for_steps N: a training of N updates. It is validated ten times, and the best state is kept: little text is soon learnt too well.
for_steps() { echo "$shape $muon --dropout 0.1 --steps $1 --valid-every $(($1 / 10 + 1))"; }

learn_whole() { learn whole "$home" --valid "$home_valid" $tokenizer $(for_steps $whole_steps); }

# The model whose training text is at home: at the small scale one that is trained for this.
home_model() {
    case $scale in
    small) learn_whole && home_model=$work/whole.gguf ;;
    full) home_model=$bundled ;;
    esac
}

home_store() { home_model && remember home "$home_model" "$home"; }

# cache_alone NAME MODEL VALID TEST: the continuous cache without a store
cache_alone() {
    step "$1.tune" "$knnlm" tune -m "$2" $documents --cache 2000 --json "$3"
    step "$1.eval" "$knnlm" eval -m "$2" $documents --cache 2000 --cache-lambda "$(number "$1.tune" cache lambda)" \
        --cache-temperature "$(number "$1.tune" cache temperature)" --json "$4"
}

# ---- in the domain

# Neighbours, the cache, both. The last tuning is the one that stays: without the cache.
table1() {
    home_store
    measure cache "$home_model" "$home_valid" "$home_test" --cache 2000
    cache_alone cache-alone "$home_model" "$home_valid" "$home_test"
    measure home "$home_model" "$home_valid" "$home_test"
}

# The shape of the bundled model, with three layers: after 1500 updates 149 on the validation text, where that of experiments/wikitext2
# had 191.
words="--tokenizer word --vocab 0 --preset stream --layers 3 --length 128 --context 128 --window 128 --bands 2000,10000 --batch 2048 --optimizer muon
    --rate 0.004 --decay 0.1 --schedule linear --dropout 0.2 --attention-dropout 0.1 --activation-dropout 0.1 --type f32 --valid-every 500 --valid-tokens 65536"

# The same with a model of the words of WikiText-2, of which others have published figures. The cache goes on from article to
# article, as theirs: the text is one document.
wikitext2() {
    documents="--documents file"
    learn words "$words_text" --valid "$words_valid" $words --steps $words_steps
    remember words "$work/words.gguf" "$words_text"
    measure words-both "$work/words.gguf" "$words_valid" "$words_test" --cache 2000
    cache_alone words-cache "$work/words.gguf" "$words_valid" "$words_test"
    measure words "$work/words.gguf" "$words_valid" "$words_test"
    documents="--documents wiki"
}

# A model of the second domain, and its own training text.
table2() {
    learn second "$second" --valid "$second_valid" $tokenizer $(for_steps $second_steps)
    remember second "$work/second.gguf" "$second"
    measure second "$work/second.gguf" "$second_valid" "$second_test"
}

# A model of a tenth of the home, and a store of all of it.
tenth_store() {
    learn_whole
    part "$home" $((home_bytes / 10)) "$work/tenth.txt"
    learn tenth "$work/tenth.txt" --valid "$home_valid" --tokenizer-file "$work/whole.gguf" $(for_steps $tenth_steps)
    remember tenth "$work/tenth.gguf" "$home"
}

# Little text to learn from and all of it to remember, beside all of it to learn from.
table3() {
    tenth_store
    step whole.valid "$knnlm" eval -m "$work/whole.gguf" $documents --json "$home_valid"
    step whole.eval "$knnlm" eval -m "$work/whole.gguf" $documents --json "$home_test"
    measure tenth "$work/tenth.gguf" "$home_valid" "$home_test"
}

# Perplexity and the best lambda by the size of that store: of parts of its documents.
figure2() {
    tenth_store
    step whole.valid "$knnlm" eval -m "$work/whole.gguf" $documents --json "$home_valid"
    for fraction in $fractions; do
        step fraction-$fraction "$knnlm" tune -m "$work/tenth.gguf" -s "$store" $documents --fraction $fraction --fixed --dry-run --json "$home_valid"
    done
}

# ---- another domain

other_store() {
    # It is timed: an interrupted build begins anew.
    [ -s "$work/adapted.build.json" ] || rm -rf "$work/adapted.store"
    remember adapted "$bundled" "$other"
    measure adapted "$bundled" "$other_valid" "$other_test"
}

# A store of the other domain against learning the other domain, for as long as the store took; and both.
table4() {
    other_store
    minutes=$(/usr/bin/python3 -c 'import json, sys
build, index, tune = (json.load(open(f)) for f in sys.argv[1:])
print(max(3, build["seconds"] + sum(index["seconds"].values()) + tune["seconds"]) / 60)' "$work/adapted.build.json" "$work/adapted.index.json" "$work/adapted.tune.json")
    learn finetuned "$other" --valid "$other_valid" --from "$bundled" --batch 4096 --rate $tune_rate --schedule linear --valid-every 50 \
        --valid-tokens 16384 --minutes "$minutes"
    step finetuned.eval "$knnlm" eval -m "$work/finetuned.gguf" $documents --json "$other_test"
    remember both "$work/finetuned.gguf" "$other"
    measure both "$work/finetuned.gguf" "$other_valid" "$other_test"
    rm -rf "$work/both.store"
}

# Figures 4 and 5 are of the tunings of Tables 1 and 4.
figures45() {
    [ -s "$work/home.gate.json" ] || table1
    [ -s "$work/adapted.gate.json" ] || other_store
}

# ---- choices

# Six places of the model that keys may be taken from: each with its own best temperature, and with that of the first.
table5() {
    home_model
    for tap in ffn ffn-raw attention attention-raw output-norm output; do
        [ ! -s "$work/tap-$tap.same.json" ] || continue
        remember tap-$tap "$home_model" "$work/some.txt" --tap $tap
        try_out tap-$tap.own
        try_out tap-$tap.same --temperature "$(number tap-ffn.own temperature)"
        rm -rf "$store"
    done
}

some_store() { home_model && remember some "$home_model" "$work/some.txt"; }

# Distances of the keys, of codes of 64 bytes per key, and of 16 dimensions per byte, the paper's rate; in the same lists.
c10() {
    some_store
    step some.info "$knnlm" info "$store" --json
    try_out some.keys
    for bytes in 64 $(($(number some.info keys dimension) / 16)); do
        case $bytes in 64) codes="codes-64" ;; *) codes="codes-paper" ;; esac
        [ -s "$work/$codes.json" ] || "$knnlm" index "$store" --codes pq$bytes >/dev/null
        try_out $codes --codes
    done
}

# The same keys by the inner product, in lists made by it.
c15() {
    some_store
    try_out some.keys
    [ ! -s "$work/ip.json" ] || return 0
    rm -rf "$work/export" "$work/ip.store"
    "$knnlm" export "$store" -o "$work/export" >/dev/null
    store=$work/ip.store
    "$knnlm" import "$work/export" -m "$home_model" -o "$store" --distance ip >/dev/null
    "$knnlm" index "$store" >/dev/null
    try_out ip
    rm -rf "$work/export" "$store"
}

# ---- what else remembers

# An n-gram model of the text in place of its neighbours: the weight is the best on the validation text.
c11() {
    home_model
    for order in 3 4 5; do
        ngram="--ngram $home --ngram-order $order"
        step ngram-$order.valid "$knnlm" eval -m "$home_model" $documents $ngram --json "$home_valid"
        step ngram-$order "$knnlm" eval -m "$home_model" $documents $ngram --ngram-lambda "$(number ngram-$order.valid ngram best_lambda)" --json "$home_test"
    done
}

# per_token NAME MODEL TEXT: a row for every token, in a file
per_token() {
    [ ! -s "$work/$1.tsv" ] || return 0
    "$knnlm" eval -m "$2" $documents --per-token "$work/$1.new" "$3" >/dev/null
    mv "$work/$1.new" "$work/$1.tsv"
}

# A model that learns a text by heart, mixed in; beside the neighbours of the same text.
c12() {
    home_model
    part "$home" $heart_bytes "$work/heart.txt"
    learn heart "$work/heart.txt" --valid "$work/heart.txt" $shape --batch 1024 --tokenizer-file "$home_model" $muon --rate 0.003 --valid-every 100 --epochs $heart_epochs
    step heart.self "$knnlm" eval -m "$work/heart.gguf" $documents --json "$work/heart.txt"
    for text in valid test; do
        case $text in valid) file=$home_valid ;; test) file=$home_test ;; esac
        per_token heart.$text "$work/heart.gguf" "$file"
        per_token alone.$text "$home_model" "$file"
    done
    remember heart "$home_model" "$work/heart.txt"
    measure heart "$home_model" "$home_valid" "$home_test"
}

# ---- what is found

# Words that neighbours made most more probable, with the contexts that did; and the text as a page.
table6() {
    home_store
    [ -s "$work/home.gate.json" ] || table1
    step found "$knnlm" explain -m "$home_model" -s "$store" $documents --text "$home_test" --best 400 --worst 0 --show 4 --around 24 --json
    step coloured "$knnlm" eval -m "$home_model" -s "$store" $documents --report "$work/table6.html" --report-tokens 3000 --json "$home_test"
}

# Hours and minutes: those of Table 1; at the paper's size, experiments/scale.
c14() { [ -s "$work/home.gate.json" ] || table1; }
