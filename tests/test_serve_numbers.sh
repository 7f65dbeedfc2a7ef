#!/bin/sh
# What the server says of texts: every number is held against `knnlm eval --per-token` and `knnlm explain`, or against
# another path of the server's that those have vouched for.
#   sh tests/test_serve_numbers.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

# json EXPRESSION: writes it to `sent`, the body of the next request; kept(NAME) and text(FILE) are there.
json() {
    $python -I -c '
import json, sys
kept = lambda name: json.load(open(name + ".json", encoding="utf-8"))
text = lambda name: open(name, encoding="utf-8").read()
json.dump(eval(sys.argv[1]), open("sent", "w"))' "$1"
}
# scores FILE OPTION...: rows.tsv is what eval says of it
scores() {
    run 0 eval --precision f32 --per-token rows.tsv "$@"
}

run 0 build -m "$model" --precision f32 -o told.store told.txt
start -m "$model" --precision f32 -s told.store

# ---- /v1/score against eval

# agrees OPTION_OF_EVAL...: the answer in `body` is what eval says of asked.txt with these.
agrees() {
    scores -m "$model" "$@" asked.txt
    last="score, and eval $*"
    holds 'r["object"] == "score" and r["count"] == len(r["tokens"]) == len(rows("rows.tsv"))'
    holds '[(x["token"], x["offset"]) for x in r["tokens"]] == [(x["token"], x["offset"]) for x in rows("rows.tsv")]'
    holds 'all_near((x["logprob"] for x in r["tokens"]), (x["logprob"] for x in rows("rows.tsv")))'
    holds 'all_near((log(x["p"]) for x in r["tokens"]), (x["logprob"] for x in rows("rows.tsv")))'
    holds 'all_near((log(x["p_lm"]) for x in r["tokens"]), (x["logprob_lm"] for x in rows("rows.tsv")))'
    holds 'near(math.log(r["ppl"]), -sum(x["logprob"] for x in rows("rows.tsv")) / r["count"])'
    holds 'near(math.log(r["ppl_lm"]), -sum(x["logprob_lm"] for x in rows("rows.tsv")) / r["count"])'
    holds '"".join(x["text"] for x in r["tokens"]) == text("asked.txt")'
}
# The same of what only neighbours have.
agrees_on_neighbours() {
    agrees "$@"
    holds 'all_near((log(x["p_knn"]) for x in r["tokens"]), (x["logprob_knn"] for x in rows("rows.tsv")))'
    holds 'all_near((x["lambda"] for x in r["tokens"]), (x["lambda"] for x in rows("rows.tsv")))'
    holds 'all_near((x["nearest"] for x in r["tokens"]), (x["nearest"] for x in rows("rows.tsv")))'
    holds 'all_near((x["entropy"] for x in r["tokens"]), (x["entropy"] for x in rows("rows.tsv")))'
    holds 'all(near(x["p"], x["lambda"] * x["p_knn"] + (1 - x["lambda"]) * x["p_lm"]) for x in r["tokens"])'
}
json '{"text": text("asked.txt")}'
expect 200 POST /v1/score @sent
agrees_on_neighbours -s told.store
keep scored
json '{"text": text("asked.txt"), "knn": {"lambda": 0.6, "temperature": 20, "k": 7}}'
expect 200 POST /v1/score @sent
agrees_on_neighbours -s told.store --lambda 0.6 --temperature 20 -k 7
json '{"tokens": [x["token"] for x in kept("scored")["tokens"]], "knn": {"temperatures": [1, 20, 300], "temperature": 20}}'
expect 200 POST /v1/score @sent
agrees_on_neighbours -s told.store --temperature 20
holds 'all(len(x["p_knn_at"]) == 3 and near(x["p_knn_at"][1], x["p_knn"]) for x in r["tokens"])'
holds 'all_near((x["p_knn_at"][0] for x in r["tokens"]), (x["p_knn"] for x in kept("scored")["tokens"]))'
for alone in '"lambda": 0' '"stores": []'; do
    json "{'text': text('asked.txt'), 'knn': {$alone}}"
    expect 200 POST /v1/score @sent
    agrees
    holds 'all(x["lambda"] == 0 and near(x["p"], x["p_lm"], 1e-9) for x in r["tokens"])'
