#!/bin/sh
# The server's manners: starting, paths and methods, keys, origins, tokens, metrics, ending.
#   sh tests/test_serve.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

run 0 build -m "$model" -o told.store told.txt
run 0 build -m "$tiny" -o told.tiny.store told.txt

# ---- what cannot be served

complains() { # CODE PATTERN ARGUMENT...
    code=$1 pattern=$2 last="knnlm $*"
    shift 2
    checks=$((checks + 1))
    timeout 20 "$knnlm" "$@" >out 2>err </dev/null # should it start after all
    got=$?
    [ $got -eq "$code" ] || failed "exit code $got, not $code: $(head -n 3 err)"
    check grep -q -e "$pattern" err
    check test "$(wc -l <err)" -eq 1
    check test ! -s out
}
complains 2 'no -m' serve
complains 1 'nowhere.gguf' serve -m nowhere.gguf --port 0
complains 1 'nowhere.store' serve -m "$model" -s nowhere.store --port 0
complains 2 'port' serve -m "$model" --port 65536
complains 2 'port' serve -m "$model" --port -1
complains 2 'queue' serve -m "$model" --queue x
complains 2 'max-memory' serve -m "$model" --max-memory 0

# ---- while the model is being opened: 503 or already 200, never anything else

begin -m "$model" -s told.store
check grep -q 'http://127\.0\.0\.1:[0-9]*/' serve.out
check test "$(wc -l <serve.out)" -eq 1
ask GET /health
case $status in
200) ;;
503)
    holds 'r["error"]["code"] == "loading" and int(h["retry-after"]) >= 0'
    patiently 30 healthy
    ;;
