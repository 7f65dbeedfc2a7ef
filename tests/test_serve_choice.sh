#!/bin/sh
# Which documents count, what is not searched, what is compressed, settings in effect, several models: by requests.
#   sh tests/test_serve_choice.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

printf 'A kestrel hovers above the motorway, where mice are.\n' >birds.txt
run 0 build -m "$model" --precision f32 -o told.store told.txt birds.txt
run 0 build -m "$model" --precision f32 -o other.store asked.txt
start -m "$model" --precision f32 -s told.store -s other.store --lambda 0.4 -k 50

# ---- documents by name, as of the command

run 0 explain -m "$model" -s told.store --precision f32 --lambda 0.4 -k 50 --only 'bird*' --json --show 100 'A kestrel hovers above'
cp out explained
expect 200 POST /v1/explain '{"context": "A kestrel hovers above", "neighbors": 100, "knn": {"only": ["bird*"], "stores": ["told"]}}'
holds '{x["document"] for x in r["neighbors"]} == {"birds.txt"} and [x["entry"] for x in r["neighbors"]] == [x["entry"] for x in load("explained")["neighbors"]]'
holds 'all_near((x["p"] for x in r["words"]), (x["p"] for x in load("explained")["words"]))'
expect 200 POST /v1/explain '{"context": "A kestrel hovers above", "neighbors": 100, "knn": {"not": ["bird*"]}}'
holds '{x["document"] for x in r["neighbors"]} == {"told.txt", "asked.txt"}'
expect 200 POST /v1/explain '{"context": "A kestrel hovers above", "neighbors": 100, "knn": {"only": ["birds.txt"]}}'
holds '{x["document"] for x in r["neighbors"]} == {"birds.txt"} and near(sum(x["share"] for x in r["neighbors"]), 1, 1e-3)'
run 0 eval -m "$model" -s told.store --precision f32 --lambda 0.4 -k 50 --include-self --not birds.txt --per-token rows.tsv birds.txt
$python -c 'import json; json.dump({"text": open("birds.txt").read(), "knn": {"not": ["birds.txt"], "stores": ["told"]}}, open("sent", "w"))'
expect 200 POST /v1/score @sent
holds 'all_near((x["logprob"] for x in r["tokens"]), (x["logprob"] for x in rows("rows.tsv")))'
expect 200 POST /v1/completions '{"prompt": "A kestrel hovers above the", "max_tokens": 3, "temperature": 0, "knn": {"lambda": 0.95, "fallback": false, "explain": true, "only": ["birds.txt"]}}'
holds 'r["choices"][0]["text"].startswith(" motorway") and {x["document"] for x in r["choices"][0]["knn"]["sources"]} == {"birds.txt"}'
expect 200 POST /v1/completions '{"prompt": "A kestrel hovers above the", "max_tokens": 3, "temperature": 0, "knn": {"lambda": 0.95, "fallback": false, "explain": true, "not": ["birds.txt"]}}'
holds 'all(x["document"] != "birds.txt" for x in r["choices"][0]["knn"]["sources"])'
for wrong in '"only": ["nobody"]' '"not": ["*"]' '"only": "birds.txt"' '"only": [5]' '"not": {}' '"only": ["birds.txt"], "stores": ["other"]'; do
    refused 400 invalid_request_error None POST /v1/score "{\"text\": \"x\", \"knn\": {$wrong}}"
    refused 400 invalid_request_error None POST /v1/completions "{\"prompt\": \"x\", \"knn\": {$wrong}}"
    refused 400 invalid_request_error None POST /v1/explain "{\"context\": \"x\", \"knn\": {$wrong}}"
done
# Others that are scored in the same batch are not affected.
$python -c 'import json; json.dump({"text": open("birds.txt").read()}, open("plain.json", "w"))'
expect 200 POST /v1/score @plain.json
keep plain.told
clients=
for i in 1 2 3 4; do
    curl -s -m 30 "$url/v1/score" -d @plain.json >"all.$i" &
    clients="$clients $!"
    curl -s -m 30 "$url/v1/score" -d @sent >"some.$i" &
    clients="$clients $!"
done
# shellcheck disable=SC2086 # process ids are words
wait $clients
holds 'all([x["p"] for x in load("all.%d" % i)["tokens"]] == [x["p"] for x in kept("plain.told")["tokens"]] for i in (1, 2, 3, 4))'
holds 'all([x["p"] for x in load("some.%d" % i)["tokens"]] == [x["p"] for x in load("some.1")["tokens"]] for i in (2, 3, 4)) and load("some.1")["ppl"] > load("all.1")["ppl"]'

# ---- a text without itself, as eval scores it