done
holds 'all(x["p_knn"] is None and x["nearest"] is None for x in r["tokens"])'
json '{"text": text("asked.txt"), "knn": {"stores": ["told"]}}'
expect 200 POST /v1/score @sent
agrees_on_neighbours -s told.store
# The store has never heard of zebras: they have no probability, which is written as -9999.
expect 200 POST /v1/score '{"text": "The zebra", "knn": {"lambda": 1}}'
holds 'r["ppl"] is None and r["ppl_lm"] > 1 and min(x["p"] for x in r["tokens"]) == 0 and min(x["logprob"] for x in r["tokens"]) == -9999'
expect 200 POST /v1/score '{"text": ""}'
holds 'r["count"] == 0 and r["tokens"] == [] and r["ppl"] is None'
# A text that the store has finds itself.
json '{"text": text("told.txt")}'
expect 200 POST /v1/score @sent
cp asked.txt kept.txt && cp told.txt asked.txt
agrees_on_neighbours -s told.store --include-self
mv kept.txt asked.txt
refused 404 invalid_request_error '"not_found"' POST /v1/score '{"text": "x", "knn": {"stores": ["nowhere"]}}'
refused 400 invalid_request_error None POST /v1/score '{"text": "x", "knn": {"lambdas": 1}}'
refused 400 invalid_request_error None POST /v1/score '{"text": "x", "tokens": [1]}'
refused 400 invalid_request_error None POST /v1/score '{}'

# ---- /v1/explain against explain

