"""What a server may be made to spend: memory on hostile bodies and on answers, connections on clients that hardly read.

    /usr/bin/python3 -I tests/serve_limits.py STAGE URL PID [MAX_MEMORY]

STAGE memory: MAX_MEMORY is the server's --max-memory, 64 MB or more; a --max-body of 16 MB, --max-tokens of 16384.
      exhausted: the same, with a --max-memory that the machine cannot give: its address space is limited from here.
      readers: --connections 20, --timeout 10.
      addresses: --connections-per-address 4.
"""

import concurrent.futures
import http.client
import json
import os
import resource
import socket
import sys
import time
import urllib.parse

stage, url, pid = sys.argv[1], sys.argv[2], int(sys.argv[3])
max_memory = int(sys.argv[4]) if len(sys.argv) > 4 else 0
where = urllib.parse.urlsplit(url)
MB = 1 << 20
checks = failures = 0
begun = time.monotonic()


def check(good, name, *more):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print("FAILED:", name, *(str(x)[:300] for x in more), flush=True)


def note(what):
    if os.environ.get("SERVE_LIMITS_VERBOSE"):
        print(f"{time.monotonic() - begun:.1f} s: {what}", flush=True)


def ask(method, path, body=None, source=None, timeout=120):
    """(status, headers, body); status 0: the connection was closed without an answer."""
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout, source_address=source)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read()
    except (ConnectionError, http.client.HTTPException) as error:
        return 0, {}, str(error).encode()
    finally:
        connection.close()


def post(path, request):
    return ask("POST", path, request if isinstance(request, bytes) else json.dumps(request).encode())


def eventually(what, *arguments, seconds=60):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if what(*arguments):
            return True
        time.sleep(0.1)
    return False


def status_of(member):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(member + ":"))


