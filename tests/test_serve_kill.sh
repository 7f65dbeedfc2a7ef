#!/bin/sh
# kill -9 at random moments while documents are added and removed through the server: afterwards the store is whole, every
# document is there as it was sent or not at all, what was acknowledged is kept, and a new server serves it.
#   sh tests/test_serve_kill.sh PATH_TO_knnlm SOURCE_DIR
#   SERVE_KILLS    how often to kill (10)
#   SERVE_SEED     of the random moments (the time)
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

kills=${SERVE_KILLS:-10}
seed=${SERVE_SEED:-$(date +%s)}

# Sends documents until the server is gone, and notes which were acknowledged: number, status. Every fourth one is removed
# again; two connections at a time, since adding must wait for adding. Texts are as long as their number's last digit says.
cat >writer.py <<'END'
import http.client, json, sys, threading
port, first, log = int(sys.argv[1]), int(sys.argv[2]), open(sys.argv[3], "a", buffering=1)
def text_of(i): return "Document %d begins. " % i + "It has the number %d and a word. " % i * (1 + i % 10 * 8) + "Document %d ends." % i
def write(i, step):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    while True:
        try:
            link.request("POST", "/v1/stores/told/documents", json.dumps({"name": "document %d" % i, "text": text_of(i)}))
            answer = link.getresponse()
            answer.read()
            log.write("add %d %d\n" % (i, answer.status))
            if i % 4 == 3 and answer.status == 201:
                log.write("removing %d 0\n" % i)
                link.request("DELETE", "/v1/stores/told/documents/document%%20%d" % i)
                answer = link.getresponse()
                answer.read()
                log.write("remove %d %d\n" % (i, answer.status))
        except (OSError, http.client.HTTPException):
            return
        i += step
if __name__ == "__main__":
    threads = [threading.Thread(target=write, args=(first + k, 2)) for k in range(2)]
    for t in threads: t.start()
    for t in threads: t.join()
END

# Every document of the store, by another process and to the last byte, beside what was acknowledged.
cat >judge.py <<'END'
import json, subprocess, sys, urllib.parse, urllib.request
sys.path.insert(0, ".")
sys.argv, (url, info, log) = ["x", "0", "0", "/dev/null"], sys.argv[1:]
from writer import text_of
there = {d["name"]: d for d in json.load(open(info))["documents"] if not d["removed"]}
lines = [line.split() for line in open(log)]
wrong = []
state = {}
for verb, number, status in lines:
    if verb == "add" and status in ("200", "201"): state[number] = "there"
    elif verb == "add" and status not in ("409", "429", "503"): wrong.append("adding %s: status %s" % (number, status))
    elif verb == "removing": state[number] = "either"
    elif verb == "remove" and status == "200": state[number] = "gone"
for number, expected in state.items():
    name = "document " + number
    if expected == "there" and name not in there: wrong.append(name + " was acknowledged, and is lost")
    if expected == "gone" and name in there: wrong.append(name + " was removed, and is back")
# A document is whole if its first entry's passage and its bytes are those of the text.
open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
served = {d["name"]: d for d in json.load(open_url(url + "/v1/stores/told/documents?limit=10000"))["data"]} if url else None
if served is not None and set(served) != set(there): wrong.append("served are other documents: %s" % sorted(set(served) ^ set(there))[:5])
for name, d in there.items():
    if not name.startswith("document "): continue
    text = text_of(int(name.split()[1]))
    if d["bytes"] != len(text.encode()): wrong.append("%s has %d bytes, not %d" % (name, d["bytes"], len(text.encode())))
    if d["entries"] != d["tokens"]: wrong.append("%s has %d entries of %d tokens" % (name, d["entries"], d["tokens"]))
    if url:
        last = d["first"] + d["entries"] - 1
        passage = json.load(open_url(url + "/v1/stores/told/entries/%d?around=1000" % last))
        if not (passage["before"] + passage["text"]).endswith("Document %s ends." % name.split()[1]) or passage["document"] != name:
            wrong.append("%s does not end as it should: %s" % (name, passage["text"]))
print(len(there), "documents,", len(lines), "answers;", "; ".join(wrong[:5]))
sys.exit(bool(wrong))
END

awk -v seed="$seed" -v n="$kills" 'BEGIN { srand(seed); while (n--) printf "%.3f\n", 0.02 + rand() * 0.6 }' >moments
run 0 build -m "$tiny" -o told.store told.txt
: >log
begun=0 round=0
while read -r moment; do
    round=$((round + 1))
    start -m "$tiny" -s told.store
    # The server of this round has what the last one left.
    if [ $round -gt 1 ]; then
        last="restart $round (seed $seed)"
        checks=$((checks + 1))
        "$python" judge.py "$url" info.json log >verdict 2>&1 || failed "$(cat verdict)"
    fi
    "$python" writer.py "${url##*:}" $begun log &
    helper=$!
    sleep "$moment"
    kill -9 "$server"
    wait "$server" 2>/dev/null
    server=
    wait $helper
    helper=
    begun=$((begun + 1000))
    last="kill $round after $moment s (seed $seed)"
    run 0 verify told.store
    run 0 info --json told.store
    cp out info.json
    last="kill $round after $moment s (seed $seed)"
    checks=$((checks + 1))
    "$python" judge.py '' info.json log >verdict 2>&1 || failed "$(cat verdict)"
done <moments
start -m "$tiny" -s told.store
checks=$((checks + 1))
"$python" judge.py "$url" info.json log >verdict 2>&1 || failed "$(cat verdict)"
expect 201 POST /v1/stores/told/documents '{"name": "the last", "text": "The last document."}'
expect 200 POST /v1/explain '{"context": "The last", "neighbors": 1}'
holds 'r["neighbors"][0]["document"] == "the last"'
stop
run 0 verify told.store
echo "$round kills; $(cat verdict) seed $seed"
conclude
