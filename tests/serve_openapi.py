"""Asks a server what clients ask, and holds requests and answers against its own /openapi.json.

    /usr/bin/python3 -I tests/serve_openapi.py URL STORE REQUESTS ROUTES

STORE is the name of a store that may be changed; REQUESTS is a JSON file of requests as clients send them (tests/golden/
serve_requests.json); ROUTES is the source of the server's table of endpoints, each of which the document must have.
"""

import json
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

url, store, requests_file, routes_file = sys.argv[1:]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
checks = failures = 0
seen = set()  # operations that were asked for


def check(good, name, *more):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print("FAILED:", name, *more)


# ---- JSON Schema, as far as the document uses it


TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"$ref", "type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "minimum", "maximum",
         "exclusiveMinimum", "minItems", "maxItems", "maxLength", "description"}


def is_type(value, name):
    if name in ("integer", "number"):
        kinds = (int,) if name == "integer" else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def bounds(schema, value, at):
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            yield f"{at}: {value} is out of its range"
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            yield f"{at}: {value} is out of its range"
    if isinstance(value, list) and not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{at}: has {len(value)} items"
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        yield f"{at}: is too long"


def members(schema, value, at):
    for name in schema.get("required", []):
        if name not in value:
            yield f"{at}: lacks {name}"
    rest = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in schema.get("properties", {}):
            yield from wrong(schema["properties"][name], item, f"{at}.{name}")
        elif rest is False:
            yield f"{at}: {name} is not in the document"
        elif rest is not True:
            yield from wrong(rest, item, f"{at}.{name}")


def wrong(schema, value, at=""):
    """What is wrong with a value, place by place."""
    assert set(schema) <= KNOWN, f"the validator does not know {set(schema) - KNOWN}"
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema:
        found = [list(wrong(one, value, at)) for one in schema["anyOf"]]
        if all(found):
            yield min(found, key=len)[0]
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(is_type(value, name) for name in types):
            yield f"{at}: {json.dumps(value)[:60]} is no {'/'.join(types)}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    yield from bounds(schema, value, at)
    if isinstance(value, dict):
        yield from members(schema, value, at)
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            yield from wrong(schema["items"], item, f"{at}[{i}]")


# ---- asking


