# The rows of experiments/paper: each leaves JSON in $work, which page.py reads. What is there already is not made again.
# shellcheck shell=sh disable=SC2154,SC2086 # names are of experiments/paper/run and texts.sh; options are words

# step NAME COMMAND...: its JSON
step() {
    [ ! -s "$work/$1.json" ] || return 0
    result=$work/$1
    shift
    say "  $*"
    "$@" >"$result.new" || { say "failed: $*" && exit 1; }
    mv "$result.new" "$result.json"
}

# remember NAME MODEL TEXT OPTION...: a store; tuned by hand below
remember() {
    store=$work/$1.store
    name=$1 model=$2 text=$3
    shift 3
    [ ! -s "$work/$name.build.json" ] || return 0
    step "$name.build" "$knnlm" build -m "$model" -o "$store" --documents $split --no-tune --json "$@" "$text"
}

# measure NAME MODEL VALID TEST OPTION...: the store at hand, tuned on one text, reported on another: one lambda, and its gate
measure() {
    name=$1 model=$2 valid=$3 test=$4
    shift 4
    step "$name.tune" "$knnlm" tune -m "$model" -s "$store" --documents $split --json "$@" "$valid"
    step "$name.fixed" "$knnlm" eval -m "$model" -s "$store" --documents $split --fixed --json "$test"
    step "$name.gate" "$knnlm" eval -m "$model" -s "$store" --documents $split --json "$test"
}

# learn NAME TEXT VALID OPTION...: a model of its own, $work/NAME.gguf
learn() {
    name=$1 text=$2 valid=$3
    shift 3
    [ -s "$work/$name.train.json" ] || rm -f "$work/$name.gguf" "$work/$name.gguf.checkpoint"
    step "$name.train" "$knnlm" train "$text" --documents $split --valid "$valid" -o "$work/$name.gguf" $train_options --tokenizer-file $bundled --optimizer muon \
        --rate 0.006 --decay 0.1 --schedule linear --valid-every 100 --valid-tokens 32768 --json "$@"
}

home_store() { remember home $bundled "$home"; }

# ---- in the domain

# Neighbours, the cache, both. The last tuning is the one that stays: without the cache.
table1() {
    home_store
    measure cache $bundled "$home_valid" "$home_test" --cache 2000
    step cache-alone "$knnlm" tune -m $bundled --documents $split --cache 2000 --json "$home_valid"
    cache=$(/usr/bin/python3 -c 'import json, sys; c = json.load(open(sys.argv[1]))["cache"]; print("--cache-lambda", c["lambda"], "--cache-temperature", c["temperature"])' "$work/cache-alone.json")
    step cache-alone.eval "$knnlm" eval -m $bundled --documents $split --cache 2000 $cache --json "$home_test"
    measure home $bundled "$home_valid" "$home_test"
}

# A model of the second domain, and its own training text.
table2() {
    learn second "$second" "$second_valid" --minutes "$minutes"
    remember second "$work/second.gguf" "$second"
    measure second "$work/second.gguf" "$second_valid" "$second_test"
}

# Little text to learn from and all of it to remember, beside all of it to learn from.
table3() {
    part "$home" $(($(wc -c <"$home") / 10)) "$work/tenth.txt"
    learn tenth "$work/tenth.txt" "$home_valid" --minutes "$minutes"
    learn whole "$home" "$home_valid" --minutes "$minutes"
    step whole.eval "$knnlm" eval -m "$work/whole.gguf" --documents $split --json "$home_test"
    remember tenth "$work/tenth.gguf" "$home"
    measure tenth "$work/tenth.gguf" "$home_valid" "$home_test"
    rm -rf "$work/tenth.store"
}

# Perplexity and the best lambda by the size of the store: parts of one (of its documents: a file of documents is cut by them).
figure2() {
    if [ "$split" = file ]; then
        mkdir -p "$work/pages"
        [ -s "$work/pages/aaa" ] || split -C $((home_bytes / 200)) -a 3 "$home" "$work/pages/"
        remember parts $bundled "$work/pages"
    else
        home_store && store=$work/home.store
    fi
    for fraction in 0.01 0.03 0.1 0.3 1; do
        step fraction-$fraction "$knnlm" tune -m $bundled -s "$store" --documents $split --fraction $fraction --fixed --dry-run --json "$home_valid"
    done
    [ "$split" = wiki ] || rm -rf "$work/parts.store"
}

# ---- another domain

seconds_of() { /usr/bin/python3 -c 'import json, sys; print(max(20, sum(json.load(open(f))["seconds"] for f in sys.argv[1:])))' "$@"; }

