"""Asks a server without a key as clients of OpenAI's API do that cannot be installed here: the members that they send, null
and unknown ones included, their headers, and what they read in the answers. Whole answers, streams and plain requests of
our own judge each other.

    /usr/bin/python3 -I tests/serve_shapes.py URL

Read in their sources in 2026: lm-evaluation-harness (local-chat-completions; tests/serve_harness.py has the rest), LangChain's
langchain-openai (ChatOpenAI, OpenAI, OpenAIEmbeddings, through the Python package openai), Open WebUI (its proxy of chats,
the tasks it gives a model beside them, its embeddings of documents).
"""

import base64
import json
import struct
import sys
import urllib.error
import urllib.request

url = sys.argv[1]
open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
checks = failures = 0
BRIEF, QUESTION = "Answer briefly.", "Who has a say?"
CHAT = [{"role": "system", "content": BRIEF}, {"role": "user", "content": QUESTION}]
PYTHON_OPENAI = {"Accept": "application/json", "Authorization": "Bearer none", "User-Agent": "OpenAI/Python 1.99.0", "X-Stainless-Lang": "python",
                 "X-Stainless-Retry-Count": "0", "x-stainless-read-timeout": "600"}
OPEN_WEBUI = {"Authorization": "Bearer ", "X-OpenWebUI-User-Name": "A%20user", "X-OpenWebUI-User-Id": "1", "X-OpenWebUI-User-Role": "user"}


def check(name, good, *more):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print("FAILED:", name, *more)


