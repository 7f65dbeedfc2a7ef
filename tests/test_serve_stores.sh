#!/bin/sh
# Stores that change while they are served: what was added is found by every later request, and is on disk; what was
# removed is found no more.   sh tests/test_serve_stores.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

mkdir folder
run 0 build -m "$model" --precision f32 -o told.store told.txt
run 0 build -m "$model" --precision f32 -o folder/other.store asked.txt
start -m "$model" --precision f32 -s told.store -s folder/other.store

on_disk() { run 0 info --json told.store && cp out disk.json; }

# ---- what there is

expect 200 GET /v1/stores
holds 'r["object"] == "list" and [x["name"] for x in r["data"]] == ["told", "other"]'
keep stores
expect 200 GET /v1/stores/told
holds 'r == kept("stores")["data"][0]'
keep told
on_disk
holds 'all(r[x] == kept("disk")[x] for x in ("entries", "bytes")) and r["documents"] == kept("disk")["document_count"] == 1 and r["removed_entries"] == 0'
holds 'r["object"] == "store" and r["dimensions"] == kept("disk")["keys"]["dimension"] and r["distance"] == "l2" and r["keys"] == "f16" and r["tap"] == kept("disk")["keys"]["tap"]'
holds 'r["index"] is None and r["tuned"] is None and r["writable"] is True'
expect 200 GET /v1/stores/told/documents
holds 'r["total"] == 1 and r["data"] == [{"name": "told.txt", "tokens": kept("disk")["documents"][0]["tokens"], "bytes": kept("disk")["documents"][0]["bytes"], "entry": 0}]'

# ---- adding

# Who says something like this? One store alone is asked: of two each has half of the neighbours.
asks() { expect 200 POST /v1/explain '{"context": "A kestrel hovers above the", "neighbors": 1, "around": 20, "knn": {"stores": ["told"]}}'; }
asks
holds 'r["neighbors"][0]["document"] != "birds"'
keep unseen
expect 201 POST /v1/stores/told/documents '{"name": "birds", "text": "A kestrel hovers above the motorway, where mice are."}'
holds 'r["name"] == "birds" and r["unchanged"] is False and 8 < r["tokens"] < 30'
keep added
asks
holds 'r["neighbors"][0]["document"] == "birds" and r["neighbors"][0]["store"] == "told" and r["neighbors"][0]["text"] == " motor" or r["neighbors"][0]["after"].startswith("way") or "motorway" in r["neighbors"][0]["text"] + r["neighbors"][0]["after"]'
holds 'r["neighbors"][0]["before"].endswith("A kestrel hovers above the")'
expect 200 GET "/v1/stores/told/entries/$($python -c 'import json; print(json.load(open("body"))["neighbors"][0]["entry"])')?around=1000"
holds 'r["before"] + r["text"] + r["after"] == "A kestrel hovers above the motorway, where mice are."'
expect 200 GET /v1/stores/told
holds 'r["documents"] == 2 and r["entries"] == kept("told")["entries"] + kept("added")["tokens"]'
on_disk
holds 'kept("disk")["entries"] == r["entries"] and [x["name"] for x in kept("disk")["documents"]] == ["told.txt", "birds"]'
run 0 verify told.store
# Another process sees the same neighbours.
run 0 explain -m "$model" -s told.store --precision f32 --json --show 1 "A kestrel hovers above the"
cp out explained.json
asks
holds '[x["entry"] for x in kept("explained")["neighbors"]] == [x["entry"] for x in r["neighbors"]] and near(r["nearest"], kept("explained")["nearest"])'
# Both stores have their neighbours, with half of the weight each.
expect 200 POST /v1/explain '{"context": "A kestrel hovers above the", "neighbors": 100}'
holds '{x["store"] for x in r["neighbors"]} == {"told", "other"} and all(near(sum(x["share"] for x in r["neighbors"] if x["store"] == s), 0.5, 1e-2) for s in ("told", "other"))'
# Generation and scores see it too.
expect 200 POST /v1/completions '{"prompt": "A kestrel hovers above the", "max_tokens": 4, "temperature": 0, "knn": {"lambda": 0.95, "temperature": 1, "explain": true, "fallback": false, "stores": ["told"]}}'
holds 'r["choices"][0]["text"].startswith(" motorway") and r["choices"][0]["knn"]["sources"][0]["document"] == "birds"'
expect 200 POST /v1/score '{"text": "A kestrel hovers above the motorway", "knn": {"stores": ["told"]}}'
holds 'r["tokens"][-1]["p_knn"] > 0.5 and r["tokens"][-1]["nearest"] < 1'

