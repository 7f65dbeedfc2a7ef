"""Loads a server as many clients at once would, over kept connections, and tells what it took. It shares the CPU with the
server, so it is as light as Python can be: requests are made beforehand, answers are counted and not read.

    /usr/bin/python3 bench/serve.py load URL PID TEXT SECONDS CLIENTS     scores, completions and explanations, mixed
    /usr/bin/python3 bench/serve.py chat URL PID TEXT SECONDS CLIENTS     as load, with chat among it, whole and streamed
    /usr/bin/python3 bench/serve.py add URL PID TEXT SECONDS CLIENTS STORE
        clients score for so long, then while a document of 1 MB is added by a job: their latency, alone and then
    /usr/bin/python3 bench/serve.py scale URL PID TEXT SECONDS CLIENTS... scores alone, by the number of clients
    /usr/bin/python3 bench/serve.py soak URL PID TEXT SECONDS CLIENTS STORE PAUSE
        as load, while a writer adds a document to STORE every PAUSE seconds and removes the oldest but some
    /usr/bin/python3 bench/serve.py grow URL PID TEXT DOCUMENTS STORE
        adds so many documents to STORE, one after another: ms of an addition, and mappings of the server, by tenths

Prints one JSON object. `errors` are answers that were neither 2xx nor 429 nor 503, and connections that broke; `lost` of
soak are documents that the server acknowledged and does not list at the end, or lists although it acknowledged their
removal. Memory and latency of soak are those of a tenth of the time after the first third, which warms up, and of the last.
"""

import asyncio
import collections
import json
import random
import statistics
import sys
import time
import urllib.parse
import urllib.request

KINDS = {"score": 50, "complete": 20, "stream": 5, "explain": 25}  # per cent of the requests
WITH_CHAT = {"score": 35, "complete": 10, "stream": 5, "explain": 20, "chat": 20, "chat_stream": 10}
MIN, MAX = 30, 120  # tokens of a text
KEPT = 50  # documents that the writer of soak leaves in the store


# ---- texts of real words, of 30 to 120 tokens as the server counts them