*) failed "status $status" ;;
esac
port=${url##*:}
complains 1 "$port" serve -m "$model" --port "$port"

# ---- paths and methods

expect 200 GET /health
holds 'r == {"status": "ok"}'
holds 'h["content-type"].startswith("application/json")'
expect 200 GET '/health?x=1'
refused 404 invalid_request_error '"not_found"' GET /nowhere
refused 404 invalid_request_error '"not_found"' POST /v1 '{}'
refused 404 invalid_request_error '"not_found"' GET /v1/stores/nowhere
refused 404 invalid_request_error '"not_found"' GET /../../etc/passwd
refused 404 invalid_request_error '"model_not_found"' GET /v1/models/nowhere
for place in /v1/completions /v1/score /v1/explain /tokenize /detokenize; do
    refused 405 invalid_request_error '"method_not_allowed"' GET "$place"
    holds '"POST" in h["allow"]'
    refused 405 invalid_request_error '"method_not_allowed"' DELETE "$place"
    refused 400 invalid_request_error None POST "$place" '{"prompt": '
    refused 400 invalid_request_error None POST "$place" '[]'
    refused 400 invalid_request_error None POST "$place" '"x"'
done
for place in /health /metrics /v1/models /v1/stores /v1/stores/told /tokenizer_info /v1/stores/told/documents; do
    expect 200 HEAD "$place"
    check "$python" -I -c 'import socket, sys; s = socket.create_connection(("127.0.0.1", sys.argv[1]), 10); s.sendall(b"HEAD %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % sys.argv[2].encode()); d = b"".join(iter(lambda: s.recv(9999), b"")); sys.exit(not (d.startswith(b"HTTP/1.1 200") and d.endswith(b"\r\n\r\n")))' "$port" "$place"
    refused 405 invalid_request_error '"method_not_allowed"' PUT "$place" '{}'
    holds '"GET" in h["allow"]'
done
refused 405 invalid_request_error '"method_not_allowed"' POST /health '{}'
expect 200 GET /
holds '"text/html" in h["content-type"] and "content-security-policy" in h'
expect 200 HEAD /

# Bodies are JSON whatever they are called; two requests go through one connection.
expect 200 POST /tokenize '{"prompt": "a"}' -H 'Content-Type: text/plain'
checks=$((checks + 1))
curl -s -v -m 20 "$url/health" "$url/health" >/dev/null 2>verbose
grep -q -i 're-using existing connection' verbose || failed "the connection is not kept"

# ---- models

expect 200 GET /v1/models
holds 'r["object"] == "list" and len(r["data"]) == 1 and r["data"][0]["object"] == "model" and r["data"][0]["owned_by"] == "knnlm"'
keep models
"$knnlm" info --json "$model" >info.json
holds 'all(r["data"][0]["meta"][x] == kept("info")[x] for x in ("architecture", "engine", "vocabulary", "context", "parameters", "fingerprint"))'
id=$($python -c 'import json; print(json.load(open("models.json"))["data"][0]["id"])')
expect 200 GET "/v1/models/$id"
holds 'r == kept("models")["data"][0]'

# ---- tokens

expect 200 GET /tokenizer_info
holds 'r["vocab_size"] == 16000 and r["chat_template"] is None and isinstance(r["tokenizer_class"], str)'
holds 'isinstance(r["bos_token"], str) and 0 <= r["bos_token_id"] < r["vocab_size"] and r["model_max_length"] == kept("models")["data"][0]["meta"]["context"]'
keep tokenizer
printf 'Zo\303\253 na\303\257ve \342\200\224 \346\235\261\344\272\254 \360\237\230\200\n\ttab "quoted" \\ back' >unicode.txt
$python -c 'import json; json.dump({"prompt": open("unicode.txt", encoding="utf-8").read()}, open("asked.json", "w"))'
expect 200 POST /tokenize @asked.json
holds 'r["count"] == len(r["tokens"]) > 10 and r["max_model_len"] == kept("tokenizer")["model_max_length"]'
keep tokens
run 0 eval -m "$model" --per-token unicode.tsv unicode.txt
holds 'kept("tokens")["tokens"] == [x["token"] for x in rows("unicode.tsv")]'
$python -c 'import json; json.dump({"tokens": json.load(open("tokens.json"))["tokens"]}, open("ids.json", "w"))'
expect 200 POST /detokenize @ids.json
holds 'r["prompt"] == r["content"] == text("unicode.txt")'
expect 200 POST /tokenize '{"content": "The nearest"}'
keep content
expect 200 POST /tokenize '{"prompt": "The nearest", "add_special_tokens": true, "unknown": 1}'
holds 'r["tokens"] == [kept("tokenizer")["bos_token_id"]] + kept("content")["tokens"]'
$python -c 'import json; json.dump({"prompt": json.load(open("tokenizer.json"))["bos_token"]}, open("asked.json", "w"))'
expect 200 POST /tokenize @asked.json
holds 'r["tokens"] == [kept("tokenizer")["bos_token_id"]]'
expect 200 POST /tokenize '{"prompt": ""}'
holds 'r["tokens"] == [] and r["count"] == 0'
expect 200 POST /detokenize '{"tokens": []}'
holds 'r["prompt"] == ""'
refused 400 invalid_request_error None POST /detokenize '{"tokens": [16000]}'
refused 400 invalid_request_error None POST /detokenize '{"tokens": [-1]}'
refused 400 invalid_request_error None POST /tokenize '{}'
refused 400 invalid_request_error None POST /detokenize '{}'

# ---- metrics

# One line is a comment or a number; every family has its type once, before its first number; counters never fall.
cat >metrics.py <<'END'
import re, sys
LINE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-zA-Z_][a-zA-Z0-9_]*="(\\.|[^"\\])*",?)*\})? (\S+)$')
def read(path):
    types, values = {}, {}
    data = open(path, encoding="utf-8").read()
    assert data.endswith("\n"), "no newline at the end"
    for line in data.split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types and kind in ("counter", "gauge", "histogram", "summary", "untyped"), line
            types[name] = kind
        elif line and not line.startswith("#"):
            found = LINE.match(line)
            assert found, line
            family = re.sub("_(bucket|sum|count)$", "", found[1])
            assert family in types or found[1] in types, "no type: " + line
            assert found[1] + (found[2] or "") not in values, "twice: " + line
            values[found[1] + (found[2] or "")] = float(found[5])
    return types, values
types, before = read(sys.argv[1])
_, after = read(sys.argv[2])
counters = [x for x in before if types.get(re.sub("{.*", "", x)) == "counter"]
assert counters and all(after[x] >= before[x] >= 0 for x in counters), "a counter falls"
grown = [x for x in after if types.get(re.sub("{.*", "", x)) == "counter" and after[x] > before.get(x, 0)]
assert len(grown) >= 2, "requests and tokens were not counted: " + str(grown)
END
expect 200 GET /metrics
holds 'h["content-type"].startswith("text/plain")'
cp body metrics.1
expect 200 POST /v1/completions '{"prompt": "The nearest", "max_tokens": 3}'
expect 200 GET /metrics
cp body metrics.2
check "$python" metrics.py metrics.1 metrics.2