# The same text changes nothing; another text of the name takes its place.
expect 200 POST /v1/stores/told/documents '{"name": "birds", "text": "A kestrel hovers above the motorway, where mice are."}'
holds 'r["unchanged"] is True and r["name"] == "birds"'
on_disk
keep same
expect 200 GET /v1/stores/told
holds 'r["documents"] == 2 and r["entries"] == kept("told")["entries"] + kept("added")["tokens"]'
expect 201 POST /v1/stores/told/documents '{"name": "birds", "text": "A kestrel hovers above the orchard."}'
asks
holds 'r["neighbors"][0]["document"] == "birds" and (r["neighbors"][0]["text"] + r["neighbors"][0]["after"]).startswith(" orchard")'
expect 200 GET /v1/stores/told/documents
holds 'sorted(x["name"] for x in r["data"]) == ["birds", "told.txt"]'
run 0 verify told.store

# Names and contents are two things: a text that another name has already is a document of its own.
on_disk
expect 201 POST /v1/stores/told/documents '{"name": "first", "text": "The first of two texts."}'
expect 201 POST /v1/stores/told/documents '{"name": "second", "text": "Another one of them."}'
expect 201 POST /v1/stores/told/documents '{"name": "first", "text": "Another one of them."}'
holds 'r["unchanged"] is False and r["name"] == "first" and r["tokens"] > 0'
expect 200 GET /v1/stores/told/documents
holds 'sorted(x["name"] for x in r["data"]) == ["birds", "first", "second", "told.txt"]'
keep listed
on_disk
holds '[(x["name"], x["bytes"]) for x in kept("disk")["documents"] if not x["removed"]] == [(x["name"], x["bytes"]) for x in kept("listed")["data"]]'
expect 200 DELETE /v1/stores/told/documents/second
expect 200 GET '/v1/stores/told/documents?q=first'
holds 'r["total"] == 1 and r["data"][0]["bytes"] == 20'
expect 200 DELETE /v1/stores/told/documents/first
run 0 verify told.store

# ---- names: slashes, blanks, other alphabets; pages of the list

for odd in 'a/b c.txt' '100%25?&=#' 'naïve 東京' '..' 'x"y\\z'; do
    $python -I -c 'import json, sys; json.dump({"name": sys.argv[1], "text": "Something about " + sys.argv[1]}, open("sent", "w"))' "$odd"
    expect 201 POST /v1/stores/told/documents @sent
    expect 200 GET "/v1/stores/told/documents?q=$($python -I -c 'import sys, urllib.parse as u; print(u.quote(sys.argv[1], safe=""))' "$odd")"
    holds '[x["name"] for x in r["data"]] == [load("sent")["name"]] and r["total"] == 1'
    expect 200 DELETE "/v1/stores/told/documents/$($python -I -c 'import sys, urllib.parse as u; print(u.quote(sys.argv[1], safe=""))' "$odd")"
    holds 'r["name"] == load("sent")["name"] and r["removed"] > 0'