# A store of the other domain against learning the other domain, for as long as the store took; and both. At the small scale the
# home is foreign to the bundled model already.
table4() {
    case $scale in
    small) text=$home valid=$home_valid test=$home_test ;;
    full) text=$second valid=$second_valid test=$second_test ;;
    esac
    remember adapted $bundled "$text"
    measure adapted $bundled "$valid" "$test"
    minutes_taken=$(awk -v s="$(seconds_of "$work/adapted.build.json" "$work/adapted.tune.json")" 'BEGIN { print s / 60 }')
    tuned_options=$train_options
    train_options="--from $bundled --batch 4096"
    [ -s "$work/finetuned.train.json" ] || rm -f "$work/finetuned.gguf" "$work/finetuned.gguf.checkpoint"
    step finetuned.train "$knnlm" train "$text" --documents $split --valid "$valid" -o "$work/finetuned.gguf" $train_options --rate 0.0005 --schedule linear \
        --valid-every 50 --valid-tokens 32768 --minutes "$minutes_taken" --json
    train_options=$tuned_options
    step finetuned.eval "$knnlm" eval -m "$work/finetuned.gguf" --documents $split --json "$test"
    remember both "$work/finetuned.gguf" "$text"
    measure both "$work/finetuned.gguf" "$valid" "$test"
    rm -rf "$work/both.store" "$work/adapted.store"
}

# ---- choices

# Six places of the model that keys may be taken from.
table5() {
    for tap in ffn ffn-raw attention attention-raw output-norm output; do
        [ ! -s "$work/tap-$tap.tune.json" ] || continue
        rm -rf "$work/tap-$tap.store" "$work/tap-$tap.build.json"
        remember tap-$tap $bundled "$work/some.txt" --tap $tap
        step tap-$tap.tune "$knnlm" tune -m $bundled -s "$store" --documents $split --fixed --dry-run --json "$home_valid"
        rm -rf "$store"
    done
}

some_store() { remember some $bundled "$work/some.txt" --no-index; }

# Distances of the keys, of 64 bytes per key, and of 16, the paper's rate.
c10() {
    some_store
    step some.tune "$knnlm" tune -m $bundled -s "$work/some.store" --documents $split --fixed --dry-run --json "$home_valid"
    for bytes in 64 16; do
        [ ! -s "$work/codes-$bytes.json" ] || continue
        "$knnlm" index "$work/some.store" --codes pq$bytes >/dev/null
        step codes-$bytes "$knnlm" tune -m $bundled -s "$work/some.store" --documents $split --codes --fixed --dry-run --json "$home_valid"
    done
}

# The same keys by the inner product.
c15() {
    some_store
    [ ! -s "$work/ip.json" ] || return 0
    rm -rf "$work/export" "$work/ip.store"
    "$knnlm" export "$work/some.store" -o "$work/export" >/dev/null
    "$knnlm" import "$work/export" -m $bundled -o "$work/ip.store" --distance ip >/dev/null
    rm -rf "$work/export"
    step ip "$knnlm" tune -m $bundled -s "$work/ip.store" --documents $split --fixed --dry-run --json "$home_valid"
    rm -rf "$work/ip.store"
}

# ---- what else remembers

# An n-gram model of the text in place of its neighbours: the weight is the best on the validation text.
c11() {
    for order in 3 4 5; do
        step ngram-$order.valid "$knnlm" eval -m $bundled --documents $split --ngram "$home" --ngram-order $order --json "$home_valid"
        weight=$(/usr/bin/python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["ngram"]["best_lambda"])' "$work/ngram-$order.valid.json")
        step ngram-$order "$knnlm" eval -m $bundled --documents $split --ngram "$home" --ngram-order $order --ngram-lambda "$weight" --json "$home_test"
    done
}

# A model that learns a text by heart, mixed in; beside the neighbours of the same text.
c12() {
    part "$home" $heart_bytes "$work/heart.txt"
    learn heart "$work/heart.txt" "$work/heart.txt" --epochs 100
    for text in valid test; do
        case $text in valid) file=$home_valid ;; test) file=$home_test ;; esac
        [ -s "$work/heart.$text.tsv" ] || "$knnlm" eval -m "$work/heart.gguf" --documents $split --per-token "$work/heart.$text.tsv" "$file" >/dev/null
        [ -s "$work/alone.$text.tsv" ] || "$knnlm" eval -m $bundled --documents $split --per-token "$work/alone.$text.tsv" "$file" >/dev/null
    done
    remember heart $bundled "$work/heart.txt"
    measure heart $bundled "$home_valid" "$home_test"
}
case $scale in small) heart_bytes=100000 ;; full) heart_bytes=4000000 ;; esac

# ---- what is found

table6() {
    table1
    [ -s "$work/rows.tsv" ] || "$knnlm" eval -m $bundled -s "$work/home.store" --documents $split --per-token "$work/rows.tsv" "$home_test" >/dev/null
}

# Hours and minutes: those of the rows above; at the paper's size, experiments/scale.
c14() {
    home_store
    step index "$knnlm" index "$work/home.store" --json
}
