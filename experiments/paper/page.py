#!/usr/bin/python3
"""The page of experiments/paper/run: the paper's figures beside ours, from the JSON of its runs.

    page.py small|full WORK [OUT]    reads WORK/*.json; writes README.md and plots into OUT (WORK)

A section is there when all that it tells of has been run. The first table tells of every claim whether it holds in these runs, by
the rule that its section applies to the figures."""
import csv
import json
import math
import os
import subprocess
import sys

scale, work = sys.argv[1:3]
out = sys.argv[3] if len(sys.argv) > 3 else work
page, claims = [], []
SAME, CLEAR = 0.998, 0.99  # of two perplexities: within the first they are called the same, within the second hardly different


class NotRun(Exception):
    """A section without all of its runs."""


def load(name):
    try:
        with open(f"{work}/{name}.json") as file:
            return json.load(file)
    except FileNotFoundError:
        raise NotRun(name) from None


def have(name):
    return os.path.exists(f"{work}/{name}.json")


def say(text=""):
    page.append(text)


def table(head, rows):
    say("| " + " | ".join(head) + " |")
    say("|" + "---|" * len(head))
    for row in rows:
        say("| " + " | ".join(x if isinstance(x, str) else f"{x:.2f}" for x in row) + " |")
    say()


def gain(before, after):
    return f"{100 * (after / before - 1):+.1f}%"


def count(n):
    return f"{n / 1e6:.1f}M" if n >= 1e6 else f"{n / 1e3:.0f}K"


def better(lower, higher):
    """Whether one perplexity is below the other, in the words of the table of claims."""
    ratio = lower / higher
    return True if ratio < CLEAR else "by less than 1%" if ratio < SAME else "the same" if ratio < 1 / SAME else False


def claim(number, what, paper, here, holds):
    claims.append([number, what, paper, here, {True: "yes", False: "**no**"}.get(holds, holds)])