done
for i in 1 2 3 4 5 6 7; do expect 201 POST /v1/stores/told/documents "{\"name\": \"page $i\", \"text\": \"Page $i has $i lines.\"}"; done
expect 200 GET '/v1/stores/told/documents?q=page&limit=3&offset=2'
holds 'r["total"] == 7 and [x["name"] for x in r["data"]] == ["page 3", "page 4", "page 5"]'
expect 200 GET '/v1/stores/told/documents?q=page&limit=3&offset=700'
holds 'r["total"] == 7 and r["data"] == []'
for query in 'limit=-1' 'limit=x' 'offset=-1' 'offset=99999999999999999999' 'limit=1e3' 'limit='; do
    refused 400 invalid_request_error None GET "/v1/stores/told/documents?$query"
done
refused 400 invalid_request_error None GET '/v1/stores/told/entries/0?around=1001'
refused 400 invalid_request_error None GET '/v1/stores/told/entries/0?tokens=16385'
refused 400 invalid_request_error None POST /v1/stores/told/documents '{"name": "x"}'
refused 400 invalid_request_error None POST /v1/stores/told/documents '{"text": "x"}'
refused 400 invalid_request_error None POST /v1/stores/told/documents '{"name": "", "text": "x"}'
refused 400 invalid_request_error None POST /v1/stores/told/documents '{"name": 5, "text": "x"}'
refused 404 invalid_request_error '"not_found"' POST /v1/stores/nowhere/documents '{"name": "x", "text": "x"}'
refused 404 invalid_request_error '"not_found"' DELETE /v1/stores/told/documents/nobody

# ---- removing

expect 200 DELETE /v1/stores/told/documents/birds
holds 'r["name"] == "birds" and r["removed"] > 0'
asks
holds 'all(x["document"] != "birds" for x in r["neighbors"]) and near(r["nearest"], kept("unseen")["nearest"])'
refused 404 invalid_request_error '"not_found"' DELETE /v1/stores/told/documents/birds
on_disk
holds 'all(x["removed"] for x in kept("disk")["documents"] if x["name"] == "birds")'
run 0 verify told.store

# ---- others at work: another process changes the store, or holds its lock

# What another process changes is served soon, without a write of the server's own: in lists, counts and neighbours.
judge() { $python -I -c 'import json, sys; r = json.load(sys.stdin); sys.exit(not eval(sys.argv[1]))' "$1"; }
told_has() { curl -s -m 20 "$url/v1/stores/told" | judge "$1"; }
lists() { curl -s -m 20 "$url/v1/stores/told/documents?q=asked" | judge "r[\"total\"] == $1"; }
finds() { curl -s -m 20 "$url/v1/explain" -d '{"context": "The nearest neighbours of the context of a word have their", "neighbors": 100, "knn": {"stores": ["told"]}}' | judge "$1"; }
by_asked='any(x["document"] == "asked.txt" and x["text"] == " say" for x in r["neighbors"])'
check lists 0
check finds "not $by_asked"
run 0 add told.store asked.txt
check patiently 30 lists 1
check patiently 30 finds "$by_asked"
run 0 remove told.store asked.txt
check patiently 30 lists 0
check patiently 30 finds "not $by_asked"
check told_has 'r["removed_entries"] > 0'
run 0 compact told.store
check patiently 30 told_has 'r["removed_entries"] == 0'
check finds "not $by_asked"
run 0 tune -m "$model" --precision f32 -s told.store asked.txt
check patiently 30 told_has 'r["tuned"] is not None'
# What cannot be opened is served as it was, and the operator is told, once; when it can be again, it is.
mv told.store/MANIFEST kept.manifest
printf 'knnlm-store 1 0\n{}\n' >told.store/MANIFEST
check patiently 30 grep -q 'warning: told.store: served as it was before' serve.err
check lists 0
check finds 'len(r["neighbors"]) > 0'
mv kept.manifest told.store/MANIFEST
run 0 add told.store asked.txt
check patiently 30 lists 1
expect 201 POST /v1/stores/told/documents '{"name": "after", "text": "After another process."}'
expect 200 GET '/v1/stores/told/documents?limit=1000'
holds '{"after", "asked.txt", "told.txt"} <= {x["name"] for x in r["data"]}'
run 0 verify told.store
run 0 compact told.store
expect 201 POST /v1/stores/told/documents '{"name": "compacted", "text": "After it was compacted."}'
expect 200 POST /v1/explain '{"context": "After it was", "neighbors": 1, "knn": {"stores": ["told"]}}'
holds 'r["neighbors"][0]["document"] == "compacted"'
run 0 verify told.store
if command -v flock >/dev/null; then
    printf 'Unheard.\n' >unheard.txt
    flock -F told.store/LOCK sleep 600 &
    helper=$!
    patiently 60 not flock -n told.store/LOCK true
    run 1 add told.store unheard.txt
    refused 409 invalid_request_error '"conflict"' POST /v1/stores/told/documents '{"name": "locked", "text": "Locked."}'
    refused 409 invalid_request_error '"conflict"' DELETE /v1/stores/told/documents/after
    expect 200 POST /v1/explain '{"context": "After it was", "neighbors": 1, "knn": {"stores": ["told"]}}'
    kill $helper
    wait $helper 2>/dev/null
    helper=
    expect 201 POST /v1/stores/told/documents '{"name": "unlocked", "text": "No longer locked."}'
