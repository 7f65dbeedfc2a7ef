"""knnlm eval --ngram beside counts in dictionaries:  oracle_ngram.py KNNLM SOURCES ORDER TRAIN... -- SCORED
Modified Kneser-Ney as Chen and Goodman define it, written from the definition: n-grams are tuples, counts are dictionaries, and p is
a recursion. Every token of SCORED must have its p."""

import collections
import json
import math
import subprocess
import sys

START = "start"


def tokens_of(knnlm, model, path):
    run = subprocess.run([knnlm, "tokenize", "-m", model, path, "--json"], capture_output=True, text=True, check=True)
    return [t["token"] if isinstance(t, dict) else t for t in json.loads(run.stdout)["tokens"]]


class KneserNey:
    def __init__(self, documents, order, vocabulary):
        self.order, self.vocabulary = order, vocabulary
        raw = [collections.Counter() for _ in range(order + 1)]
        for document in documents:
            line = (START,) + tuple(document)
            for n in range(1, order + 1):
                raw[n].update(line[i : i + n] for i in range(len(line) - n + 1))
        self.counts = [None] + [self.adjusted(raw, n) for n in range(1, order + 1)]
        self.discounts = [None] + [self.discounts_of(self.counts[n]) for n in range(1, order + 1)]
        self.after = [collections.defaultdict(dict) for _ in range(order + 1)]
        for n in range(1, order + 1):
            for gram, count in self.counts[n].items():
                self.after[n][gram[:-1]][gram[-1]] = count

    def adjusted(self, raw, n):
        """Of the longest as they are; of others the different tokens before them, where there can be any."""
        if n == self.order:
            counts = dict(raw[n])
        else:
            before = collections.defaultdict(set)
            for gram in raw[n + 1]:
                before[gram[1:]].add(gram[0])
            counts = {gram: len(tokens) for gram, tokens in before.items()}
            counts.update({gram: count for gram, count in raw[n].items() if gram[0] == START})
        counts.pop((START,), None)
        return counts

    @staticmethod
    def discounts_of(counts):
        seen = collections.Counter(counts.values())
        try:
            y = seen[1] / (seen[1] + 2 * seen[2])
            found = [k - (k + 1) * y * seen[k + 1] / seen[k] for k in (1, 2, 3)]
        except ZeroDivisionError:
            return [0.5, 1.0, 1.5]
        return found if all(0 < d <= k for k, d in zip((1, 2, 3), found)) else [0.5, 1.0, 1.5]

    def p(self, context, token):
        context = context[len(context) - min(len(context), self.order - 1) :]
        shorter = self.p(context[1:], token) if context else 1 / self.vocabulary
        n = len(context) + 1
        following = self.after[n].get(tuple(context))
        if not following:
            return shorter
        taken = [self.discounts[n][min(c, 3) - 1] for c in following.values()]
        total, count = sum(following.values()), following.get(token, 0)
        own = count - self.discounts[n][min(count, 3) - 1] if count else 0
        return own / total + sum(taken) / total * shorter


def rows_of(knnlm, model, order, train, scored):
    """The command's figures, and (token, log p_LM, log p_ngram, log p mixed) of each."""
    options = [option for text in train for option in ("--ngram", text)]
    arguments = ["eval", "-m", model, *options, "--ngram-order", str(order), "--ngram-lambda", "0.25", "--per-token", "rows.tsv", "--json"]
    run = subprocess.run([knnlm, *arguments, scored], capture_output=True, text=True, check=True)
    header, *lines = [line.split("\t") for line in open("rows.tsv", encoding="utf-8").read().split("\n")[:-1]]
    at = [header.index(name) for name in ("token", "logprob", "logprob_ngram", "logprob_mixed")]
    return json.loads(run.stdout), [tuple(float(line[i]) for i in at) for line in lines]


def main():
    knnlm, model, order = sys.argv[1], sys.argv[2] + "/models/small.gguf", int(sys.argv[3])
    train, scored = sys.argv[4 : sys.argv.index("--")], sys.argv[-1]
    info = json.loads(subprocess.run([knnlm, "info", model, "--json"], capture_output=True, text=True, check=True).stdout)
    oracle = KneserNey([tokens_of(knnlm, model, text) for text in train], order, info["vocabulary"])
    told, rows = rows_of(knnlm, model, order, train, scored)
    line = (START,) + tuple(int(row[0]) for row in rows)
    nll = mixed = 0.0
    for i, (token, lm, ngram, p) in enumerate(rows, 1):
        want = oracle.p(line[max(0, i - order + 1) : i], int(token))
        assert abs(ngram - math.log(want)) < 1e-6, (i, ngram, math.log(want))
        both = math.log(0.75 * math.exp(lm) + 0.25 * want)
        assert abs(p - both) < 1e-6, (i, p, both)
        nll, mixed = nll - ngram, mixed - p
    assert order > 3 or abs(sum(oracle.p(line[40 : 40 + order - 1], w) for w in range(info["vocabulary"])) - 1) < 1e-9
    figures = told["ngram"]
    assert abs(figures["ppl_alone"] / math.exp(nll / len(rows)) - 1) < 1e-6, figures["ppl_alone"]
    assert abs(told["ppl"] / math.exp(mixed / len(rows)) - 1) < 1e-6 and figures["ppl"] == told["ppl"], told["ppl"]
    grams = [len(oracle.counts[n]) + (n == 1) for n in range(1, order + 1)]  # the start is one of them
    assert figures["order"] == order and figures["grams"] == grams, (figures["grams"], grams)
    curve = dict(map(tuple, figures["by_lambda"]))
    assert abs(curve[0.25] / told["ppl"] - 1) < 1e-9 and abs(curve[0.0] / told["ppl_lm"] - 1) < 1e-6
    assert figures["best_ppl"] == min(curve.values()) <= told["ppl"]


main()