run 0 eval -m "$model" -s told.store -s other.store --precision f32 --lambda 0.4 -k 50 --per-token rows.tsv birds.txt
$python -c 'import json; json.dump({"text": open("birds.txt").read(), "knn": {"exclude_self": True}}, open("sent", "w"))'
expect 200 POST /v1/score @sent
holds 'all_near((x["logprob"] for x in r["tokens"]), (x["logprob"] for x in rows("rows.tsv"))) and r["excluded"] == 1 and r["ppl"] > kept("plain.told")["ppl"]'
expect 200 POST /v1/score '{"text": "Never heard of.", "knn": {"exclude_self": true}}'
holds 'r["excluded"] == 0'
refused 400 invalid_request_error None POST /v1/score '{"text": "x", "knn": {"exclude_self": 1}}'

# ---- which documents made the difference: the parts make the whole, and a store that is left out has none

told='"text": "A kestrel hovers above the nearest neighbours of a context."'
expect 200 POST /v1/score "{$told, \"documents\": 10}"
holds 'near(r["gain"]["total"], sum(x["logprob"] - log(x["p_lm"]) for x in r["tokens"])) and near(r["gain"]["total"], sum(x["gain"] for x in r["gain"]["documents"]), 1e-9)'
holds '{x["document"] for x in r["gain"]["documents"]} == {"birds.txt", "told.txt", "asked.txt"} and r["gain"]["others"] == {"documents": 0, "gain": 0}'
holds 'all(near(s["gain"], sum(x["gain"] for x in r["gain"]["documents"] if x["store"] == s["store"]), 1e-9) for s in r["gain"]["stores"]) and len(r["gain"]["stores"]) == 2'
holds '(lambda g: g == sorted(g, reverse=True))([abs(x["gain"]) for x in r["gain"]["documents"]])'
keep gain
expect 200 POST /v1/score "{$told, \"documents\": 1}"
holds 'r["gain"]["documents"] == kept("gain")["gain"]["documents"][:1] and r["gain"]["others"]["documents"] == 2 and near(r["gain"]["others"]["gain"], sum(x["gain"] for x in kept("gain")["gain"]["documents"][1:]), 1e-9)'
expect 200 POST /v1/score "{$told, \"documents\": 9, \"knn\": {\"only\": [\"birds.txt\"]}}"
holds '[(x["store"], x["document"]) for x in r["gain"]["documents"]] == [("told", "birds.txt")] and r["gain"]["documents"][0]["gain"] > 0'
entry=$($python -c 'import json; print(json.load(open("body"))["gain"]["documents"][0]["entry"])')
expect 200 GET "/v1/stores/told/entries/$entry"
holds 'r["document"] == "birds.txt"'
expect 200 POST /v1/score "{$told, \"documents\": 9, \"knn\": {\"stores\": []}}"
holds 'r["gain"] == {"total": 0, "stores": [], "documents": [], "others": {"documents": 0, "gain": 0}}'
expect 200 POST /v1/score "{$told}"
holds '"gain" not in r'
for wrong in -1 10001 1.5 '"many"' '[]'; do
    refused 400 invalid_request_error None POST /v1/score "{$told, \"documents\": $wrong}"
    holds 'r["error"]["param"] == "documents"'
done

# ---- lambda 0: the model alone, and no search

expect 200 POST /v1/score '{"text": "The nearest neighbours", "knn": {"lambda": 0}}'
holds 'all(x["p"] == x["p_lm"] and x["p_knn"] is None and x["nearest"] is None and x["lambda"] == 0 for x in r["tokens"])'
expect 200 POST /v1/score '{"text": "The nearest neighbours", "knn": {"lambda": 0, "temperatures": [1]}}'
holds 'all(x["p_knn_at"][0] is not None and x["lambda"] == 0 for x in r["tokens"])'
expect 200 POST /v1/explain '{"context": "The nearest", "knn": {"lambda": 0}}'
holds 'r["lambda"] == 0 and len(r["neighbors"]) == 8 and all(near(x["p"], x["p_lm"], 1e-9) for x in r["words"])'
expect 200 POST /v1/completions '{"prompt": "The nearest", "max_tokens": 3, "temperature": 0, "knn": {"lambda": 0, "explain": true}}'
holds 'all(x["p_knn"] is None and x["p"] == x["p_lm"] for x in r["choices"][0]["knn"]["tokens"])'

# ---- a target of several tokens, each after those before it

