#!/bin/sh
# Operating the server: settings by file and environment, the access log, SIGHUP, what a service manager is told, and what
# dashboard and alerts ask for.   sh tests/test_serve_operate.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

run 0 build --no-tune -m "$tiny" -o told.store told.txt

# ---- settings: a file, then the environment, then arguments

printf 'first-key\n' >key
chmod 600 key
cat >serve.conf <<END
# a comment
model = $tiny
store = told.store

read-only = on
no-key = off
max-tokens = 30
api-key-file = key
access-log=access.log
access-log-json
END
start --config serve.conf
expect 200 GET /version
holds 'r["name"] == "knnlm" and re.fullmatch(r"\d+\.\d+\.\d+", r["version"]) and (r["llama"] is None or r["llama"][0].isdigit())'
refused 401 authentication_error '"invalid_api_key"' GET /v1/stores
key=first-key
expect 200 GET /v1/stores
holds 'r["data"][0]["writable"] is False'
refused 400 invalid_request_error '"context_length_exceeded"' POST /v1/completions '{"prompt": "abc", "max_tokens": 29}'
expect 200 POST /v1/completions '{"prompt": "a secret of mine", "max_tokens": 3, "stream": true}'
expect 200 GET '/v1/stores/told/documents?q=another%20secret'
expect 404 GET '/v1/stores/told/documents/third%20secret'
expect 404 GET '/nowhere/"quoted"?fourth=secret'

# ---- the log: a line of JSON per request, without what was asked or said

cat >log.py <<'END'
import json, re, sys
lines = [json.loads(x) for x in open("access.log", encoding="ascii")]
assert all(set(x) == {"time", "address", "method", "path", "status", "bytes", "seconds"} for x in lines)
assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", x["time"]) and x["address"] == "127.0.0.1" and x["seconds"] >= 0 for x in lines)
seen = [(x["method"], x["path"], x["status"]) for x in lines]
for wanted in (("GET", "/version", 200), ("GET", "/v1/stores", 401), ("GET", "/v1/stores", 200), ("POST", "/v1/completions", 400),
               ("POST", "/v1/completions", 200), ("GET", "/v1/stores/*/documents", 200), ("GET", "/v1/stores/*/documents/**", 404),
               ("GET", "/nowhere/?quoted?", 404)):
    assert wanted in seen, (wanted, seen)
assert all(x["bytes"] > 0 for x in lines)
END
logged() { grep -q 'quoted' access.log; }
check patiently 10 logged
ensure "the log" "$python" log.py
check not grep -q -i secret access.log
check not grep -q first-key access.log

# ---- SIGHUP: another key, a new file of the log

mv access.log access.log.1
printf 'second-key\n' >key
kill -HUP "$server"
check patiently 10 test -e access.log
takes() { curl -s -f -o /dev/null -H "Authorization: Bearer $1" "$url/v1/stores"; }
check patiently 10 takes second-key
refused 401 authentication_error '"invalid_api_key"' GET /v1/stores
key=second-key
expect 200 GET /v1/stores
check grep -q '"path":"/v1/stores","status":200' access.log
# A file that cannot be read leaves the key as it was, and says so.
chmod 666 key
kill -HUP "$server"
check patiently 10 grep -q 'the key stays what it was' serve.err
expect 200 GET /v1/stores
chmod 600 key
stop
key=

# The environment counts more than the file, arguments more than both; lists add up.
: >serve.out
KNNLM_SERVE_READ_ONLY=off KNNLM_SERVE_MAX_TOKENS=20 KNNLM_SERVE_STORE=:told.store: KNNLM_SERVE_ACCESS_LOG=- \
    "$knnlm" serve --port 0 -m "$tiny" --max-tokens 25 >serve.out 2>>serve.err </dev/null &
server=$!
check patiently 30 listens
url=$(sed -n 's|.*\(http://[^ /]*\).*|\1|p' serve.out | head -n 1)
check patiently 30 healthy
expect 200 GET /v1/stores
holds '[x["name"] for x in r["data"]] == ["told"] and r["data"][0]["writable"]'
expect 200 POST /v1/completions '{"prompt": "abc", "max_tokens": 22}'
refused 400 invalid_request_error '"context_length_exceeded"' POST /v1/completions '{"prompt": "abc", "max_tokens": 23}'
said() { grep -q -E '^[0-9T:.Z-]+ 127\.0\.0\.1 POST /v1/completions 400 [0-9]+ [0-9.]+$' serve.err; }
check patiently 10 said
stop

