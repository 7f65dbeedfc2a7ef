#!/bin/sh
# Long work of the server: large and many documents, compaction, tuning and verification as jobs; the text of documents; and
# which documents count.   sh tests/test_serve_jobs.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

run 0 build -m "$tiny" --no-tune -o told.store told.txt asked.txt
start -m "$tiny" -s told.store --timeout 2

# over EXPRESSION: the job of the last answer ends, and the expression holds of it.
job=
is_over() { curl -s -m 20 "$url/v1/jobs/$job" | grep -q -e '"status":"done"' -e '"status":"failed"' -e '"status":"cancelled"'; }
over() {
    holds 'r["object"] == "job" and r["status"] in ("waiting", "running", "done") and h["location"] == "/v1/jobs/" + r["id"]'
    job=$($python -c 'import json; print(json.load(open("body"))["id"])')
    check patiently 60 is_over
    expect 200 GET "/v1/jobs/$job"
    holds "$1"
}

# ---- a document that takes longer than a request may: a job, with progress

$python -c '
import json
words = "the context of a word is what stands before it and neighbours have their say ".split()
text = " ".join(words[i * i % len(words)] + str(i % 97) for i in range(24000))
json.dump({"name": "long", "text": text}, open("long.json", "w"))
open("long.txt", "w").write(text)'
expect 202 POST /v1/stores/told/documents @long.json
holds 'r["kind"] == "add" and r["store"] == "told"'
job=$($python -c 'import json; print(json.load(open("body"))["id"])')
moves() { curl -s -m 20 "$url/v1/jobs/$job" | $python -c 'import json, sys; r = json.load(sys.stdin); sys.exit(not (r["progress"]["done"] > 0 and r["progress"]["total"] > 80000 or r["status"] == "done"))'; }
check patiently 60 moves
expect 200 POST /v1/score '{"text": "others are answered meanwhile"}'
check patiently 120 is_over
expect 200 GET "/v1/jobs/$job"
holds 'r["status"] == "done" and r["result"]["documents"] == 1 and r["result"]["unchanged"] == 0 and r["result"]["tokens"] > 40000 and r["seconds"] > 0 and r["error"] is None'
expect 200 GET '/v1/stores/told/documents?q=long'
holds 'r["total"] == 1'
expect 202 POST /v1/stores/told/documents @long.json
over 'r["status"] == "done" and r["result"] == {"documents": 0, "unchanged": 1, "tokens": 0}'

# ---- its text, part by part

expect 200 GET '/v1/stores/told/documents/long?position=0&limit=1000'
holds 'r["name"] == "long" and r["position"] == 0 and r["next"] == 1000 and text("long.txt").startswith(r["text"]) and r["bytes"] == len(text("long.txt"))'
cat >whole.py <<'END'
import json, sys, urllib.request
opener, text, at = urllib.request.build_opener(urllib.request.ProxyHandler({})), "", 0
while at is not None:
    part = json.load(opener.open("%s/v1/stores/told/documents/long?position=%d" % (sys.argv[1], at)))
    text, at = text + part["text"], part["next"]
sys.exit(text != open("long.txt").read())
END
ensure "the parts are the text" "$python" whole.py "$url"
expect 200 GET '/v1/stores/told/documents/told.txt?position=3&limit=4'
holds 'text("told.txt")[r["offset"]:].startswith(r["text"]) and r["text"] and r["store"] == "told"'
expect 200 GET '/v1/stores/told/documents/told.txt?position=100000'
holds 'r["text"] == "" and r["next"] is None'
refused 404 invalid_request_error '"not_found"' GET /v1/stores/told/documents/nobody
refused 404 invalid_request_error '"not_found"' GET /v1/stores/nowhere/documents/told.txt
refused 400 invalid_request_error None GET '/v1/stores/told/documents/told.txt?limit=16385'
refused 400 invalid_request_error None GET '/v1/stores/told/documents/told.txt?position=x'

# ---- small ones later, when asked; many at once

expect 202 POST /v1/stores/told/documents '{"name": "small", "text": "Small words.", "job": true}'
over 'r["status"] == "done" and r["result"]["documents"] == 1'
$python -c '
import json
with open("lines", "w") as out:
    for i in range(20): out.write(json.dumps({"name": "line %d" % i, "text": "Words of line %d." % i}) + "\n\n")'
expect 202 POST /v1/stores/told/documents @lines -H 'Content-Type: application/x-ndjson'
over 'r["status"] == "done" and r["result"]["documents"] == 20 and r["progress"]["done"] <= r["progress"]["total"]'
expect 200 GET '/v1/stores/told/documents?q=line'
holds 'r["total"] == 20'
run 0 verify told.store
printf '{"name": "good", "text": "x"}\n{"name": 5}\n' >lines
refused 400 invalid_request_error None POST /v1/stores/told/documents @lines -H 'Content-Type: application/x-ndjson'
holds '"line 2" in r["error"]["message"]'
printf '{"name": "good", "text": "x"}\nnonsense\n' >lines
refused 400 invalid_request_error None POST /v1/stores/told/documents @lines -H 'Content-Type: application/jsonl; charset=utf-8'
holds '"line 2" in r["error"]["message"]'
printf '\n' >lines
refused 400 invalid_request_error None POST /v1/stores/told/documents @lines -H 'Content-Type: application/x-ndjson'
refused 400 invalid_request_error None POST /v1/stores/told/documents '{"name": "x", "text": "x", "job": 1}'
refused 404 invalid_request_error '"not_found"' POST /v1/stores/nowhere/documents '{"name": "x", "text": "x", "job": true}'
refused 404 invalid_request_error '"not_found"' GET /v1/jobs/nonsense
refused 404 invalid_request_error '"not_found"' DELETE /v1/jobs/job-0000000000000000