def plot(name, title, head, rows, *options):
    path = f"{out}/{name}.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head] + rows)
    subprocess.run(["bench/plot.sh", *options, "-t", title, path, f"{out}/{name}", *head], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.remove(f"{out}/{name}.svg")
    say(f"![{title}]({name}.png)\n")


class Runs:
    """A store tuned on the validation text and reported on the test text: (valid, test) of the model alone, by one lambda, by the gate."""

    def __init__(self, name):
        self.tune, fixed, gate = load(f"{name}.tune"), load(f"{name}.fixed"), load(f"{name}.gate")
        self.fixed, self.tokens = fixed, fixed["tokens"]
        self.alone = self.tune["ppl_lm"], fixed["ppl_lm"]
        self.one = self.tune["ppl"], fixed["ppl"]
        self.gate = self.tune["ppl_gate"], gate["ppl"]
        self.weight, self.entries = fixed["lambda"], fixed["stores"][0]["entries"]


def trained(name):
    """A model that was trained for this, in words."""
    run = load(f"{name}.train")
    return f"{count(run['parameters'])} parameters, {run['steps']} updates, {count(run['tokens'])} tokens read"


# ---------------------------------------------------------------- in the domain


def table1():
    home, both = Runs("home"), Runs("cache")
    cache = load("cache-alone.tune")["ppl"], load("cache-alone.eval")["ppl"]
    say("## Table 1: neighbours and the continuous cache (C1, C2)\n")
    say(f"The store: {count(home.entries)} entries of text that the model was trained on; {home.tokens} tokens of test.\n")
    table(["", "the paper, valid", "test", "here, valid", "test", "test, to the model alone"],
          [["model alone", "17.96", "18.65", *home.alone, ""],
           ["+ neighbours (one λ)", "16.06", "16.12", *home.one, gain(home.alone[1], home.one[1])],
           ["+ cache", "17.67", "18.27", *cache, gain(home.alone[1], cache[1])],
           ["+ both (one λ each)", "15.81", "15.79", *both.one, gain(home.alone[1], both.one[1])],
           ["+ neighbours, weighed by the store's gate (not in the paper)", "", "", *home.gate, gain(home.alone[1], home.gate[1])]])
    claim("C1", "neighbours of the training text itself lower perplexity", "-13.6%", gain(home.alone[1], home.one[1]), better(home.one[1], home.alone[1]))
    claim("C2", "the cache adds to it", "-2.0% more", f"{gain(home.one[1], both.one[1])} more", better(both.one[1], home.one[1]))


def wikitext2():
    words, both = Runs("words"), Runs("words-both")
    cache = load("words-cache.tune")["ppl"], load("words-cache.eval")["ppl"]
    say("### WikiText-2, by words\n")
    say(f"A model of the 33,278 words of WikiText-2 ({trained('words')}), a store of its {count(words.entries)} training tokens, a cache of 2000 "
        "states. Published figures are those of Grave, Joulin and Usunier (2017): an LSTM, and its continuous cache of 2000 states.\n")
    table(["", "published, test", "here, valid", "test"],
          [["model alone", "99.3", *words.alone], ["+ cache", f"68.9 ({gain(99.3, 68.9)})", cache[0], f"{cache[1]:.2f} ({gain(words.alone[1], cache[1])})"],
           ["+ neighbours (one λ)", "", words.one[0], f"{words.one[1]:.2f} ({gain(words.alone[1], words.one[1])})"],
           ["+ both (one λ each)", "", both.one[0], f"{both.one[1]:.2f} ({gain(words.alone[1], both.one[1])})"]])


def table2():
    second = Runs("second")
    say("## Table 2: a second domain (C3)\n")
    say(f"{'Debian`s policy'.replace('`', chr(39)) if scale == 'small' else 'Books'}: a model trained on it ({trained('second')}), a store of the same text ({count(second.entries)} entries).\n")
    table(["", "the paper (books), valid", "test", "here, valid", "test"],
          [["model alone", "14.75", "11.89", *second.alone],
           ["+ neighbours (one λ)", "14.20", "10.89", second.one[0], f"{second.one[1]:.2f} ({gain(second.alone[1], second.one[1])})"],
           ["+ neighbours, by the gate", "", "", *second.gate]])
    claim("C3", "so in a second domain", "-8.4%", gain(second.alone[1], second.one[1]), better(second.one[1], second.alone[1]))


def table3():
    tenth, whole = Runs("tenth"), (load("whole.valid")["ppl"], load("whole.eval")["ppl"])
    say("## Table 3: little to learn from, much to remember (C4)\n")
    say(f"Trained on all of the text ({trained('whole')}), and on a tenth of it ({trained('tenth')}; of each the state that did best on the validation "
        f"text). The store has all of it: {count(tenth.entries)} entries. The tenth has {count(tenth.entries / 10)} tokens; the paper's part, 3%, has 100M, enough for a "
        "good model.\n")
    table(["trained on", "store", "the paper, valid", "test", "here, valid", "test"],
          [["all", "none", "16.11", "15.17", *whole], ["a part", "none", "20.99", "19.59", *tenth.alone],
           ["a part", "all", "14.61", "13.73", *tenth.one], ["a part", "all, by the gate", "", "", *tenth.gate]])
    if scale == "full":
        run(whole_wikipedia)
    claim("C4", "a store of much text beats training on it", "19.59 → 13.73 against 15.17", f"{tenth.alone[1]:.1f} → {tenth.one[1]:.1f} against {whole[1]:.1f}",
          better(tenth.one[1], whole[1]) or ("by the gate alone" if better(tenth.gate[1], whole[1]) is True else False))


def largest():
    """What experiments/scale measured with all of data/wiki."""
    with open("experiments/scale/tiny.csv", newline="") as file:
        return list(csv.DictReader(file))[-1]


def whole_wikipedia():
    """Table 3 at the size of all of data/wiki, as far as experiments/scale has it."""
    last = largest()
    say(f"With all of `data/wiki` ([experiments/scale](../scale/README.md)): a model of the same shape, trained on 10M tokens, has {last['ppl_alone']} on all of the test "
        f"text, and {last['ppl']} with a store of {int(last['entries']) / 1e6:.0f}M entries; the bundled model, which is larger and was trained on the same text, "
        f"{Runs('home').alone[1]:.2f}.\n")


def figure2():
    runs = [(float(f), load(f"fraction-{f}")) for f in ("0.01", "0.03", "0.1", "0.3", "1") if have(f"fraction-{f}")]
    if len(runs) < 2:
        raise NotRun("figure2")
    entries, whole = load("tenth.build")["entries"]["total"], load("whole.valid")["ppl"]
    say("## Figure 2: the larger the store, the better, and the larger λ (C5)\n")
    say("The model of a tenth of the text, with parts of the store of all of it; validation text.\n")
    table(["entries (about)", "part", "perplexity", "best λ"],
          [["none", "", runs[0][1]["ppl_lm"], ""]] + [[count(f * entries), f"{100 * f:g}%", r["ppl"], f"{r['lambda']:.3f}"] for f, r in runs])
    plot("size", "Perplexity by the size of the store", ["entries", "model of a tenth + store", "model of all without a store"],
         [[round(f * entries), f"{r['ppl']:.4f}", f"{whole:.4f}"] for f, r in runs], "-X")
    plot("size-lambda", "The best λ by the size of the store", ["entries", "lambda"], [[round(f * entries), f"{r['lambda']:.4f}"] for f, r in runs], "-X")
    ppls, weights = [r["ppl"] for _, r in runs], [r["lambda"] for _, r in runs]
    claim("C5", "the more entries, the better; λ grows", "Figure 2", f"{ppls[0]:.1f} → {ppls[-1]:.1f}; λ {weights[0]:.2f} → {weights[-1]:.2f}",
          ppls == sorted(ppls, reverse=True) and weights == sorted(weights))


# ---------------------------------------------------------------- another domain


def table4():
    store, both, tuned, learnt = Runs("adapted"), Runs("both"), load("finetuned.eval"), load("finetuned.train")
    say("## Table 4: another domain by its store (C6), beside learning it\n")
    say(f"The bundled model, which is of Wikipedia, and a store of {count(store.entries)} entries of " + {"small": "Perl's manual", "full": "books"}[scale]
        + f". Beside it, which the paper has not: the model goes on learning from the same text for as long as building, indexing and tuning the "
        f"store took ({learnt['steps']} updates of 4096 tokens); and a store of that model.\n")
    rows = [["model of another domain", "37.13", "34.84", *store.alone], ["+ a store of the domain (one λ)", "24.85", "20.47", *store.one],
            ["+ the store, by its gate", "", "", *store.gate], ["fine-tuned instead", "", "", both.alone[0], tuned["ppl"]],
            ["fine-tuned, + its store (one λ)", "", "", *both.one], ["fine-tuned, + its store, by its gate", "", "", *both.gate]]
    if scale == "full" and have("second.gate"):
        rows.insert(1, ["model of the domain (Table 2's; in the paper of the same size, here far smaller)", "14.75", "11.89", *Runs("second").alone])
    table(["", "the paper, valid", "test", "here, valid", "test"], rows)
    claim("C6", "a store adapts a model to another domain", "34.84 → 20.47 (-41%)", f"{store.alone[1]:.1f} → {store.one[1]:.1f} ({gain(store.alone[1], store.one[1])})",
          better(store.one[1], store.alone[1]))


def figures45():
    home, other = load("home.tune"), load("adapted.tune")
    best = {}
    for point in home["points"]:
        best[point["k"]] = min(best.get(point["k"], math.inf), point["ppl"])
    say("## Figures 4 and 5: neighbours and λ (C8, C9)\n")
    say(f"Validation text; each k has its own best temperature and λ. Without neighbours {home['ppl_lm']:.2f}.\n")
    plot("k", "Perplexity by the number of neighbours", ["k", "with neighbours", "model alone"],
         [[k, f"{p:.4f}", f"{home['ppl_lm']:.4f}"] for k, p in sorted(best.items())], "-x")
    ks = [best[k] for k in sorted(best)]
    claim("C8", "the more neighbours, the better; 8 already help", "Figure 4", ", ".join(f"k {k}: {best[k]:.1f}" for k in (1, 8, 64, 1024) if k in best),
          ks == sorted(ks, reverse=True) and best.get(8, math.inf) < home["ppl_lm"])
    say(f"By λ, as a part of the perplexity of the model alone. The best is {home['lambda']:.2f} in the domain (Table 1; the paper: .25) and "
        f"{other['lambda']:.2f} in another (Table 4; the paper: .65).\n")
    rows = [[f"{x:.2f}", f"{a / home['ppl_lm']:.4f}", f"{b / other['ppl_lm']:.4f}"] for (x, a), (_, b) in zip(home["by_lambda"], other["by_lambda"])
            if a is not None and b is not None and x < 0.95]
    plot("lambda", "Perplexity by the weight of the neighbours, model alone = 1", ["lambda", "in the domain", "in another domain"], rows)
    claim("C9", "λ is larger in another domain", ".25, .65", f"{home['lambda']:.2f}, {other['lambda']:.2f}", other["lambda"] > home["lambda"])


# ---------------------------------------------------------------- choices


def table5():
    paper = {"ffn": 16.06, "attention": 16.76, "output-norm": 17.01, "ffn-raw": 17.06, "output": 17.07, "attention-raw": 17.14}
    names = {"ffn": "input of the feed-forward part, after its norm", "ffn-raw": "input of the feed-forward part, before its norm",
             "attention": "input of self-attention, after its norm", "attention-raw": "input of self-attention, before its norm",
             "output": "output of the layer", "output-norm": "output of the layer, after a norm"}
    own, same = {t: load(f"tap-{t}.own") for t in paper}, {t: load(f"tap-{t}.same") for t in paper}
    say("## Table 5: where in the last layer keys are taken (C7)\n")
    say(f"Validation text, a store of {count(load('tap-ffn.build')['entries']['total'])} entries; without neighbours {own['ffn']['ppl_lm']:.2f} (the paper: 17.96). The paper "
        "has one temperature (1) for all; distances of states before a norm are much larger, so that most of the difference may be that.\n")
    table(["tap", "", "the paper", f"here, all at {own['ffn']['temperature']:.3g}", "here, each at its best temperature"],
          [[f"`{t}`", names[t], paper[t], same[t]["ppl"], f"{own[t]['ppl']:.2f} ({own[t]['temperature']:.3g})"] for t in paper])
    order = sorted(paper, key=lambda t: same[t]["ppl"])
    claim("C7", "the best keys are the inputs of the last feed-forward part, after its norm", "16.06 against 16.76 to 17.14",
          f"one temperature: {same['ffn']['ppl']:.2f} against {min(same[t]['ppl'] for t in paper if t != 'ffn'):.2f} to {max(s['ppl'] for s in same.values()):.2f}; "
          f"each its own: {own['ffn']['ppl']:.2f} against {min(own[t]['ppl'] for t in paper if t != 'ffn'):.2f} to {max(s['ppl'] for s in own.values()):.2f}",
          order[0] == "ffn" and (min(own, key=lambda t: own[t]["ppl"]) == "ffn" or "at one temperature alone"))


def distances():
    keys, c64, paper, ip = load("some.keys"), load("codes-64"), load("codes-paper"), load("ip")
    width = load("some.info")["keys"]["dimension"]
    say("## Distances (C10, C15)\n")
    say(f"Validation text, a store of {count(load('some.build')['entries']['total'])} entries of {width} dimensions.\n")
    table(["", "the paper", "here"],
          [["no neighbours", "17.96", keys["ppl_lm"]], ["squared L2 of the keys", "16.06", keys["ppl"]], ["of codes of 64 bytes", "", c64["ppl"]],
           [f"of codes of {width // 16} bytes: 16 dimensions per byte, as the paper's", "16.5", paper["ppl"]], ["inner product of the keys", "worse", ip["ppl"]]])
    claim("C10", "distances of keys beat those of codes", "16.06, 16.5", f"{keys['ppl']:.2f}, {paper['ppl']:.2f}", better(keys["ppl"], paper["ppl"]))
    claim("C15", "L2 beats the inner product", "said", f"{keys['ppl']:.2f}, {ip['ppl']:.2f}", better(keys["ppl"], ip["ppl"]))


# ---------------------------------------------------------------- what else remembers


def c11():
    runs = [(n, load(f"ngram-{n}")) for n in (3, 4, 5)]
    base = runs[0][1]["ppl_lm"]
    say("## An n-gram model in place of neighbours (C11)\n")
    say("Interpolated modified Kneser-Ney of the same text and tokens; λ as is best on the validation text.\n")
    table(["order", "the paper, valid", "here, test", "λ"],
          [["none", "17.96", base, ""]] + [[str(n), "about -0.2" if n == 5 else "", f"{r['ngram']['ppl']:.2f} ({gain(base, r['ngram']['ppl'])})", f"{r['ngram']['lambda']:.2f}"]
                                           for n, r in runs])
    best = min(r["ngram"]["ppl"] for _, r in runs)
    if have("home.gate"):
        home = Runs("home")
        say(f"Neighbours of the same text (Table 1): {home.one[1]:.2f} ({gain(home.alone[1], home.one[1])})."
            + ("" if base - best < (base - home.one[1]) / 2 else " The paper's claim is about a model of 247M parameters and a text of 103M words; here both are far smaller.") + "\n")
        claim("C11", "an n-gram model helps far less than neighbours", "-0.2 (-1%) against -1.9 (-11%)", f"{gain(base, best)} against {gain(home.alone[1], home.one[1])}",
              True if base - best < (base - home.one[1]) / 2 else "less, but not far less" if best > home.one[1] else False)


def logs(name):
    """The log-probabilities of a text's tokens."""
    try:
        with open(f"{work}/{name}.tsv", newline="") as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            column = next(rows).index("logprob")
            return [float(row[column]) for row in rows]
    except FileNotFoundError:
        raise NotRun(name) from None


def mixed(a, b, weight):
    """Perplexity of the two together."""
    total = sum(math.log((1 - weight) * math.exp(x) + weight * math.exp(y)) for x, y in zip(a, b))
    return math.exp(-total / len(a))


def best_weight(a, b):
    """By expectation-maximisation: the likelihood has one maximum."""
    ratios, weight = [math.exp(min(700, y - x)) for x, y in zip(a, b)], 0.5
    for _ in range(60):
        weight = sum(weight * r / (weight * r + 1 - weight) for r in ratios) / len(ratios)
    return weight


def c12():
    store, own = Runs("heart"), load("heart.self")["ppl"]
    valid, test = (logs("alone.valid"), logs("heart.valid")), (logs("alone.test"), logs("heart.test"))
    weight = best_weight(*valid)
    base, heart, both = mixed(*test, 0), mixed(*test, 1), mixed(*test, weight)
    say("## A model that learnt the text by heart (C12)\n")
    say(f"Trained without dropout on {count(store.entries)} tokens of the text ({trained('heart')}): its perplexity on that text is {own:.3f} "
        f"(a loss of {math.log(own):.3f}). Beside it a store of the same {count(store.entries)} tokens.\n")
    table(["", "the paper, valid", "here, test"],
          [["model alone", "17.96", base], ["the memorising model alone", "28.59 (its best while it learnt)", f"{heart:.2f} (at the end)"],
           [f"both, λ {weight:.3f} as best on the validation text", "17.86", f"{both:.2f} ({gain(base, both)})"],
           ["model and neighbours of the same text (one λ)", "16.06", f"{store.one[1]:.2f} ({gain(store.alone[1], store.one[1])})"]])
    claim("C12", "a model that learnt the text by heart helps less than its neighbours", "-0.6% against -11%", f"{gain(base, both)} against {gain(store.alone[1], store.one[1])}",
          better(store.one[1], both))


# ---------------------------------------------------------------- what is found


def words(text):
    """As a cell of a table, on one line."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("`", "'").replace("_", "\\_")


def whole_word(row):
    """Whether a token is a word from its space to its end: as the neighbours that have it go on."""
    after = [near["after"][:1] for near in row["neighbors"] if near["token"] == row["token"]]
    return row["text"][0].isspace() and row["text"].strip().isalpha() and bool(after) and not any(next.isalnum() for next in after)


def chosen(rows, many):
    """The largest gains, of different words in different contexts: names and facts rather than marks."""
    seen, found = set(), []
    for row in rows:
        word = row["text"].strip()
        if len(word) < 4 or not whole_word(row) or word in seen or row["before"][-12:] in seen or row["logprob_knn"] is None:
            continue
        seen |= {word, row["before"][-12:]}
        found.append(row)
    return found[:many]


def table6():
    runs = load("found")
    load("coloured")
    say("## Table 6: where neighbours gained most (C13)\n")
    say("The largest gains in log p on the test text, of words that are one token, of at least four letters, no word twice; below each the nearest "
        "contexts of the store with their share of p_kNN.\n")
    rows = []
    for best in chosen(runs["best"], 8):
        p, knn = math.exp(best["logprob_lm"]), math.exp(best["logprob_knn"])
        rows.append([f"…{words(best['before'][-110:])}", f"**{words(best['text'])}**", f"p_LM {p:.2g}, p_kNN {knn:.3f}"])
        for near in best["neighbors"][:3]:
            rows.append([f"  …{words(near['before'][-110:])}", words(near["text"]) or "(end of line)", f"{near['share']:.3f}"])
    table(["context: of the test, then of the store", "word", "probability, share"], rows)
    say("The test text's beginning with its neighbours is a page: " + ("[table6.html](table6.html)" if out == work else f"`{work}/table6.html`") + ".\n")
    claim("C13", "neighbours help most with rare patterns: names, facts, what stands there nearly word for word", "Table 6", "Table 6", "to be looked at")


def c14():
    build, index, run = load("home.build"), load("home.index"), Runs("home").fixed
    seconds = sum(index["seconds"].values())
    search = run["seconds_search"] / run["tokens"] * 250e3
    say("## Cost (C14)\n")
    last = largest()
    table(["", "the paper (103M entries of 1024 dimensions, one CPU)", f"here ({count(build['entries']['total'])} entries, {run['settings']['threads']} threads)",
           f"experiments/scale ({int(last['entries']) / 1e6:.0f}M entries of 128 dimensions, int8; 2 busy cores)"],
          [["reading the text", "", f"{build['tokens_per_second']:.0f} tokens/s", f"{int(last['entries']) / float(last['build_s']):.0f} tokens/s"],
           ["index", "2 hours", f"{seconds:.0f} s", f"{float(last['index_s']) / 60:.0f} minutes"],
           ["250K tokens searched, k = 1024", "25 minutes", f"{search:.0f} s", f"{float(last['search_s_of_250K']):.0f} s"]])
    at_size = int(last["entries"]) >= 103e6 and float(last["index_s"]) <= 2 * 3600 and float(last["search_s_of_250K"]) <= 25 * 60
    claim("C14", "an index takes at most 2 hours, 250K tokens at most 25 minutes", "at 103M of 1024 dimensions", f"{seconds:.0f} s, {search:.0f} s at {count(build['entries']['total'])}; "
          f"{float(last['index_s']) / 60:.0f} min, {float(last['search_s_of_250K']):.0f} s at {int(last['entries']) / 1e6:.0f}M of 128 dimensions", at_size)


def texts():
    """What the runs were of, in MB: home, second, other, some, heart, valid, test."""
    with open(f"{work}/settings") as file:
        sizes = next(line for line in file if line.startswith("texts ")).split()[1:]
    return [f"{int(size) / 1e6:g} MB" for size in sizes]


def about():
    home, second, other, some, heart, valid, _ = texts()
    if scale == "small":
        return (f"Home: Perl's manual in its own order, beginning with the tutorials ({home}); validation and test are pages of its questions and answers. The "
                "second domain: Debian's policy, of which sections are held out. Models of both are trained here, in about a minute each (`stream-tiny`: 4 layers of "
                "width 128, a vocabulary of 4000); the bundled model, which is of Wikipedia, has the manual as its other domain (Table 4). To see every effect "
                "once: text and models are hundreds of times smaller than the paper's, and a percent may be chance.")
    return (f"Home: Wikipedia, with the bundled model, which was trained on it; the second domain: books before 1930. **What was cut**, to end in hours: stores "
            f"hold the first {home} of `data/wiki` and {second} of `data/books`, not all of it ({other} of books in Table 4, {some} of Wikipedia in Table 5 and for "
            f"C10 and C15); the models of Tables 2, 3 and C12 are of the shape `stream-tiny` (4 layers of width 128), far smaller than the bundled one, "
            f"and trained for minutes, on the first {home} of Wikipedia, a tenth of that, the books, and {heart}; validation texts are the first {valid}.")


def begin():
    say("# The paper's tables and figures, with our models\n")
    if work.rstrip("/").endswith("-try"):
        say("**A trial of the commands on next to no text (`--try`): the figures mean nothing.**\n")
    say(f"Made by `experiments/paper/run --scale {scale}` and its `page.py`. {about()} Perplexities are per token. λ, temperature and k are tuned on the "
        "validation text; \"one λ\" is the paper's mixture, the gate is ours (docs/theory.md).\n")
    run(models)


def models():
    """Which bundled model, and on which kernels."""
    told = load("adapted.fixed")
    say(f"The bundled model: `{os.path.basename(told['model'])}`, fingerprint {told['fingerprint'][:8]}; kernels {told['settings']['kernels']}, {told['settings']['threads']} threads. "
        f"The rows took {minutes():.1f} minutes.\n")


def minutes():
    total = 0
    for name in os.listdir(work):
        if name.endswith(".done"):
            with open(f"{work}/{name}") as file:
                total += int(file.read())
    return total / 60


def run(section):
    kept = len(page), len(claims)
    try:
        section()
    except NotRun as missing:
        del page[kept[0]:], claims[kept[1]:]
        return str(missing)
    return None


def summary():
    order = sorted(claims, key=lambda row: int(row[0][1:]))
    return ["## The claims\n", "| | claim | the paper | here | holds here |", "|---|---|---|---|---|"] + [
        "| " + " | ".join(row) + " |" for row in order] + [""]


SECTIONS = (table1, wikitext2, table2, table3, figure2, table4, table5, figures45, distances, c11, c12, table6, c14)


def main():
    os.makedirs(out, exist_ok=True)
    begin()
    head = len(page)
    missing = [section.__name__ for section in SECTIONS if run(section) and not (scale == "small" and section is wikitext2)]
    if missing:
        say(f"Not run: {', '.join(missing)}.\n")
    page[head:head] = summary()
    with open(f"{out}/README.md", "w") as file:
        file.write("\n".join(page))
    print(f"{out}/README.md")


main()
