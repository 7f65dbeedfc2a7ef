#!/bin/sh
# Explanations and the report, as their users meet them:  sh tests/test_cli_explain.sh PATH_TO_knnlm SOURCE_DIR
# What they show is held against the rows of `eval --per-token`. Every check prints a line when it fails.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
model=$source/models/small.gguf
needs_python "to read JSON with"

holds() { # EXPRESSION over r (the output), rows (of rows.tsv), near(a, b)
    checks=$((checks + 1))
    $python - "$1" <<'END' || failed "not so: $1"
import csv, json, math, os, sys
r = json.load(open("out"))
rows = list(csv.DictReader(open("rows.tsv"), delimiter="\t", quoting=csv.QUOTE_NONE)) if os.path.exists("rows.tsv") else []
near = lambda a, b: abs(a - b) <= 1e-4 * (1 + abs(b))
gain = lambda x: float(x["logprob"]) - float(x["logprob_lm"])
sys.exit(not eval(sys.argv[1]))
END
}

printf 'The nearest neighbours of a context have their say. The context of a word is what stands before it, and the nearest
neighbours of the context are those that the model finds most like it. A store has the context of every word.\n' >told.txt
printf 'The nearest neighbours of the context of a word have their say.\n' >asked.txt
run 0 build -m "$model" -o told.store told.txt
run 0 eval -m "$model" -s told.store --temperature 20 --precision f32 --per-token rows.tsv asked.txt

# ---- one context: the second token of the text, after the first
with="-m $model -s told.store --temperature 20 --precision f32"
# shellcheck disable=SC2086 # options are words
{
    run 0 explain $with --json "The" --target nearest --words 5 --show 4
    holds 'r["tokens"] == 1 and not r["cut"] and len(r["neighbors"]) == 4 and 5 <= len(r["words"]) <= 6'
    holds 'all(near(w["p"], r["lambda"] * w["p_knn"] + (1 - r["lambda"]) * w["p_lm"]) for w in r["words"])'
    holds 'sorted((w["p"] for w in r["words"][:5]), reverse=True) == [w["p"] for w in r["words"][:5]]'
    holds '[w["text"] for w in r["words"] if w["target"]] == [" nearest"]'
    holds 'near(math.log([w for w in r["words"] if w["target"]][0]["p"]), float(rows[1]["logprob"]))'
    holds 'near(math.log([w for w in r["words"] if w["target"]][0]["p_lm"]), float(rows[1]["logprob_lm"]))'
    holds 'near(r["nearest"], float(rows[1]["nearest"])) and near(r["entropy"], float(rows[1]["entropy"]))'
    holds 'r["neighbors"][0]["text"] == " nearest" and r["neighbors"][0]["before"].endswith("The") and r["neighbors"][0]["document"].endswith("told.txt")'
    holds 'sorted((n["share"] for n in r["neighbors"]), reverse=True) == [n["share"] for n in r["neighbors"]] and near(r["neighbors"][0]["distance"], r["nearest"])'
    run 0 explain $with "The nearest" --target neighbours
    says "^the target's tokens, each after those before it"
    says ' \* The nearest\[ '
    says 'told.txt, token'
    # ---- a word of several tokens: each is held against the row of the text that has it there
    tokens=$(awk -F'\t' 'NR == 4 || NR == 5 { printf "%s", $5 }' rows.tsv)
    run 0 explain $with --json "The nearest" --target "${tokens# }"
    holds 'len(r["target"]["tokens"]) == 2 and [t["token"] for t in r["target"]["tokens"]] == [int(x["token"]) for x in rows[2:4]]'
    holds 'all(near(math.log(t["p"]), float(x["logprob"])) and near(math.log(t["p_lm"]), float(x["logprob_lm"])) for t, x in zip(r["target"]["tokens"], rows[2:4]))'
    holds 'near(r["target"]["p"], math.prod(t["p"] for t in r["target"]["tokens"])) and near(r["target"]["p_knn"], math.prod(t["p_knn"] for t in r["target"]["tokens"]))'
    holds 'near(r["target"]["tokens"][0]["p"], [w for w in r["words"] if w["target"]][0]["p"])'
    cp out whole
    run 0 explain $with --json "The nearest " --target "${tokens# }" # the space belongs to the word
    ensure 'a space at the end changes nothing' cmp out whole
    run 0 explain $with --json "The nearest"
    holds 'r["target"] is None'
    complains 1 'more than 64' explain $with "The" --target "$(printf '%0200d' 0 | sed 's/0/x y /g')"
    run 0 explain $with ""
    run 0 explain -m "$model" "No store: the model alone"
    says '^context '
    complains 2 'one context' explain $with
    complains 2 'one context' explain $with two words
    complains 2 'place of a context' explain $with --text asked.txt "The"
    complains 1 'no token' explain $with "The " --target ""
    complains 2 'no -m' explain "The"
    complains 1 'nowhere.store' explain -m "$model" -s nowhere.store "The"
    printf 'The\0 nearest' >nul.txt
    last='explain - with a NUL'
    ensure "refused" not "$knnlm" explain -m "$model" - <nul.txt

    # ---- a text: those of the rows with the largest and the smallest gain
    run 0 explain $with --text asked.txt --best 3 --worst 2 --json
    holds 'len(r["best"]) == 3 and len(r["worst"]) == 2'
    holds '[x["position"] for x in r["best"]] == [int(x["position"]) for x in sorted(rows, key=lambda x: -gain(x))[:3]]'
    holds '[x["position"] for x in r["worst"]] == [int(x["position"]) for x in sorted(rows, key=gain)[:2]]'
    holds 'all(near(x["logprob"], float(rows[x["position"]]["logprob"])) for x in r["best"] + r["worst"])'
    holds 'near(math.log(r["ppl"]), -sum(float(x["logprob"]) for x in rows) / len(rows))'
    run 0 explain $with --text asked.txt --best 1 --worst 1 --show 1
    says '^== where neighbours helped most'
    says '^== where they hurt most'
    complains 1 'give a store' explain -m "$model" --text asked.txt
    complains 1 'no text' explain $with --text /dev/null

    # ---- the report
    run 0 eval $with --report page.html --json asked.txt
    sed -n '/application\/json/,/<\/script>/p' page.html | sed '1s/.*<script[^>]*>//; s/<\/script>.*//' >out
    holds 'len([t for t in r["tokens"] if isinstance(t, list)]) == len(rows) == r["scored"]'
    holds 'all(near(t[3], float(x["logprob"])) for t, x in zip([t for t in r["tokens"] if isinstance(t, list)], rows))'
    holds 'len(r["curves"]) == 3 and near(r["curves"][1]["y"][-1], math.exp(-sum(float(x["logprob"]) for x in rows) / len(rows)))'
    holds 'r["curves"][0]["x"] == sorted(set(r["curves"][0]["x"])) and all(0 < y <= 1.2501 * r["curves"][0]["y"][0] for y in r["curves"][0]["y"])'
    run 0 eval $with --report page.html --report-tokens 3 asked.txt
    complains 2 'give a store' eval -m "$model" --report page.html asked.txt
    complains 1 'nowhere' eval $with --report nowhere/page.html asked.txt
    complains 1 'asked.txt' eval $with --report asked.txt asked.txt
}

conclude
