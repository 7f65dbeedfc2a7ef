"""knnlm eval and knnlm tune beside NumPy:  python3 oracle_eval.py PATH_TO_knnlm SOURCE_DIR
in an empty directory (tests/test_eval_oracle.sh). Tells every check that fails; with -v the largest differences too."""

import json
import math
import os
import shutil
import sys

import numpy as np

import oracle
from oracle import INF, Exported, Kept, Lists, Part, Rows, States, best_weight, by_bins, cache, check, close
from oracle import entropies, gap
from oracle import lists_of_files, manifest, mix, perplexity, read_table, relative, run, totals

try:
    import faiss
except ImportError:
    faiss = None

oracle.program, source = sys.argv[1:3]
PLAIN = source + "/tests/golden/plain.model.gguf"  # words w2 .. w52; 34 dimensions, a context of 3072
ADAPTIVE = source + "/tests/golden/adaptive.model.gguf"  # 32 dimensions, a context of 80
LISTS = 20  # of every index


def write_text(path, seed, words):
    """Words each of which prefers a few successors, so that neighbours know something."""
    likely = np.random.default_rng(7).integers(2, 53, (53, 4))
    r = np.random.default_rng(seed)
    a = 2
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as f:
        for i in range(words):
            a = likely[a, r.integers(4)] if r.random() < 0.7 else r.integers(2, 53)
            f.write("w%d%s" % (a, "\n" if i % 11 == 10 else " "))


def evaluate(where, args, texts=("test",), states=None, model=PLAIN):
    """The object, the table and stderr of eval; `args` are words."""
    fixed = ["-m", model, "-t", 1, "--precision", "f32", "--json", "--per-token", "rows.tsv"]
    done = run("eval", *fixed, *args.split(), *texts)
    r, rows = json.loads(done.stdout), Rows("rows.tsv", states or everything)
    check(rows.sound, where, "the table's tokens are not the text's")
    return r, rows, done.stderr


def compare(where, args, parts, cached=None, texts=("test",), states=None, model=PLAIN):
    r, rows, _ = evaluate(where, args, texts, states, model)
    mix(where, r, rows, parts, cached)
    return r, rows


def build(store, options="", texts=("texts",), model=PLAIN):
    run("build", "--no-tune", "-t", 1, "-m", model, "-o", store, "--precision", "f32", *options.split(), *texts)
    return Exported(store)


for seed, (name, words) in enumerate({"a": 700, "b": 400, "c": 60, "d": 1, "e": 300}.items()):
    write_text("texts/%s.txt" % name, seed, words)
write_text("test/p.txt", 11, 220)
write_text("test/q.txt", 12, 40)
with open("test/r.txt", "w") as f:
    f.write("w5")
everything = States(PLAIN, "states.store", ["texts", "test"])

# ---------------------------------------------------------------- every k, temperature and lambda

f32 = build("f32.store", "--keys f32 --segment 500")
N = len(f32.values)
for k, t, l in [(1, 1, 0.25), (8, 1, 0.25), (64, 1, 0.25), (N, 1, 0.25), (N + 1, 1, 0.25), (1000000, 1, 0.25),
                (8, 0.001, 0.25), (8, 10, 0.25), (8, 1e6, 0.25), (5000, 0.001, 0.25), (5000, 1e9, 0.25),
                (1, 1, 0), (64, 10, 0), (1, 1, 1), (8, 1, 1), (5000, 1, 1)]:
    where = "k %s temperature %s lambda %s:" % (k, t, l)
    r, rows = compare(where, "-s f32.store -k %d --temperature %g --lambda %g" % (k, t, l), [Part(f32, l, k, t)])
    if l == 1 and k == 1:
        check((rows.p == -INF).any(), where, "nothing is impossible")
        check(all(r[x] is None for x in ("ppl", "nll", "ppl_word", "bits_per_byte")), where, "not null")

# ---------------------------------------------------------------- falling back, untuned

for k, t in [(1, 1), (2, 1), (8, 0.001), (8, 10), (64, 1), (64, 10), (N, 3), (5000, 100), (5000, 1e9)]:
    where = "--fallback, k %s temperature %s:" % (k, t)
    args = "-s f32.store -k %d --temperature %g --fallback" % (k, t)
    r, rows = compare(where, args, [Part(f32, 0.25, k, t, falls={})])
    check(r["fallback"] and (rows.lambdas <= 0.25).all(), where, "says", r["fallback"])
    check(k != 64 or len(set(rows.lambdas)) > 9, where, "falls nowhere")

# ---------------------------------------------------------------- types of keys, metrics, projections