def operation_of(method, path):
    path = path.split("?")[0]
    for template, operations in document["paths"].items():
        pattern = re.sub(r"\\{(\w+)\\}", lambda m: ".+" if m[1] in ("document", "model") else "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path) and method.lower() in operations:
            return template, operations[method.lower()]
    return None, None


def send(method, path, body, headers):
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json", **headers}, method=method)
    try:
        with opener.open(request, timeout=60) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def events_of(text):
    lines = text.decode().split("\n\n")
    check(lines[-2:] == ["data: [DONE]", ""], "a stream ends with [DONE]", lines[-2:])
    return [json.loads(line[6:]) for line in lines[:-2] if not line.startswith(":")]


def judge_answer(name, operation, status, headers, data):
    told = operation["responses"].get(str(status), operation["responses"]["default"] if status >= 400 else None)
    check(told is not None, name, f"status {status} is not in the document")
    kind = headers.get("Content-Type", "").split(";")[0]
    schema = (told or {}).get("content", {}).get(kind)
    check(schema is not None, name, f"{kind} of status {status} is not in the document")
    if kind == "application/json" and schema:
        found = list(wrong(schema["schema"], json.loads(data)))
        check(not found, name, found[:3], data[:300])
    if kind == "text/event-stream":
        chunk = "ChatChunk" if operation["operationId"] == "chat" else "Completion"
        for event in events_of(data):
            found = list(wrong({"$ref": "#/components/schemas/" + chunk}, event))
            check(not found, name, found[:3], event)


def ask(method, path, body=None, status=200, name="", headers=None):
    """The answer, JSON where it is."""
    name = name or f"{method} {path}"
    template, operation = operation_of(method, path)
    check(operation is not None, name, "is not in the document")
    if operation is None:
        return None
    if status < 400:
        seen.add(operation["operationId"])
    if isinstance(body, dict) and status < 400:
        found = list(wrong(operation["requestBody"]["content"]["application/json"]["schema"], body))
        check(not found, name, "the request:", found[:3])
    got, answer_headers, data = send(method, path, body, headers or {})
    check(got == status, name, f"status {got}, not {status}", data[:300])
    judge_answer(name, operation, got, answer_headers, data)
    return json.loads(data) if answer_headers.get("Content-Type") == "application/json" else data


def finish(job):
    """The job when it is over."""
    for _ in range(600):
        job = ask("GET", f"/v1/jobs/{job['id']}")
        if job["status"] not in ("waiting", "running"):
            return job
        time.sleep(0.1)
    check(False, "a job does not end", job)
    return job


# ---- what is asked


def ask_as_clients(path):
    with open(path, encoding="utf-8") as file:
        for request in json.load(file)["requests"]:
            answer = ask("POST", request["path"], request["body"], name=request["client"], headers=request["headers"])
            for place, expected in request.get("expect", {}).items():
                value = answer
                for step in place.split("."):
                    value = value[int(step) if step.isdigit() else step]
                check(value == expected, request["client"], place, value, expected)


def ask_plainly():
    for path in ("/v1/stores", f"/v1/stores/{store}", f"/v1/stores/{store}/documents?limit=2&q=t", "/v1/models", "/health",
                 f"/v1/stores/{store}/entries/3?around=4&tokens=2", f"/v1/stores/{store}/map", "/tokenizer_info", "/version", "/metrics", "/openapi.json"):
        ask("GET", path)
    ask("GET", "/v1/models/" + ask("GET", "/v1/models")["data"][0]["id"])
    ask("POST", "/v1/completions", {"prompt": ["A", "B"], "n": 2, "best_of": 3, "max_tokens": 3, "logprobs": 2, "seed": 1})
    ask("POST", "/v1/completions", {"prompt": "The nearest", "max_tokens": 8, "stream": True, "knn": {"explain": True},
                                    "stream_options": {"include_usage": True}, "logprobs": 1})
    ask("POST", "/v1/completions", {"prompt": "The nearest", "max_tokens": 2, "echo": True, "logprobs": 0})
    ask("POST", "/v1/score", {"text": "The nearest neighbours", "documents": 1, "knn": {"temperatures": [1, 10], "exclude_self": True}})
    ask("POST", "/v1/score", {"text": "The nearest neighbours", "knn": {"stores": []}})
    ask("POST", "/v1/explain", {"context": "The nearest", "target": "neighbourhoods"})
    ask("POST", f"/v1/stores/{store}/map", {"context": "The nearest"})
    ask("POST", "/v1/embeddings", {"input": "words", "encoding_format": "base64", "pooling": "last", "normalize": False})
    ask("POST", "/tokenize", {"prompt": "The nearest"})
    ask("POST", "/detokenize", {"tokens": [1, 2]})


def ask_to_change():
    place = f"/v1/stores/{store}/documents"
    ask("POST", place, {"name": "a/b c", "text": "A document that comes and goes."}, 201)
    ask("POST", place, {"name": "a/b c", "text": "A document that comes and goes."}, 200)
    ask("GET", place + "/" + urllib.parse.quote("a/b c", safe="") + "?position=1&limit=3")
    ask("DELETE", place + "/" + urllib.parse.quote("a/b c", safe=""))
    lines = b"".join(json.dumps({"name": f"line {i}", "text": f"Line {i} of many."}).encode() + b"\n" for i in range(3))
    added = ask("POST", place, lines, 202, headers={"Content-Type": "application/x-ndjson"})
    check(finish(added)["result"] == {"documents": 3, "unchanged": 0, "tokens": finish(added)["result"]["tokens"]}, "added", added)
    for what, body in (("compact", None), ("verify", None), ("tune", {})):
        done = finish(ask("POST", f"/v1/stores/{store}/{what}", body, 202))
        check(done["status"] == "done", what, done)
    ask("DELETE", "/v1/jobs/" + added["id"])
    ask("GET", "/v1/jobs")


def ask_wrongly():
    for method, path, body, status in (
        ("POST", "/v1/chat/completions", {}, 400), ("POST", "/v1/embeddings", {"input": []}, 400),
        ("GET", "/v1/jobs/job-0", None, 404), ("POST", "/v1/stores/nowhere/compact", None, 404),
        ("GET", f"/v1/stores/{store}/documents/nobody", None, 404), ("POST", "/v1/score", {"text": 1}, 400)):
        ask(method, path, body, status)


def compare_routes(path):
    """Every row of the server's table is in the document, and every operation of the document is a row."""
    with open(path, encoding="utf-8") as file:
        rows = re.findall(r'\{"(GET|POST|DELETE)", "(/[^"]+)",', file.read())
    told = {(method.upper(), re.sub(r"\{\w+\}", "*", template)) for template, all in document["paths"].items() for method in all}
    table = {(method, row.replace("**", "*")) for method, row in rows}
    check(told == table, "the table and the document differ", told ^ table)


document = json.loads(send("GET", "/openapi.json", None, {})[2])
compare_routes(routes_file)
ask_plainly()
ask_as_clients(requests_file)
ask_to_change()
ask_wrongly()
operations = {operation["operationId"] for all in document["paths"].values() for operation in all.values()}
check(seen == operations, "operations that nothing asked for", operations - seen)
print(f"{checks} checks, {failures} failed")
sys.exit(failures > 0)
