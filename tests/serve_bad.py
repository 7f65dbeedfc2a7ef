"""Asks a server everything that nobody should: wrong values of every member, broken JSON, broken HTTP, bodies without end,
clients that stop half-way or never come to the point. Every answer must be a valid one, 4xx in OpenAI's shape where the
request was HTTP at all (or 2xx where the value is legal after all), and the server must be healthy after each.

    /usr/bin/python3 -I tests/serve_bad.py URL KEY PID STORE_NAME     SERVE_BAD=full in the environment: more of it

The server has a --max-body of 1 MB, a --timeout of 5 s, and 150 --connections.
"""

import json
import os
import random
import select
import socket
import sys
import time
import urllib.parse

url, key, pid, store = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
full = os.environ.get("SERVE_BAD") == "full"
where = urllib.parse.urlsplit(url)
place = (where.hostname, where.port)
MAX_BODY = 1000000
CONNECTIONS = 150
HOST = b"Host: %s:%d" % (where.hostname.encode(), where.port)
TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "invalid_request_error",
         405: "invalid_request_error", 409: "invalid_request_error", 413: "invalid_request_error", 429: "rate_limit_error"}
checks = failures = 0


def check(good, name, *more):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        if failures <= 60:
            print("FAILED:", name, *(str(x)[:300] for x in more), flush=True)
    return good


# ---- HTTP by hand, since libraries refuse to send what is wrong


class Closed(Exception):
    """The server hung up before a whole answer."""


class Client:
    def __init__(self, timeout=20):
        self.socket = socket.create_connection(place, timeout)
        self.buffer = b""

    def close(self):
        self.socket.close()

    def more(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            data = b""
        except TimeoutError:
            raise Closed("no answer in time") from None
        if not data:
            raise Closed("hung up after %d bytes" % len(self.buffer))
        self.buffer += data

    def until(self, mark):
        while mark not in self.buffer:
            self.more()
        found, self.buffer = self.buffer.split(mark, 1)
        return found

    def exactly(self, count):
        while len(self.buffer) < count:
            self.more()
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def answer(self, head_only=False):
        head = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        if head[0].startswith("HTTP/1.1 100"):
            return self.answer(head_only)
        version, status = head[0].split(" ")[:2]
        assert version == "HTTP/1.1" or version == "HTTP/1.0", head[0]
        headers = {}
        for line in head[1:]:
            name, value = line.split(":", 1)
            headers[name.strip().lower()] = value.strip()
        body = b""
        if head_only or status in ("204", "304"):
            pass
        elif headers.get("transfer-encoding") == "chunked":
            size = 1
            while size:
                size = int(self.until(b"\r\n").split(b";")[0], 16)
                body += self.exactly(size)
                assert self.exactly(2) == b"\r\n", "a chunk without its end"
        elif "content-length" in headers:
            body = self.exactly(int(headers["content-length"]))
        else:
            try:
                while True:
                    self.more()
            except Closed:
                body, self.buffer = self.buffer, b""
        return int(status), headers, body

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionError, TimeoutError):
            pass  # what it answered before hanging up is read all the same


def http(method, path, body=None, *more):
    lines = [b"%s %s HTTP/1.1" % (method.encode(), path if isinstance(path, bytes) else path.encode()), HOST,
             b"Authorization: Bearer " + key.encode(), *more]
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


kept = None


def exchange(data, head_only=False, fresh=False):
    """Sends a whole request and reads the answer, on a kept connection where there is one."""
    global kept
    for attempt in (1, 2):
        client = Client() if fresh or kept is None else kept
        reused, kept = client is kept, None
        client.send(data)
        try:
            status, headers, body = client.answer(head_only)
        except Closed:
            client.close()
            if reused and attempt == 1:
                continue
            raise
        if not fresh and headers.get("connection", "").lower() != "close":
            kept = client
        else:
            client.close()
        return status, headers, body


def healthy(name):
    try:
        status, _, body = exchange(http("GET", "/health"))
        return check(status == 200 and json.loads(body) == {"status": "ok"}, "not healthy after " + name, status, body)
    except (Closed, OSError, ValueError) as error:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            print("FAILED: the server is dead after", name)
            sys.exit(1)
        return check(False, "no answer to /health after " + name, error)