f16, int8 = build("f16.store"), build("int8.store", "--keys int8")
ip, cosine = build("ip.store", "--distance ip"), build("cosine.store", "--distance cosine --keys f32")
check(np.abs(int8.keys - f32.keys).max() > np.abs(f16.keys - f32.keys).max() > 0, "the types of keys do not differ")
for store in (f16, int8, ip, cosine):
    compare(store.path + ":", "-s %s -k 8 --exact" % store.path, [Part(store, 0.25, 8)])
    for metric in ("l2", "ip", "cosine"):
        args = "-s %s -k 64 --temperature 5 --distance %s" % (store.path, metric)
        compare("%s by %s:" % (store.path, metric), args, [Part(store, 0.25, 64, 5, metric)])

for metric in ("l2", "ip", "cosine"):
    p = build("pca-%s.store" % metric, "--project pca:12 --keys f32 --distance " + metric)
    # The projection from what it does: keys are A (state - mean), and the states of all entries are known.
    ones = np.hstack([f32.keys, np.ones((N, 1))])
    fit = np.linalg.lstsq(ones, p.keys, rcond=None)[0]
    close("projection", p.path, ones @ fit, p.keys, 2e-5)
    p.project = lambda states: np.hstack([states, np.ones((len(states), 1))]) @ fit
    compare(p.path + ":", "-s %s -k 20 --temperature 2" % p.path, [Part(p, 0.25, 20, 2)])

# ---------------------------------------------------------------- indexes: all lists, some lists, codes


def read_index(name):
    """A store with the centroids of its index, the list of every entry, and its key as its code has it."""
    e = Exported(name)
    if e.metric == "cosine":
        e.centroids, e.list_of, e.decoded = lists_of_files(name)
        return e
    run("export", name, "--faiss", name + ".faiss")
    lists = Lists(name + ".faiss")
    ids = sorted(lists.list_of)  # the numbers of entries, those of removed ones left out
    check(len(ids) == len(e.values), name, "has", len(ids), "entries in its lists")
    e.centroids, e.list_of = lists.centroids, np.array([lists.list_of[i] for i in ids])
    e.decoded = np.array([lists.decoded[i] for i in ids])
    if faiss:
        index = faiss.read_index(name + ".faiss")
        index.set_direct_map_type(faiss.DirectMap.Hashtable)
        close("codes as FAISS decodes them", name, e.decoded[::7], [index.reconstruct(i) for i in ids[::7]], 1e-5)
    return e


def found_in(e, how, probes, k=30, t=2, weight=0.25, metric=None, probe_metric=None):
    """A store as it is searched by `how`, exact or codes, in so many lists."""
    probe = (e.centroids, e.list_of, probes, probe_metric or e.metric) if probes < LISTS else None
    return Part(e, weight, k, t, metric, keys=e.decoded if how == "codes" else None, probe=probe)


def compare_index(where, e, how, probes, more="", texts=("test",), **part):
    args = "-s %s -k 30 --temperature 2 --probes %d --%s %s" % (e.path, probes, how, more)
    where = "%s --%s --probes %d:" % (where, how, probes)
    r, _ = compare(where, args, [found_in(e, how, probes, **part)], texts=texts)
    check(r["distances"] == how, where, "says", r["distances"])
    check(r["probes"] == (probes if probes < LISTS else 0), where, "says", r["probes"])


for store in (f16, ip, cosine):
    for codes in ("pq17", "pq17x4"):
        name = "%s-%s.store" % (store.metric, codes)
        shutil.copytree(store.path, name)
        run("index", "-t", 1, name, "--lists", LISTS, "--codes", codes)
        e = read_index(name)
        for probes in (LISTS, 1000, 3, 1) if codes == "pq17" else (LISTS, 2):
            for how in ("exact", "codes"):
                compare_index(name, e, how, probes)

e = read_index("l2-pq17.store")
for metric in ("ip", "cosine"):  # another metric than the index's: centroids count by their products
    for how in ("exact", "codes"):
        for probes in (LISTS, 3):
            part = dict(metric=metric, probe_metric="ip")
            compare_index("an index of l2 by %s" % metric, e, how, probes, "--distance " + metric, **part)

options = "--precision f32 --keys none --codes pq17 --lists %d" % LISTS
run("build", "--no-tune", "-m", PLAIN, "-o", "keyless.store", *options.split(), "texts")
e = read_index("keyless.store")
check(e.keys is None, "keyless.store has keys")
for probes in (LISTS, 4):
    r, _ = compare("keyless:", "-s keyless.store -k 30 --temperature 2 --probes %d" % probes, [found_in(e, "codes", probes)])
    check(r["distances"] == "codes", "keyless: says", r["distances"])

shutil.copytree("l2-pq17.store", "changed.store")
run("remove", "changed.store", "b.txt", "d.txt")
write_text("more.txt", 21, 150)
run("add", "--no-tune", "changed.store", "--precision", "f32", "more.txt")
run("index", "changed.store", "--extend")  # a little that is added stays outside the lists
e = read_index("changed.store")
for how in ("exact", "codes"):
    for probes in (LISTS, 3):
        compare_index("removed and added,", e, how, probes, texts=["test", "texts/b.txt"])

