"""Loads a server as many clients at once would, over kept connections, and tells what it took. It shares the CPU with the
server, so it is as light as Python can be: requests are made beforehand, answers are counted and not read.

    /usr/bin/python3 bench/serve.py load URL PID TEXT SECONDS CLIENTS     scores, completions and explanations, mixed
    /usr/bin/python3 bench/serve.py scale URL PID TEXT SECONDS CLIENTS... scores alone, by the number of clients

Prints one JSON object. `errors` are answers that were neither 2xx nor 429 nor 503, and connections that broke.
"""

import asyncio
import json
import random
import statistics
import sys
import time
import urllib.request

KINDS = {"score": 50, "complete": 20, "stream": 5, "explain": 25}  # per cent of the requests
LEAST, MOST = 30, 120  # tokens of a text


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
        at, piece, target = chooser.randrange(len(lines)), "", chooser.uniform(LEAST, MOST) * 3.6
        while len(piece) < target and at < len(lines):
            piece += ("\n" if piece else "") + lines[at]
            at += 1
        tokens = ask(url, "/tokenize", {"prompt": piece})["count"]
        if LEAST <= tokens <= MOST:
            out.append((piece, tokens))
    return out


def request_of(path, payload):
    body = json.dumps(payload).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body)


def requests_of(texts):
    """For each kind: (the bytes of a request, the tokens it has)."""
    out = {kind: [] for kind in KINDS}
    for text, tokens in texts:
        half = text[: len(text) // 2]
        out["score"].append((request_of("/v1/score", {"text": text}), tokens))
        for kind in ("complete", "stream"):
            more = {"max_tokens": 16, "temperature": 0.8, "stream": kind == "stream"}
            out[kind].append((request_of("/v1/completions", {"prompt": half, **more}), tokens // 2 + 16))
        out["explain"].append((request_of("/v1/explain", {"context": half}), tokens // 2))
    return out


# ---- clients


class Tally:
    def __init__(self):
        self.latencies = {kind: [] for kind in KINDS}
        self.tokens = self.busy = 0
        self.errors, self.examples = 0, []

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
            tally.latencies[kind].append(time.monotonic() - begun)
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
    """MB in all, and those that are its own: the rest are pages of the store's files, which the system may take back."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in file if line.startswith(("VmRSS", "RssAnon"))}
    return found["VmRSS"], found["RssAnon"]


async def watch(pid, until, samples):
    begun = time.monotonic()
    while time.monotonic() < until:
        samples.append((time.monotonic() - begun, *memory(pid)))
        await asyncio.sleep(1)


async def run(place, pid, requests, weights, clients, seconds):
    tally, samples = Tally(), []
    begun, busy = time.monotonic(), time.process_time()
    until = begun + seconds
    work = [client(place, requests, weights, seed, until, tally) for seed in range(clients)]
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


def load(place, pid, requests, seconds, clients):
    tally, samples, took, share = asyncio.run(run(place, pid, requests, KINDS, clients, seconds))
    everything = [x for values in tally.latencies.values() for x in values]
    return {
        "clients": clients, "seconds": round(took, 1), "requests": tally.count(), "requests_per_second": round(tally.count() / took, 1),
        "tokens_per_second": round(tally.tokens / took), "busy": tally.busy, "errors": tally.errors, "examples": tally.examples,
        "ms": {kind: milliseconds(values) for kind, values in tally.latencies.items()} | {"all": milliseconds(everything)},
        "rss_mb": growth(samples, 1), "own_mb": growth(samples, 2), "own_cpu": round(share, 3),
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


def main():
    mode, url, pid, text, seconds = sys.argv[1], sys.argv[2].rstrip("/"), int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
    counts = [int(x) for x in sys.argv[6:]]
    host, port = url.split("//")[1].split(":")
    requests = requests_of(texts_of(url, text))
    assert requests["score"], "no text of 30 to 120 tokens in " + text
    if mode == "load":
        print(json.dumps(load((host, int(port)), pid, requests, seconds, counts[0])))
    else:
        print(json.dumps(scale((host, int(port)), pid, requests, seconds, counts)))


main()