def in_shape(status, body):
    try:
        answer = json.loads(body)
        error = answer["error"]
        return (set(answer) == {"error"} and set(error) == {"message", "type", "param", "code"} and isinstance(error["message"], str)
                and error["message"] and error["type"] == TYPES.get(status, error["type"]))
    except (ValueError, KeyError, TypeError):
        return False


def judge(name, answer, allowed):
    """allowed: statuses; 200 stands for any 2xx."""
    status, headers, body = answer
    check(status in allowed or (200 in allowed and 200 <= status < 300), name, "status", status, "not of", allowed, body)
    if status >= 400:
        check(in_shape(status, body), name + ": not an error of the protocol's shape", status, body)
    elif headers.get("content-type", "").startswith("application/json"):
        try:
            json.loads(body)
            checked = True
        except ValueError:
            checked = False
        check(checked, name + ": the answer is not JSON", body)
    return answer


def refuse(name, data, allowed=(400,), **more):
    try:
        answer = judge(name, exchange(data, **more), allowed)
    except (Closed, AssertionError, ValueError) as error:
        check(False, name, "no valid answer:", error)
        answer = None
    healthy(name)
    return answer


# ---- values of members

NUMBERS = ["-9223372036854775808", "-1", "0", "9223372036854775807", "18446744073709551616", "1e308", "-1e308", "1e-308", "0.5"]
UNREADABLE = ["18446744073709551616", '"\\u0000"']  # JSON, but beyond what the parser holds: it cannot tell where
NO_JSON = ["NaN", "Infinity", "-Infinity", "nul", "01", "1.", "--1", "0x10", "1e999"]
OTHERS = ['"x"', '""', "null", "[]", "{}", "true", "[[[]]]", '{"a": 1}', "[null]", '["x"]', "[1e308]", '"\\u0000"']
WRONG = '"x" "" [] {} true [[[]]] {"a": 1} [null] ["x"] "\\u0000"'  # of a number