# ---- ended on the way: nothing of the document is there

$python -c 'import json; r = json.load(open("long.json")); r["name"] = "longer"; r["text"] = r["text"][::-1] * 2; json.dump(r, open("longer.json", "w"))'
expect 202 POST /v1/stores/told/documents @longer.json
job=$($python -c 'import json; print(json.load(open("body"))["id"])')
check patiently 60 moves
expect 200 DELETE "/v1/jobs/$job"
check patiently 60 is_over
expect 200 GET "/v1/jobs/$job"
holds 'r["status"] == "cancelled" and r["result"] is None'
expect 200 GET '/v1/stores/told/documents?q=longer'
holds 'r["total"] == 0'
run 0 verify told.store
expect 200 GET /v1/jobs
holds 'r["object"] == "list" and {x["status"] for x in r["data"]} == {"done", "cancelled"}'

# ---- compaction, tuning, verification

for i in 1 3 5 7 9 11; do expect 200 DELETE "/v1/stores/told/documents/line%20$i"; done
expect 200 DELETE /v1/stores/told/documents/long
expect 200 GET /v1/stores/told
holds 'r["removed_entries"] > 40000'
expect 202 POST /v1/stores/told/compact
over 'r["status"] == "done" and r["result"]["documents_dropped"] >= 7 and r["result"]["entries_dropped"] > 40000 and r["result"]["bytes_after"] < r["result"]["bytes_before"]'
expect 200 GET /v1/stores/told
holds 'r["removed_entries"] == 0 and r["tuned"] is None'
expect 202 POST /v1/stores/told/tune '{"text": "The nearest neighbours of a word have their say, and the context of a word is what stands before it."}'
over 'r["status"] == "done" and r["result"]["written"] is True and r["result"]["tokens"] > 50 and r["result"]["ppl"] > 1'
expect 200 GET /v1/stores/told
holds 'r["tuned"] is not None and r["settings"]["temperature"] == r["tuned"]["temperature"] and r["settings"]["k"] <= r["tuned"]["k"]'
run 0 info --json told.store
holds 'near(load("out")["tuned"]["temperature"], r["tuned"]["temperature"])'
# A text is a text, whatever kind of file it looks like.
expect 202 POST /v1/stores/told/tune '{"text": "%PDF-1.4 <html> The nearest neighbours of a word\u0000 have their say, and the context of a word is what it is."}'
over 'r["status"] == "done" and r["result"]["tokens"] > 30'
expect 202 POST /v1/stores/told/tune '{}'
over 'r["status"] == "done" and r["result"]["tokens"] > 50'
expect 202 POST /v1/stores/told/verify
over 'r["status"] == "done" and r["result"]["problem_count"] == 0 and r["result"]["problems"] == [] and r["result"]["documents"] > 10'
refused 400 invalid_request_error None POST /v1/stores/told/tune '{"text": ""}'
refused 400 invalid_request_error None POST /v1/stores/told/tune '{"text": 5}'
refused 404 invalid_request_error '"not_found"' POST /v1/stores/nowhere/compact
refused 404 invalid_request_error '"not_found"' POST /v1/stores/nowhere/verify
refused 404 invalid_request_error '"not_found"' POST /v1/stores/nowhere/tune '{}'
refused 405 invalid_request_error '"method_not_allowed"' GET /v1/stores/told/compact
expect 200 GET /metrics
check grep -q '^knnlm_jobs 0$' body
check grep -q 'status="202"' body

# ---- ending the server ends the job under way, and leaves the store whole

expect 202 POST /v1/stores/told/documents @longer.json
stop
run 0 verify told.store

# ---- damage is told

start -m "$tiny" -s told.store --read-only
refused 403 permission_error '"read_only"' POST /v1/stores/told/compact
refused 403 permission_error '"read_only"' POST /v1/stores/told/tune '{}'
refused 403 permission_error '"read_only"' POST /v1/stores/told/documents @longer.json
file=$(find told.store -name "*.text" | sort | head -n 1)
printf 'X' | dd of="$file" bs=1 seek=300 conv=notrunc 2>/dev/null
expect 202 POST /v1/stores/told/verify
over 'r["status"] == "done" and r["result"]["problem_count"] > 0 and r["result"]["problems"][0]["what"] and "/" not in r["result"]["problems"][0]["file"]'
stop
conclude