def ask(url, path, payload):
    request = urllib.request.Request(url + path, json.dumps(payload).encode(), {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return json.load(answer)


def texts_of(url, path, count=300):
    chooser = random.Random(1)
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if len(line.split()) > 3]
    out = []
    while len(out) < count and lines:
        at, piece, target = chooser.randrange(len(lines)), "", chooser.uniform(MIN, MAX) * 3.6
        while len(piece) < target and at < len(lines):
            piece += ("\n" if piece else "") + lines[at]
            at += 1
        tokens = ask(url, "/tokenize", {"prompt": piece})["count"]
        if MIN <= tokens <= MAX:
            out.append((piece, tokens))
    return out


def request_of(path, payload, method="POST"):
    body = json.dumps(payload).encode() if payload is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def requests_of(texts):
    """For each kind: (the bytes of a request, the tokens it has)."""
    out = {kind: [] for kind in WITH_CHAT}
    for text, tokens in texts:
        half = text[: len(text) // 2]
        out["score"].append((request_of("/v1/score", {"text": text}), tokens))
        for kind in ("complete", "stream"):
            more = {"max_tokens": 16, "temperature": 0.8, "stream": kind == "stream"}
            out[kind].append((request_of("/v1/completions", {"prompt": half, **more}), tokens // 2 + 16))
        for kind in ("chat", "chat_stream"):
            messages = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": half}]
            more = {"max_tokens": 16, "temperature": 0.8, "stream": kind == "chat_stream"}
            out[kind].append((request_of("/v1/chat/completions", {"messages": messages, **more}), tokens // 2 + 16))
        out["explain"].append((request_of("/v1/explain", {"context": half}), tokens // 2))
    return out


# ---- clients


class Tally:
    def __init__(self):
        self.latencies = {kind: [] for kind in WITH_CHAT}
        self.answers = []  # (when, latency) of all kinds
        self.tokens = self.busy = 0
        self.errors, self.examples = 0, []
        self.changes, self.there, self.perhaps = 0, set(), set()  # of the writer

    def error(self, what):
        self.errors += 1
        if len(self.examples) < 5:
            self.examples.append(str(what)[:200])

    def count(self):
        return sum(map(len, self.latencies.values()))


async def read_answer(reader):
    """Status, seconds to wait before asking again, and whether the connection is kept."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head[9:12])
    at = head.find(b"content-length:")
    if at >= 0:
        await reader.readexactly(int(head[at + 15 : head.index(b"\r\n", at)]))
    else:
        while (size := int((await reader.readline()).split(b";")[0], 16)) > 0:
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    at = head.find(b"retry-after:")
    wait = int(head[at + 12 : head.index(b"\r\n", at)]) if at >= 0 else 1
    return status, wait, b"connection: close" not in head


async def client(place, requests, weights, seed, until, tally):
    chooser = random.Random(seed)
    kinds = list(weights)
    shares = list(weights.values())
    reader = writer = None
    while time.monotonic() < until:
        kind = chooser.choices(kinds, shares)[0]
        data, tokens = chooser.choice(requests[kind])
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection(*place, limit=1 << 20)
            begun = time.monotonic()
            writer.write(data)
            status, wait, keep = await read_answer(reader)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            tally.error(f"{kind}: {error!r}")
            if writer:
                writer.close()
            writer = None
            await asyncio.sleep(0.2)
            continue
        if 200 <= status < 300:
            ended = time.monotonic()
            tally.latencies[kind].append(ended - begun)
            tally.answers.append((ended, ended - begun))
            tally.tokens += tokens
        elif status in (429, 503):
            tally.busy += 1
            await asyncio.sleep(min(wait, until - time.monotonic()) if until > time.monotonic() else 0)
        else:
            tally.error(f"{kind}: status {status}")
        if not keep:
            writer.close()
            writer = None
    if writer:
        writer.close()


def memory(pid):
    """MB in all, those that are its own (the rest are pages of the store's files, which the system may take back), and PSS."""
    found = {}
    for name in ("status", "smaps_rollup"):
        with open(f"/proc/{pid}/{name}", encoding="ascii") as file:
            found |= {line.split(":")[0]: int(line.split()[1]) / 1024 for line in file if line.startswith(("VmRSS", "RssAnon", "Pss:"))}
    return found["VmRSS"], found["RssAnon"], found["Pss"]


async def watch(pid, until, samples):
    begun = time.monotonic()
    while time.monotonic() < until:
        samples.append((time.monotonic() - begun, *memory(pid)))
        await asyncio.sleep(1)


# ---- a writer


async def exchange(place, data):
    reader, writer = await asyncio.open_connection(*place, limit=1 << 20)
    writer.write(data)
    status, wait, _ = await read_answer(reader)
    writer.close()
    return status, wait


async def change(place, data, good, until, tally):
    """Until it is done, or time is over; whether it was acknowledged."""
    while time.monotonic() < until:
        try:
            status, wait = await exchange(place, data)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            tally.error(f"writer: {error!r}")
            return False
        if status in good:
            tally.changes += 1
            return True
        if status not in (429, 503):
            tally.error(f"writer: status {status}")
            return False
        tally.busy += 1
        await asyncio.sleep(wait)
    return False


async def write(place, store, texts, pause, until, tally):
    """Adds and removes; what must be there afterwards is tally.there, what may be tally.perhaps."""
    path = f"/v1/stores/{store}/documents"
    waiting = collections.deque()
    number = 0
    while time.monotonic() < until:
        name = f"soak/{number}"
        data = request_of(path, {"name": name, "text": f"Number {number}. {texts[number % len(texts)][0]}"})
        number += 1
        tally.perhaps.add(name)
        if await change(place, data, (200, 201), until, tally):
            waiting.append(name)
            tally.there.add(name)
        if len(waiting) > KEPT:
            name = waiting.popleft()
            tally.there.discard(name)
            if await change(place, request_of(f"{path}/{urllib.parse.quote(name)}", None, "DELETE"), (200,), until, tally):
                tally.perhaps.discard(name)
        await asyncio.sleep(max(0, min(pause, until - time.monotonic())))


async def run(place, pid, requests, weights, clients, seconds, beside=None):
    """`beside`: another coroutine of the time's end and the tally."""
    tally, samples = Tally(), []
    begun, busy = time.monotonic(), time.process_time()
    until = begun + seconds
    work = [client(place, requests, weights, seed, until, tally) for seed in range(clients)]
    if beside:
        work.append(beside(until, tally))
    await asyncio.gather(watch(pid, until, samples), *work)
    took = time.monotonic() - begun
    return tally, samples, took, (time.process_time() - busy) / took


# ---- what it came to


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else None


def milliseconds(values):
    return {name: round(1000 * percentile(values, part), 1) for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))} if values else None


def growth(samples, column):
    """At the beginning, after a third of the time, at the end, at most; and MB a minute, by least squares from that third on."""
    values = [sample[column] for sample in samples]
    late = samples[len(samples) // 3 :]
    out = {"first": values[0], "warm": late[0][column], "last": values[-1], "most": max(values)}
    if len(late) > 2:
        out["a_minute"] = 60 * statistics.linear_regression([x[0] for x in late], [x[column] for x in late]).slope
    return {name: round(value, 1) for name, value in out.items()}


def is_flat(own):
    """What it has of its own at the end is at most a twentieth, and 8 MB, above what it had after a third of the time."""
    return own["last"] <= 1.05 * own["warm"] + 8


def load(place, pid, requests, seconds, clients, kinds):
    tally, samples, took, share = asyncio.run(run(place, pid, requests, kinds, clients, seconds))
    everything = [x for values in tally.latencies.values() for x in values]
    own = growth(samples, 2)
    return {
        "clients": clients, "seconds": round(took, 1), "requests": tally.count(), "requests_per_second": round(tally.count() / took, 1),
        "tokens_per_second": round(tally.tokens / took), "busy": tally.busy, "errors": tally.errors, "examples": tally.examples,
        "ms": {kind: milliseconds(values) for kind, values in tally.latencies.items()} | {"all": milliseconds(everything)},
        "rss_mb": growth(samples, 1), "own_mb": own, "flat": is_flat(own), "own_cpu": round(share, 3),
    }


def scale(place, pid, requests, seconds, counts):
    """Rates in turn, twice through: a busy minute of the machine must not fall on one of them alone."""
    rates = {count: [] for count in counts}
    errors, busy = 0, 0
    for _ in range(2):
        for count in counts:
            tally, _, took, _ = asyncio.run(run(place, pid, requests, {"score": 1}, count, seconds))
            rates[count].append(tally.tokens / took)
            errors, busy = errors + tally.errors, busy + tally.busy
    return {"tokens_per_second": {count: round(statistics.mean(values)) for count, values in rates.items()}, "errors": errors, "busy": busy}


def listed(url, store):
    request = f"{url}/v1/stores/{store}/documents?limit=10000"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return {x["name"] for x in json.load(answer)["data"] if x["name"].startswith("soak/")}


def soak(url, place, pid, requests, texts, seconds, clients, store, pause):
    begun = time.monotonic()
    beside = lambda until, tally: write(place, store, texts, pause, until, tally)
    tally, samples, took, _ = asyncio.run(run(place, pid, requests, KINDS, clients, seconds, beside))
    tenths = (0.33 * seconds, 0.43 * seconds), (0.9 * seconds, took + 1)
    # Nothing came in a tenth of the time: all of it stands for that.
    of = lambda rows, column: [[x[column] for x in rows if low <= x[0] < high] or [x[column] for x in rows] for low, high in tenths]
    answers = [(when - begun, latency) for when, latency in tally.answers]
    ends = lambda values: dict(zip(("start", "end"), values))
    means = lambda column: ends([round(statistics.mean(values), 1) for values in of(samples, column)])
    now = listed(url, store)
    course = [[x[2] for x in samples if n <= 10 * x[0] / seconds < n + 1] for n in range(10)]
    return {
        "clients": clients, "seconds": round(took, 1), "requests": tally.count(), "changes": tally.changes, "busy": tally.busy,
        "errors": tally.errors, "examples": tally.examples, "lost": len(tally.there - now) + len(now - tally.perhaps),
        "ms": ends([milliseconds(values) for values in of(answers, 1)]),
        "rss_mb": means(1), "own_mb": means(2), "pss_mb": means(3), "own_mb_by_tenths": [round(max(x, default=0)) for x in course],
    }


def add(url, place, pid, requests, texts, seconds, clients, store):
    """Asked: the median latency at most doubles. Scores are counted from the job's beginning to its end."""
    scores = lambda beside=None, most=seconds: asyncio.run(run(place, pid, requests, {"score": 1}, clients, most, beside))[0]
    alone = scores()
    chooser, text = random.Random(2), ""
    while len(text.encode()) < 1 << 20:
        text += " " + chooser.choice(texts)[0]
    begun = time.monotonic()
    job = ask(url, f"/v1/stores/{store}/documents", {"name": "bench/large", "text": text})
    state = {"status": "waiting"}
    answers, errors = [], alone.errors
    while state["status"] in ("waiting", "running"):
        tally = scores(most=5)
        answers += tally.latencies["score"]
        errors += tally.errors
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/v1/jobs/{job['id']}", timeout=60) as answer:
            state = json.load(answer)
    before, during = milliseconds(alone.latencies["score"]), milliseconds(answers)
    return {"clients": clients, "errors": errors, "alone_ms": before, "while_adding_ms": during, "status": state["status"],
            "ratio_p50": round(during["p50"] / before["p50"], 2), "bytes": len(text.encode()), "seconds": round(time.monotonic() - begun, 1)}


def mappings(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return sum(1 for _ in file)


# Texts differ, so that none is copied from another name.
def grow(url, pid, texts, documents, store):
    tenths, maps, times = [], [], []
    for number in range(documents):
        text = f"{number}: {texts[number % len(texts)]}"
        begun = time.perf_counter()
        ask(url, f"/v1/stores/{store}/documents", {"name": f"grow/{number}", "text": text})
        times.append(time.perf_counter() - begun)
        if len(times) * 10 >= documents:
            tenths.append(round(statistics.median(times) * 1e3, 2))
            maps.append(mappings(pid))
            times = []
    return {"documents": documents, "ms_by_tenths": tenths, "ratio": round(tenths[-1] / tenths[0], 2), "mappings": maps}


def main():
    if sys.argv[1] == "grow":
        url, store = sys.argv[2].rstrip("/"), sys.argv[6]
        print(json.dumps(grow(url, int(sys.argv[3]), texts_of(url, sys.argv[4]), int(sys.argv[5]), store)))
        return
    mode, url, pid, text, seconds = sys.argv[1], sys.argv[2].rstrip("/"), int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
    host, port = url.split("//")[1].split(":")
    texts = texts_of(url, text)
    requests = requests_of(texts)
    assert requests["score"], "no text of 30 to 120 tokens in " + text
    place = (host, int(port))
    if mode == "soak":
        print(json.dumps(soak(url, place, pid, requests, texts, seconds, int(sys.argv[6]), sys.argv[7], float(sys.argv[8]))))
        return
    if mode == "add":
        print(json.dumps(add(url, place, pid, requests, texts, seconds, int(sys.argv[6]), sys.argv[7])))
        return
    counts = [int(x) for x in sys.argv[6:]]
    if mode in ("load", "chat"):
        print(json.dumps(load(place, pid, requests, seconds, counts[0], KINDS if mode == "load" else WITH_CHAT)))
    else:
        print(json.dumps(scale(place, pid, requests, seconds, counts)))


main()