def fields():
    """(path, request, member, kind): kind tells what is certainly wrong."""
    prompt = {"prompt": "the nearest", "max_tokens": 2}
    knn = [("lambda", "unit"), ("temperature", "positive"), ("k", "count")]
    integers = [("max_tokens", "natural"), ("n", "count"), ("best_of", "count"), ("seed", "integer"), ("logprobs", "natural"), ("top_k", "integer"), ("dry_allowed_length", "count")]
    reals = [("temperature", "positive0"), ("top_p", "real"), ("presence_penalty", "real"), ("frequency_penalty", "real"), ("min_p", "real"), ("repeat_penalty", "real"), ("dry_multiplier", "positive0"), ("dry_base", "positive")]
    for member, kind in integers + reals:
        yield "/v1/completions", prompt, member, kind
    for member in ("stream", "echo"):
        yield "/v1/completions", prompt, member, "flag"
    for member in ("stop", "suffix", "logit_bias", "stream_options", "knn", "prompt", "model", "user"):
        yield "/v1/completions", prompt, member, "any"
    yield "/v1/completions", {"max_tokens": 2}, ("prompt", 0), "prompt"
    yield "/v1/completions", {"max_tokens": 2, "echo": True, "logprobs": 1}, ("prompt", 0, 0), "token"
    yield "/v1/completions", prompt, ("stop", 0), "any"
    yield "/v1/completions", {**prompt, "stream": True}, ("stream_options", "include_usage"), "flag"
    for path, request in (("/v1/completions", prompt), ("/v1/score", {"text": "the nearest"}), ("/v1/explain", {"context": "the nearest"})):
        for member, kind in knn:
            yield path, request, ("knn", member), kind
        yield path, request, ("knn", "stores"), "any"
        yield path, request, ("knn", "stores", 0), "any"
        yield path, request, ("knn", "unheard"), "never"
    chat = {"messages": [{"role": "user", "content": "who?"}], "max_tokens": 2}
    for member, kind in (("max_tokens", "count"), ("max_completion_tokens", "count"), ("n", "count"), ("top_logprobs", "natural"), ("temperature", "positive0")):
        yield "/v1/chat/completions", {**chat, "logprobs": True}, member, kind
    for member in ("messages", "tools", "response_format", "logit_bias", "stop", "knn"):
        yield "/v1/chat/completions", chat, member, "any"
    yield "/v1/chat/completions", chat, ("messages", 0), "any"
    yield "/v1/chat/completions", chat, ("messages", 0, "role"), "any"
    yield "/v1/chat/completions", chat, "logprobs", "flag"
    yield "/v1/completions", prompt, ("logit_bias", "5"), "real"
    for member in ("input", "encoding_format", "pooling", "dimensions"):
        yield "/v1/embeddings", {"input": "the nearest"}, member, "any"
    yield "/v1/embeddings", {}, ("input", 0), "prompt"
    yield "/v1/embeddings", {}, ("input", 0, 0), "token"
    yield "/v1/embeddings", {"input": "x"}, "normalize", "flag"
    yield "/v1/score", {"text": "the nearest"}, ("knn", "exclude_self"), "flag"
    yield "/v1/score", {"text": "the nearest"}, "documents", "natural"
    for member in ("only", "not"):
        yield "/v1/score", {"text": "the nearest"}, ("knn", member), "any"
        yield "/v1/score", {"text": "the nearest"}, ("knn", member, 0), "any"
    for member in ("fallback", "carry", "cache", "explain"):
        yield "/v1/completions", prompt, ("knn", member), "flag"
    yield "/v1/score", {"text": "the nearest"}, ("knn", "temperatures"), "any"
    yield "/v1/score", {"text": "the nearest"}, ("knn", "temperatures", 0), "positive"
    for path, text in (("/v1/score", "text"), ("/v1/explain", "context")):
        yield path, {}, text, "any"
        yield path, {}, "tokens", "any"
        yield path, {}, ("tokens", 0), "token"
    for member in ("words", "neighbors", "around"):
        yield "/v1/explain", {"context": "the"}, member, "natural"
    yield "/v1/explain", {"context": "the"}, "target_token", "token"
    yield "/v1/explain", {"context": "the"}, "target", "any"
    yield "/tokenize", {}, "prompt", "any"
    yield "/tokenize", {}, "content", "any"
    yield "/tokenize", {"prompt": "x"}, "add_special_tokens", "flag"
    yield "/detokenize", {}, "tokens", "any"
    yield "/detokenize", {}, ("tokens", 0), "token"
    yield f"/v1/stores/{store}/documents", {"text": "x"}, "name", "any"
    yield f"/v1/stores/{store}/documents", {"name": "x"}, "text", "any"
    yield f"/v1/stores/{store}/documents", {"name": "", "text": "x"}, "job", "flag"


def with_member(request, member, literal):
    """The request as JSON, with the literal, which may be none, in place of the member."""
    mark = "@the value@"
    value = mark
    path = member if isinstance(member, tuple) else (member,)
    for step in reversed(path[1:]):
        value = [value] if isinstance(step, int) else {step: value}
    if path[0] in request and isinstance(request[path[0]], dict) and isinstance(value, dict):
        value = {**request[path[0]], **value}
    return json.dumps({**request, path[0]: value}).replace(json.dumps(mark), literal)


def certainly_wrong(kind, literal):
    if literal in NO_JSON or kind == "never":
        return True
    if kind == "prompt" and literal[0] in "\"[":
        return False  # a text, or a list of ids
    kind = "token" if kind == "prompt" else kind
    if kind in ("any", "flag"):
        return kind == "flag" and literal not in ("true", "null")
    if literal in WRONG.replace("{\"a\": 1}", "").split(" ") or literal == '{"a": 1}':
        return True
    if literal == "null":
        return False
    number = float(literal) if literal[0] != "[" else None
    if number is None:
        return True
    whole = number == int(number) and "." not in literal and "e" not in literal
    if kind in ("natural", "count", "token", "integer") and not whole:
        return True
    if kind in ("natural", "token") and number < 0 or kind == "count" and number < 1:
        return True
    if kind in ("natural", "count", "token") and number > 2**40:
        return True
    if kind == "unit":
        return not 0 <= number <= 1
    if kind == "positive":
        return number <= 0
    if kind == "positive0":
        return number < 0
    return kind == "real" and abs(number) > 1e300