for wrong in 'modell = x' 'read-only = perhaps' 'port = many' 'host =' 'config = other' '= x'; do
    printf 'model = x\n%s\n' "$wrong" >wrong.conf
    complains 2 '' serve --config wrong.conf --port 0
done
printf '\n\nmodell = x\n' >wrong.conf
complains 2 'wrong.conf: line 3: no option is called modell: did you mean model' serve --config wrong.conf
complains 1 'nowhere.conf' serve --config nowhere.conf
for wrong in '' 'a b'; do complains 2 'api-key: a key is 1 to 1024 printable' serve -m "$tiny" --api-key "$wrong" --port 0; done
printf 'read-only = on\nport = many\n' >wrong.conf
complains 2 'wrong.conf: line 2: port many: not a whole number' serve --config wrong.conf
export KNNLM_SERVE_MAX_TOKENS=many
complains 2 'KNNLM_SERVE_MAX_TOKENS: max-tokens many: not a whole number' serve
unset KNNLM_SERVE_MAX_TOKENS
complains 2 'access-log-json is of --access-log' serve -m "$tiny" --access-log-json --port 0
complains 1 'nowhere/log' serve -m "$tiny" --access-log nowhere/log --port 0

# ---- what a service manager is told

cat >notified.py <<'END'
import os, signal, socket, subprocess, sys, time
knnlm, model, name = sys.argv[1:]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
    listener.bind("\0" + name[1:] if name[0] == "@" else name)
    listener.settimeout(30)
    server = subprocess.Popen([knnlm, "serve", "-m", model, "--port", "0"], env={**os.environ, "NOTIFY_SOCKET": name}, stdout=subprocess.DEVNULL)
    told = [listener.recv(100).decode()]
    server.send_signal(signal.SIGHUP)
    told += [listener.recv(100).decode() for _ in range(2)]
    server.terminate()
    told.append(listener.recv(100).decode())
    sys.exit(server.wait(30) != 0 or told != ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"])
END
ensure "notifications" "$python" -I notified.py "$knnlm" "$tiny" "$work/notify"
ensure "notifications by an abstract socket" "$python" -I notified.py "$knnlm" "$tiny" "@knnlm-$$"

# ---- the settings of the unit (tests/test_serve_unit.sh has the unit itself)

sed "s|^model = .*|model = $tiny|; s|^store = .*|store = told.store|; s|^api-key-file = .*|api-key-file = key|; s|^access-log = .*|access-log = access.log|; s|^port = .*|port = 0|" \
    "$source/examples/systemd/knnlm.conf" >unit.conf
start --config unit.conf
key=second-key
expect 200 GET /v1/stores '' -H 'Host: knn.example.org'
key=
stop

# ---- dashboard and alerts ask for numbers that there are

start -m "$tiny" -s told.store
expect 200 POST /v1/score '{"text": "abc"}'
expect 200 GET /metrics
cat >asked_for.py <<'END'
import json, re, sys
folder = sys.argv[1]
names = set(re.findall(r"^([a-z_]+)", open("body").read(), re.M))
names |= {"up", "node_memory_MemTotal_bytes"}  # of Prometheus and of its node exporter
words = {"sum", "by", "rate", "le", "endpoint", "status", "job", "store", "histogram_quantile", "scalar", "max", "rate_interval", "m", "s"}
dashboard = json.load(open(folder + "/dashboard.json"))
asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
alerts = open(folder + "/alerts.yml").read()
asked += re.findall(r"^ +expr: (.*)$", alerts, re.M)
assert len(asked) > 15 and len(re.findall("- alert:", alerts)) >= 5
for expression in asked:
    bare = re.sub(r'"[^"]*"|\[[^]]*\]|\{\{.*?\}\}', "", expression)
    for word in re.findall(r"[A-Za-z_][A-Za-z_0-9]*", bare):
        assert word in names or word in words, (word, expression)
told = set(re.findall(r"knnlm_[a-z_]+", " ".join(asked)))
assert all(re.sub("_(bucket|sum|count)$", "", x) in {re.sub("_(bucket|sum|count)$", "", y) for y in names} for x in told)
END
ensure "numbers that are asked for" "$python" asked_for.py "$source/examples/monitoring"
stop
conclude
