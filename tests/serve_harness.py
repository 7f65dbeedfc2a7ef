"""Asks a server as lm-evaluation-harness does with `local-completions` and its remote tokenizer: the members, their values,
and what it makes of the answers are the harness's. Judged by `knnlm eval --per-token` and `knnlm explain`, which know
nothing of HTTP.

    /usr/bin/python3 -I tests/serve_harness.py KNNLM URL MODEL STORE [ends]

`ends`: the model is one that likes to end texts at once, and some of them must.
"""

import concurrent.futures
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
import urllib.request

knnlm, url, model, store = sys.argv[1:5]
must_end = sys.argv[5:] == ["ends"]
open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
checks = failures = 0


def check(name, good, *more):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print("FAILED:", name, *more)


def ask(path, payload=None):
    data = None if payload is None else json.dumps(payload).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with open_url(request, timeout=60) as answer:
        return json.load(answer)


# ---- the remote tokenizer


class Tokenizer:
    def __init__(self):
        self.info = ask("/tokenizer_info")
        self.bos, self.eos = self.info["bos_token"], self.info["eos_token"]

    def encode(self, text):
        return ask("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

    def decode(self, tokens):
        return ask("/detokenize", {"tokens": tokens})["prompt"]

    def prefix(self):
        """The token that stands before a text: the harness has the tokenizer read the name of it."""
        return self.encode(self.bos if self.bos is not None else self.eos)[0]


# ---- requests, and what the harness reads in the answers


def loglikelihood_request(batch):
    return {"model": "any", "prompt": batch, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}


def read_loglikelihoods(answer, context_lengths):
    out = []
    for choice, length in zip(sorted(answer["choices"], key=lambda choice: choice["index"]), context_lengths):
        logprobs = choice["logprobs"]["token_logprobs"][length:-1]
        tops = choice["logprobs"]["top_logprobs"][length:-1]
        greedy = all(p == max(top.values()) for p, top in zip(logprobs, tops))
        out.append((sum(logprobs), greedy))
    return out


def generate_request(batch, stop, most, **more):
    return {"prompt": batch, "model": "any", "max_tokens": most, "temperature": 0, "stop": stop, "seed": 1234, **more}


def read_generations(answer):
    out = [None] * len(answer["choices"])
    for choice in answer["choices"]:
        out[choice["index"]] = choice["text"]
    return out


# ---- the judges


def rows(text):
    with tempfile.TemporaryDirectory() as folder:
        document, table = os.path.join(folder, "text"), os.path.join(folder, "rows")
        with open(document, "wb") as file:
            file.write(text.encode())
        command = [knnlm, "eval", "-m", model, "-s", store, "--precision", "f32", "--per-token", table, document]
        subprocess.run(command, check=True, capture_output=True)
        with open(table, encoding="utf-8") as file:
            found = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            return [(int(row["token"]), float(row["logprob"])) for row in found]


def likeliest(context):
    """The most probable next token, its text, and its distance in nats from the second."""
    command = [knnlm, "explain", "-m", model, "-s", store, "--precision", "f32", "--json", "--words", "2", "--show", "0", context]
    words = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["words"]
    return words[0]["token"], words[0]["text"], math.log(words[0]["p"] / words[1]["p"])


def near(a, b):
    return abs(a - b) <= 1e-4 * (1 + abs(b))


# ---- what is asked


def pairs_of(tokenizer, pairs):
    """As the harness cuts them: the context's tokens, and the rest of those of both. Blanks go to the continuation."""
    out = []
    for context, continuation in pairs:
        blanks = len(context) - len(context.rstrip())
        if blanks:
            context, continuation = context[:-blanks], context[-blanks:] + continuation
        if context:
            head = tokenizer.encode(context)
            out.append((head, tokenizer.encode(context + continuation)[len(head) :]))
        else:
            out.append(([tokenizer.prefix()], tokenizer.encode(continuation)))
    return out


def greedy_continuation(tokenizer, context, count):
    """Whole characters only: what the judge says is most probable, word after word."""
    said = ""
    for _ in range(count):
        token, text, _ = likeliest(context + said)
        if not text.isprintable() or text.startswith("\\x") or token == tokenizer.info["eos_token_id"]:
            break
        said += text
    return said


def is_greedy(tokenizer, head, tail, start):
    """What the judge says; None where a text cannot tell (the cut is within a character, or a tie is near)."""
    for i, token in enumerate(tail):
        ids = head + tail[:i]
        text = tokenizer.decode(ids[1:] if ids[0] == start else ids)
        if text and tokenizer.encode(text) != (ids[1:] if ids[0] == start else ids):
            return None
        best, _, gap = likeliest(text)
        if best != token:
            return False if gap > 1e-4 else None
    return True


def ask_loglikelihoods(tokenizer, pairs):
    start = tokenizer.prefix()
    cut = pairs_of(tokenizer, pairs)
    answer = ask("/v1/completions", loglikelihood_request([head + tail for head, tail in cut]))
    results = read_loglikelihoods(answer, [len(head) for head, _ in cut])
    for (head, tail), choice, (total, greedy), pair in zip(cut, answer["choices"], results, pairs):
        logprobs = choice["logprobs"]["token_logprobs"]
        check("one number per token, and one more", len(logprobs) == len(head + tail) + 1, pair, len(logprobs))
        check("the first is null, and no other", [p is None for p in logprobs].index(False) == 1 and None not in logprobs[1:], pair)
        whole = rows("".join(pair))
        ids = head + tail
        skipped = 1 if ids[0] == start else 0
        check("eval reads the same tokens", [token for token, _ in whole] == ids[skipped:], pair)
        expected = sum(p for _, p in whole[len(head) - skipped :])
        check("loglikelihood", near(total, expected), pair, total, expected)
        judged = is_greedy(tokenizer, head, tail, start)
        check("greedy", judged is None or judged == greedy, pair, greedy, judged)
        yield greedy


def ask_rolling(tokenizer, text, longest):
    """The text in windows that share nothing of what they predict, each after one token of the window before."""
    tokens = tokenizer.encode(text)
    requests, judged, expected = [], 0, 0.0
    begin = 0
    while begin < len(tokens):
        window = tokens[begin : begin + longest]
        requests.append(([tokenizer.prefix()] if begin == 0 else [tokens[begin - 1]], window))
        begin += len(window)
    answer = ask("/v1/completions", loglikelihood_request([head + tail for head, tail in requests]))
    results = read_loglikelihoods(answer, [1] * len(requests))
    for (head, tail), (total, _) in zip(requests, results):
        ids = tail if head == [tokenizer.prefix()] else head + tail
        whole = rows(tokenizer.decode(ids))
        if [token for token, _ in whole] == ids:  # a piece of a text may be cut into other tokens
            judged += 1
            expected = sum(p for _, p in whole[len(ids) - len(tail) :])
            check("rolling", near(total, expected), ids, total, expected)
    check("windows that eval could judge", judged >= 2, judged, len(requests))


def ask_generations(tokenizer, contexts, count):
    batch = [tokenizer.encode(context) for context in contexts]
    more = {"knn": {"fallback": False, "carry": False}}  # words as scores have them, token by token
    plain = read_generations(ask("/v1/completions", generate_request(batch, [tokenizer.eos], count, **more)))
    for context, text in zip(contexts, plain):
        said = greedy_continuation(tokenizer, context, count)
        check("generated words", text.startswith(said), context, repr(text), repr(said))
        if len(said) > 4:
            stop = said[2:5]
            answer = ask("/v1/completions", generate_request([tokenizer.encode(context)], ["\n\n\n", stop, tokenizer.eos], count, **more))
            check("until", read_generations(answer) == [said[: said.index(stop)]], context, answer, stop)
            check("finish_reason", answer["choices"][0]["finish_reason"] == "stop")
    # As texts, several at a time: the harness without a tokenizer of its own does so.
    again = read_generations(ask("/v1/completions", generate_request(contexts, [tokenizer.eos], count, **more)))
    check("texts and their tokens are continued alike", again == plain, again, plain)


def judge_ended(tokenizer, ids, context, choice):
    """The end of the text is an entry like any other: its name, its probability as explain has it, its place."""
    logprobs = choice["logprobs"]
    best, _, _ = likeliest(context)
    check("explain says so too", best == tokenizer.info["eos_token_id"], context, best)
    check("its name", logprobs["tokens"][-1] == tokenizer.eos, context, logprobs["tokens"])
    check("it is the greedy one", logprobs["token_logprobs"][-1] == max(logprobs["top_logprobs"][-1].values()), context)
    check("its place", logprobs["text_offset"][-1] == len(context) and choice["text"] == context, context, choice)
    command = [knnlm, "explain", "-m", model, "-s", store, "--precision", "f32", "--json", "--words", "1", "--show", "0", context]
    expected = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["words"][0]["p"]
    check("its probability", near(logprobs["token_logprobs"][-1], math.log(expected)), context, logprobs, expected)


def ends_at_once(tokenizer, contexts):
    """A prompt after which the end of the text is likeliest still has an entry for what was generated: the harness drops
    the last of the list, whatever it is. So do longer answers, and streams, which are generated rather than scored."""
    ended = 0
    for context in contexts:
        ids = tokenizer.encode(context)
        # Without fallback, which scores do not have either.
        request = {**loglikelihood_request([ids]), "knn": {"fallback": False}}
        answer = ask("/v1/completions", request)
        choice = answer["choices"][0]
        count = len(choice["logprobs"]["token_logprobs"])
        check("an entry for the generated token", count == len(ids) + 1, context, count, choice["finish_reason"])
        if choice["finish_reason"] != "stop":
            continue
        ended += 1
        judge_ended(tokenizer, ids, context, choice)
        check("one token was generated", answer["usage"]["completion_tokens"] == 1, answer["usage"])
        longer = ask("/v1/completions", {**request, "max_tokens": 5})["choices"][0]
        twice = ask("/v1/completions", {**request, "n": 2})["choices"]
        for other in [longer, *twice]:
            check("generated as scored", other["logprobs"]["tokens"] == choice["logprobs"]["tokens"], context, other)
            check("stop", other["finish_reason"] == "stop" and other["text"] == choice["text"], context, other)
            pairs = zip(choice["logprobs"]["token_logprobs"][1:], other["logprobs"]["token_logprobs"][1:])
            check("numbers as scored", all(near(a, b) for a, b in pairs), context, other)
    check("texts that end", ended > 0 or not must_end, ended)


def main():
    tokenizer = Tokenizer()
    check("the prefix is the start token", tokenizer.prefix() == tokenizer.info["bos_token_id"])
    for text in ("The nearest", " naïve — 東京 😀\n\n", ""):
        check("round trip", tokenizer.decode(tokenizer.encode(text)) == text, repr(text))
    context = "The nearest"
    said = greedy_continuation(tokenizer, context, 3)
    pairs = [
        (context, said),
        (context, " neighbours of a word"),
        ("A store has the", " context"),
        ("", "The context of"),
        ("The word ", "before it"),
        ("", said or "?"),
    ]
    flags = list(ask_loglikelihoods(tokenizer, pairs))
    check("both greedy and not", True in flags[:1] or not said, flags)
    check("not all are greedy", False in flags, flags)
    text = "The nearest neighbours of the context of a word have their say in what stands before it. " * 3
    ask_rolling(tokenizer, text, min(40, tokenizer.info["model_max_length"] // 2 - 2))
    ask_generations(tokenizer, ["The nearest neighbours", "A store has"], 8)
    ends_at_once(tokenizer, [chr(code) * n for code in range(97, 109) for n in (1, 2)])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        batch = [tokenizer.encode(context + continuation) for context, continuation in pairs if context]
        together = list(pool.map(lambda ids: ask("/v1/completions", loglikelihood_request([ids])), batch * 3))
        for i, answer in enumerate(together):
            first = together[i % len(batch)]["choices"][0]["logprobs"]["token_logprobs"][1:]
            again = answer["choices"][0]["logprobs"]["token_logprobs"][1:]
            check("company changes nothing", all(map(near, first, again)), first, again)
    print(f"{checks} checks, {failures} failed")
    return failures > 0


sys.exit(main())
