#!/usr/bin/python3
"""Passages, prompts and texts of experiments/generate/run, and the tables of what it measured.

    table.py passages TEXT WORK N     WORK/real/NNN.txt: N passages of the text, evenly spread, each from the start of a paragraph
    table.py prompts WORK             cuts them by the tokens in WORK/cut.tsv: WORK/NNN.prompt, and 192 tokens more
    table.py texts WORK KIND          WORK/KIND/NNN.txt: prompts and what KIND/NNN.json has after them
    table.py tables WORK KIND...      the tables, in Markdown
"""
import csv
import glob
import json
import math
import os
import random
import sys

PROMPT, LENGTH, RESAMPLES = 64, 192, 4000


def passages(path, work, wanted):
    """A passage starts with a long line and has what follows in its document, 2000 bytes at most."""
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    found, start = [], 0
    titles = [i for i, line in enumerate(lines) if line.startswith(b"= ") and line.endswith(b" =")] + [len(lines)]
    for start, end in zip(titles, titles[1:]):
        for i in range(start + 1, end):
            passage = b"\n".join(lines[i:end])[:2000]
            if len(lines[i]) > 300 and len(passage) == 2000:
                found.append(passage.decode(errors="ignore"))
    for n in range(int(wanted)):
        with open(f"{work}/real/{n + 1:03}.txt", "w") as file:
            file.write(found[n * len(found) // int(wanted)])


def rows(path):
    """Rows of a --per-token file, by the names of their documents."""
    documents = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            documents.setdefault(os.path.basename(row["document"]).removesuffix(".txt"), []).append(row)
    return documents


def character(text, byte):
    """The first byte from this one on that begins a character."""
    while byte < len(text) and text[byte] & 0xC0 == 0x80:
        byte += 1
    return byte


def prompts(work):
    for name, tokens in rows(f"{work}/cut.tsv").items():
        with open(f"{work}/real/{name}.txt", "rb") as file:
            text = file.read()
        first, last = (character(text, int(tokens[n]["offset"])) for n in (PROMPT, PROMPT + LENGTH))
        with open(f"{work}/{name}.prompt", "wb") as file:
            file.write(text[:first])
        with open(f"{work}/real/{name}.txt", "wb") as file:
            file.write(text[:last])


def texts(work, kind):
    for path in glob.glob(f"{work}/{kind}/*.json"):
        answer = load(path)
        with open(path.removesuffix("json") + "txt", "w") as file:
            file.write(answer["prompt"] + answer["text"])


def load(path):
    with open(path) as file:
        return json.load(file)


def continuations(work, path):
    """Rows of tokens after the prompts."""
    found = {}
    for name, tokens in sorted(rows(path).items()):
        size = os.path.getsize(f"{work}/{name}.prompt")
        found[name] = [t for t in tokens if int(t["offset"]) >= size]
    return found


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else math.nan


def table(head, lines):
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print()


def quarters(documents, value):
    """Means by quarter of the text."""
    parts = [[], [], [], []]
    for tokens in documents:
        for i, token in enumerate(tokens):
            parts[4 * i // len(tokens)].append(value(token))
    return [mean(p) for p in parts]


def along(work, kinds):
    """The same measure for all texts (found again, as eval does), then what was in force while they were written."""
    lines = []
    for measure, column, form in (("nearest distance", "nearest", "{:.1f}"), ("λ of tuning", "lambda", "{:.3f}"),
                                  ("entropy of the model", "entropy", "{:.2f}")):
        for kind in kinds:
            documents = continuations(work, f"{work}/{kind}.tokens.tsv").values()
            lines.append([measure, kind] + [form.format(v) for v in quarters(documents, lambda t: float(t[column]))])
    for measure, value, form in (("λ in force", lambda t: t["lambda"], "{:.3f}"),
                                 ("carried by neighbours", lambda t: 100 * (t["lambda"] * t["p_knn"] > (1 - t["lambda"]) * t["p_lm"]), "{:.1f}%")):
        for kind in kinds:
            if kind not in ("real", "alone"):
                documents = [load(path)["tokens"] for path in sorted(glob.glob(f"{work}/{kind}/*.json"))]
                lines.append([measure, kind] + [form.format(v) for v in quarters(documents, value)])
    table(["", "text", "1st quarter", "2nd", "3rd", "4th"], lines)


def judged(work, kind):
    """Of every passage: nats of the judge, its tokens."""
    return [(-sum(float(t["logprob"]) for t in tokens), len(tokens))
            for tokens in continuations(work, f"{work}/{kind}.judge.tsv").values()]


def nats(pairs):
    return sum(n for n, _ in pairs) / sum(t for _, t in pairs)


def interval(values):
    values = sorted(values)
    return values[len(values) * 25 // 1000], values[len(values) * 975 // 1000]


def repetition(tokens):
    """Share of 4-grams that were in the text before; share of different 2-grams."""
    def distinct(n):
        grams = [tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1)]
        return len(set(grams)) / len(grams)
    return 1 - distinct(4), distinct(2)


def quality(work, kinds):
    random.seed(1)
    scores = {kind: judged(work, kind) for kind in kinds}
    count = len(scores["real"])
    samples = [[random.randrange(count) for _ in range(count)] for _ in range(RESAMPLES)]
    drawn = {kind: [nats([s[i] for i in sample]) for sample in samples] for kind, s in scores.items()}
    lines = []
    for kind in kinds:
        low, high = interval(drawn[kind])
        repeated = [repetition([t["token"] for t in tokens]) for tokens in
                    continuations(work, f"{work}/{kind}.tokens.tsv").values()]
        line = [kind, f"{math.exp(nats(scores[kind])):.1f}", f"{math.exp(low):.1f} to {math.exp(high):.1f}",
                f"{100 * mean(r for r, _ in repeated):.2f}%", f"{mean(d for _, d in repeated):.3f}"]
        if kind in ("real", "alone"):
            lines.append(line + ["", ""])
            continue
        lengths = [[s["tokens"] for s in load(path)["sources"]] for path in sorted(glob.glob(f"{work}/{kind}/*.json"))]
        longest = [max(x, default=0) for x in lengths]
        lines.append(line + [f"{mean(n for x in lengths for n in x):.2f}", f"{mean(longest):.1f} (at most {max(longest)})"])
    table(["text", "judge's perplexity", "95%", "repeated 4-grams", "distinct 2-grams", "tokens a source",
           "longest run of one"], lines)
    pairs = [(a, b) for i, a in enumerate(kinds) for b in kinds[i + 1:] if a != "real"]
    lines = []
    for a, b in pairs:
        low, high = interval([math.exp(y - x) - 1 for x, y in zip(drawn[a], drawn[b])])
        change = math.exp(nats(scores[b]) - nats(scores[a])) - 1
        better = sum(y[0] / y[1] < x[0] / x[1] for x, y in zip(scores[a], scores[b]))
        lines.append([f"{a} → {b}", f"{100 * change:+.1f}%", f"{100 * low:+.1f}% to {100 * high:+.1f}%", f"{better} of {count}"])
    table(["", "judge's perplexity", "95%", "passages it finds better"], lines)


def tables(work, *kinds):
    quality(work, kinds)
    along(work, kinds)


if __name__ == "__main__":
    {"passages": passages, "prompts": prompts, "texts": texts, "tables": tables}[sys.argv[1]](*sys.argv[2:])