# ---------------------------------------------------------------- several stores

write_text("other/h.txt", 23, 350)
other = build("other.store", "--keys f32 --distance ip", texts=["other"])
for args, weights, k, t in [
    ("-s f16.store=.2 -s other.store=.1 -k 10 --temperature 3", (0.2, 0.1), (10, 10), (3, 3)),
    ("-s f16.store=.2,3,10 -s other.store=.1,.5 -k 7 --temperature 2", (0.2, 0.1), (10, 7), (3, 0.5)),
    ("-s f16.store -s other.store", (0.125, 0.125), (1024, 1024), (1, 1)),
    ("-s f16.store=.3 -s other.store -k 10", (0.3, 0.125), (10, 10), (1, 1)),
    ("-s f16.store=0 -s other.store=1 -k 10", (0, 1), (10, 10), (1, 1)),
    ("-s f16.store=0 -s other.store=0 -k 10", (0, 0), (10, 10), (1, 1)),
    ("-s f16.store=.9 -s other.store=.1 -k 2", (0.9, 0.1), (2, 2), (1, 1)),
]:
    compare(args + ":", args, [Part(*x) for x in zip((f16, other), weights, k, t)])

# ---------------------------------------------------------------- documents that are in the store

shutil.copy("texts/c.txt", "copy.txt")  # the same content under another name
shutil.copy("texts/e.txt", "other/e.txt")
both = build("both.store", texts=["other"])
own = ["texts/c.txt", "test/q.txt", "copy.txt", "texts/e.txt"]
for more in ("", " --include-self"):
    for stores in ([f16], [f16, both], [f16, other]):
        args = " ".join("-s %s=.2" % s.path for s in stores) + " -k 10 --temperature 4" + more
        r, _ = compare("own: " + args, args, [Part(s, 0.2, 10, 4, itself=bool(more)) for s in stores], texts=own)
        check(r["own_documents"] == (0 if more else 3), "own:", args, "says", r["own_documents"])
e = read_index("l2-pq17.store")
for how in ("exact", "codes"):
    compare_index("own,", e, how, 2, texts=own)
only = build("only.store", texts=["texts/c.txt"])  # no neighbour is left to its own tokens: the model's weight is 1
compare("own alone:", "-s only.store --lambda 1", [Part(only, 1)], texts=["texts/c.txt", "test/q.txt"])


def write_twice():
    """The arrays of f16.store with texts/c.txt in them a second time, as copy.txt: only an import can have that."""
    shutil.copytree("f16.store.arrays", "twice")
    with open("twice/documents.tsv") as f:
        row = f.read().split("\n")[3].split("\t")
    assert row[:2] == ["2", "c.txt"]
    with open("twice/documents.tsv", "a") as f:
        f.write("\t".join(["5", "copy.txt", "copy.txt"] + row[3:]) + "\n")
    its = np.load("twice/origins.npy")[:, 0] == 2
    for name in ("keys", "values", "origins"):
        x = np.load("twice/%s.npy" % name)
        again = x[its].copy()
        if name == "origins":
            again[:, 0] = 5
        np.save("twice/%s.npy" % name, np.concatenate([x, again]))


write_twice()
run("import", "twice", "-o", "twice.store", "-m", PLAIN)
twice = Exported("twice.store")
check(len(twice.contents) == 6 and twice.contents[5] == twice.contents[2], "twice.store has no copy")
for more in ("", " --include-self"):
    args = "-s twice.store -k 10 --temperature 4" + more
    compare("two copies%s:" % more, args, [Part(twice, 0.25, 10, 4, itself=bool(more))], texts=own)

# ---------------------------------------------------------------- little memory

for args in ("-s l2-pq17.store -k 30 --temperature 2 --probes 3", "-s f16.store -k 30 --temperature 2"):
    r, rows, _ = evaluate("memory", args)
    s, bounded, _ = evaluate("--memory", args + " --memory 1M")
    check(r["ppl"] == s["ppl"] and (rows.p == bounded.p).all(), "--memory changes", args)

# ---------------------------------------------------------------- the cache

long = ["test", "texts/a.txt", "texts/d.txt"]
for size, t, l in [(1, 3, 0.2), (5, 3, 0.2), (100, 1, 0.1), (100, 20, 0.4), (5000, 3, 0.2)]:
    args, cached = "--cache %d --cache-lambda %g --cache-temperature %g" % (size, l, t), (size, l, t, "l2")
    compare(args + ":", args, [], cached, long)
    compare("store and %s:" % args, "-s f32.store=.3 -k 16 --temperature 5 " + args, [Part(f32, 0.3, 16, 5)], cached, long)