fi

# ---- many at once: documents come and go while others are asked about; no answer is an error, and nothing is lost

storm() { # NUMBER
    for i in 1 2 3 4 5; do
        curl -s -o /dev/null -w '%{http_code}\n' "$url/v1/stores/told/documents" -d "{\"name\": \"storm $1 $i\", \"text\": \"Storm $1 brings rain number $i.\"}"
        curl -s -o /dev/null -w '%{http_code}\n' "$url/v1/explain" -d '{"context": "Storm brings rain"}'
        curl -s -o /dev/null -w '%{http_code}\n' "$url/v1/completions" -d '{"prompt": "Storm", "max_tokens": 3}'
    done
    curl -s -o /dev/null -w '%{http_code}\n' -X DELETE "$url/v1/stores/told/documents/storm%20$1%201"
}
storms=
for i in 1 2 3 4; do
    storm $i >storm.$i &
    storms="$storms $!"
done
# shellcheck disable=SC2086 # process ids are words
wait $storms
last="the storm"
check test "$(cat storm.1 storm.2 storm.3 storm.4 | grep -c -v -e '^20[01]$' -e '^429$' -e '^409$')" -eq 0
expect 200 GET '/v1/stores/told/documents?q=storm&limit=100'
holds 'r["total"] == len({x["name"] for x in r["data"]}) and not any(x["name"].endswith(" 1") for x in r["data"])'
checks=$((checks + 1))
[ "$(grep -c 201 storm.1)" -lt 5 ] || holds 'all("storm 1 %d" % i in {x["name"] for x in r["data"]} for i in range(2, 6))'
expect 200 GET /v1/stores/told
keep told
stop
run 0 verify told.store
on_disk
holds 'kept("told")["entries"] == kept("disk")["entries"] - kept("disk")["removed"]["entries"] and kept("told")["removed_entries"] == kept("disk")["removed"]["entries"]'

# ---- after a restart all is as it was

start -m "$model" --precision f32 -s told.store -s folder/other.store
expect 200 GET /v1/stores/told
holds 'r == kept("told")'
expect 200 POST /v1/explain '{"context": "Storm 2 brings rain", "neighbors": 1, "knn": {"stores": ["told"]}}'
holds 'r["neighbors"][0]["document"].startswith("storm 2")'
refused 400 invalid_request_error None POST /v1/stores/told/documents '{"name": "<stdin>", "text": "words"}'
stop

# ---- stores of two taps, be one of them empty, are not served together

run 0 build -m "$model" --precision f32 --tap attention -o folder/taps.store told.txt
run 1 serve -m "$model" --precision f32 -s told.store -s folder/taps.store --port 0
check grep -q 'only stores of one tap' err
run 0 remove folder/taps.store told.txt
run 1 serve -m "$model" --precision f32 -s told.store -s folder/taps.store --port 0
check grep -q 'only stores of one tap' err
conclude
