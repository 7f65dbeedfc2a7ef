#!/usr/bin/python3 -I
"""Holds what knnlm read of a folder of make_awkward.py against what it should have read.
    judge_awkward.py FOLDER EXPECTED ROWS JSON
ROWS is of eval --per-token (the texts), JSON of build --json (what was skipped). Each difference is a line; status 1."""

import json
import re
import sys

folder, expected, rows, built = sys.argv[1:]
with open(expected, encoding="utf-8") as file:
    expected = json.load(file)


def unescape(match):
    plain = {"t": b"\t", "n": b"\n", "r": b"\r", "\\": b"\\"}
    code = match[1].decode()
    return plain.get(code) or bytes([int(code[1:], 16)])


def raw(field):
    return re.sub(rb"\\(t|n|r|\\|x[0-9a-fA-F]{2})", unescape, field)


def below(path):
    assert path.startswith(folder + "/"), path
    return path[len(folder) + 1 :]


texts = {}
with open(rows, "rb") as file:
    next(file)
    for line in file:
        fields = line.rstrip(b"\n").split(b"\t")
        name = raw(fields[0]).decode()
        texts[name] = texts.get(name, b"") + raw(fields[4])
texts = {name: text.decode() for name, text in texts.items()}
with open(built, encoding="utf-8") as file:
    skipped = [(below(x["path"]), x["reason"]) for x in json.load(file)["skipped_files"]]

wrong = [f"{name}: told {sum(n == name for n, _ in skipped)} times" for name, _ in skipped if sum(n == name for n, _ in skipped) > 1]
for kind, wanted, got in (("read", expected["texts"], texts), ("skipped", expected["skipped"], dict(skipped))):
    for name in sorted(wanted.keys() | got.keys()):
        if wanted.get(name) != got.get(name):
            wrong.append(f"{name!r}: {kind} {got.get(name)!r}, should be {wanted.get(name)!r}")
print("\n".join(wrong), end="\n" if wrong else "")
sys.exit(bool(wrong))