compare("cache as it is:", "--cache 50", [], (50, 0.1, 1, "l2"), long)
compare("cache alone:", "--cache 50 --cache-lambda 1", [], (50, 1, 1, "l2"), long)
compare("cold cache:", "--cache 50 --cache-temperature .001", [], (50, 0.1, 0.001, "l2"), long)
for s in (ip, cosine):
    args = "-s %s -k 10 --cache 50 --cache-temperature .5" % s.path
    compare("cache by %s:" % s.metric, args, [Part(s, 0.25, 10)], (50, 0.1, 0.5, s.metric), long)
args = "-s f16.store=.2 -s other.store=.1 -k 10 --cache 30 --cache-lambda .7"  # in sum 1, but for rounding
r, _ = compare("two stores and cache:", args, [Part(f16, 0.2, 10), Part(other, 0.1, 10)], (30, 0.7, 1, "l2"))
check(r["ppl"] is None, "two stores and cache in sum 1: perplexity", r["ppl"])

# ---------------------------------------------------------------- tune: temperature, k and lambda

for i, words in enumerate((1000, 650, 400)):
    write_text("valid/v%d.txt" % i, 31 + i, words)
valid = States(PLAIN, "valid-states.store", ["valid"])


def tune(args, threads=1):
    fixed = ["-m", PLAIN, "--precision", "f32", "--json", "-t", threads]
    return json.loads(run("tune", *fixed, *args.split(), "valid").stdout)


def check_weights(where, parts, weights, ppl, near=0.0):
    """The perplexity of these weights, and that no others are better."""
    few = ", some equally far" if near else ""
    relative("tune: perplexity (relative)" + few, where, perplexity(parts, weights), ppl, 1e-6 + near)
    close("tune: nats that other weights gain" + few, where, max(0, gap(parts, weights)), 0, 1e-6 + near)
    if len(parts) == 2:
        w = best_weight(*parts)
        what = "tune: perplexity at our own lambda (relative)" + few
        relative(what, where, perplexity(parts, (1 - w, w)), ppl, 1e-6 + near)


def check_points(where, r, kept, cached=None):
    """Every setting that was tried."""
    for p in r["points"]:
        k = kept[p["store"]]
        parts, weights = [k.lm, k.p(p["k"], p["temperature"])], [1 - p["lambda"] - p["cache_lambda"], p["lambda"]]
        if p["cache_lambda"]:
            parts, weights = [*parts, cached], [*weights, p["cache_lambda"]]
        check_weights("%s %s" % (where, p), parts, weights, p["ppl"], k.doubt(p["k"]))


def check_curve(where, r, lm, x, cached=0, weight=0):
    check([l for l, _ in r["by_lambda"]] == [i / 100 for i in range(101)], where, "by_lambda is not by hundredths")
    for l, ppl in r["by_lambda"]:
        if l + weight > 1 + 1e-12:
            check(ppl is None, where, "by_lambda", l)
        else:
            ours = perplexity([lm, x, cached], [max(0, 1 - l - weight), l, weight])
            relative("tune: by_lambda (relative)", "%s %g" % (where, l), ours, ppl, 2e-6)


def check_written(where, store, r):
    t = manifest(store)["tuned"]
    for name in ("lambda", "temperature", "k"):
        relative("tune: as written (relative)", where + " " + name, t[name], r[name], 1e-9)
    check(t["tokens"] == r["tokens"] and len(t["texts"]) == 3 and r["written"], where, "writes", t["tokens"], t["texts"])
    check(("bins" in t) == (r["ppl_adaptive"] is not None), where, "bins are written")
    return t


def check_seen(where, tuned, part, rows):
    """What tuning saw, at the settings that it chose."""
    d = part.search(rows)
    h, _ = entropies(d, part.e.values, tuned["k"], tuned["temperature"], part.slack)
    some = np.isfinite(part.nearest)
    for name, x in (("distance", part.nearest), ("entropy", h)):
        ours = np.quantile(x[some], (0.5, 0.95))
        close("tune: what was seen of " + name, where, ours, tuned["seen"][name], 1e-4)