run 0 explain -m "$model" -s told.store --precision f32 --lambda 0.4 -k 50 --json --target 'neighbourhoods' 'The nearest'
cp out explained
expect 200 POST /v1/explain '{"context": "The nearest", "target": "neighbourhoods", "knn": {"stores": ["told"]}}'
holds 'len(r["target"]["tokens"]) > 1 and [x["token"] for x in r["target"]["tokens"]] == [x["token"] for x in load("explained")["target"]["tokens"]]'
holds 'near(r["target"]["p"] * 1e9, load("explained")["target"]["p"] * 1e9, 1e-3) and all_near((x["p"] for x in r["target"]["tokens"]), (x["p"] for x in load("explained")["target"]["tokens"]))'
expect 200 POST /v1/explain '{"context": "The nearest", "target_token": 7}'
holds '[x["token"] for x in r["target"]["tokens"]] == [7] and r["target"]["p"] == r["target"]["tokens"][0]["p"]'
expect 200 POST /v1/explain '{"context": "The nearest"}'
holds 'r["target"] is None'

# ---- settings in effect: flags of the server, then what was tuned

expect 200 GET /v1/stores
holds '[x["settings"]["k"] for x in r["data"]] == [min(50, x["entries"]) for x in r["data"]] and all(near(x["settings"]["lambda"], 0.2) and x["settings"]["temperature"] == (x["tuned"] or {"temperature": 1})["temperature"] and x["cache"] is None for x in r["data"])'
holds '{x["model"] for x in r["data"]} == {"small"}'

# ---- answers are compressed when asked

long=$($python -c 'print("The nearest neighbours of a context have their say. " * 40)')
ask POST /v1/score "{\"text\": \"$long\"}" -H 'Accept-Encoding: gzip'
cp body packed
check test "$(od -An -tx1 -N2 packed | tr -d ' ')" = 1f8b
$python -c 'import gzip, json; open("unpacked", "wb").write(gzip.open("packed").read())'
holds 'h["content-encoding"] == "gzip" and "accept-encoding" in h["vary"].lower() and h["content-type"] == "application/json"'
expect 200 POST /v1/score "{\"text\": \"$long\"}"
holds '"content-encoding" not in h and text("body") == text("unpacked")'
check test "$(wc -c <packed)" -lt "$(($(wc -c <body) / 3))"
for no in 'gzip;q=0' 'identity' 'br, deflate' 'gzipped'; do
    expect 200 POST /v1/score "{\"text\": \"$long\"}" -H "Accept-Encoding: $no"
    holds '"content-encoding" not in h'
done
for yes in 'br, GZIP;q=0.5' '*' 'deflate , gzip ; q=1'; do
    ask POST /v1/score "{\"text\": \"$long\"}" -H "Accept-Encoding: $yes"
    holds 'h["content-encoding"] == "gzip"'
done
expect 200 GET /health '' -H 'Accept-Encoding: gzip'
holds '"content-encoding" not in h'
ask GET / '' -H 'Accept-Encoding: gzip'
holds 'h["content-encoding"] == "gzip"'
expect 200 POST /v1/completions '{"prompt": "The", "max_tokens": 100, "stream": true}' -H 'Accept-Encoding: gzip'
holds '"content-encoding" not in h and h["x-accel-buffering"] == "no" and events()[-1] == "[DONE]"'
stop

# ---- several models: by name, each with the stores that it made

run 0 build --no-tune -m "$tiny" --precision f32 -o bytes.store told.txt
start -m "$model" -m "$tiny" --precision f32 -s bytes.store -s told.store
expect 200 GET /v1/models
holds '[x["id"] for x in r["data"]] == ["small", "shared.model"]'
expect 200 GET /v1/models/shared.model
expect 200 GET /v1/stores
holds '{x["name"]: x["model"] for x in r["data"]} == {"bytes": "shared.model", "told": "small"}'
expect 200 GET /v1/stores/bytes/documents
holds 'r["total"] == 1'
expect 200 POST /tokenize '{"prompt": "The nearest", "model": "shared.model"}'
holds 'r["count"] > 8'
expect 200 POST /tokenize '{"prompt": "The nearest"}'
holds 'r["count"] < 5'
expect 200 GET '/tokenizer_info?model=shared.model'
keep bytes
expect 200 GET /tokenizer_info
holds 'r["vocab_size"] == 16000 != kept("bytes")["vocab_size"]'
expect 200 POST /v1/completions '{"model": "shared.model", "prompt": "The", "max_tokens": 3, "knn": {"explain": true, "stores": ["bytes"]}}'
holds 'r["model"] == "shared.model"'
expect 200 POST /v1/completions '{"prompt": "The", "max_tokens": 3}'
holds 'r["model"] == "small"'
refused 404 invalid_request_error '"model_not_found"' POST /v1/completions '{"model": "nobody", "prompt": "The"}'
refused 404 invalid_request_error '"not_found"' POST /v1/completions '{"model": "small", "prompt": "The", "knn": {"stores": ["bytes"]}}'
stop
complains 1 'another model is called "small"' serve -m "$model" -m "$model" --port 0
complains 1 'none of the models made it' serve -m "$model" -m "$golden/plain.model.gguf" -s bytes.store --port 0
conclude