# ---- browsers of other pages

refused 403 permission_error '"origin"' GET /v1/models '' -H 'Origin: http://elsewhere.example'
refused 403 permission_error '"origin"' GET /v1/models '' -H "Origin: evil${url#http}"
holds 'not any(x.startswith("access-control") for x in h)'
ask OPTIONS /v1/completions '' -H 'Origin: http://elsewhere.example' -H 'Access-Control-Request-Method: POST'
holds 'not any(x.startswith("access-control") for x in h)'
# A form may be sent without asking first: what changes a store must not be taken from it.
ask POST /v1/stores/told/documents '{"name": "smuggled", "text": "smuggled"}' -H 'Origin: http://elsewhere.example' -H 'Content-Type: text/plain'
ask GET /v1/stores/told/documents
holds '[x["name"] for x in r["data"]] == ["told.txt"]'
# A name of somebody else's that leads here (DNS rebinding) is such a page too.
ask POST /v1/stores/told/documents '{"name": "rebound", "text": "rebound"}' -H 'Host: elsewhere.example' -H 'Origin: http://elsewhere.example'
ask GET /v1/stores/told/documents
holds '[x["name"] for x in r["data"]] == ["told.txt"]'
for host in localhost.elsewhere.example 127.0.0.1.elsewhere.example 127.elsewhere.example '[::2]' '[::1].elsewhere.example' '[::1' '[localhost]' \
    localhost:80.elsewhere.example 127.0.0.1:x '' 8.8.8.8 knn.example.org "$(hostname)"; do
    [ "$host" != localhost ] || continue # the machine's own name
    refused 403 permission_error '"host"' GET /v1/stores '' -H "Host;" -H "Host: $host"
done
refused 400 invalid_request_error None GET /v1/stores '' -H 'Host:' --http1.0
refused 403 permission_error '"host"' DELETE /v1/stores/told/documents/told.txt '' -H 'Host: elsewhere.example'
for host in localhost "LOCALHOST:$port" 127.0.0.2 '[::1]:80'; do
    expect 200 GET /v1/stores '' -H "Host: $host"
done
expect 200 GET /v1/models '' -H "Origin: $url"
stop

start -m "$model" -s told.store --cors http://elsewhere.example --read-only --api-key sesame
ask OPTIONS /v1/completions '' -H 'Origin: http://elsewhere.example' -H 'Access-Control-Request-Method: POST' -H 'Access-Control-Request-Headers: authorization,content-type'
holds 'h["access-control-allow-origin"] == "http://elsewhere.example" and "POST" in h["access-control-allow-methods"]'
holds '"authorization" in h["access-control-allow-headers"].lower() and "content-type" in h["access-control-allow-headers"].lower()'
check test "$status" -lt 300
ask OPTIONS /v1/completions '' -H 'Origin: http://elsewhere.example' -H 'Access-Control-Request-Method: POST' -H 'Access-Control-Request-Headers: x-stainless-os, X-Stainless-Retry-Count,user-agent,cookie,x-other,x-stainless-"'
holds 'set(re.split(", *", h["access-control-allow-headers"].lower())) == {"authorization", "content-type", "x-stainless-os", "x-stainless-retry-count", "user-agent"}'

# ---- keys

expect 200 GET /health
expect 200 GET /
for place in /v1/models /v1/stores /v1/stores/told/documents /metrics /tokenizer_info /v1/nowhere; do
    refused 401 authentication_error '"invalid_api_key"' GET "$place"
done
for place in /v1/completions /v1/score /v1/explain /tokenize /detokenize /v1/stores/told/documents; do
    refused 401 authentication_error '"invalid_api_key"' POST "$place" '{"prompt": "x"}'
done
for wrong in sesam sesame1 Sesame ''; do
    refused 401 authentication_error '"invalid_api_key"' GET /v1/models '' -H "Authorization: Bearer $wrong"