shutil.copytree("f16.store", "tuned.store")
t = tune("-s tuned.store -k 200")
tuned = check_written("tune:", "tuned.store", t)
as_tuned, rows, warned = evaluate("as tuned:", "-s tuned.store --bins", ["valid"], valid)
check(warned == "knnlm eval: tuned.store was tuned on (part of) this text: report another\n", "as tuned: says", warned)
check(as_tuned["stores"][0]["tuned_on_this_text"] and as_tuned["stores"][0]["tuned"], "as tuned: says", as_tuned["stores"])
kept = Kept(Part(f16, 0), rows, 200)
check_points("tune:", t, [kept])
check_seen("tune:", tuned, Part(f16, 0), rows)
best = min(t["points"], key=lambda p: p["ppl"])
check(all(abs(best[x] / t[x] - 1) < 1e-9 for x in ("lambda", "temperature", "k", "ppl")), "tune: not the best point", best)
check({p["k"] for p in t["points"]} == {1, 2, 4, 8, 16, 32, 64, 128, 200}, "tune: tries other k")
relative("tune: model alone (relative)", "tune:", math.exp(-rows.lm.mean()), t["ppl_lm"], 1e-7)
x = kept.p(t["k"], t["temperature"])
check_curve("tune:", t, kept.lm, x)
for factor in (0.8, 1.25):
    y = kept.p(t["k"], t["temperature"] * factor)
    w = best_weight(kept.lm, y)
    check(perplexity([kept.lm, y], [1 - w, w]) > 0.9999 * t["ppl"], "tune: a better temperature", t["temperature"] * factor)

# ---------------------------------------------------------------- lambda by bins

bins = tuned["bins"]
counts = [len(bins["distances"]) + 1, len(bins["entropies"]) + 1]
check([t["bins"]["distances"], t["bins"]["entropies"]] == counts, "bins: says", t["bins"])
check(len(bins["lambdas"]) == counts[0] * counts[1], "bins:", len(bins["lambdas"]), "lambdas")
check(t["ppl_adaptive_checked"] < t["ppl"], "bins are used although they are worse")
adaptive = Part(f16, None, 200, t["temperature"], by=lambda x, h: by_bins(bins, x, h)[1], common=t["lambda"])
mix("as tuned:", as_tuned, rows, [adaptive])
relative("tune: perplexity that eval gives (relative)", "by bins", as_tuned["ppl"], t["ppl_adaptive"], 1e-6)
begins = adaptive.begins(adaptive.search(rows))  # near without being alike: bins learn nothing from them
check(begins[rows.positions == 0].all() and begins.mean() < 0.1, "bins: texts begin otherwise", begins.mean())
check((rows.lambdas[begins] <= t["lambda"] + 1e-9).all(), "bins: a beginning is trusted", rows.lambdas[begins])
for name, values in (("distances", rows.nearest[~begins]), ("entropies", rows.entropy[~begins])):
    counts = np.histogram(values, [-INF, *bins[name], INF])[0]
    check(counts.max() - counts.min() <= 3 + 0.01 * len(values), "bins of", name, "have", counts, "tokens")
for i, l in enumerate(bins["lambdas"]):  # each the best for its tokens and 32 more that believe in lambda
    its = (by_bins(bins, rows.nearest, rows.entropy)[0] == i) & ~begins
    a, b = kept.lm[its], x[its]
    slope = lambda w: ((b - a) / ((1 - w) * a + w * b)).sum() + 32 * (t["lambda"] / w - (1 - t["lambda"]) / (1 - w))
    check(slope(max(1e-12, l - 1e-4)) > 0 > slope(min(1 - 1e-12, l + 1e-4)), "bins: lambda", i, "is", l)
r, rows, warned = evaluate("by bins:", "-s tuned.store --bins")
mix("by bins:", r, rows, [adaptive])
check(r["stores"][0]["adaptive"] and not r["stores"][0]["tuned_on_this_text"], "by bins: says", r["stores"])
check(not warned, "by bins: warns", warned)
check(len(set(rows.lambdas)) > 2, "by bins: all lambdas are the same")
r, _ = compare("--fixed:", "-s tuned.store --fixed", [Part(f16, t["lambda"], 200, t["temperature"])])
check(not r["stores"][0]["adaptive"], "--fixed adapts")
beside_cache = lambda x, h: np.minimum(adaptive.by(x, h), 0.9)
seen, other_entropies = tuned["seen"], {"distance": tuned["seen"]["distance"]}
for more, part in [
    ("", Part(f16, None, 200, t["temperature"], by=adaptive.by, falls=seen, common=t["lambda"])),
    ("--fixed", Part(f16, t["lambda"], 200, t["temperature"], falls=seen)),
    ("--lambda .3", Part(f16, 0.3, 200, t["temperature"], falls=seen)),
    ("--cache 40 --cache-lambda .1", Part(f16, None, 200, t["temperature"], by=beside_cache, falls=seen, common=t["lambda"])),
    ("--fixed --temperature 9", Part(f16, t["lambda"], 200, 9, falls=other_entropies)),
    ("--fixed -k 50", Part(f16, t["lambda"], 50, t["temperature"], falls=other_entropies)),
    ("--distance cosine", Part(f16, 0.25, 1024, 1, "cosine", falls={})),
]:
    cached = (40, 0.1, 1, "l2") if "cache" in more else None
    compare("tuned, --fallback %s:" % more, "-s tuned.store --bins --fallback " + more, [part], cached)