def room():
    """How much the server may grow by: its --max-memory, and what the machinery around takes. A sanitizer takes its share."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        maps = file.read()
    if "libtsan" in maps:
        return 1 << 40
    return 2 * max_memory + 256 * MB if "libasan" in maps else max_memory + 64 * MB


def reset_peak():
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def metric(name):
    lines = ask("GET", "/metrics")[2].decode().split("\n")
    # None: it was refused, as while connections of others are still being closed.
    return next((float(line.split(" ")[1]) for line in lines if line.startswith(name + " ")), None)


# ---- memory


def hostile():
    """Sixteen megabytes each, of what takes the most memory for its bytes."""
    few = 5500000
    yield "objects", b'{"a":[' + b",".join([b"{}"] * few) + b"]}"
    yield "lists", b'{"a":[' + b",".join([b"[]"] * few) + b"]}"
    yield "strings", b'{"a":[' + b",".join([b'""'] * few) + b"]}"
    yield "numbers", b'{"a":[' + b",".join([b"1"] * (few * 3 // 2)) + b"]}"
    yield "members", b"{" + b",".join(b'"%x":1' % i for i in range(few // 4)) + b"}"
    yield "an unfinished list", b"[" + b"{}," * few


def refused(name, answer, statuses):
    status, headers, body = answer
    check(status in statuses, name, status, body)
    if status >= 400:
        check(set(json.loads(body)) == {"error"}, name + ": no error of the protocol's", body)
    check(status != 503 or int(headers.get("retry-after", 0)) >= 1, name + ": no Retry-After", headers)


def within(name, baseline, work):
    """Runs it, and looks how far the server grew."""
    reset_peak()
    result = work()
    grown = status_of("VmHWM") - baseline
    note(f"{name}: {grown // MB} MB")
    check(grown < room(), name + ": memory", grown // MB, "MB of", room() // MB)
    check(ask("GET", "/health")[0] == 200, "not healthy after " + name)
    return result


def at_once(count, work):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda i: work(), range(count)))


def begin_body(count):
    """Bodies that are announced, sent but for their end, and then held."""
    clients = []
    for _ in range(count):
        client = socket.create_connection((where.hostname, where.port), 20)
        client.sendall(b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n")
        try:
            client.sendall(b" " * 15900000)
        except OSError:
            pass  # it was told why, and hung up on
        clients.append(client)
    for client in clients:
        client.close()


def memory():
    ids = [97 + i % 20 for i in range(16000)]
    short = {"text": "the nearest neighbours"}
    check(post("/v1/score", short)[0] == 200, "a plain request")
    baseline = status_of("VmRSS")
    for name, body in hostile():
        refused(name, within(name, baseline, lambda body=body: post("/v1/score", body)), (413,))
    objects = next(hostile())[1]
    for answer in within("six at once", baseline, lambda: at_once(6, lambda: post("/v1/score", objects))):
        refused("six at once", answer, (413, 503))
    within("bodies that are held", baseline, lambda: begin_body(12))
    # Eighteen kilobytes that ask for a gigabyte, and others that name what they want too much of.
    text = "the nearest neighbours of " * 690
    for name, request, param in (
        ("echo, n and logprobs", {"prompt": text, "echo": True, "n": 16, "logprobs": 20, "max_tokens": 0}, "logprobs"),
        ("long answers", {"prompt": "a", "n": 16, "logprobs": 20, "max_tokens": 16000}, "logprobs"),
        ("many sources", {"prompt": "a", "n": 16, "max_tokens": 16000, "knn": {"explain": True}}, "max_tokens"),
        ("p_kNN at 64 temperatures", {"tokens": ids, "knn": {"temperatures": list(range(1, 65))}}, "tokens"),
    ):
        path = "/v1/score" if "tokens" in request else "/v1/completions"
        answer = within(name, baseline, lambda path=path, request=request: post(path, request))
        refused(name, answer, (400,))
        check(json.loads(answer[2])["error"]["param"] == param, name + ": names the member", answer[2])
        check(json.loads(answer[2])["error"]["code"] == "request_too_large", name, answer[2])
    refused("tokens of 15 MB", within("tokens of 15 MB", baseline, lambda: post("/tokenize", {"prompt": "ab cd " * 2500000})), (400, 413))
    # Within the limit of one request, but not many at a time: those that go through are whole.
    request = {"prompt": ids[: max_memory // 2 // 7000], "echo": True, "logprobs": 20, "max_tokens": 0}
    answers = within("large answers at once", baseline, lambda: at_once(8, lambda: post("/v1/completions", request)))
    for answer in answers:
        refused("large answers at once", answer, (200, 503))
    whole = [json.loads(body)["choices"][0]["logprobs"]["tokens"] for status, _, body in answers if status == 200]
    check(whole and all(len(tokens) == len(request["prompt"]) for tokens in whole), "whole answers", len(whole))
    check(eventually(lambda: metric("knnlm_request_memory_bytes") < MB), "all is given back", metric("knnlm_request_memory_bytes"))
    check(post("/v1/score", short)[0] == 200, "a plain request at the end")


# ---- the machine has no more: 503, and no abort


def exhausted():
    ids = [97 + i % 20 for i in range(16000)]
    requests = [("/v1/completions", {"prompt": ids, "echo": True, "n": 16, "logprobs": 20, "max_tokens": 0}),
                ("/v1/completions", {"prompt": "a", "n": 16, "logprobs": 20, "max_tokens": 200}),
                ("/v1/completions", {"prompt": "a", "n": 16, "max_tokens": 200, "stream": True, "logprobs": 20, "knn": {"explain": True}}),
                ("/v1/score", {"tokens": ids, "knn": {"temperatures": list(range(1, 65))}}),
                ("/v1/explain", {"context": "the nearest", "neighbors": 100, "around": 200}),
                ("/tokenize", {"prompt": "ab cd " * 2500000}),
                ("/detokenize", {"tokens": [97] * 1000000}),
                ("/v1/score", next(hostile())[1])]
    unlimited = resource.prlimit(pid, resource.RLIMIT_AS)
    seen = set()
    for spare in (8, 64):
        resource.prlimit(pid, resource.RLIMIT_AS, (status_of("VmSize") + spare * MB, unlimited[1]))
        for path, request in requests:
            status, headers, body = post(path, request)
            note(f"{path} with {spare} MB: {status}")
            # A connection needs a thread, which may be what there is no memory for.
            check(status in (0, 200, 503), f"{path} with {spare} MB", status, body)
            check(status != 503 or json.loads(body)["error"]["code"] == "out_of_memory", path, body)
            seen.add(status)
        resource.prlimit(pid, resource.RLIMIT_AS, unlimited)
        check(post("/v1/score", {"text": "the nearest"})[0] == 200, "well again after", spare)
    check(503 in seen, "no request met the limit", seen)


# ---- clients that hardly read


def large_request():
    body = json.dumps({"tokens": [97 + i % 20 for i in range(2000)]}).encode()
    return b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def reader(buffer):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.connect((where.hostname, where.port))
    client.settimeout(60)
    client.sendall(large_request())
    return client


def drip(clients):
    for client in clients:
        client.setblocking(False)
        try:
            client.recv(64)
        except OSError:
            pass  # nothing there yet, or cut at last


def readers():
    """All connections are with clients that take 64 bytes now and then: after a while others are served again."""
    clients = [reader(4096) for _ in range(20)]
    for client in clients:
        client.recv(64)  # they all are being answered

    def others_are_served():
        drip(clients)
        return ask("GET", "/health")[0] == 200

    note("20 slow readers")
    check(eventually(others_are_served, seconds=90), "slow readers hold every connection")
    note("others are served")
    for client in clients:
        client.close()
    check(eventually(lambda: metric("knnlm_connections") == 1), "their connections are over")
    # Who reads slowly, but reads, has all of it.
    client = reader(65536)
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(16384)
    head, data = data.split(b"\r\n\r\n", 1)
    size = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    while len(data) < size:
        more = client.recv(16384)
        if not more:
            break
        data += more
        time.sleep(0.05)
    check(len(data) == size and json.loads(data).get("count") == 2000, "a steady reader", len(data), size)
    client.close()


def addresses():
    """One address has four connections, whoever else has how many."""
    check(eventually(lambda: ask("GET", "/health")[0] == 200), "healthy")
    time.sleep(0.2)
    mine = [socket.create_connection((where.hostname, where.port), 20) for _ in range(4)]
    for client in mine:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        check(client.recv(4096).startswith(b"HTTP/1.1 200"), "the first four are served")
    check(ask("GET", "/health")[0] == 0, "there is a fifth")
    check(ask("GET", "/health", source=("127.0.0.2", 0))[0] == 200, "another address has its own")
    mine[0].close()
    check(eventually(lambda: ask("GET", "/health")[0] == 200), "one went, one comes")


{"memory": memory, "exhausted": exhausted, "readers": readers, "addresses": addresses}[stage]()
print(f"{stage}: {checks} checks, {failures} failed, {time.monotonic() - begun:.1f} s")
sys.exit(failures > 0)
