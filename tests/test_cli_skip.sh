#!/bin/sh
# eval --skip-entropy and what tune says of it:  sh tests/test_cli_skip.sh PATH_TO_knnlm SOURCE_DIR
# A run that skips is held, token by token, against one that searches for all, and tune's costs against means over tokens.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
needs_python "to read JSON with"

write_text() { # SEED WORDS
    awk -v seed="$1" -v words="$2" 'BEGIN {
        srand(seed)
        for (i = 1; i <= words; i++) printf "w%d%s", int(rand() * rand() * 90), i % 9 ? " " : "\n"
    }'
}
cp "$golden/adaptive.model.gguf" model.gguf # words w1, w2, ...; states of 32 dimensions, a context of 80
mkdir texts
write_text 1 900 >texts/a.txt
write_text 2 300 >texts/b.txt
write_text 3 700 >valid.txt
run 0 build -m model.gguf -o a.store --no-tune --lists 8 --probes 3 texts
run 0 build -m model.gguf -o b.store --no-tune --no-index texts/b.txt

# compare ENTROPY OPTION...: with and without skipping, in 1 and 3 threads
compare() {
    entropy=$1
    shift
    run 0 eval -m model.gguf --per-token all.tsv "$@"
    run 0 eval -m model.gguf --per-token skip.tsv --skip-entropy "$entropy" --json -t 3 "$@"
    mv out three
    run 0 eval -m model.gguf --per-token one.tsv --skip-entropy "$entropy" --json -t 1 "$@"
    check cmp one.tsv skip.tsv
    checks=$((checks + 1))
    $python - "$entropy" <<'END' >said 2>&1 || failed "skipping below $entropy: $*"
import csv, json, math, sys
limit = float(sys.argv[1])
every, some = (list(csv.DictReader(open(f), delimiter="\t", quoting=csv.QUOTE_NONE)) for f in ("all.tsv", "skip.tsv"))
r = json.load(open("three"))
number = lambda row, name: float(row[name]) if row[name] else math.nan
skipped, nll = 0, 0
assert len(every) == len(some) == r["tokens"]
for a, b in zip(every, some):
    nll -= number(b, "logprob")
    if number(a, "entropy") < limit:
        skipped += 1
        lm, cache = number(b, "logprob_lm"), number(b, "logprob_cache")
        weight = 0 if math.isnan(cache) else r["cache"]["lambda"]
        assert number(b, "lambda") == 0 and math.isnan(number(b, "nearest")), b
        if weight == 0:
            assert b["logprob"] == b["logprob_lm"], b
        else:
            p = (1 - weight) * math.exp(lm) + weight * math.exp(cache)
            assert abs(math.log(p) - number(b, "logprob")) < 1e-6, b
    else:
        assert a == b, (a, b)
assert r["skip_entropy"] == limit and abs(r["skipped"] - skipped / len(some)) < 1e-9, (r["skipped"], skipped)
assert abs(r["nll"] - nll) < 1e-4, (r["nll"], nll)
assert 0 < skipped < len(some), skipped
END
}
entropies() { awk -F '\t' 'NR > 1 { print $NF }' "$1" | sort -g | awk '{ x[NR] = $1 } END { print (x[int(NR / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
run 0 eval -m model.gguf -s a.store --per-token all.tsv valid.txt
middle=$(entropies all.tsv)
compare "$middle" -s a.store valid.txt
compare "$middle" -s a.store -s b.store --lambda .4 valid.txt texts/b.txt # which is in both: each text without itself
compare "$middle" -s a.store --cache 20 --cache-lambda .2 --fallback valid.txt
run 0 eval -m model.gguf -s a.store --skip-entropy "$middle" --report page.html valid.txt
check grep -q '^skipped  *[0-9.]*% of the searches: ' out
run 0 eval -m model.gguf -s a.store --skip-entropy 100 --json valid.txt
check "$python" -c 'import json; r = json.load(open("out")); assert r["skipped"] == 1 and r["ppl"] == r["ppl_lm"]'
run 0 eval -m model.gguf -s a.store --json valid.txt
check "$python" -c 'import json; r = json.load(open("out")); assert r["skipped"] == 0 and r["skip_entropy"] == 0'
complains 2 'name it with -s' eval -m model.gguf --skip-entropy 1 valid.txt
complains 2 'name it with -s' generate -m model.gguf -p w1 --skip-entropy 1

# What tune says that skipping costs is what evaluating the same text with it costs.
run 0 tune -m model.gguf -s a.store --fixed --json valid.txt
mv out tuned
for place in 0 4 8; do
    entropy=$($python -c "import json; print(repr(json.load(open('tuned'))['by_skip'][$place]['entropy']))")
    run 0 eval -m model.gguf -s a.store --fixed --skip-entropy "$entropy" --json valid.txt
    # shellcheck disable=SC2016
    check "$python" -c 'import json, sys
t, r = json.load(open("tuned"))["by_skip"][int(sys.argv[1])], json.load(open("out"))
assert abs(t["skipped"] - r["skipped"]) < 1e-9, (t, r["skipped"])
assert abs(t["ppl"] / r["ppl"] - 1) < 1e-5, (t, r["ppl"])' "$place"
done
run 0 tune -m model.gguf -s a.store --dry-run valid.txt
check grep -q '^skipping  *[0-9.]* without 10% of the searches (eval --skip-entropy ' out

# Generation: a text that no search was made for is the model's own.
run 0 generate -m model.gguf -s a.store --skip-entropy 100 -p 'w1 w2' -n 12 --temp 0
mv out skipped
run 0 generate -m model.gguf -p 'w1 w2' -n 12 --temp 0
check cmp out skipped
conclude