# explains CONTEXT TARGET WORDS NEIGHBORS AROUND [MEMBERS_OF_KNN OPTION_OF_EXPLAIN...]
explains() {
    context=$1 target=$2 words=$3 neighbors=$4 around=$5 members=${6:-}
    if [ $# -gt 6 ]; then shift 6; else shift $#; fi
    json "{'context': '$context', 'target': '$target', 'words': $words, 'neighbors': $neighbors, 'around': $around, 'knn': {$members}}"
    run 0 explain -m "$model" -s told.store --precision f32 --json --target "$target" --words "$words" --show "$neighbors" --around "$around" "$@" "$context"
    cp out told.json
    expect 200 POST /v1/explain @sent
    holds 'r["object"] == "explanation" and r["tokens"] == kept("told")["tokens"] and r["cut"] == kept("told")["cut"]'
    holds 'all(near(r[x], kept("told")[x]) for x in ("lambda", "nearest", "entropy"))'
    holds '[(x["token"], x["text"], x["target"]) for x in r["words"]] == [(x["token"], x["text"], x["target"]) for x in kept("told")["words"]]'
    holds 'all(near(a[x], b[x]) for a, b in zip(r["words"], kept("told")["words"]) for x in ("p", "p_lm", "p_knn"))'
    holds 'len(r["neighbors"]) == len(kept("told")["neighbors"]) and all(x["store"] == "told" for x in r["neighbors"])'
    holds 'all(a[x] == b[x] for a, b in zip(r["neighbors"], kept("told")["neighbors"]) for x in ("entry", "token", "text", "before", "after", "document", "position", "offset"))'
    holds 'all(near(a[x], b[x]) for a, b in zip(r["neighbors"], kept("told")["neighbors"]) for x in ("share", "distance"))'
}
explains 'The nearest' ' neighbours' 8 8 12
explains 'The context of a' word 3 4 2 '"temperature": 20, "k": 9, "lambda": 0.5' --temperature 20 -k 9 --lambda 0.5
explains 'A store has the' ' context' 100 100 200
expect 200 POST /v1/explain '{"context": ""}'
holds 'r["tokens"] == 0 and len(r["words"]) == 8 and len(r["neighbors"]) == 8'
expect 200 POST /v1/explain '{"context": "The", "knn": {"stores": []}, "words": 2}'
holds 'r["neighbors"] == [] and r["lambda"] == 0 and r["nearest"] is None and all(x["p_knn"] is None for x in r["words"])'
expect 200 POST /v1/explain '{"context": "The", "words": 0, "neighbors": 1, "target_token": 5}'
holds '[(x["token"], x["target"]) for x in r["words"]] == [(5, True)] and len(r["neighbors"]) == 1'
entry=$($python -c 'import json; print(json.load(open("body"))["neighbors"][0]["entry"])')
keep explained
expect 200 GET "/v1/stores/told/entries/$entry?around=5"
holds 'all(r[x] == kept("explained")["neighbors"][0][x] for x in ("store", "entry", "document", "position", "offset", "text"))'
holds 'r["before"] + r["text"] + r["after"] in text("told.txt")'
expect 200 GET "/v1/stores/told/entries/0?around=1000"
holds 'r["before"] == "" and r["position"] == 0 and r["text"] + r["after"] == text("told.txt")'
refused 404 invalid_request_error '"not_found"' GET /v1/stores/told/entries/1000000
for context in '{}' '{"context": "x", "tokens": [1]}' '{"context": "x", "target": "a", "target_token": 1}' '{"tokens": [16000]}'; do
    refused 400 invalid_request_error None POST /v1/explain "$context"
done

# ---- echo with logprobs: what score says

json '{"prompt": text("asked.txt"), "echo": True, "logprobs": 3, "max_tokens": 0}'
expect 200 POST /v1/completions @sent
holds 'r["object"] == "text_completion" and r["choices"][0]["text"] == text("asked.txt") and r["choices"][0]["finish_reason"] == "length"'
holds 'r["usage"] == {"prompt_tokens": kept("scored")["count"], "completion_tokens": 0, "total_tokens": kept("scored")["count"]}'
# logs(NAME): what holds of every list of logprobs, and what this one shares with the scores
cat >echo.expression <<'END'
(lambda l, t: l["token_logprobs"][0] is None and l["top_logprobs"][0] is None
 and all_near(l["token_logprobs"][1:len(t)], (x["logprob"] for x in t[1:]))
 and l["tokens"][:len(t)] == [x["text"] for x in t] and l["text_offset"][:len(t)] == [x["offset"] for x in t]
 and len({len(x) for x in l.values()}) == 1
 and all(top[token] == p and 3 <= len(top) <= 4
         for token, p, top in list(zip(l["tokens"], l["token_logprobs"], l["top_logprobs"]))[1:])
)(r["choices"][0]["logprobs"], kept("scored")["tokens"])
END
echo_agrees() { holds "$(cat echo.expression)"; }
echo_agrees
json '{"prompt": [x["token"] for x in kept("scored")["tokens"]], "echo": True, "logprobs": 3, "max_tokens": 1, "temperature": 0}'
expect 200 POST /v1/completions @sent
echo_agrees
holds 'len(r["choices"][0]["logprobs"]["tokens"]) == kept("scored")["count"] + 1 and r["usage"]["completion_tokens"] == 1'
holds 'r["choices"][0]["logprobs"]["token_logprobs"][-1] == max(r["choices"][0]["logprobs"]["top_logprobs"][-1].values())'
# The start token may be brought along: then it is the first, and the second has its number.
expect 200 GET /tokenizer_info
keep tokenizer
json '{"prompt": [kept("tokenizer")["bos_token_id"]] + [x["token"] for x in kept("scored")["tokens"]], "echo": True, "logprobs": 0, "max_tokens": 0}'
expect 200 POST /v1/completions @sent
holds 'r["choices"][0]["logprobs"]["token_logprobs"][0] is None and all_near(r["choices"][0]["logprobs"]["token_logprobs"][1:], (x["logprob"] for x in kept("scored")["tokens"]))'
holds 'all(len(x) == 1 for x in r["choices"][0]["logprobs"]["top_logprobs"][1:])'

# ---- the most probable words, one after another, are those that explain has first

json '{"prompt": "The nearest neighbours", "max_tokens": 10, "temperature": 0, "logprobs": 2, "knn": {"fallback": False, "carry": False, "explain": True}}'
expect 200 POST /v1/completions @sent
keep greedy
holds 'r["choices"][0]["finish_reason"] == "length" and len(r["choices"][0]["knn"]["tokens"]) == 10 and r["usage"]["completion_tokens"] == 10'
holds '"".join(x["text"] for x in r["choices"][0]["knn"]["tokens"]) == r["choices"][0]["text"]'
holds 'all_near(r["choices"][0]["logprobs"]["token_logprobs"], (x["logprob"] for x in r["choices"][0]["knn"]["tokens"]))'
holds 'all(near(x["p"], x["lambda"] * x["p_knn"] + (1 - x["lambda"]) * x["p_lm"]) and near(log(x["p"]), x["logprob"]) for x in r["choices"][0]["knn"]["tokens"])'
expect 200 POST /tokenize '{"prompt": "The nearest neighbours"}'
keep prompt
holds 'kept("greedy")["usage"]["prompt_tokens"] == r["count"]'
for i in 0 1 4 9; do
    json "{'tokens': kept('prompt')['tokens'] + [x['token'] for x in kept('greedy')['choices'][0]['knn']['tokens'][:$i]], 'words': 1}"
    expect 200 POST /v1/explain @sent
    holds "(lambda a, b: a['token'] == b['token'] and all(near(a[x], b[x]) for x in ('p', 'p_lm', 'p_knn')))(r['words'][0], kept('greedy')['choices'][0]['knn']['tokens'][$i])"
    holds "near(r['lambda'], kept('greedy')['choices'][0]['knn']['tokens'][$i]['lambda']) and near(r['nearest'], kept('greedy')['choices'][0]['knn']['tokens'][$i]['nearest'])"
done

# ---- sources: passages of the store, numbered from 1, whose words are those that were generated

# The store says "of the context are those that the model finds most like it" after these words: weighed 0.95, it is recited.
json '{"prompt": "The nearest neighbours", "max_tokens": 12, "temperature": 0, "knn": {"fallback": False, "explain": True, "lambda": 0.95, "temperature": 1}}'
expect 200 POST /v1/completions @sent
holds 'r["choices"][0]["knn"]["sources"] and any(x["source"] for x in r["choices"][0]["knn"]["tokens"])'
holds '[x["number"] for x in r["choices"][0]["knn"]["sources"]] == list(range(1, 1 + len(r["choices"][0]["knn"]["sources"])))'
holds '{x["source"] for x in r["choices"][0]["knn"]["tokens"]} - {None} <= {x["number"] for x in r["choices"][0]["knn"]["sources"]}'
holds 'all(x["store"] == "told" and x["document"] == "told.txt" and x["before"] + x["text"] + x["after"] in text("told.txt") and 0 <= x["share"] <= 1 for x in r["choices"][0]["knn"]["sources"])'
holds 'all(text("told.txt").encode()[x["offset"]:].startswith(x["text"].encode()) for x in r["choices"][0]["knn"]["sources"])'
holds 'all(x["tokens"] == sum(t["source"] == x["number"] for t in r["choices"][0]["knn"]["tokens"]) for x in r["choices"][0]["knn"]["sources"])'
holds 'all(x["text"] == "".join(t["text"] for t in r["choices"][0]["knn"]["tokens"] if t["source"] == x["number"]) for x in r["choices"][0]["knn"]["sources"])'
holds 'len(r["choices"][0]["knn"]["sources"]) == 1 and r["choices"][0]["knn"]["sources"][0]["footnote"] == 1 and r["choices"][0]["knn"]["sources"][0]["first"] == 0'
holds 'all(x["begins"] == (x["offset"] == len(x["before"].encode())) and x["length"] == x["tokens"] and x["differ"] == 0 for x in r["choices"][0]["knn"]["sources"])'
keep recited
expect 200 GET "/v1/stores/told/entries/$($python -c 'import json; x = json.load(open("recited.json"))["choices"][0]["knn"]["sources"][0]; print("%d?tokens=%d&around=4" % (x["entry"], x["length"]))')"
holds 'r["text"] == kept("recited")["choices"][0]["knn"]["sources"][0]["text"] and r["before"] + r["text"] + r["after"] in text("told.txt") and not r["ends"]'
refused 404 invalid_request_error '"not_found"' GET '/v1/stores/told/entries/0?tokens=16000'
expect 200 GET "/v1/stores/told/entries/$($python -c 'import json; print(json.load(open("recited.json"))["choices"][0]["knn"]["sources"][0]["entry"])')"
holds 'all(r[x] == kept("recited")["choices"][0]["knn"]["sources"][0][x] for x in ("document", "position", "offset"))'
json '{"prompt": "The nearest", "max_tokens": 5, "temperature": 0, "knn": {"stores": [], "explain": True}}'
expect 200 POST /v1/completions @sent
holds 'r["choices"][0]["knn"]["sources"] == [] and all(x["source"] is None and x["p_knn"] is None and x["lambda"] == 0 for x in r["choices"][0]["knn"]["tokens"])'
keep alone
json '{"prompt": "The nearest", "max_tokens": 5, "temperature": 0, "knn": {"lambda": 0}}'
expect 200 POST /v1/completions @sent
holds 'r["choices"][0]["text"] == kept("alone")["choices"][0]["text"] and "knn" not in r["choices"][0] and r["choices"][0]["logprobs"] is None'

# ---- sampling

# What leaves one token leaves the most probable.
for only in '"top_k": 1' '"top_p": 0.000001' '"min_p": 1'; do
    json "{'prompt': 'The nearest neighbours', 'max_tokens': 10, 'temperature': 1.5, 'knn': {'fallback': False}, $only}"
    expect 200 POST /v1/completions @sent
    holds 'r["choices"][0]["text"] == kept("greedy")["choices"][0]["text"]'
done
json '{"prompt": "The nearest", "max_tokens": 12, "seed": 7, "n": 3, "logprobs": 0}'
expect 200 POST /v1/completions @sent
keep seeded
holds '[x["index"] for x in r["choices"]] == [0, 1, 2] and len({x["text"] for x in r["choices"]}) == 3 and r["usage"]["completion_tokens"] == sum(len(x["logprobs"]["tokens"]) for x in r["choices"])'
expect 200 POST /v1/completions @sent
holds 'r["choices"] == kept("seeded")["choices"]'
json '{"prompt": "The nearest", "max_tokens": 12, "seed": 8, "n": 3}'
expect 200 POST /v1/completions @sent
holds '[x["text"] for x in r["choices"]] != [x["text"] for x in kept("seeded")["choices"]]'
# Without a seed no two are the same; logprobs are those before the temperature.
json '{"prompt": "The nearest", "max_tokens": 12, "temperature": 1}'
expect 200 POST /v1/completions @sent
keep one
expect 200 POST /v1/completions @sent
holds 'r["choices"][0]["text"] != kept("one")["choices"][0]["text"] and r["id"] != kept("one")["id"]'
# The first words of many draws are as frequent as explain has them: the temperature 1/2 squares, and top_k 2 leaves two.
expect 200 POST /v1/explain '{"context": "The nearest neighbours of", "words": 2}'
keep words
for seed in 1 2 3 4 5 6 7 8 9 10 11 12; do
    json "{'prompt': 'The nearest neighbours of', 'max_tokens': 1, 'temperature': 0.5, 'top_k': 2, 'seed': $seed, 'n': 16, 'logprobs': 0, 'knn': {'fallback': False}}"
    expect 200 POST /v1/completions @sent
    holds 'all(near(x["logprobs"]["token_logprobs"][0], log({w["text"]: w["p"] for w in kept("words")["words"]}[x["text"]])) for x in r["choices"])'
    cp body draws.$seed
done
cat >draws.expression <<'END'
(lambda w, texts: (lambda p, n: abs(texts.count(w[0]["text"]) - n * p) <= 5 * math.sqrt(n * p * (1 - p)) + 1)(
    w[0]["p"] ** 2 / (w[0]["p"] ** 2 + w[1]["p"] ** 2), len(texts)))(
    kept("words")["words"], [x["text"] for i in range(1, 13) for x in load("draws.%d" % i)["choices"]])
END
holds "$(cat draws.expression)"

# ---- batches: each prompt as if it were alone

json '{"prompt": ["The nearest neighbours", "", [x for x in "A"][0], "The nearest neighbours"], "max_tokens": 10, "temperature": 0, "n": 2, "knn": {"fallback": False}}'
expect 200 POST /v1/completions @sent
holds '[x["index"] for x in r["choices"]] == list(range(8)) and all(r["choices"][i]["text"] == kept("greedy")["choices"][0]["text"] for i in (0, 1, 6, 7))'
holds 'r["choices"][2]["text"] == r["choices"][3]["text"] and r["usage"]["prompt_tokens"] == 2 * kept("prompt")["count"] + 1'
json '{"prompt": [kept("prompt")["tokens"], [kept("tokenizer")["bos_token_id"]] + kept("prompt")["tokens"]], "max_tokens": 10, "temperature": 0, "knn": {"fallback": False}}'
expect 200 POST /v1/completions @sent
holds 'all(x["text"] == kept("greedy")["choices"][0]["text"] for x in r["choices"])'
json '{"prompt": ["The", text("asked.txt")], "echo": True, "logprobs": 3, "max_tokens": 0}'
expect 200 POST /v1/completions @sent
holds 'r["choices"].pop(0)["text"] == "The"'
$python -I -c 'import json; r = json.load(open("body")); r["choices"].pop(0); json.dump(r, open("body", "w"))'
echo_agrees
# Nothing is a prompt, too.
expect 200 POST /v1/completions '{"max_tokens": 2}'
expect 200 POST /v1/completions '{"prompt": [], "max_tokens": 2}'

# ---- stop: the text ends before it, whether it is a part of a token, several, or the first of a list

stops() { # EXPRESSION over t, the text that comes without it: a string or several
    json "(lambda t: {'prompt': 'The nearest neighbours', 'max_tokens': 10, 'temperature': 0, 'stop': $1, 'knn': {'fallback': False}})(kept('greedy')['choices'][0]['text'])"
    expect 200 POST /v1/completions @sent
    holds "(lambda t, stops: r['choices'][0]['text'] == t[:min(t.find(x) for x in ([stops] if isinstance(stops, str) else stops) if x in t)])(kept('greedy')['choices'][0]['text'], load('sent')['stop'])"
    holds 'r["choices"][0]["finish_reason"] == "stop" and r["usage"]["completion_tokens"] <= 10'
    cp body plain
    $python -I -c 'import json; r = json.load(open("sent")); r["stream"] = True; json.dump(r, open("sent", "w"))'
    expect 200 POST /v1/completions @sent
    holds '"".join(x["choices"][0]["text"] for x in events()[:-1]) == load("plain")["choices"][0]["text"] and events()[-2]["choices"][0]["finish_reason"] == "stop"'
}
stops 't[5:9]'
stops '["never to be seen", t[20:24], t[8:11]]'
stops 't[0]'
json '{"prompt": "The nearest neighbours", "max_tokens": 10, "temperature": 0, "stop": ["nearest", "never"], "echo": True, "knn": {"fallback": False}}'
expect 200 POST /v1/completions @sent
holds 'r["choices"][0]["text"] == "The nearest neighbours" + kept("greedy")["choices"][0]["text"]'

# ---- streams: put together, what comes without

streams() { # MEMBERS
    json "{'prompt': ['The nearest', 'A store'], 'max_tokens': 8, 'seed': 3, 'n': 2, $1}"
    expect 200 POST /v1/completions @sent
    cp body plain
    json "{'prompt': ['The nearest', 'A store'], 'max_tokens': 8, 'seed': 3, 'n': 2, 'stream': True, $1}"
    expect 200 POST /v1/completions @sent
    holds 'h["content-type"].startswith("text/event-stream") and events()[-1] == "[DONE]" and len({x["id"] for x in events()[:-1]}) == 1'
    holds 'all(x["object"] == "text_completion" and x["created"] > 1.6e9 for x in events()[:-1])'
    holds 'all("".join(c["text"] for x in events()[:-1] for c in x["choices"] if c["index"] == i) == load("plain")["choices"][i]["text"] for i in range(4))'
    holds 'all([c["finish_reason"] for x in events()[:-1] for c in x["choices"] if c["index"] == i][-1] == load("plain")["choices"][i]["finish_reason"] for i in range(4))'
    holds 'all(c is None for i in range(4) for c in [c["finish_reason"] for x in events()[:-1] for c in x["choices"] if c["index"] == i][:-1])'
}
streams '"temperature": 1'
holds 'all("usage" not in x or x["usage"] is None for x in events()[:-1]) and len(events()) > 12'
streams '"temperature": 1, "stream_options": {"include_usage": True}'
holds 'events()[-2]["choices"] == [] and events()[-2]["usage"] == load("plain")["usage"]'
streams '"temperature": 0, "logprobs": 2, "echo": True'
holds 'all([p for x in events()[:-1] for c in x["choices"] if c["index"] == i and c["logprobs"] for p in c["logprobs"][m]] == load("plain")["choices"][i]["logprobs"][m] for i in range(4) for m in ("tokens", "token_logprobs", "top_logprobs", "text_offset"))'
streams '"temperature": 1, "knn": {"explain": True, "lambda": 0.9}'
holds 'all([t for x in events()[:-1] for c in x["choices"] if c["index"] == i for t in c["knn"]["tokens"]] == load("plain")["choices"][i]["knn"]["tokens"] for i in range(4))'
holds 'all([c for x in events()[:-1] for c in x["choices"] if c["index"] == i][-1]["knn"]["sources"] == load("plain")["choices"][i]["knn"]["sources"] for i in range(4))'
# A source comes with its first token, and once more when it has ended, before the last chunk has them all.
json '{"prompt": "The nearest neighbours", "max_tokens": 60, "temperature": 1, "seed": 4, "stream": True, "knn": {"explain": True, "lambda": 0.9}}'
expect 200 POST /v1/completions @sent
chunks='[(c["knn"]["tokens"], c["knn"]["sources"]) for x in events()[:-1] for c in x["choices"]]'
holds "all(t['source'] is None or any(s['number'] == t['source'] for _, told in ${chunks}[:j + 1] for s in told) for j, (tokens, _) in enumerate($chunks) for t in tokens)"
holds "any(s in told for _, told in ${chunks}[:-1] for s in ${chunks}[-1][1]) and len(${chunks}[-1][1]) > 1"

# ---- what is refused, and what is not

for members in '"suffix": "x"' '"logit_bias": {"5": 101}' '"best_of": 17' '"n": 17' '"logprobs": 21' '"max_tokens": -1' \
    '"temperature": -0.1' '"top_p": 1.1' '"presence_penalty": 2.1' '"stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]' \
    '"prompt": [16000]' '"prompt": 5' '"prompt": [-1]' '"seed": "x"' '"stream": 1' '"knn": []' '"knn": {"k": 0}' '"knn": {"temperature": 0}' '"knn": {"lambda": 1.01}'; do
    refused 400 invalid_request_error None POST /v1/completions "{$members}"
    holds "r['error']['param'] and r['error']['param'].split('.')[0].split('[')[0] in '''$members'''"
done
expect 200 POST /v1/completions '{"prompt": "x", "max_tokens": 1, "model": "any", "suffix": null, "logit_bias": {}, "user": "me", "best_of": 1, "stop": null, "seed": null, "logprobs": null, "stream": false, "unknown": [1]}'
expect 200 POST /v1/completions '{"prompt": "x", "max_tokens": 4, "presence_penalty": 2, "frequency_penalty": -2, "repeat_penalty": 1.3, "dry_multiplier": 0.8, "dry_base": 2, "dry_allowed_length": 3, "top_k": 40, "min_p": 0.05}'

# ---- where tokens begin although the text may be ending, and prompts that are the same

# (parts of characters, which any model may draw, are named by their bytes; the token after one begins where it did)
places='all(c["text"][o:o + len(t)] == t or "bytes:" in l["tokens"][max(i - 1, 0)] + t for c in r["choices"] for l in [c["logprobs"]] for i, (t, o) in enumerate(zip(l["tokens"], l["text_offset"])))'
for seed in 0 1 2; do
    json "{'prompt': 'The nearest', 'max_tokens': 24, 'seed': $seed, 'logprobs': 0, 'stop': ['tQQ', 'gQQ', 'dQQ', 'eQQ', 'nQQ', 'sQQ']}"
    expect 200 POST /v1/completions @sent
    holds "$places"
done
json "{'prompt': ['The nearest', 'The nearest'], 'n': 2, 'max_tokens': 24}"
expect 200 POST /v1/completions @sent
holds 'len({c["text"] for c in r["choices"]}) == 4'
json "{'prompt': ['The nearest', 'The nearest'], 'n': 2, 'max_tokens': 24, 'seed': 5, 'echo': True, 'logprobs': 2}"
expect 200 POST /v1/completions @sent
holds "$places"
holds '[c["text"] for c in r["choices"][:2]] == [c["text"] for c in r["choices"][2:]]'
stop

# ---- DRY

# A prompt that says the same twice, as the store has it: whatever the model, the store knows the next word, " say"; only with DRY it is another.
# The command says the same words.
twice="The nearest neighbours of a context have their say. The nearest neighbours of a context have their"
echo "$twice say." >twice.txt
run 0 build -m "$model" --precision f32 -o twice.store twice.txt
start -m "$model" --precision f32 -s twice.store
dry="'prompt': '$twice', 'max_tokens': 12, 'temperature': 0, 'logprobs': 0, 'knn': {'fallback': False, 'carry': False, 'lambda': 0.9, 'temperature': 1}"
json "{$dry}"
expect 200 POST /v1/completions @sent
holds 'r["choices"][0]["logprobs"]["tokens"][0] == " say"'
for settings in "'dry_multiplier': 0.8, 'dry_base': 4" "'dry_multiplier': 50, 'dry_allowed_length': 3"; do
    json "{$dry, $settings}"
    expect 200 POST /v1/completions @sent
    holds 'r["choices"][0]["logprobs"]["tokens"][0] != " say"'
    # shellcheck disable=SC2046 # words
    run 0 generate -m "$model" --precision f32 -s twice.store --lambda 0.9 --temperature 1 --no-fallback --no-carry --temp 0 -n 12 --no-echo -p "$twice" \
        $(echo "$settings" | sed "s/'//g; s/,//g; s/://g; s/dry/--dry/g; s/_/-/g")
    holds 'text("out").rstrip("\n") == r["choices"][0]["text"].rstrip("\n")'
done
# So long a run that it does not repeat: nothing is penalised.
json "{$dry, 'dry_multiplier': 50, 'dry_allowed_length': 1000}"
expect 200 POST /v1/completions @sent
holds 'r["choices"][0]["logprobs"]["tokens"][0] == " say"'
stop

# ---- tokens that are parts of characters, and texts longer than the model's window

run 0 build -m "$tiny" --precision f32 -o bytes.store told.txt
start -m "$tiny" --precision f32 -s bytes.store
model=$tiny
printf 'Zo\303\253 na\303\257ve \342\200\224 \346\235\261\344\272\254 \360\237\230\200, the nearest neighbours of a word, of a word before it, and of others that stand nearer.\n' >asked.txt
json '{"text": text("asked.txt")}'
expect 200 POST /v1/score @sent
scores -m "$model" -s bytes.store asked.txt
holds 'r["count"] > 96 and all_near((x["logprob"] for x in r["tokens"]), (x["logprob"] for x in rows("rows.tsv")))'
holds '[(x["token"], x["offset"]) for x in r["tokens"]] == [(x["token"], x["offset"]) for x in rows("rows.tsv")]'
keep scored
json '{"prompt": text("asked.txt"), "echo": True, "logprobs": 1, "max_tokens": 0}'
expect 200 POST /v1/completions @sent
holds 'all_near(r["choices"][0]["logprobs"]["token_logprobs"][1:], [x["logprob"] for x in kept("scored")["tokens"]][1:])'
holds 'r["choices"][0]["text"] == text("asked.txt") and "bytes:\\xc3" in r["choices"][0]["logprobs"]["tokens"]'
holds 'all(t[k] == p for k, p, t in list(zip(*[r["choices"][0]["logprobs"][x] for x in ("tokens", "token_logprobs", "top_logprobs")]))[1:])'
# Random weights say random bytes: whatever they are, the answer is JSON, and a stream is cut between characters.
for seed in 1 2 3 4; do
    json "{'prompt': text('asked.txt'), 'max_tokens': 40, 'seed': $seed, 'logprobs': 1}"
    expect 200 POST /v1/completions @sent
    cp body plain
    holds 'r["choices"][0]["text"].encode() and r["choices"][0]["finish_reason"] in ("stop", "length")'
    json "{'prompt': text('asked.txt'), 'max_tokens': 40, 'seed': $seed, 'logprobs': 1, 'stream': True}"
    expect 200 POST /v1/completions @sent
    holds '"".join(x["choices"][0]["text"] for x in events()[:-1]) == load("plain")["choices"][0]["text"]'
    holds '[p for x in events()[:-1] for p in (x["choices"][0]["logprobs"] or {"token_logprobs": []})["token_logprobs"]] == load("plain")["choices"][0]["logprobs"]["token_logprobs"]'
done
stop
conclude
