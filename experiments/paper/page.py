#!/usr/bin/python3
"""The page of experiments/paper/run: the paper's figures beside ours, from the JSON of its runs.

    page.py small|full WORK    reads WORK/*.json; writes README.md and plots beside them, with full into experiments/paper
"""
import csv
import json
import math
import os
import subprocess
import sys

scale, work = sys.argv[1:3]
out = "experiments/paper" if scale == "full" else work
page = []


def load(name):
    path = f"{work}/{name}.json"
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def ppl(result, key="ppl"):
    return f"{result[key]:.2f}" if result else "not run"


def say(text=""):
    page.append(text)


def table(head, rows):
    say("| " + " | ".join(head) + " |")
    say("|" + "---|" * len(head))
    for row in rows:
        say("| " + " | ".join(str(x) for x in row) + " |")
    say()


def gain(before, after):
    return f"{100 * (after / before - 1):+.1f}%"


# ---------------------------------------------------------------- in the domain


def with_store(name):
    """Alone, with neighbours by one lambda, by the gate: perplexities of the test text, and the settings."""
    fixed, gate, tune = load(f"{name}.fixed"), load(f"{name}.gate"), load(f"{name}.tune")
    if not (fixed and gate and tune):
        return None
    return fixed["ppl_lm"], fixed["ppl"], gate["ppl"], tune["lambda"], fixed["stores"][0]["entries"]


def table1():
    home, cache, alone = with_store("home"), with_store("cache"), load("cache-alone.eval")
    if not (home and cache and alone):
        return
    say("## Table 1: neighbours and the continuous cache (C1, C2)\n")
    base = home[0]
    table(["", "the paper, test", "here, test", ""],
          [["model alone", "18.65", f"{base:.2f}", f"store of {home[4]} entries"],
           ["+ cache", "18.27", ppl(alone), gain(base, alone["ppl"])],
           ["+ neighbours (one λ)", "16.12", f"{home[1]:.2f}", f"{gain(base, home[1])}, λ {home[3]:.2f}"],
           ["+ both (one λ each)", "15.79", f"{cache[1]:.2f}", gain(base, cache[1])],
           ["+ neighbours, by the store's gate", "", f"{home[2]:.2f}", gain(base, home[2])]])


def plot(name, title, head, rows, log=False):
    path = f"{out}/{name}.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head] + rows)
    subprocess.run(["bench/plot.sh"] + (["-L"] if log else []) + ["-t", title, path, f"{out}/{name}", head[0]] + head[1:], check=True,
                   stdout=subprocess.DEVNULL)
    say(f"![{title}]({name}.png)\n")


def figures45():
    tune = load("home.tune")
    if not tune:
        return
    best = {}
    for point in tune["points"]:
        best[point["k"]] = min(best.get(point["k"], math.inf), point["ppl"])
    say("## Figures 4 and 5: neighbours and λ (C8, C9)\n")
    say(f"Validation text; the model alone has {tune['ppl_lm']:.2f}. The best λ is {tune['lambda']:.2f} (the paper: .25 in the domain, .65 in another).\n")
    plot("k", "Perplexity by the number of neighbours", ["k", "perplexity"], [[k, f"{p:.4f}"] for k, p in sorted(best.items())], True)
    plot("lambda", "Perplexity by the weight of the neighbours", ["lambda", "perplexity"],
         [[f"{x:.2f}", f"{p:.4f}"] for x, p in tune["by_lambda"] if p is not None and p < 1.3 * tune["ppl_lm"]])


def table2():
    second = with_store("second")
    if not second:
        return
    say("## Table 2: a second domain (C3)\n")
    table(["", "the paper (books), test", "here, test"],
          [["model alone", "11.89", f"{second[0]:.2f}"], ["+ neighbours (one λ)", "10.89", f"{second[1]:.2f} ({gain(second[0], second[1])})"],
           ["+ neighbours, by the gate", "", f"{second[2]:.2f}"]])