parts = [Part(f16, t["lambda"] / 2, 200, t["temperature"], falls=seen), Part(other, 0.125, 30, 2, falls={})]
compare("two stores, one tuned, --fallback:", "-s tuned.store -s other.store=.125,2,30 --bins --fallback", parts)
compare("--lambda:", "-s tuned.store --lambda .3", [Part(f16, 0.3, 200, t["temperature"])])
compare("another metric than was tuned:", "-s tuned.store --distance cosine", [Part(f16, 0.25, 1024, 1, "cosine")])
parts = [Part(f16, t["lambda"] / 2, 9, 2), Part(other, 0.125, 9, 2)]
compare("two stores, one tuned:", "-s tuned.store -s other.store --temperature 2 -k 9 --bins", parts)
r, rows, _ = evaluate("--fixed:", "-s tuned.store --fixed", ["valid"], valid)
relative("tune: perplexity that eval gives (relative)", "--fixed", r["ppl"], t["ppl"], 1e-6)

# ---------------------------------------------------------------- lambda by gates

gate, part = tuned["gate"], Part(f16, None, t["k"], t["temperature"])
for texts, states in ((["test"], everything), (["valid"], valid)):
    r, rows, _ = evaluate("by its gate:", "-s tuned.store", texts, states)
    oracle.mix_by_gates("by its gate:", r, rows, [part], [gate])
own_texts = ["texts/c.txt", "test/q.txt", "texts/e.txt"]
r, rows, _ = evaluate("by its gate, own:", "-s tuned.store", own_texts)
oracle.mix_by_gates("by its gate, own:", r, rows, [part], [gate])
shutil.copytree("other.store", "other-tuned.store")
u = tune("-s other-tuned.store -k 64")
gates = [gate, manifest("other-tuned.store")["tuned"]["gate"]]
two = [part, Part(other, None, u["k"], u["temperature"])]
for args, parts, its in (("-s other-tuned.store", two[1:], gates[1:]), ("-s tuned.store -s other-tuned.store", two, gates)):
    r, rows, _ = evaluate("by gates:", args)
    oracle.mix_by_gates("by gates, %s:" % args, r, rows, parts, its)
check(u["ppl_gate"] < 1.005 * u["ppl"] and t["ppl_gate"] < t["ppl"], "gates are worse than one lambda", u["ppl_gate"], u["ppl"], t["ppl_gate"], t["ppl"])

# ---------------------------------------------------------------- beginnings are near, and not alike