def ask(path, payload=None, headers=None):
    data = None if payload is None else json.dumps(payload).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with open_url(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def asked(name, path, payload=None, headers=None):
    status, _, body = ask(path, payload, headers)
    check(name, status == 200, status, body[:300])
    return json.loads(body) if status == 200 else {}


def events(name, path, payload, headers=None):
    """Of a stream, read as the clients do: lines that begin with data, all others passed over."""
    status, head, body = ask(path, payload, headers)
    check(name, status == 200 and head.get("Content-Type", "").startswith("text/event-stream"), status, body[:300])
    data = [line[5:].strip() for line in body.decode().split("\n") if line.startswith("data:")]
    check(f"{name}: its end", data and data[-1] == "[DONE]", data[-1:])
    return [json.loads(line) for line in data[:-1]]


def content(answer):
    return answer["choices"][0]["message"]["content"]


# ---- lm-evaluation-harness, local-chat-completions


def harness():
    messages = [{"role": "user", "content": QUESTION, "type": "text"}]
    request = {"messages": messages, "model": "any", "max_tokens": 8, "temperature": 0, "stop": ["\n\n", "Q:"], "seed": 1234}
    answer = asked("harness: chat", "/v1/chat/completions", request)
    texts = [None] * len(answer["choices"])
    for choice in answer["choices"]:
        texts[choice["index"]] = choice["message"]["content"]
    check("harness: a text per choice", len(texts) == 1 and isinstance(texts[0], str), texts)
    more = asked("harness: with members of a task", "/v1/chat/completions", {**request, "top_p": 1.0, "do_sample": False, "stop": []})
    check("harness: stops only end it", content(more).startswith(texts[0]), texts, more)


# ---- LangChain


def langchain_chat():
    request = {"messages": CHAT, "model": "any", "temperature": 0.0, "max_completion_tokens": 8, "stream": False}
    whole = asked("ChatOpenAI: invoke", "/v1/chat/completions", request, PYTHON_OPENAI)
    usage = whole["usage"]
    check("ChatOpenAI: its usage", usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"], usage)
    check("ChatOpenAI: its message", whole["choices"][0]["message"]["role"] == "assistant" and "tool_calls" not in whole["choices"][0]["message"])
    chunks = events("ChatOpenAI: stream", "/v1/chat/completions", {**request, "stream": True, "stream_options": {"include_usage": True}}, PYTHON_OPENAI)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    check("ChatOpenAI: the stream is the answer", "".join(delta.get("content") or "" for delta in deltas) == content(whole), deltas)
    check("ChatOpenAI: who speaks, first", deltas[0].get("role") == "assistant", deltas[0])
    check("ChatOpenAI: usage in the last chunk alone", [chunk["usage"] for chunk in chunks if chunk.get("usage")] == [usage] and chunks[-1]["choices"] == [])
    # What was said before, as its history has it: parts, names, and an assistant that said nothing.
    history = [*CHAT, {"role": "assistant", "content": None}, {"role": "assistant", "content": ""},
               {"role": "user", "name": "someone", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}]}]
    plain = [*CHAT, {"role": "assistant", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": "And now?"}]
    answers = [asked("ChatOpenAI: a history", "/v1/chat/completions", {**request, "messages": messages}, PYTHON_OPENAI) for messages in (history, plain)]
    check("ChatOpenAI: parts are joined", content(answers[0]) == content(answers[1]) and answers[0]["usage"] == answers[1]["usage"], answers)
    status, _, body = ask("/v1/chat/completions", {**request, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, PYTHON_OPENAI)
    check("ChatOpenAI: tools are refused by name", status == 400 and json.loads(body)["error"]["param"] == "tools", status, body)
    logs = asked("ChatOpenAI: logprobs", "/v1/chat/completions", {**request, "logprobs": True, "top_logprobs": 3, "n": 1}, PYTHON_OPENAI)
    check("ChatOpenAI: an entry per token", len(logs["choices"][0]["logprobs"]["content"]) == logs["usage"]["completion_tokens"], logs)


def langchain_completion():
    nothing = {"logit_bias": None, "seed": None, "logprobs": None}
    request = {"model": "any", "temperature": 0, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0, "n": 1, "max_tokens": 8, **nothing}
    prompts = ["The nearest", "A store has"]
    answer = asked("OpenAI: generate", "/v1/completions", {"prompt": prompts, **request}, PYTHON_OPENAI)
    check("OpenAI: n choices for each prompt", [choice["index"] for choice in answer["choices"]] == [0, 1], answer)
    alone = [asked("OpenAI: one prompt", "/v1/completions", {"prompt": [prompt], **request}, PYTHON_OPENAI) for prompt in prompts]
    check("OpenAI: those of alone", [one["choices"][0]["text"] for one in alone] == [choice["text"] for choice in answer["choices"]], answer, alone)
    check("OpenAI: usage adds up", answer["usage"]["total_tokens"] == sum(one["usage"]["total_tokens"] for one in alone), answer["usage"])
    chunks = events("OpenAI: stream", "/v1/completions", {"prompt": prompts[0], **request, "logit_bias": {}, "stream": True, "stop": ["\n"]}, PYTHON_OPENAI)
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    check("OpenAI: the stream is the answer", answer["choices"][0]["text"].split("\n")[0] == text, text, answer)
    check("OpenAI: no usage unless asked", not any(chunk.get("usage") for chunk in chunks))


def vectors(answer):
    """base64, which the package asks for unless told otherwise, or lists."""
    out = []
    for entry in answer["data"]:
        vector = entry["embedding"]
        if isinstance(vector, str):
            data = base64.b64decode(vector, validate=True)
            vector = list(struct.unpack(f"<{len(data) // 4}f", data))
        out.append(vector)
    return out


def same(a, b):
    return len(a) == len(b) and all(len(x) == len(y) and all(abs(p - q) <= 1e-6 for p, q in zip(x, y)) for x, y in zip(a, b))


def langchain_embeddings():
    texts = ["The nearest neighbours", "of a word", "The nearest"]
    request = {"model": "any", "encoding_format": "base64"}
    packed = vectors(asked("OpenAIEmbeddings: texts", "/v1/embeddings", {"input": texts, **request}, PYTHON_OPENAI))
    plain = vectors(asked("OpenAIEmbeddings: as numbers", "/v1/embeddings", {"input": texts, "model": "any", "encoding_format": "float"}, PYTHON_OPENAI))
    check("OpenAIEmbeddings: base64 is the numbers", same(packed, plain))
    # By default it sends ids rather than texts, in pieces of up to 8191.
    ids = [asked("tokens", "/tokenize", {"prompt": text})["tokens"] for text in texts]
    check("OpenAIEmbeddings: ids are their texts", same(vectors(asked("OpenAIEmbeddings: ids", "/v1/embeddings", {"input": ids, **request}, PYTHON_OPENAI)), packed))
    one = vectors(asked("OpenAIEmbeddings: a query", "/v1/embeddings", {"input": [ids[0]], **request}, PYTHON_OPENAI))
    check("OpenAIEmbeddings: company changes nothing", same(one, packed[:1]))
    status, _, body = ask("/v1/embeddings", {"input": [[100257, 5]], **request}, PYTHON_OPENAI)
    check("OpenAIEmbeddings: another tokenizer's ids are told", status == 400 and "another tokenizer" in json.loads(body)["error"]["message"], status, body)
    # Of a document without text it asks for this once.
    check("OpenAIEmbeddings: no text", len(vectors(asked("OpenAIEmbeddings: nothing", "/v1/embeddings", {"input": "", **request}, PYTHON_OPENAI))[0]) == len(plain[0]))


# ---- Open WebUI


def open_webui():
    models = asked("Open WebUI: models", "/v1/models", None, OPEN_WEBUI)
    name = models["data"][0]["id"]
    check("Open WebUI: what it lists", models["object"] == "list" and models["data"][0]["object"] == "model", models)
    # The body of its own page goes through: what is not the API's stays in it.
    request = {"model": name, "messages": CHAT, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.0, "top_p": 0.9, "max_tokens": 8,
               "frequency_penalty": 0.0, "seed": 7, "stop": ["\nUser:"], "user": {"name": "A user", "id": "1", "email": "a@example.org", "role": "user"},
               "session_id": "s", "chat_id": "c", "id": "m", "background_tasks": {"title_generation": True}, "features": {"web_search": False}, "tool_ids": None, "tools": []}
    chunks = events("Open WebUI: chat", "/v1/chat/completions", request, OPEN_WEBUI)
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    whole = asked("Open WebUI: the same, whole", "/v1/chat/completions", {**request, "stream": False}, OPEN_WEBUI)
    check("Open WebUI: the stream is the answer", content(whole) == text, text, whole)
    check("Open WebUI: usage", chunks[-1]["usage"] == whole["usage"], chunks[-1])
    finish = [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]]
    check("Open WebUI: one finish_reason, the last", finish[-1] in ("stop", "length") and not any(finish[:-1]), finish)
    task = {"model": name, "messages": [{"role": "user", "content": f"### Task:\nA title for: {QUESTION}"}], "stream": False, "max_completion_tokens": 20,
            "metadata": {"task": "title_generation"}}
    check("Open WebUI: a title", isinstance(content(asked("Open WebUI: a task", "/v1/chat/completions", task, OPEN_WEBUI)), str))
    embedded = vectors(asked("Open WebUI: documents", "/v1/embeddings", {"input": ["a b", "c"], "model": name}, OPEN_WEBUI))
    check("Open WebUI: lists of numbers, in order", len(embedded) == 2 and all(isinstance(x, float) for x in embedded[0]))


harness()
langchain_chat()
langchain_completion()
langchain_embeddings()
open_webui()
print(f"{checks} checks, {failures} failed")
sys.exit(failures > 0)