def table3():
    tenth, whole = with_store("tenth"), load("whole.eval")
    if not (tenth and whole):
        return
    say("## Table 3: little to learn from, much to remember (C4)\n")
    table(["training text", "store", "the paper, test", "here, test"],
          [["all", "none", "15.17", ppl(whole)], ["a part (3% there, 10% here)", "none", "19.59", f"{tenth[0]:.2f}"],
           ["the part", "all", "13.73", f"{tenth[1]:.2f}"], ["the part", "all, by the gate", "", f"{tenth[2]:.2f}"]])


def figure2():
    runs = [(f, load(f"fraction-{f}")) for f in ("0.01", "0.03", "0.1", "0.3", "1")]
    runs = [(f, r) for f, r in runs if r]
    if not runs:
        return
    say("## Figure 2: the larger the store, the better, and the larger λ (C5)\n")
    table(["part of the store", "perplexity (valid)", "best λ"],
          [["none", f"{runs[0][1]['ppl_lm']:.2f}", "0"]] + [[f, f"{r['ppl']:.2f}", f"{r['lambda']:.3f}"] for f, r in runs])
    plot("size", "Perplexity by the part of the store", ["part", "perplexity"], [[f, f"{r['ppl']:.4f}"] for f, r in runs], True)


# ---------------------------------------------------------------- another domain


def table4():
    store, both, tuned = with_store("adapted"), with_store("both"), load("finetuned.eval")
    if not (store and both and tuned):
        return
    seconds = load("finetuned.train")["seconds"]
    say("## Table 4: another domain by its store (C6), beside learning it\n")
    table(["", "the paper, test", "here, test"],
          [["model of another domain", "34.84", f"{store[0]:.2f}"], ["+ a store of the domain (one λ)", "20.47", f"{store[1]:.2f}"],
           ["+ the store, by its gate", "", f"{store[2]:.2f}"], [f"fine-tuned on the same text for {seconds:.0f} s, as long as the store took", "", ppl(tuned)],
           ["both (one λ; gate)", "", f"{both[1]:.2f}; {both[2]:.2f}"]])


# ---------------------------------------------------------------- choices


def table5():
    paper = {"ffn": 16.06, "ffn-raw": 17.06, "attention": 16.76, "attention-raw": 17.14, "output-norm": 17.01, "output": 17.07}
    runs = {tap: load(f"tap-{tap}.tune") for tap in paper}
    if not all(runs.values()):
        return
    say("## Table 5: where keys are taken from (C7)\n")
    say(f"Validation text, each with its best temperature; without neighbours {runs['ffn']['ppl_lm']:.2f} (the paper: 17.96, T = 1 for all).\n")
    table(["tap", "the paper", "here"], [[tap, paper[tap], ppl(run)] for tap, run in runs.items()])


def choices():
    keys, c64, c16, ip = load("some.tune"), load("codes-64"), load("codes-16"), load("ip")
    if not (keys and c64 and c16):
        return
    say("## Distances (C10, C15)\n")
    table(["validation text", "the paper", "here"],
          [["squared L2 of full keys", "16.06", ppl(keys)], ["of codes of 64 bytes", "", ppl(c64)],
           ["of codes of 16 bytes (16 dimensions per byte, as the paper's)", "16.5", ppl(c16)], ["inner product", "worse", ppl(ip)]])


# ---------------------------------------------------------------- what else remembers


def c11():
    runs = [(n, load(f"ngram-{n}")) for n in (3, 4, 5)]
    runs = [(n, r) for n, r in runs if r]
    if not runs:
        return
    say("## An n-gram model in place of neighbours (C11)\n")
    table(["interpolated modified Kneser-Ney, order", "here, test", "λ, as best on the validation text"],
          [["none", f"{runs[0][1]['ppl_lm']:.2f}", ""]] + [[n, f"{r['ngram']['ppl']:.2f} ({gain(r['ppl_lm'], r['ngram']['ppl'])})", f"{r['ngram']['lambda']:.2f}"] for n, r in runs])
    say("The paper: 0.2 points of perplexity (of 17.96).\n")