# Half of the validation text is in a store, with its states: near neighbours know what comes, but for the beginnings.
for i, name in enumerate(sorted(os.listdir("valid"))):
    with open("valid/" + name) as f:
        words = f.read().split()
    os.makedirs("echo", exist_ok=True)
    with open("echo/" + name, "w") as f:
        f.write(" ".join(words[: len(words) // 2]))
for i in range(40):
    write_text("echo/z%d.txt" % i, 500 + i, 3)
echo = build("echo.store", "--keys f32", ("echo",))
b = tune("-s echo.store -k 64")
bins = check_written("tune, echo:", "echo.store", b)["bins"]
r, rows, _ = evaluate("echo:", "-s echo.store --bins", ["valid"], valid)
part = Part(echo, None, b["k"], b["temperature"], by=lambda x, h: by_bins(bins, x, h)[1], common=b["lambda"])
mix("echo:", r, rows, [part])
begins = part.begins(part.search(rows))
check(begins[rows.positions == 0].all(), "echo: texts begin otherwise")
check((by_bins(bins, rows.nearest, rows.entropy)[1][begins] > b["lambda"]).any(), "echo: no beginning is near")
check((rows.lambdas[begins] <= b["lambda"] + 1e-9).all(), "echo: a beginning is trusted", rows.lambdas[begins])
relative("tune: perplexity that eval gives (relative)", "echo", r["ppl"], b["ppl_adaptive"], 1e-6)

# ---------------------------------------------------------------- tune: store and cache together

before = manifest("tuned.store")
dry = tune("-s tuned.store -k 200 --cache 40 --dry-run")
check(manifest("tuned.store") == before and not dry["written"], "--dry-run writes")
c = tune("-s tuned.store -k 200 --cache 40")
check(dry["points"] == c["points"], "--dry-run finds something else")
tuned = check_written("tune --cache:", "tuned.store", c)
size, weight, cache_t = (c["cache"][x] for x in ("size", "lambda", "temperature"))
check(tuned["cache"]["size"] == size == 40, "tune --cache: says", c["cache"])
check_seen("tune --cache:", tuned, Part(f16, 0), rows)


def cache_beside(size, t):
    p = cache(rows.states, rows.tokens, rows.spans, size, t, "l2")
    return np.where(np.isnan(p), kept.lm, np.exp(p))


cached, x = cache_beside(size, cache_t), kept.p(c["k"], c["temperature"])
check_points("tune --cache:", c, [kept], cached)
check_weights("tune --cache:", [kept.lm, x, cached], [1 - c["lambda"] - weight, c["lambda"], weight], c["ppl"])
w = best_weight(kept.lm, cached)
check_weights("tune --cache, the cache alone:", [kept.lm, cached], [1 - w, w], c["ppl_cache"])
check_curve("tune --cache:", c, kept.lm, x, cached, weight)
bins = tuned.get("bins")
by = (lambda x, h: np.minimum(by_bins(bins, x, h)[1], 1 - weight)) if bins else None
part = Part(f16, c["lambda"], c["k"], c["temperature"], by=by, common=c["lambda"])
r, _ = compare("as tuned with cache:", "-s tuned.store --bins", [part], (size, weight, cache_t, "l2"), ["valid"], valid)
relative("tune: perplexity that eval gives (relative)", "with cache", r["ppl"], c["ppl_adaptive"] or c["ppl"], 1e-6)
compare("tuned cache:", "-s tuned.store --bins", [part], (size, weight, cache_t, "l2"))
compare("--cache 0:", "-s tuned.store --cache 0 --fixed", [Part(f16, c["lambda"], c["k"], c["temperature"])])
compare("tuned cache, another metric:", "-s tuned.store --distance ip", [Part(f16, 0.25, 1024, 1, "ip")])
alone = tune("--cache 40")
check_weights("tune, the cache alone:", [kept.lm, cache_beside(40, alone["cache"]["temperature"])],
              [1 - alone["cache"]["lambda"], alone["cache"]["lambda"]], alone["ppl"])

# ---------------------------------------------------------------- tune: probes, codes, several stores

shutil.copytree("l2-pq17.store", "probed.store")
e, ways = read_index("probed.store"), (1, 3, 8, LISTS)
q = tune("-s probed.store -k 32 --codes --fixed --probes " + ",".join(map(str, ways)))
check(len(q["points"]) == q["settings"], "tune --probes: tells", len(q["points"]), "of", q["settings"], "points")
check_points("tune --probes:", q, [Kept(found_in(e, "codes", n), rows, 32) for n in ways])
bests = {n: min(p["ppl"] for p in q["points"] if p["store"] == i) for i, n in enumerate(ways)}
fewest = min(n for n in ways if bests[n] <= 1.001 * min(bests.values()))
check(q["probes"] == fewest, "tune --probes: keeps", q["probes"], "of", bests)
tuned = check_written("tune --probes:", "probed.store", q)
check_seen("tune --probes:", tuned, found_in(e, "codes", fewest), rows)
check(tuned["codes"] is True and tuned["probes"] == fewest and "bins" not in tuned, "tune --probes: writes", tuned)
own = manifest("probed.store")["index"]["note"]["probes"]
some = [tune("-s probed.store -k 32 --fixed --dry-run --probes " + ways) for ways in ("auto", "%d,%d,%d" % (own // 2, own, min(2 * own, LISTS)))]
check(own > 1 and some[0]["points"] == some[1]["points"] and some[0]["probes"] == some[1]["probes"], "tune --probes auto: of", own, "lists")
r, _, _ = evaluate("tuned by codes:", "-s probed.store", ["valid"], valid)
check(r["distances"] == "codes", "tuned by codes: says", r["distances"])
relative("tune: perplexity that eval gives (relative)", "by codes", r["ppl"], q["ppl"], 1e-6)
r = tune("-s f32.store -k 16 --temperature 3 --dry-run")
check({p["temperature"] for p in r["points"]} == {3} and r["temperature"] == 3, "tune --temperature: tries others")

before = [manifest(s.path) for s in (f16, other)]
m = tune("-s f16.store -s other.store -k 64 --cache 40 --cache-temperature 2")
check([manifest(s.path) for s in (f16, other)] == before and not m["written"], "tune of two stores writes")
keeps = [Kept(Part(s, 0), rows, 64) for s in (f16, other)]
check_points("tune of two stores:", m, keeps)
parts = [kept.lm, *(k.p(s["k"], s["temperature"]) for k, s in zip(keeps, m["stores"])), cache_beside(40, 2)]
weights = [s["lambda"] for s in m["stores"]] + [m["cache"]["lambda"]]
check_weights("tune of two stores:", parts, [1 - sum(weights), *weights], m["ppl"])
args = " ".join("-s %s=%.10f,%.10f,%d" % (s["path"], s["lambda"], s["temperature"], s["k"]) for s in m["stores"])
args += " --cache 40 --cache-temperature 2 --cache-lambda %.10f" % weights[-1]
r, _, _ = evaluate("two stores as tuned:", args, ["valid"], valid)
relative("tune: perplexity that eval gives (relative)", "two stores", r["ppl"], m["ppl"], 1e-6)

# ---------------------------------------------------------------- without neighbours; entropies; taps; windows; sections

r, rows, _ = evaluate("the model alone:", "")
totals("the model alone:", r, rows)
check(not rows.mixed and r["ppl"] == r["ppl_lm"], "the model alone is mixed")

# The whole distribution after some words: a document for each token that may follow.
os.mkdir("next")
for i, word in enumerate(["<unk>", "\n"] + ["w%d" % i for i in range(2, 53)]):
    with open("next/%02d" % i, "w") as f:
        f.write("w7 w9 w30 w9 w7 " + word)
run("eval", "-m", PLAIN, "--precision", "f32", "--cache", 3, "--per-token", "rows.tsv", "next")
table = read_table("rows.tsv")
last = [i for i, p in enumerate(table["position"]) if p == "5"]
check([int(table["token"][i]) for i in last] == list(range(53)), "entropy: the last tokens are not all tokens")
p = np.exp([float(table["logprob_lm"][i]) for i in last])
close("probabilities in sum", "next", p.sum(), 1, 1e-6)
close("entropy", "next", np.full(53, -(p * np.log(p)).sum()), [float(table["entropy"][i]) for i in last], 1e-5)

tapped = build("tapped.store", "--tap attention-raw@0 --keys f32")
states = States(PLAIN, "tap-states.store", ["test"], "--tap", "attention-raw@0")
compare("another tap:", "-s tapped.store -k 20 --cache 30", [Part(tapped, 0.25, 20)], (30, 0.1, 1, "l2"), states=states)

window = build("window.store", "--keys f32", model=ADAPTIVE)  # documents of several windows
states = States(ADAPTIVE, "window-states.store", ["test"])
parts, cached = [Part(window, 0.25, 20)], (90, 0.1, 1, "l2")
compare("windows:", "-s window.store -k 20 --cache 90", parts, cached, states=states, model=ADAPTIVE)

with open("some.wiki", "w") as f, open("texts/a.txt") as a, open("texts/e.txt") as e:
    f.write(" = One = \n\n" + a.read() + "\n\n = Two = \n\n" + e.read() + "\n\n = Three = \n\n w3 w4 \n")
with open("again.wiki", "w") as f, open("texts/e.txt") as e, open("test/q.txt") as q:
    f.write(" = Two = \n\n" + e.read() + "\n\n = Four = \n\n" + q.read())
wiki = build("wiki.store", "--keys f32 --documents wiki", texts=["some.wiki"])
states = States(PLAIN, "wiki-states.store", ["again.wiki"], "--documents", "wiki")
r, _ = compare("sections:", "-s wiki.store -k 20", [Part(wiki, 0.25, 20)], texts=["again.wiki"], states=states)
check(r["own_documents"] == 1 and r["settings"]["documents"] == "wiki", "sections: says", r["own_documents"])

# ---------------------------------------------------------------- more tokens than are searched at a time

for i in range(6):
    write_text("many/%d.txt" % i, 41 + i, 2750)
write_text("many/last.txt", 47, 60)
late = build("late.store", "--keys f32", texts=["many/last.txt", "texts/c.txt"])
states = States(PLAIN, "many-states.store", ["many"])
r = tune("-s late.store --dry-run")  # whose neighbours tell little: the best temperature is above the first grid
check(r["temperature"] < max(p["temperature"] for p in r["points"]), "tune: the best temperature is the highest tried")
compare("many tokens:", "-s late.store -k 8 --cache 200", [Part(late, 0.25, 8)], (200, 0.1, 1, "l2"), ["many"], states)

# ---------------------------------------------------------------- threads

first = None
for threads in (1, 2, 3):
    r, _, _ = evaluate("threads:", "-s tuned.store -t %d" % threads, ["test", "texts"])
    u = tune("-s l2-pq17.store -k 32 --cache 10 --dry-run", threads)
    for said, names in ((r, ("seconds_lm", "tokens_per_second")), (u, ("seconds_sweep",))):
        for name in ("seconds", "seconds_search", *names):
            check(said.pop(name) >= 0, "threads:", name, "is negative")
    check(r["settings"].pop("threads") == threads, "threads: says", r["settings"])
    with open("rows.tsv", "rb") as f:
        got = f.read(), r, u
    first = first or got
    for what, ours, theirs in zip(("table", "result of eval", "result of tune"), first, got):
        check(ours == theirs, "threads: another", what, "with", threads)

if "-v" in sys.argv:
    for what, (off, where) in oracle.worst.items():
        print("%-70s %.2e  %s" % (what, off, where))
print("%d checks, %d failed" % (oracle.checks, oracle.failures))
sys.exit(oracle.failures > 0)