def matrix():
    for path, request, member, kind in fields():
        for literal in NUMBERS + NO_JSON + OTHERS:
            body = with_member(request, member, literal).encode()
            wrong = certainly_wrong(kind, literal)
            # A store that is not there is 404; a number of neighbours beyond the store's is all of them.
            allowed = (400,) if wrong else (200, 400, 404)
            if kind == "count" and isinstance(member, tuple) and literal in ("9223372036854775807", "18446744073709551616"):
                allowed = (200, 400)
            name = f"POST {path} {body.decode()}"
            answer = refuse(name, http("POST", path, body), allowed)
            if full and path == "/v1/completions" and "stream" not in request:
                body = with_member({**request, "stream": True, "echo": True, "logprobs": 2, "knn": {"explain": True}}, member, literal)
                refuse("streamed " + name, http("POST", path, body.encode()), (200, 400, 404))
            if answer and answer[0] == 400 and wrong and literal not in NO_JSON + UNREADABLE and kind not in ("never", "any"):
                param = json.loads(answer[2])["error"]["param"]
                check(param is not None, f"{name}: param names no member", answer[2])


def queries():
    values = ["-9223372036854775808", "-1", "0", "9223372036854775807", "18446744073709551616", "NaN", "1e308", "x", "", "1%00", "%", "1;2", "+1", "0x1", " 1", "1.5"]
    for value in values:
        value = value.replace(" ", "%20")
        for path in (f"/v1/stores/{store}/documents?limit={value}", f"/v1/stores/{store}/documents?offset={value}", f"/v1/stores/{store}/entries/0?around={value}"):
            refuse("GET " + path, http("GET", path), (200, 400) if value in ("0", "9223372036854775807", "%", "+1", "1;2", "1%00", "") else (400,))
        refuse(f"GET entries/{value}", http("GET", f"/v1/stores/{store}/entries/{value}"), (200, 400, 404) if value in ("0", "+1") else (400, 404, 405))
    for q in ("q=%ff%fe", "q=%00", "q=" + "a" * 3000, "q=%", "q", "=", "&&&", "limit=1&limit=2", "q=%F0%9F%98%80"):
        refuse("documents?" + q[:40], http("GET", f"/v1/stores/{store}/documents?{q}"), (200, 400))


# ---- bodies


def bodies():
    posts = ["/v1/completions", "/v1/score", "/v1/explain", "/tokenize", "/detokenize", f"/v1/stores/{store}/documents"]
    deep = 100000
    broken = [
        b"", b" ", b"{", b"}", b"[", b"nul", b'{"prompt"', b'{"prompt":', b'{"prompt": "x"', b'{"prompt": "x}', b"{'prompt': 'x'}", b'{"prompt": "x",}',
        b'{"prompt": "x"} trailing', b'{"prompt": "x"}{"prompt": "x"}', b'{"prompt": "\xff\xfe"}', b'{"prompt": "\xc3"}', b'{"prompt": "\xed\xa0\x80"}',
        b'{"prompt": "\xc0\x80"}', b'{"prompt": "\xf4\x90\x80\x80"}', b'{"prompt": "a\x00b"}', b'\x00', b'{"prompt": "\\ud800"}', b'{"prompt": "\\udc00x"}', b'{"prompt": "\\u12"}',
        b'{"prompt": "\\x41"}', b'{"prompt": "a\nb"}', b"\xef\xbb\xbf{\"prompt\": \"x\"}", b'{"pro\x00mpt": "x"}', b"/* x */ {}", b"<xml/>", b"prompt=x&max_tokens=1",
        b"[" * deep, b'{"a":' * deep, b'{"prompt":' + b"[" * deep + b"]" * deep + b"}", b'{"unknown":' + b"[" * deep + b"]" * deep + b"}",
        b'{"prompt": "x", "knn": ' + b'{"stores": [' * 2000 + b"]}" * 2000 + b"}", b'{"a":' * 3000 + b"1" + b"}" * 3000, random.Random(1).randbytes(4096),
    ]
    for body in broken:
        for path in posts if full or len(body) < 50 else posts[:1]:
            refuse(f"POST {path} {body[:60]!r} ({len(body)} bytes)", http("POST", path, body), (400,))
    # Legal, or nearly.
    for body in (b'{"prompt": "x", "prompt": "y", "max_tokens": 1}', b'{"prompt": "a\\u0000b", "max_tokens": 1}', b'{"max_tokens": 1, "\\u0000": 1}',
                 b'{"prompt": "\\ud83d\\ude00", "max_tokens": 1}', b'{"": 1, "max_tokens": 1}', b'{"max_tokens": 1, "prompt": ["", "", ""]}',
                 json.dumps({"prompt": ["x"] * 5000, "max_tokens": 1}).encode(), json.dumps({"prompt": "x" * 200000, "max_tokens": 1}).encode(),
                 json.dumps({"prompt": [1] * 100000, "max_tokens": 1}).encode(), json.dumps({"prompt": [[]] * 100, "max_tokens": 1}).encode(),
                 json.dumps({"stop": ["x" * 100000], "prompt": "x", "max_tokens": 1}).encode(), json.dumps({str(i): i for i in range(20000)} | {"max_tokens": 1}).encode()):
        refuse(f"POST {body[:60]!r} ({len(body)} bytes)", http("POST", "/v1/completions", body), (200, 400))
    for name in ("", "\0", "a\0b", "../../x", "/etc/passwd", "x" * 100000, "\n", "\r\nX-Injected: 1", "\u202e", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")):
        body = json.dumps({"name": name, "text": "Some text."}).encode()
        refuse(f"a document called {name[:20]!r}", http("POST", f"/v1/stores/{store}/documents", body), (200, 400))
        refuse(f"forgetting {name[:20]!r}", http("DELETE", f"/v1/stores/{store}/documents/" + urllib.parse.quote(name[:2000], safe="")), (200, 400, 404, 405))
    for text in ("", "\0", "a\0b\0", " ", "\n" * 1000):
        refuse(f"a document of {text[:10]!r}", http("POST", f"/v1/stores/{store}/documents", json.dumps({"name": "odd", "text": text}).encode()), (200, 400))


def memory(member):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(member + ":"))


