#!/bin/sh
# Generation as its users meet it:  sh tests/test_cli_generate.sh PATH_TO_knnlm SOURCE_DIR
# Greedy words are held against those that `explain` finds the most probable. Every check prints a line when it fails.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
unset NO_COLOR
model=$source/models/small.gguf
needs_python "to read JSON with"
input=in

holds() { # EXPRESSION over r (the output), math
    checks=$((checks + 1))
    $python - "$1" <<'END' || failed "not so: $1"
import json, math, sys
r = json.load(open("out"))
near = lambda a, b: abs(a - b) <= 1e-3 * (1 + abs(b))
sys.exit(not eval(sys.argv[1]))
END
}

: >in
printf 'The nearest neighbours of a context have their say. The context of a word is what stands before it, and the nearest
neighbours of the context are those that the model finds most like it. A store has the context of every word.\n' >told.txt
printf 'Rivers of the north carry ice: Łódź and 東京 have none.\n' >rivers.txt
run 0 build -m "$model" -o told.store told.txt
run 0 build -m "$model" -o rivers.store rivers.txt
base="-m $model --precision f32"
with="$base -s told.store --temperature 20 --lambda 0.5"

# shellcheck disable=SC2086 # options are words
{
    # ---- the help and the manual
    run 0 --help
    says '^  generate '
    run 0 generate --help
    says '^usage: knnlm generate '
    sed -n 's/^  *\(-[a-z], \)\{0,1\}--\([a-z-]*\).*/\2/p' out >options
    sed 's/\\-/-/g' "$source/man/knnlm.1" | sed -n '/^.SH KNNLM GENERATE/,/^.SH KNNLM BUILD/p' >manual
    for option in model prompt tokens temp top-k top-p min-p repeat-penalty repeat-last dry-multiplier dry-base dry-allowed-length stop ignore-end seed sources around \
        no-echo no-fallback no-carry cache; do
        ensure "the help has --$option" grep -qx -e "$option" options
        ensure "the manual has --$option" grep -q -e "--$option" manual
    done

    # ---- what is printed
    run 0 generate $base -p 'The context' -n 8 --seed 1
    ensure 'the prompt comes first' grep -q '^The context' out
    ensure 'the last line is ended' test "$(tail -c 1 out | od -An -c | tr -d ' ')" = '\n'
    ensure 'nothing on stderr' test ! -s err
    cp out echoed
    run 0 generate $base -p 'The context' -n 8 --seed 1 --no-echo
    { printf 'The context' && cat out; } >joined
    ensure 'without the prompt it is the rest' cmp joined echoed
    printf 'The context\n' >in
    run 0 generate $base -n 8 --seed 1
    ensure 'standard input is a prompt' cmp out echoed
    run 0 generate $base -p - -n 8 --seed 1
    ensure '- is standard input' cmp out echoed
    : >in
    run 0 generate $base -n 3 --seed 1
    run 0 generate $base -p '' -n 3 --seed 1 -v
    says '3 tokens after 0 in .* tokens/s.* seed 1$'
    run 0 generate $base -p 'The context' -n 8 --seed 1 -t 1
    ensure 'threads change nothing' cmp out echoed
    run 0 generate $base -p 'The' -n 40 --seed 1
    cp out one
    run 0 generate $base -p 'The' -n 40 --seed 2
    ensure 'seeds differ' test "$(cmp -s out one && echo same)" = ''

    # ---- greedy words are explain's first
    run 0 generate $with --no-fallback --no-carry -p 'The nearest' -n 10 --temp 0 --json
    cp out greedy.json
    text='The nearest'
    $python -c 'import json; [print(t["token"], t["p"], t["p_lm"], t["p_knn"]) for t in json.load(open("greedy.json"))["tokens"]]' >tokens
    number=0
    while read -r token p p_lm p_knn; do
        run 0 explain $with "$text" --words 1 --show 0 --json
        holds "r['words'][0]['token'] == $token and near(r['words'][0]['p'], $p) and near(r['words'][0]['p_lm'], $p_lm) and near(r['words'][0]['p_knn'], $p_knn)"
        number=$((number + 1))
        text=$($python -c 'import json, sys; r = json.load(open("greedy.json")); print(r["prompt"] + "".join(t["text"] for t in r["tokens"][:int(sys.argv[1])]), end="")' $number)
    done <tokens
    ensure 'ten tokens' test $number -eq 10

    # ---- a space at the end of the prompt is the first word's
    run 0 generate $with --no-fallback --no-carry -p 'The nearest ' -n 10 --temp 0 --json
    cp out spaced.json
    $python -c 'import json; a, b = (json.load(open(f)) for f in ("greedy.json", "spaced.json")); assert a["tokens"] == b["tokens"] and b["prompt_tokens"] == a["prompt_tokens"]' >out 2>&1
    ensure 'the words are those without the space' test ! -s out
    run 0 generate $with --no-fallback -p 'The nearest' -n 10 --temp 0
    cp out plain
    run 0 generate $with --no-fallback -p 'The nearest ' -n 10 --temp 0
    ensure 'the text is joined by one space' cmp out plain
    for seed in 1 2 3 4 5 6; do # where the likely word has none, one that has
        run 0 generate $base -p 'The near ' -n 1 --seed $seed --top-k 0 --top-p 1 --min-p 0 --json
        holds 'r["text"].startswith(" ")'
    done
    run 0 generate $base -p ' ' -n 2 --seed 1

    # ---- JSON
    cp greedy.json out
    holds 'r["finish"] == "length" and len(r["tokens"]) == 10 and r["prompt"] == "The nearest" and r["prompt_tokens"] == 2'
    holds '"".join(t["text"] for t in r["tokens"]) == r["text"]'
    holds 'all(r["text"].encode()[t["offset"]:].decode().startswith(t["text"]) for t in r["tokens"])'
    holds 'all(near(t["p"], t["lambda"] * t["p_knn"] + (1 - t["lambda"]) * t["p_lm"]) and near(math.log(t["p"]), t["logprob"]) for t in r["tokens"])'
    holds 'all(any(t["lambda"] * t["p_knn"] > (1 - t["lambda"]) * t["p_lm"] for t in r["tokens"][x["first"]:x["first"] + x["tokens"]]) for x in r["sources"])'
    holds 'all(t["source"] == next((x["number"] for x in r["sources"] if x["first"] <= i < x["first"] + x["tokens"]), None) for i, t in enumerate(r["tokens"]))'
    holds '[x["footnote"] for x in r["sources"] if x["footnote"]] == list(range(1, 1 + sum(x["footnote"] is not None for x in r["sources"])))'
    holds 'sum(x["tokens"] for x in r["sources"]) == sum(t["source"] is not None for t in r["tokens"])'
    holds 'all(x["document"].endswith("told.txt") and 0 < x["share"] <= 1 and x["number"] == i + 1 for i, x in enumerate(r["sources"]))'
    holds 'r["tokens_per_second"] > 0 and r["seconds"] >= r["seconds_lm"] + r["seconds_search"] - 1e-6 and r["seconds_search"] > 0'
    holds 'r["settings"]["stores"][0]["lambda"] == 0.5 and r["settings"]["temperature"] == 0 and not r["settings"]["stores"][0]["fallback"]'
    run 0 generate $with -p 'The nearest' -n 3 --json
    holds 'r["settings"]["stores"][0]["fallback"] and r["settings"]["seed"] >= 0'
    run 0 generate $base -p 'The nearest' -n 3 --json
    holds 'r["sources"] == [] and all(t["p_knn"] is None and t["nearest"] is None and t["lambda"] == 0 for t in r["tokens"])'

    # ---- sources: the whole text of a store, word for word
    sure="--lambda 1 --temperature 0.01 --no-fallback --temp 0 --sources"
    run 0 generate $base -s told.store $sure -p 'The nearest' -n 20
    says '^The nearest \[neighbours of a context have their say\. .*\]\[1\]$'
    says '^\[1\] .*told.txt, token 2: 20 tokens, 100%$'
    says '^    The nearest \[neighbours of a context have their say. The context of a word is what stands before it,\] and the .* …$'
    ensure 'one footnote' test "$(grep -c '^\[' out)" -eq 1
    run 0 generate $base -s told.store $sure -p 'The nearest' -n 20 --stop ' their say'
    says '^The nearest \[neighbours of a context have\]\[1\]$'
    run 0 generate $base -s rivers.store $sure -p 'Rivers of' -n 40 --stop ' have none'
    says '^Rivers of \[the north carry ice: Łódź and 東京\]\[1\]$'
    printf 'Башенные часы пробили полночь, и старый город затих.\n' >hours.txt
    run 0 build -m "$model" -o hours.store hours.txt
    run 0 generate $base -s hours.store $sure -p 'Башенные' -n 100
    says '^Башенные \[часы пробили полночь, и старый город затих\.\]\[1\]$'
    for n in 1 2 3 4 5 6 7 8 9 10 11 12; do # wherever it is cut, brackets are between words
        run 0 generate $base -s hours.store $sure -p 'Башенные' -n $n
        ensure "$n tokens: halves in brackets" test "$(grep -c '^Башенные\( \[часы\( пробили\)*\( полночь\)*,*\]\[1\]\)*[^][]*$' out)" -eq 1
        ensure "$n tokens: half a character" test "$(grep -c '\\x' out)" -eq 0
    done
    run 0 generate $base -s told.store=0.2,0.01 -s rivers.store=0.8,0.01 --no-fallback --temp 0 --sources -p 'Rivers of the' -n 3 --json
    holds '[x["store"] for x in r["sources"]] == ["rivers.store"] and r["text"] == " north carry ice"'
    if command -v script >/dev/null 2>&1; then
        script -qec "'$knnlm' generate $base -s told.store $sure -p 'The nearest' -n 5" /dev/null </dev/null >out 2>err
        last='generate on a terminal'
        says "$(printf 'The nearest \033\\[4mneighbours of a context\033\\[24m\\[1\\]')"
        NO_COLOR=1 script -qec "'$knnlm' generate $base -s told.store $sure -p 'The nearest' -n 5" /dev/null </dev/null >out 2>err
        says '^The nearest \[neighbours of a context\]\[1\]'
    fi

    # ---- the cache of the text itself, and words that neighbours began
    run 0 generate $with -p 'The nearest neighbours of the nearest neighbours of the nearest' -n 5 --temp 0 --cache 50 --cache-lambda 0.5 --cache-temperature 20 --json
    holds 'r["settings"]["cache"] == {"size": 50, "lambda": 0.5, "temperature": 20} and r["text"].startswith(" neighbours of the nearest") and all(t["lambda"] >= 0.5 for t in r["tokens"])'
    run 0 generate $base -p 'The nearest' -n 4 --temp 0 --cache 50 --json
    holds 'r["settings"]["cache"]["lambda"] == 0.1 and r["settings"]["carry"] and all(t["p_knn"] is not None for t in r["tokens"]) and r["sources"] == []'
    run 0 generate $with -p 'The nearest' -n 4 --no-carry --json
    holds 'r["settings"]["cache"] is None and not r["settings"]["carry"]'

    # ---- several stops, and the end of a text
    run 0 generate $base -s told.store $sure -p 'The nearest' -n 20 --stop 'nowhere' --stop 'say' --stop ' their' --json
    holds 'r["finish"] == "stop" and r["text"] == " neighbours of a context have"'
    run 0 generate -m "$source/tests/golden/gpt2.model.gguf" -p 'w3 w5' -n 300 --ignore-end --seed 1 --json
    holds 'len(r["tokens"]) == 300 and r["cut"]'

    # ---- bad input at every door
    complains 2 'no -m' generate -p 'The'
    complains 2 'after -p' generate $base The
    complains 2 'name it with -s' generate $base -p The --sources
    complains 2 'name it with -s' generate $base -p The --no-fallback
    complains 2 'name it with -s' generate $base -p The --lambda 0.5
    complains 2 'name it with -s' generate $base -p The --no-carry
    complains 2 'the cache has a size' generate $with -p The --cache-lambda 0.1
    complains 1 'above 1' generate $with -p The --cache 10 --cache-lambda 0.6
    complains 2 'stop is empty' generate $base -p The --stop ''
    complains 1 'not UTF-8' generate $base -p The --stop "$(printf 'a\303')"
    complains 1 'prompt is not UTF-8 at byte 1' generate $base -p "$(printf 'a\377')"
    printf 'ab\377' >in
    complains 1 'prompt is not UTF-8 at byte 2' generate $base
    : >in
    for option in tokens temp top-k top-p min-p repeat-penalty repeat-last dry-multiplier dry-base dry-allowed-length seed around; do
        for value in x '' -1 nan 1e308 -9223372036854775808 99999999999999999999; do
            complains 2 "--$option" generate $base -p The --$option "$value"
        done
    done
    complains 2 'out of range' generate $base -p The -n 0
    complains 2 'out of range' generate $base -p The --top-p 1.5
    complains 2 'unknown option' generate $base -p The --nonsense
    complains 1 'nowhere.gguf' generate -m nowhere.gguf -p The
    complains 1 'nowhere.store' generate $base -s nowhere.store -p The
    complains 1 'told.txt' generate -m told.txt -p The
    complains 1 'told.store' generate -m "$source/tests/golden/plain.model.gguf" -s told.store -p The

    # ---- interrupted: what there is, and exit code 1
    : >out
    "$knnlm" generate $base -p 'The' -n 100000000 --ignore-end >out 2>err &
    child=$!
    tries=1200
    while [ "$(wc -c <out)" -le 20 ] && [ $((tries -= 1)) -gt 0 ]; do sleep 0.05; done
    kill -INT $child
    wait $child
    code=$?
    last='generate, interrupted'
    ensure "exit code $code, not 1" test $code -eq 1
    says 'stopped after [1-9][0-9]* tokens'
    ensure 'there is text' test "$(wc -c <out)" -gt 20
    ensure 'the line is ended' test "$(tail -c 1 out | od -An -c | tr -d ' ')" = '\n'
    "$knnlm" generate $base -p 'The' -n 100000000 --ignore-end 2>err | head -c 20 >out
    ensure 'it ends when nobody reads' test "$(wc -c <out)" -eq 20
}

conclude