done
refused 401 authentication_error '"invalid_api_key"' GET /v1/models '' -H 'Authorization: sesame'
refused 401 authentication_error '"invalid_api_key"' GET /v1/models '' -H 'Authorization: Basic sesame'
key=sesame
expect 200 GET /v1/models '' -H 'Origin: http://elsewhere.example'
holds 'h["access-control-allow-origin"] == "http://elsewhere.example"'
refused 403 permission_error '"origin"' GET /v1/models '' -H 'Origin: http://third.example'
refused 403 permission_error '"host"' GET /v1/models '' -H 'Origin: http://third.example' -H 'Host: third.example'
holds 'h.get("access-control-allow-origin") != "http://third.example"'
refused 404 invalid_request_error '"not_found"' GET /v1/nowhere

# ---- read only

refused 403 permission_error '"read_only"' POST /v1/stores/told/documents '{"name": "x", "text": "x"}'
refused 403 permission_error '"read_only"' DELETE /v1/stores/told/documents/told.txt
expect 200 GET /v1/stores/told
holds 'r["writable"] is False'
stop
key=

KNNLM_API_KEY=open
export KNNLM_API_KEY
start -m "$model"
refused 401 authentication_error '"invalid_api_key"' GET /v1/models
key=open
expect 200 GET /v1/models
expect 200 GET /v1/stores
holds 'r == {"object": "list", "data": []}'
expect 200 POST /v1/score '{"text": "The nearest"}'
holds 'all(x["p_knn"] is None and x["nearest"] is None and x["lambda"] == 0 for x in r["tokens"])'
unset KNNLM_API_KEY
key=
stop

# ---- a key in a file, which not everybody may read

printf 'from-a-file\r\nsecond line\n' >key
chmod 644 key
complains 1 'everybody on this machine can read' serve -m "$model" --port 0 --api-key-file key
chmod 600 key
complains 1 'nowhere.key' serve -m "$model" --port 0 --api-key-file nowhere.key
complains 2 'either' serve -m "$model" --port 0 --api-key-file key --api-key x
complains 2 'no-key' serve -m "$model" --port 0 --api-key-file key --no-key
for wrong in '\n' 'two words\n' 'caf\303\251\n' ''; do
    # shellcheck disable=SC2059 # escapes
    printf "$wrong" >wrong.key
    chmod 600 wrong.key
    complains 1 'wrong.key' serve -m "$model" --port 0 --api-key-file wrong.key
done
start -m "$tiny" --api-key-file key
refused 401 authentication_error '"invalid_api_key"' GET /v1/models
key=from-a-file
expect 200 GET /v1/models
key=
stop

# ---- beyond this machine: not without a key, unless that is said; under a name of somebody else's not at all

complains 2 'host 0.0.0.0.*api-key-file.*no-key' serve -m "$tiny" --port 0 --host 0.0.0.0
complains 2 'no-key' serve -m "$tiny" --port 0 --host ::
start -m "$tiny" -s told.tiny.store --host 0.0.0.0 --no-key --allowed-host knn.example.org --allowed-host other.example
url=http://127.0.0.1:${url##*:}
for host in localhost 127.0.0.1:80 192.0.2.7:8080 '[2001:db8::1]' "$(hostname)" KNN.example.org knn.example.org:443 other.example; do
    expect 200 GET /v1/stores '' -H "Host: $host"
done
for host in elsewhere.example sub.knn.example.org knn.example.org.elsewhere.example '[::1].elsewhere.example' 192.0.2.7.elsewhere.example '[knn.example.org]'; do
    refused 403 permission_error '"host"' DELETE /v1/stores/told.tiny/documents/told.txt '' -H "Host: $host"
done
refused 403 permission_error '"origin"' DELETE /v1/stores/told.tiny/documents/told.txt '' -H 'Host: knn.example.org' -H 'Origin: https://elsewhere.example'
expect 200 GET /v1/stores/told.tiny/documents '' -H 'Host: knn.example.org' -H 'Origin: https://knn.example.org'
holds 'r["total"] == 1'
stop
start -m "$tiny" --host 0.0.0.0 --api-key sesame
stop

# ---- answers name stores and files, not where they lie

start -m "$tiny" -s "$work/told.tiny.store"
for place in /v1/stores /v1/stores/told.tiny /v1/stores/told.tiny/documents /v1/models /metrics /tokenizer_info; do
    expect 200 GET "$place"
    check not grep -q -F "$work" body