def logs(name):
    with open(f"{work}/{name}.tsv", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        column = next(rows).index("logprob")
        return [float(row[column]) for row in rows]


def mixed(a, b, weight):
    """Perplexity of the two together."""
    total = sum(math.log((1 - weight) * math.exp(x) + weight * math.exp(y)) for x, y in zip(a, b))
    return math.exp(-total / len(a))


def c12():
    heart, store = load("heart.train"), with_store("heart")
    if not (heart and store and os.path.exists(f"{work}/heart.test.tsv")):
        return
    valid, test = (logs("alone.valid"), logs("heart.valid")), (logs("alone.test"), logs("heart.test"))
    weight = min((w / 100 for w in range(100)), key=lambda w: mixed(*valid, w))
    say("## A model that learnt the text by heart (C12)\n")
    table(["", "the paper", "here, test"],
          [["model alone", "17.96", f"{mixed(*test, 0):.2f}"],
           [f"the memorising model alone (training loss {heart['loss']:.3f}, perplexity {math.exp(heart['loss']):.2f})", "28.59", f"{mixed(*test, 1):.2f}"],
           [f"both, λ {weight:.2f} as best on the validation text", "-0.1", f"{mixed(*test, weight):.2f} ({gain(mixed(*test, 0), mixed(*test, weight))})"],
           ["model and neighbours of the same text (one λ)", "", f"{store[1]:.2f} ({gain(store[0], store[1])})"]])


# ---------------------------------------------------------------- what is found


def table6():
    path = f"{work}/rows.tsv"
    if not os.path.exists(path):
        return
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for at, row in enumerate(rows):
        row["at"] = at
        row["gain"] = float(row["logprob"]) - float(row["logprob_lm"])
    say("## Table 6: where neighbours gained most (C13)\n")
    text = lambda row: row["text"].replace("|", "\\|").replace("\\n", " ").replace("`", "'")
    best = sorted(rows, key=lambda row: -row["gain"])[:8]
    table(["context", "word", "p by the model", "p by the neighbours", "p"],
          [["…" + "".join(text(r) for r in rows[max(0, b["at"] - 14):b["at"]]).strip(), f"**{text(b).strip()}**", f"{math.exp(float(b['logprob_lm'])):.5f}",
            f"{math.exp(float(b['logprob_knn'])):.3f}", f"{math.exp(float(b['logprob'])):.3f}"] for b in best])
    helped = sum(row["gain"] > 0.01 for row in rows) / len(rows)
    hurt = sum(row["gain"] < -0.01 for row in rows) / len(rows)
    say(f"Of {len(rows)} tokens {100 * helped:.0f}% were helped and {100 * hurt:.0f}% hurt (by more than 0.01 nats).\n")


def c14():
    build, index, run = load("home.build"), load("index"), load("home.fixed")
    if not (build and index and run):
        return
    say("## Cost (C14)\n")
    table(["", "the paper (103M entries)", f"here ({run['stores'][0]['entries']} entries)"],
          [["reading the text", "", f"{build['seconds']:.0f} s"], ["index", "2 hours", f"{sum(index['seconds'].values()):.0f} s"],
           ["250K tokens searched", "25 minutes", f"{run['seconds_search'] / run['tokens'] * 250e3:.0f} s"]])
    say("At the paper's size: [experiments/scale](../scale/README.md).\n")


say("# The paper's tables and figures, with our models\n")
say(f"Made by `experiments/paper/run --scale {scale}` and its `page.py`; perplexities are per token. "
    + {"small": "Home: the Perl manual, with `models/small.gguf`, which learnt from Wikipedia; second domain: the Debian policy. Minutes of work, "
                "to see every effect once; sizes are far from the paper's.",
       "full": "Home: Wikipedia, with `models/small.gguf`; second domain: books before 1930."}[scale] + "\n")
for section in (table1, figures45, table2, table3, figure2, table4, table5, choices, c11, c12, table6, c14):
    section()
with open(f"{out}/README.md", "w") as file:
    file.write("\n".join(page))
print(f"{out}/README.md")
