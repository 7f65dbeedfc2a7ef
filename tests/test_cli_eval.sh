#!/bin/sh
# eval with neighbours, and tune, when something is wrong:  sh tests/test_cli_eval.sh PATH_TO_knnlm SOURCE_DIR
# One line on stderr, exit code 1 (2: wrong usage), and nothing changed. Every check prints a line when it fails; the exit
# code is 1 when one did.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
plan=' tokens, .* for their neighbours$'

# refused CODE PATTERN ARGUMENT...: eval and tune both complain, before they read the text. They begin alike.
refused() {
    code=$1 pattern=$2
    shift 2
    for command in eval tune; do
        complains "$code" "$pattern" $command -m model.gguf "$@"
        check test "$(wc -l <err)" -eq 1
    done
}
# unchanged WHAT...: as it was in the beginning, byte for byte
unchanged() {
    for what; do
        checks=$((checks + 1))
        diff -r "$what" "kept/$what" >diff.out 2>&1 || failed "$what has changed: $(head -n 2 diff.out)"
    done
}

write_text() { # SEED WORDS
    awk -v seed="$1" -v words="$2" 'BEGIN {
        srand(seed)
        for (i = 1; i <= words; i++) printf "w%d%s", int(rand() * 90), i % 9 ? " " : "\n"
    }'
}
cp "$golden/adaptive.model.gguf" model.gguf # words w1, w2, ...; states of 32 dimensions, a context of 80
mkdir texts kept
write_text 1 450 >texts/a.txt
write_text 2 90 >texts/b.txt
write_text 3 150 >valid.txt
printf 'w3' >short.txt
: >empty.txt
build() { # STORE OPTION...
    store=$1
    shift
    run 0 build -m model.gguf -o "$store" "$@" texts
}
build a.store
build tap.store --tap attention
build keyless.store --keys none
run 0 build -m "$golden/gpt2.model.gguf" -o other.store texts
cp -R a.store removed.store
run 0 remove removed.store '*'
cp -R removed.store empty.store
run 0 compact empty.store
cp -R a.store damaged.store
printf x >>damaged.store/000001.keys
cp -R ./*.store texts valid.txt model.gguf kept

# ---- stores

refused 1 'nowhere: No such file' -s nowhere valid.txt
refused 1 'texts: not a store' -s texts valid.txt
refused 1 'valid.txt: Not a directory' -s valid.txt valid.txt
refused 1 'other.store: was made by model .*gpt2.model.gguf' -s other.store valid.txt
refused 1 'empty.store: the store is empty' -s empty.store valid.txt
refused 1 'removed.store: the store is empty' -s removed.store valid.txt
refused 1 'keyless.store: keeps no keys and has no index' -s keyless.store valid.txt
refused 1 'a.store: has no codes' -s a.store --codes valid.txt
refused 1 'damaged.store/000001.keys' -s damaged.store valid.txt
refused 1 'a.store has keys of ffn@1, tap.store of attention@1' -s a.store -s tap.store valid.txt
complains 1 'nowhere.gguf: No such file' eval -m nowhere.gguf -s a.store valid.txt
for option in '-k 8' '--lambda .2' '--temperature 2' '--probes 4' --codes --exact --fixed --include-self '--distance ip' \
    --fallback; do
    # shellcheck disable=SC2086 # an option and its value
    complains 2 'name it with -s' eval -m model.gguf $option valid.txt
done
complains 2 'the cache has a size' eval -m model.gguf --cache-lambda .1 valid.txt
complains 1 'valid.txt: ' tune -m valid.txt -s a.store valid.txt
set --
while [ $# -lt 30 ]; do set -- "$@" -s a.store; done
refused 1 '15 stores: at most 14' "$@" valid.txt

# ---- weights, temperatures, numbers

for settings in 2 -1 nan 0.5x x '' .1,0 .1,x .1,2,0 .1,2,x .1,2,3,4 '.1,'; do
    complains 2 "a.store=$settings: after the = " eval -m model.gguf -s "a.store=$settings" valid.txt
done
complains 1 'in sum 1.4, above 1' eval -m model.gguf -s a.store=.7 -s a.store=.7 valid.txt
complains 1 'in sum 1.1, above 1' eval -m model.gguf -s a.store=.7 --cache 9 --cache-lambda .4 valid.txt
run 0 eval -m model.gguf -s a.store=.7 -s a.store=.2 --cache 9 --cache-lambda .1 valid.txt
complains 2 '\-\-lambda 1.1: out of range, 0 to 1' eval -m model.gguf -s a.store --lambda 1.1 valid.txt
complains 2 '\-\-cache-lambda nan: out of range' eval -m model.gguf --cache 5 --cache-lambda nan valid.txt
refused 2 '\-\-temperature 0: out of range' -s a.store --temperature 0 valid.txt
refused 2 '\-\-temperature inf: out of range' -s a.store --temperature inf valid.txt
refused 2 '\-\-cache-temperature -1: out of range' -s a.store --cache-temperature -1 valid.txt
refused 2 '\-\-neighbors 0: out of range, 1 to 1048576' -s a.store -k 0 valid.txt
refused 2 '\-\-neighbors 1e3: not a whole number' -s a.store -k 1e3 valid.txt
refused 2 '\-\-probes 0: ' -s a.store --probes 0 valid.txt
refused 2 '\-\-cache -1: out of range' -s a.store --cache -1 valid.txt
refused 2 '\-\-distance l1: one of l2, ip, cosine' -s a.store --distance l1 valid.txt
refused 2 '\-\-metric l1: one of l2, ip, cosine' -s a.store --metric l1 valid.txt # as it was called before
refused 2 '\-\-exact and --codes' -s a.store --exact --codes valid.txt
run 0 eval -m model.gguf -s a.store -k 1000000 valid.txt # more than there are: all

# ---- tune alone

complains 2 'no -m FILE' tune --cache 10 valid.txt
complains 2 'no text' tune -m model.gguf -s a.store -s a.store
complains 1 'nothing to tune' tune -m model.gguf valid.txt
complains 1 'nothing to tune' tune -m model.gguf --cache 0 valid.txt
complains 2 'a.store=.5: what stands after the = is what tuning finds' tune -m model.gguf -s a.store=.5 valid.txt
complains 2 'lambda is what tuning finds' tune -m model.gguf -s a.store --lambda .5 valid.txt
complains 2 'lambda is what tuning finds' tune -m model.gguf -s a.store --cache 5 --cache-lambda .5 valid.txt
for probes in junk '' '1,' ,1 1,,2 0 -1 1.5 '1 2' 99999999999999999999 1,2,3,4,5,6,7,8,9,10,11,12,13; do
    complains 2 "\\-\\-probes $probes: not a list" tune -m model.gguf -s a.store --probes "$probes" valid.txt
done
complains 1 'one store at a time' tune -m model.gguf -s a.store -s a.store --probes 1,2 valid.txt
unchanged ./*.store

# ---- texts: none, empty, not UTF-8, one token

printf 'w1 \377\n' >bad.txt
refused 1 'nowhere.txt: No such file' -s a.store nowhere.txt
refused 1 'empty.txt: no text' -s a.store empty.txt
refused 1 'bad.txt: not UTF-8 at byte 3' -s a.store bad.txt
run 0 eval -m model.gguf -s a.store --cache 9 short.txt # shorter than a window, and than the cache
says '^tokens  *1$'
run 0 tune -m model.gguf -s a.store --cache 9 --dry-run short.txt
says '^tokens  *1$'
says '^written  *nothing'
unchanged a.store

# ---- outputs that cannot be written, or that are something else

refused_output() { # PATTERN PATH
    complains 1 "$1" eval -m model.gguf -s a.store texts valid.txt --per-token "$2"
    complains 1 "$1" eval -m model.gguf -s a.store texts valid.txt --report "$2"
    unchanged a.store texts valid.txt model.gguf
}
refused_output 'none/rows: cannot create: No such file' none/rows
refused_output 'a.store: ' a.store
refused_output 'a.store/MANIFEST: is in the store a.store' a.store/MANIFEST
refused_output 'a.store/rows.tsv: is in the store a.store' a.store/rows.tsv
refused_output 'model.gguf: is read as model.gguf' model.gguf
refused_output 'valid.txt: is read as valid.txt' ./valid.txt
refused_output 'texts/a.txt: is in texts, which is read' texts/a.txt
ln -s ../texts/b.txt kept/link
refused_output 'kept/link: is in texts, which is read' kept/link
rm kept/link
complains 1 'same.out: --per-token and --report' eval -m model.gguf -s a.store valid.txt --per-token same.out --report same.out
complains 2 'give a store, or a cache' eval -m model.gguf valid.txt --report page.html
echo old >rows.tsv
complains 1 'bad.txt: not UTF-8' eval -m model.gguf -s a.store valid.txt bad.txt --per-token rows.tsv
check test "$(cat rows.tsv)" = old # an earlier table stays when there is no new one

refused_plot() { # PATTERN PREFIX ARGUMENT...
    pattern=$1 prefix=$2
    shift 2
    complains 1 "$pattern" tune -m model.gguf -s a.store --plot "$prefix" "$@" valid.txt
    check test "$(wc -l <err)" -eq 1 # before the work
    unchanged a.store
}
refused_plot 'none/x-k.svg: cannot create: No such file' none/x
mkdir taken-k.svg wanted-lambda.svg
refused_plot 'taken-k.svg: cannot create: Is a directory' taken
refused_plot 'wanted-lambda.svg: cannot create: Is a directory' wanted
refused_plot 'a.store/x-k.svg: is in the store a.store' a.store/x
complains 2 'one store' tune -m model.gguf -s a.store -s a.store --plot both valid.txt
complains 2 'one store' tune -m model.gguf --cache 9 --plot both valid.txt
check test ! -e both-k.svg -a ! -e both-lambda.svg

# ---- what tune writes: only a whole result, and not while another writes

run 0 tune -m model.gguf -s a.store --dry-run --plot curves valid.txt
check grep -q '^<svg' curves-k.svg
check grep -q '^<svg' curves-lambda.svg
run 0 tune -m model.gguf -s a.store --distance cosine valid.txt # is not of the store's own distance
says '^written  *nothing'
run 0 tune -m model.gguf -s a.store -s a.store valid.txt
says '^written  *nothing'
says '^all together .* -s a.store=[0-9.]*,[0-9.e+]*,[0-9]* -s a.store='
unchanged a.store
mkdir readonly
cp -R a.store readonly
if [ "$(id -u)" -ne 0 ]; then
    chmod -R a-w readonly
    complains 1 'readonly/a.store' tune -m model.gguf -s readonly/a.store valid.txt
    chmod -R u+w readonly
fi

# Interrupted once it has begun: some thousand windows are left then.
write_text 4 150000 >long.txt
rm out err
"$knnlm" tune -m model.gguf -s a.store -t 1 long.txt >out 2>err </dev/null &
child=$! last='tune, interrupted'
waited=0
while [ ! -s err ] && [ $waited -lt 3000 ]; do
    sleep 0.02
    waited=$((waited + 1))
done
kill -INT $child
wait $child
check test $? -eq 1
child=''
check test "$(wc -l <err)" -eq 2
check grep -q '^knnlm tune: stopped ' err
check test ! -s out
unchanged a.store

run 0 tune -m model.gguf -s a.store valid.txt
says '^written  *into a.store'
run 0 verify a.store
run 0 eval -m model.gguf -s a.store valid.txt
says 'was tuned on (part of) this text'
run 0 eval -m model.gguf -s a.store --bins --fallback valid.txt
says 'lambda [0-9.e-]* in the mean (.*falling back)'
run 0 eval -m model.gguf -s a.store --fixed --fallback --report page.html valid.txt
says 'in the mean (falling back)'
check grep -q 'in the mean (falling back)' page.html
run 0 info a.store
says '^seen in tuning  *nearest distance [0-9.e+-]* (95%: [0-9.e+-]*), entropy of neighbours [0-9.e-]* (95%: '
complains 2 "unknown option --fallback" tune -m model.gguf -s a.store --fallback valid.txt

unchanged texts valid.txt model.gguf keyless.store empty.store
left=$(find . -name '*.tmp')
[ -z "$left" ] || failed "temporary files are left: $left"
conclude