done
if command -v flock >/dev/null; then
    flock -F told.tiny.store/LOCK sleep 600 &
    helper=$!
    patiently 60 not flock -n told.tiny.store/LOCK true
    refused 409 invalid_request_error '"conflict"' POST /v1/stores/told.tiny/documents '{"name": "x", "text": "x"}'
    holds '"told.tiny" in r["error"]["message"] and "/" not in r["error"]["message"].replace("told.tiny/LOCK", "")'
    kill $helper
    wait $helper 2>/dev/null
    helper=
fi
stop

# ---- limits of a request

start -m "$tiny" --max-tokens 40 --max-body 2k --queue 1 --parallel 1
refused 400 invalid_request_error '"context_length_exceeded"' POST /v1/completions '{"prompt": "abc", "max_tokens": 40}'
expect 200 POST /v1/completions '{"prompt": "abc", "max_tokens": 30}'
$python -c 'print("{\"prompt\": \"" + "x" * 3000 + "\"}")' >large.json
refused 413 invalid_request_error '"body_too_large"' POST /tokenize @large.json
stop

# ---- a cache of what is generated, as of `generate`; nothing else has it

cached='--cache 100 --cache-lambda 0.5 --cache-temperature 20'
again='The nearest neighbours of the nearest neighbours of the'
# shellcheck disable=SC2086 # options are words
run 0 generate -m "$model" -s told.store --lambda 0.25 --no-fallback $cached -p "$again" -n 6 --temp 0 --json
cp out written
# shellcheck disable=SC2086
start -m "$model" -s told.store --lambda 0.25 $cached
expect 200 POST /v1/completions "{\"prompt\": \"$again\", \"max_tokens\": 6, \"temperature\": 0, \"knn\": {\"explain\": true, \"fallback\": false}}"
holds 'r["choices"][0]["text"] == load("written")["text"] and all(x["lambda"] >= 0.75 for x in r["choices"][0]["knn"]["tokens"])'
expect 200 POST /v1/completions "{\"prompt\": \"$again\", \"max_tokens\": 1, \"temperature\": 0, \"knn\": {\"explain\": true, \"fallback\": false, \"cache\": false}}"
holds 'r["choices"][0]["knn"]["tokens"][0]["lambda"] == 0.25'
expect 200 POST /v1/completions "{\"prompt\": \"$again\", \"max_tokens\": 1, \"temperature\": 0, \"knn\": {\"explain\": true, \"stores\": []}}"
holds 'r["choices"][0]["knn"]["tokens"][0]["lambda"] == 0 and r["choices"][0]["knn"]["tokens"][0]["p_knn"] is None'
expect 200 POST /v1/score "{\"text\": \"$again\"}"
holds 'all(x["lambda"] == 0.25 for x in r["tokens"])'
stop

# ---- what takes too long: an answer that says so, or a stream that does and ends

start -m "$model" --timeout 1
refused 504 timeout_error '"timeout"' POST /v1/completions '{"prompt": "The", "max_tokens": 450, "n": 16}'
expect 200 POST /v1/completions '{"prompt": "The", "max_tokens": 450, "n": 16, "stream": true}'
holds 'len(events()) > 2 and events()[-1]["error"]["type"] == "timeout_error" and all("error" not in x for x in events()[:-1])'
expect 200 POST /v1/completions '{"prompt": "The", "max_tokens": 2}'
stop

# ---- ending while a stream runs: it is finished, or told why it is not

start -m "$model" -s told.store
curl -s -N -m 30 "$url/v1/completions" -d '{"prompt": "The", "max_tokens": 400, "stream": true, "temperature": 0}' >streamed &
helper=$!
patiently 20 grep -q data: streamed
begun=$(date +%s)
stop
wait $helper
helper=
check test $(($(date +%s) - begun)) -le 12
checks=$((checks + 1))
tail -n 2 streamed | grep -q -e '^data: \[DONE\]$' -e '^data: {"error"' || failed "the stream was cut: $(tail -n 2 streamed)"

start -m "$model" -s told.store
expect 200 POST /v1/completions '{"prompt": "The nearest", "max_tokens": 3}'
kill -INT "$server"
ends 0 15
conclude