def pour(client, pieces):
    """Sends until the server answers or hangs up; how many bytes it took."""
    sent = 0
    client.socket.setblocking(False)
    for piece in pieces:
        view = memoryview(piece)
        while view:
            readable, writable, _ = select.select([client.socket], [client.socket], [], 20)
            if readable or not writable:
                client.socket.settimeout(20)
                return sent
            try:
                count = client.socket.send(view)
            except ConnectionError:
                client.socket.settimeout(20)
                return sent
            view, sent = view[count:], sent + count
    client.socket.settimeout(20)
    return sent


def large_body(name, head, pieces):
    before = memory("VmHWM")
    client = Client()
    client.send(head)
    sent = pour(client, pieces)
    try:
        judge(name, client.answer(), (413, 400) if "nonsense" in name else (413,))
    except (Closed, AssertionError, ValueError) as error:
        # Hanging up on who does not stop is fair, but the reason must have been sent first.
        check(False, name, "no valid answer:", error, "after", sent, "bytes")
    client.close()
    check(memory("VmHWM") - before < 24 << 20, name + ": was read into memory", memory("VmHWM") - before)
    healthy(name)


def large_bodies():
    size, piece = 100 << 20, b" " * 65536
    start = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"\r\nAuthorization: Bearer " + key.encode() + b"\r\n"
    chunk = b"10000\r\n" + piece + b"\r\n"
    large_body("100 MB", start + b"Content-Length: %d\r\n\r\n" % size, (piece for _ in range(size // len(piece))))
    large_body("100 MB in chunks", start + b"Transfer-Encoding: chunked\r\n\r\n", (chunk for _ in range(size // len(piece))))
    large_body("one byte too many", start + b"Content-Length: %d\r\n\r\n" % (MAX_BODY + 1), [b" " * (MAX_BODY + 1)])
    # As much as is allowed, and almost a megabyte of it is one string.
    refuse("1 MB", http("POST", "/tokenize", b'{"prompt": "' + b"x" * (MAX_BODY - 20) + b'"}'), (200, 400))
    refuse("1 MB of blanks", http("POST", "/tokenize", b" " * MAX_BODY), (400,))
    for length in (b"9223372036854775807", b"18446744073709551615"):
        large_body(f"Content-Length {length.decode()}", start + b"Content-Length: " + length + b"\r\n\r\n", [piece])


# ---- HTTP that is none. What libmicrohttpd answers by itself need not be of our shape.


def raw(name, data, statuses=(400,), silence=True, half=False):
    """Sends the bytes; an answer must be one of these statuses, and silence is right where there was no request."""
    client = Client(8)
    client.send(data)
    if half:
        try:
            client.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has hung up already
    try:
        status, headers, body = client.answer()
        check(status in statuses, name, "status", status, "not of", statuses, body)
        check("x-injected" not in headers, name + ": a header was injected", headers)
    except Closed as error:
        check(silence, name, "no answer:", error)
    except (AssertionError, ValueError) as error:
        check(False, name, "not HTTP:", error)
    client.close()
    healthy(name)


def protocol():
    auth = HOST + b"\r\nAuthorization: Bearer " + key.encode() + b"\r\n"
    body = b'{"prompt": "x", "max_tokens": 1}'
    post = b"POST /v1/completions HTTP/1.1\r\n" + auth
    any4 = tuple(range(400, 432)) + (501, 505)
    for data in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET /health\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n", b"GET  /health  HTTP/1.1\r\n\r\n", b"get /health HTTP/1.1\r\n\r\n", b" GET / HTTP/1.1\r\n\r\n",
                 b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), bytes(2000), b"\xff" * 2000 + b"\r\n\r\n", b"A" * 200000,
                 b"GET /health HTTP/1.1\r\nno colon\r\n\r\n", b"GET /health HTTP/1.1\r\n: empty\r\n\r\n", b"GET /health HTTP/1.1\r\nX: a\0b\r\n\r\n", b"GET /health HTTP/1.1\r\n folded: x\r\n\r\n"):
        raw(repr(data[:40]), data, (200,) + any4, half=True)
    for name, header in (("negative", b"-1"), ("no number", b"x"), ("empty", b""), ("hexadecimal", b"0x10"), ("two", b"5, 6"), ("signed", b"+32"), ("beyond 64 bits", b"99999999999999999999999")):
        raw(f"Content-Length, {name}", post + b"Content-Length: " + header + b"\r\n\r\n" + body, (200,) + any4 if name in ("signed", "empty") else any4)
    # Whoever stands before the server may read these otherwise (request smuggling): refused, and the connection ends.
    for name, headers in (("two lengths", b"Content-Length: 5\r\nContent-Length: 32"), ("equal lengths", b"Content-Length: 32\r\ncontent-length: 32"),
                          ("a length and chunks", b"Content-Length: 5\r\nTransfer-Encoding: chunked"), ("chunks and a length", b"Transfer-Encoding: chunked\r\nContent-Length: 5"),
                          ("an encoding of nobody's", b"Transfer-Encoding: gzip"), ("two encodings", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), ("an encoded encoding", b"Transfer-Encoding: gzip, chunked"),
                          ("two hosts", b"Host: localhost\r\nContent-Length: 32")):
        client = Client(8)
        client.send(post + headers + b"\r\n\r\n" + (b"20\r\n" + body + b"\r\n0\r\n\r\n" if b"chunked" in headers else body) + http("GET", "/v1/models"))
        try:
            status, _, answer = client.answer()
            check(status == 400 and in_shape(status, answer), name, status, answer)
            client.more()
            check(False, name + ": what came after it was answered", client.buffer)
        except Closed as error:
            check("after 0 bytes" in str(error), name, error)
        client.close()
        healthy(name)
    raw("no host", b"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer " + key.encode() + b"\r\n\r\n", (400,), silence=False)
    raw("no host in HTTP/1.0", b"GET /v1/models HTTP/1.0\r\nAuthorization: Bearer " + key.encode() + b"\r\n\r\n", (400,), silence=False)
    for chunk in (b"x\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"5\r\nab\r\n0\r\n\r\n", b"2;" + b"e" * 100000 + b"\r\nab\r\n0\r\n\r\n"):
        # libmicrohttpd calls a chunk's head that fills its buffer an error of the server's.
        raw(f"a chunk of {chunk[:20]!r}", post + b"Transfer-Encoding: chunked\r\n\r\n" + chunk, any4 + (500,) * (len(chunk) > 1000), half=True)
    raw("an announced body that does not come", post + b"Content-Length: 100\r\n\r\n" + body, any4, half=True)
    raw("less than the body", post + b"Content-Length: 10\r\n\r\n" + body, any4)
    raw("a header of 1 MB", b"GET /health HTTP/1.1\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n", any4)
    raw("20,000 headers", b"GET /health HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(20000)) + b"\r\n", (200,) + any4)
    raw("a path of 1 MB", b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n", any4)
    raw("1500 arguments", b"GET /?" + b"a=b&" * 1500 + b" HTTP/1.1\r\n" + auth + b"\r\n", (200,) + any4)
    raw("a method of 10 KB", b"A" * 10000 + b" / HTTP/1.1\r\n" + auth + b"\r\n", any4)
    raw("Expect of nobody's", post + b"Expect: 417-please\r\nContent-Length: %d\r\n\r\n" % len(body) + body, (200,) + any4)
    noise = random.Random(2)
    for i in range(400 if full else 40):
        raw(f"noise {i}", noise.randbytes(noise.randrange(1, 3000)) + (b"\r\n\r\n" if i % 2 else b""), (200,) + any4, half=True)
    # A request cut anywhere: nobody waits for the rest.
    request = http("POST", "/v1/completions", body)
    for i in range(0, len(request), 1 if full else 7):
        client = Client()
        client.send(request[:i])
        client.close()
    healthy("requests cut short")


def paths():
    targets = ["//", "/%", "/%2", "/%zz", "/%00", "/health%00", "/health%00.html", "/%2e%2e/%2e%2e/etc/passwd", "/..", "/./", "/../../../../etc/passwd", "/%c0%ae%c0%ae/", "/%ff", "/%0d%0aX-Injected:%201",
               "/v1/models/%0d%0aX-Injected:%201", f"/v1/stores/{store}%00/documents", f"/v1/stores/{store}%2fdocuments%2f", "/v1/stores/..%2f..%2f", "/v1/stores/%2e%2e", "/v1/stores/", "/v1/stores//documents",
               f"/v1/stores/{store}%0d%0aX-Injected:%201", f"/v1/stores/../{store}.store", "/v1/stores/" + "a" * 5000, "/v1/stores/" + "%41" * 5000, "/v1//models", "/v1/models/", "/v1/models/..", "/index.html%00", "/web/../src", "/.git/config",
               "/#", "/*", "/\\..\\..", "/v1/stores/%F0%9F%98%80", "/v1/stores/{}/documents/%".format(store), "/v1/stores/{}/entries/".format(store), "/v1/stores/{}/entries/0/0".format(store)]
    for target in targets:
        allowed = (200, 400, 404, 405, 414, 431) if target in ("//", "/./", "/#", "/v1//models", "/v1/models/") else (400, 404, 405, 414, 431)
        answer = refuse("GET " + target[:60], http("GET", target), allowed)
        check(not answer or "x-injected" not in answer[1], "GET " + target + ": a header was injected")
        check(not answer or b"root:" not in answer[2], "GET " + target + ": another file")
    refuse("a target without a slash", http("GET", "health"), (200, 400, 404))
    refuse("a whole address", http("GET", "http://elsewhere.example/v1/models"), (200, 400, 404))
    for method in ("PUT", "PATCH", "TRACE", "FOO", "post", "CONNECT", "A" * 60):
        for path in ("/v1/completions", "/health", "/", "/v1/stores", "/nowhere"):
            answer = refuse(f"{method} {path}", http(method, path, b"{}"), (400, 404, 405, 501))
            check(not answer or answer[0] != 405 or answer[1].get("allow"), f"{method} {path}: no Allow")
    check(exchange(http("HEAD", "/nowhere"), head_only=True, fresh=True)[0] == 404, "HEAD of what is not there")


def keys():
    global key
    right = key
    for wrong in ("", "x", right[:-1], right + "x", "x" * 7000, "\u00fc", "Bearer " + right, right.upper(), " " + right + " x", "%00", "a\tb"):
        key = wrong
        data = http("POST", "/v1/completions", b'{"prompt": "x"}')
        try:
            judge(f"the key {wrong[:20]!r}", exchange(data, fresh=True), (401, 400, 431))
        except (Closed, AssertionError, ValueError) as error:
            check(False, f"the key {wrong[:20]!r}", error)
    key = right
    healthy("wrong keys")


# ---- clients that take their time


def timely(name):
    begun = time.monotonic()
    try:
        status = exchange(http("POST", "/v1/score", b'{"text": "the nearest"}'), fresh=True)[0]
    except (Closed, OSError) as error:
        status = error
    check(status == 200 and time.monotonic() - begun < 3, name + ": others are kept waiting", status, time.monotonic() - begun)


def slow_clients():
    """Two thirds of the connections are with clients that send a byte a second; others are served all the while."""
    request = http("POST", "/v1/completions", b'{"prompt": "x", "max_tokens": 1}')
    slow = [Client() for _ in range(CONNECTIONS * 2 // 3)]
    for second in range(30 if full else 6):
        for i, client in enumerate(slow):
            # A third each: in the request line, in the headers, in the body.
            at = (0, 60, len(request) - 20)[i % 3] + second
            client.send(request[:at] if second == 0 else request[at : at + 1])
        timely("slow clients")
        time.sleep(0.8)
    if full:  # nobody may hold a connection for longer than a request may take, and some
        gone = sum(bool(select.select([client.socket], [], [], 0)[0]) for client in slow)
        check(gone == len(slow), f"{len(slow) - gone} of {len(slow)} slow clients are waited for still, with a timeout of 5 s")
    for client in slow:
        client.close()
    healthy("slow clients")


def silent_clients():
    """More connections than there may be: the newest are told so, or hung up on; when they go, all is well again."""
    global kept
    if kept:
        kept.close()
        kept = None
    crowd = []
    for _ in range(CONNECTIONS + 50):
        try:
            crowd.append(Client(2))
        except OSError:
            break
    answers = set()
    for client in crowd[-5:]:
        client.send(http("GET", "/health"))
        try:
            status, headers, body = client.answer()
            check(status in (200, 503), "too many connections", status)
            if status == 503:
                check(json.loads(body)["error"]["code"] == "too_many_connections" and "retry-after" in headers, "too many connections", body, headers)
            answers.add(status)
        except (Closed, OSError):
            answers.add("closed")
    check(200 not in answers, "there is no limit of connections", answers)
    for client in crowd:
        client.close()
    time.sleep(0.3)
    healthy("too many connections")


def deaf_clients():
    """A stream that nobody reads: the server does not wait for them, nor keep what they do not take without end."""
    body = b'{"prompt": "x", "max_tokens": 190, "stream": true, "logprobs": 20, "n": 8, "knn": {"explain": true}}'
    deaf = []
    for _ in range(8):
        client = Client()
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.send(http("POST", "/v1/completions", body))
        deaf.append(client)
    time.sleep(1)
    timely("deaf clients")
    for client in deaf:
        client.close()
    healthy("deaf clients")


def room():
    """How much the server may grow: a sanitizer keeps some of what is freed, or several bytes for each that was touched."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        maps = file.read()
    return (1024 if "libtsan" in maps else 192 if "libasan" in maps else 48) << 20


def open_files():
    return len(os.listdir(f"/proc/{pid}/fd"))


def main():
    healthy("the beginning")
    files = open_files()
    stages = [matrix, queries, bodies, paths, keys, protocol, large_bodies, slow_clients, silent_clients, deaf_clients]
    only = os.environ.get("SERVE_BAD_ONLY")
    warm = None
    for stage in stages:
        begun, before = time.monotonic(), checks
        if only and stage.__name__ not in only.split():
            continue
        stage()
        warm = warm or memory("VmRSS")
        print(f"{stage.__name__}: {checks - before} checks, {time.monotonic() - begun:.1f} s, RSS {memory('VmRSS') >> 20} MB", flush=True)
    patience = time.monotonic() + 30  # what ended is torn down, idle connections are let go, and the heap trimmed every ten seconds
    while (memory("VmRSS") - warm >= room() or open_files() > files + 4) and time.monotonic() < patience:
        time.sleep(1)
    check(memory("VmRSS") - warm < room(), "memory grows", warm, memory("VmRSS"))
    check(open_files() <= files + 4, "files stay open", files, open_files())
    healthy("all of it")
    print(f"{checks} checks, {failures} failed")
    return failures > 0


sys.exit(main())
