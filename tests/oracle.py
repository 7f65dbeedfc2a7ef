"""Nearest-neighbour language models in NumPy, f64 and brute force: what tests/oracle_eval.py holds knnlm against.

Written from the formulas of knnlm(1), never from the C code. The states of a text are taken from a store of f32 keys that is
built from it, and log p_LM from eval's own table: the model is verified elsewhere. Where entries are equally far to within
the rounding of f32, so that one or the other may be the k-th neighbour, log p must lie between what the choices give;
otherwise it must be the same to 1e-4.
"""

import json
import math
import os
import struct
import subprocess

import numpy as np

INF = math.inf
TOLERANCE = 1e-4  # of log p
ROUNDING = 1e-6  # of a distance computed in f32, relative to the squared lengths in it

np.seterr(divide="ignore", invalid="ignore", over="ignore")  # infinities are meant

program = None  # the path of knnlm
checks, failures = 0, 0
worst = {}  # what: (largest difference, where)


def check(truth, *what):
    global checks, failures
    checks += 1
    if not truth:
        failures += 1
        print("FAILED:", *what)
    return truth


def note(what, where, off):
    if off > worst.get(what, (-1,))[0]:
        worst[what] = (off, where)


def close(what, where, ours, theirs, tolerance):
    """Numbers or arrays: within the tolerance, infinities in the same places."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    if not check(ours.shape == theirs.shape, where, what, "has the shape", theirs.shape, "not", ours.shape):
        return
    off = np.abs(ours - theirs)
    off = np.where((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)), 0, np.where(np.isnan(off), INF, off))
    most = float(off.max(initial=0))
    note(what, where, most)
    at = np.unravel_index(off.argmax(), off.shape) if off.size else ()
    check(most <= tolerance, where, what, "at", at, "off by", most, "oracle", ours[at], "knnlm", theirs[at])


def relative(what, where, ours, theirs, tolerance):
    """The same for positive numbers; None stands for infinity, as in JSON."""
    theirs = INF if theirs is None else theirs
    close(what, where, 0 if ours == theirs else ours / theirs - 1, 0, tolerance)


def run(*args, code=0):
    done = subprocess.run([program, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    check(done.returncode == code, *args, "ends with", done.returncode, done.stderr[-300:])
    return done


# ---------------------------------------------------------------- formulas


def distances(queries, keys, metric):
    """Squared L2, the negated inner product, or 1 - cosine: (queries, keys)."""
    products = queries @ keys.T
    if metric == "ip":
        return -products
    q, k = (queries**2).sum(1)[:, None], (keys**2).sum(1)
    if metric == "l2":
        return np.maximum(q + k - 2 * products, 0)
    return 1 - np.nan_to_num(products / np.sqrt(q * k))


def doubt(queries, keys, metric):
    """How far off f32 may put the difference of two distances, for each query."""
    if metric == "cosine":
        return np.full(len(queries), 4 * ROUNDING)
    return 2 * ROUNDING * ((queries**2).sum(1) + (keys**2).sum(1).max(initial=0))


def log_sum(x):
    """log of the sum of e^x over each row: relative to the largest, so that nothing is too small or too large."""
    top = x.max(1, initial=-INF)
    top = np.where(np.isfinite(top), top, 0)
    return np.log(np.exp(x - top[:, None]).sum(1)) + top


def knn(d, values, targets, k, t, slack):
    """log p_kNN of each target from the distances d (n, N; infinite: not to be seen): its least and most, by which of the
    equally far ones are the k-th. NaN: no neighbour."""
    kth = np.partition(d, k - 1, 1)[:, k - 1] if k < d.shape[1] else np.full(len(d), INF)
    near = (d <= (kth + slack)[:, None]) & (d < INF)
    x, hit = np.where(near, -d / t, -INF), values == targets[:, None]
    low = log_sum(np.where(hit, x, -INF)) - log_sum(x)
    low[~near.any(1)] = np.nan
    high = low.copy()
    for i in np.flatnonzero(near.sum(1) > k):  # several may be the k-th
        sure, border = d[i] < kth[i] - slack[i], near[i] & (d[i] >= kth[i] - slack[i])
        missing, hits = k - sure.sum(), (border & hit[i]).sum()
        each = -kth[i] / t
        parts = [np.where(sure & of, x[i], -INF)[None] for of in (hit[i], True)]
        top, all_ = (log_sum(p)[0] for p in parts)
        all_ = np.logaddexp(all_, np.log(missing) + each)
        fewest, most = max(0, missing - (border.sum() - hits)), min(missing, hits)
        low[i], high[i] = (np.logaddexp(top, np.log(c) + each) - all_ for c in (fewest, most))
    return low, high


def entropies(d, values, k, t, slack):
    """Of p_kNN over words, in nats, from the distances d (n, N); NaN: no neighbour. And of which rows it is sure: those of
    which no other neighbour may be the k-th."""
    order = np.argsort(np.round(d, 9), 1, kind="stable")
    near = np.take_along_axis(d, order, 1)
    h, sure = np.full(len(d), np.nan), np.ones(len(d), bool)
    for i, found in enumerate(np.isfinite(near).sum(1)):
        n = min(k, found)
        if n == 0:
            continue
        p = np.bincount(values[order[i, :n]], np.exp((near[i, 0] - near[i, :n]) / t))
        p = p[p > 0] / p.sum()
        h[i] = -(p * np.log(p)).sum()
        sure[i] = n == found or near[i, n] - near[i, n - 1] > slack[i]
    return h, sure


def fade(x, start, end):
    """1 up to the start, 0 from the end on, a line between them; no start: 1."""
    return np.where((x > start) & (end >= start), np.clip((end - x) / (end - start), 0, 1), 1)


def cache(states, tokens, spans, size, t, metric):
    """log p of each token from the last `size` of its document before it; NaN: there are none."""
    p = np.full(len(tokens), np.nan)
    for start, end in spans:
        for a in range(start, end, 256):
            rows, first = np.arange(a, min(a + 256, end)), max(start, a - size)
            columns = np.arange(first, rows[-1] + 1)
            seen = (columns < rows[:, None]) & (columns >= rows[:, None] - size)
            x = np.where(seen, -distances(states[rows], states[columns], metric) / t, -INF)
            hit = tokens[columns] == tokens[rows][:, None]
            p[rows] = np.where(seen.any(1), log_sum(np.where(hit, x, -INF)) - log_sum(x), np.nan)
    return p


# ---------------------------------------------------------------- files


def read_table(path):
    """The columns of a tab-separated file by name."""
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")[:-1]
    names, rows = lines[0].split("\t"), [line.split("\t") for line in lines[1:]]
    assert all(len(r) == len(names) for r in rows)
    return {n: [r[i] for r in rows] for i, n in enumerate(names)}


class Exported:
    """A store's arrays, and the contents of its documents."""

    def __init__(self, store):
        out = store + ".arrays"
        run("export", store, "-o", out)
        self.values, self.origins = np.load(out + "/values.npy"), np.load(out + "/origins.npy")
        self.keys = np.load(out + "/keys.npy").astype("f8") if os.path.exists(out + "/keys.npy") else None
        t = read_table(out + "/documents.tsv")
        self.numbers, self.names, self.contents = [int(n) for n in t["number"]], t["name"], []
        for path, offset, size in zip(t["path"], t["source_offset"], t["bytes"]):
            with open(path, "rb") as f:
                f.seek(int(offset))
                self.contents.append(f.read(int(size)))
        self.path, self.manifest = store, manifest(store)
        self.metric = self.manifest["settings"]["keys"]["distance"]
        integers = self.manifest["settings"]["keys"]["type"] == "int8"
        self.project = in_16_bits if integers else lambda states: states

    def entries_of(self, content):
        """Which entries are of documents with that content."""
        return np.isin(self.origins[:, 0], [n for n, c in zip(self.numbers, self.contents) if c == content])


def in_16_bits(queries):
    """What int8 keys meet of queries (docs/theory.md): multiples of a 32767th of the largest magnitude, or, where the
    magnitudes are many, of what makes their sum less than 2^24."""
    magnitudes = np.abs(queries)
    coarse = magnitudes.sum(1) / (2 ** 24 - 1 - queries.shape[1])
    step = np.maximum(magnitudes.max(1) / 32767, coarse).astype("f4").astype("f8")[:, None]
    return np.rint(queries / np.where(step > 0, step, 1)) * step


def manifest(store):
    with open(store + "/MANIFEST") as f:
        f.readline()
        return json.load(f)


class States:
    """The model's state before every token of some documents, by the documents' contents."""

    def __init__(self, model, store, texts, *options):
        fixed = ["-t", 1, "-m", model, "--keys", "f32", "--no-index", "--precision", "f32"]
        run("build", *fixed, "--no-tune", "-o", store, *options, *texts)
        e = Exported(store)
        self.of, self.content = {}, dict(zip(e.names, e.contents))
        for content in e.contents:
            rows = e.entries_of(content)
            self.of[content] = (e.keys[rows], e.values[rows], e.origins[rows])

    def called(self, name):
        """The content of a document; of one that lay in no store under this name, the file's."""
        if name not in self.content:
            with open(name, "rb") as f:
                self.content[name] = f.read()
        return self.content[name]


class Lists:
    """The index of an IVFPQ file as FAISS writes it: centroids, lists, decoded codes by id."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.at = 0
        assert self.take("4s") == b"IwPQ"
        d, _ = self.header()
        lists, self.probes = self.take("Q"), self.take("Q")
        assert self.take("4s") in (b"IxF2", b"IxFI")
        self.header()
        self.centroids = self.array("f4", self.take("Q")).reshape(lists, d).astype("f8")
        assert self.take("B") == 0 and self.take("Q") == 0  # no direct map
        residuals, code_size = self.take("B"), self.take("Q")
        assert self.take("Q") == d
        parts, bits = self.take("Q"), self.take("Q")
        books = self.array("f4", self.take("Q")).reshape(parts, 2**bits, d // parts).astype("f8")
        assert self.take("4s") == b"ilar" and self.take("Q") == lists and self.take("Q") == code_size
        sizes = np.zeros(lists, int)
        kind, count = self.take("4s"), self.take("Q")
        if kind == b"full":
            sizes[:] = self.array("u8", count)
        else:
            pairs = self.array("u8", count).reshape(-1, 2).astype(int)
            sizes[pairs[:, 0]] = pairs[:, 1]
        self.list_of, self.decoded = {}, {}
        for l in range(lists):
            codes = self.array("u1", sizes[l] * code_size).reshape(-1, code_size)
            ids = self.array("i8", sizes[l])
            keys = decode(codes, books, bits) + (self.centroids[l] if residuals else 0)
            for i, key in zip(ids, keys):
                self.list_of[int(i)], self.decoded[int(i)] = l, key
        assert self.at == len(self.data)

    def take(self, what):
        (x,) = struct.unpack_from("<" + what, self.data, self.at)
        self.at += struct.calcsize("<" + what)
        return x

    def header(self):
        d, n = self.take("i"), self.take("q")
        self.at += 16
        assert self.take("B") == 1
        self.inner = self.take("i") == 0
        return d, n

    def array(self, kind, count):
        x = np.frombuffer(self.data, "<" + kind, count, self.at)
        self.at += x.nbytes
        return x


def decode(codes, books, bits):
    """Keys (n, d) of codes (n, bytes): of 4 bits two a byte, low half first."""
    parts = len(books)
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], 2).reshape(len(codes), -1)[:, :parts]
    return np.concatenate([books[m][codes[:, m]] for m in range(parts)], 1)


def lists_of_files(store):
    """The same as docs/format.md has it, for cosine, which FAISS does not know: centroids, list_of, decoded. One run."""
    m = manifest(store)
    d, index = m["settings"]["keys"]["dimension"], m["index"]["note"]
    lists, parts, bits = index["lists"], index["code_parts"], index["code_bits"]
    names = {}
    for name in os.listdir(store):
        names[name.split(".")[-1]] = os.path.join(store, name)

    def sections(kind, *arrays):
        with open(names[kind], "rb") as f:
            data, at = f.read(), 64
        for dtype, count in arrays:
            x = np.frombuffer(data, dtype, count, at)
            at += -(-x.nbytes // 64) * 64
            yield x

    centroids, books = sections("lists", ("<f4", lists * d), ("<f4", 2**bits * d))
    centroids, books = centroids.reshape(lists, d).astype("f8"), books.reshape(parts, 2**bits, d // parts).astype("f8")
    (ends,) = sections("order", ("<u8", lists + 1))
    n = int(ends[-1])
    _, order = sections("order", ("<u8", lists + 1), ("<u4", n))
    size = -(-parts * bits // 8)
    blocks = -(-n // 64)
    (codes,) = sections("codes", ("u1", blocks * size * 64))
    codes = codes.reshape(blocks, size, 64).transpose(0, 2, 1).reshape(-1, size)[:n]
    keys = decode(codes, books, bits)
    list_of, decoded = np.zeros(n, int), np.zeros((n, d))
    for l in range(lists):
        its = slice(int(ends[l]), int(ends[l + 1]))
        list_of[order[its]] = l
        decoded[order[its]] = keys[its] + (0 if index["plain_codes"] else centroids[l])
    return centroids, list_of, decoded


# ---------------------------------------------------------------- what eval should say


class Rows:
    """The table of eval --per-token, and the states of its tokens."""

    def __init__(self, path, states):
        t = read_table(path)
        number = lambda name: np.array([float(x) if x else np.nan for x in t[name]])
        self.n, self.positions, self.tokens = len(t["token"]), np.array(t["position"], int), np.array(t["token"], int)
        self.p = number("logprob")
        self.mixed = "logprob_lm" in t
        self.lm = number("logprob_lm") if self.mixed else self.p
        if self.mixed:
            self.knn, self.cache, self.lambdas = number("logprob_knn"), number("logprob_cache"), number("lambda")
            # they were f32, and are compared as such
            self.nearest, self.entropy = (number(n).astype("f4").astype("f8") for n in ("nearest", "entropy"))
        starts = np.flatnonzero(self.positions == 0)
        self.spans = list(zip(starts, np.append(starts[1:], self.n)))
        self.contents = [states.called(t["document"][s]) for s in starts]
        found = [states.of[c] for c in self.contents]
        self.states = np.concatenate([f[0] for f in found])
        origins = np.concatenate([f[2] for f in found])
        self.sound = len(self.states) == self.n and (np.concatenate([f[1] for f in found]) == self.tokens).all()
        self.sound &= (origins[:, 1] == self.positions).all() and (origins[:, 2] == np.array(t["offset"], int)).all()


class Part:
    """A store as it should be mixed in."""

    def __init__(self, exported, weight, k=1024, t=1.0, metric=None, keys=None, probe=None, itself=False, by=None,
                 falls=None, common=None):
        self.common = common  # by bins: the most that a neighbour is trusted which begins a document
        self.e, self.weight, self.k, self.t = exported, weight, k, t
        self.metric, self.keys = metric or exported.metric, exported.keys if keys is None else keys
        self.probe = probe  # (centroids, list of every entry, how many, metric)
        self.itself = itself  # documents find themselves
        self.by = by  # (nearest, entropy) to weight
        # Falls back by what tuning saw of "distance" and "entropy": [median, 95th percentile]; {}: it saw nothing
        self.falls = falls

    def search(self, rows):
        """Distances (tokens, entries), infinite where an entry is not to be seen; and what is said of them."""
        q = self.e.project(rows.states)
        d = distances(q, self.keys, self.metric)
        self.slack = doubt(q, self.keys, self.metric)
        self.own = {a for (a, b), c in zip(rows.spans, rows.contents) if self.e.entries_of(c).any() and not self.itself}
        for (a, b), content in zip(rows.spans, rows.contents):
            if a in self.own:
                d[a:b, self.e.entries_of(content)] = INF
        self.sure = np.ones(len(q), bool)  # of which lists are looked at
        if self.probe:
            centroids, list_of, probes, metric = self.probe
            away = distances(q, centroids, metric)
            order = np.sort(away, 1)
            self.sure = order[:, probes] - order[:, probes - 1] > 2 * doubt(q, centroids, metric)
            d[(away > order[:, [probes - 1]])[:, list_of]] = INF
        self.nearest = d.min(1, initial=INF)
        return d

    def begins(self, d):
        """Whose nearest neighbour begins a document: all texts do so alike."""
        return (self.e.origins[d.argmin(1), 1] == 0) & np.isfinite(self.nearest)


def trust(part, d):
    """What the weight is multiplied by, from the distances (n, N); and of which tokens that is sure."""
    h, sure = entropies(d, part.e.values, part.k, part.t, part.slack)
    most = np.log(np.minimum(part.k, np.isfinite(d).sum(1)))
    ends = {name: (high, 2 * high - median) for name, (median, high) in part.falls.items()}
    far = fade(part.nearest, *ends["distance"]) if "distance" in ends else 1
    return far * fade(h, *ends.get("entropy", (most / 2, most))), sure


def by_bins(bins, nearest, entropy):
    """Which bin: edges[b - 1] <= x < edges[b]; and its lambda."""
    place = [np.searchsorted(bins[name], x, "right") for name, x in (("distances", nearest), ("entropies", entropy))]
    place = place[0] * (len(bins["entropies"]) + 1) + place[1]
    return place, np.array(bins["lambdas"])[place]


def gate_facts(part, d, rows):
    """What a gate knows of each token's neighbours, and p_kNN at half and twice the temperature."""
    order = np.argsort(np.round(d, 9), 1, kind="stable")[:, : part.k]
    near, values = np.take_along_axis(d, order, 1), part.e.values[order]
    some = np.isfinite(near)
    def share(t, of):
        w = np.where(some, np.exp(-(near - near[:, :1]) / t), 0)
        return (w * of).sum(1) / w.sum(1)
    last = near[np.arange(len(near)), np.maximum(some.sum(1) - 1, 0)]
    hit = values == rows.tokens[:, None]
    return dict(nearest=near[:, 0], farthest=last, agreement=share(part.t / 2, values == values[:, :1]),
                p=np.stack([share(part.t / 2, hit), share(part.t * 2, hit)], 1), some=some[:, 0], begins=part.begins(d))


def gate_terms(facts, i, entropy, past, gate):
    """1, seven facts and their products; facts are relative to what is usual."""
    log = lambda x: 0.6 * x / gate["unit"] if gate["unit"] else np.log(max(x, 1e-6))
    nearest = 0 if facts["begins"][i] else log(facts["nearest"][i]) - gate["centre"]
    spread = 1 if facts["begins"][i] else log(facts["farthest"][i]) - log(facts["nearest"][i])
    x = np.array([nearest, entropy, np.log(max(facts["agreement"][i], 1e-4)), spread, *past])
    x = np.clip((x - [0, 4, -1, 0.8, 0, 0.2, 0]) / [0.6, 2, 1, 0.4, 1.2, 0.4, 2], -3, 3)
    return np.array([1, *x, *(x[a] * x[b] for a in range(7) for b in range(a, 7))])


def through_gates(rows, parts, gates):
    """Lambda of all stores, log p_kNN of them together, and log p of each token."""
    found = [gate_facts(p, p.search(rows), rows) for p in parts]
    weights = [np.array(g["weights"]).reshape(2, 36) for g in gates]
    lambdas, knn_, out = np.zeros(rows.n), np.zeros(rows.n), np.zeros(rows.n)
    starts = {a for a, _ in rows.spans}
    for i in range(rows.n):
        if i in starts:
            past, odds, alone = np.zeros((len(parts), 3)), 0.0, np.zeros(len(parts))
        lm = math.exp(rows.lm[i])
        z = [np.exp(np.clip(w @ gate_terms(f, i, rows.entropy[i], h, g), -30, 30)) if f["some"][i] else np.zeros(2)
             for w, f, h, g in zip(weights, found, past, gates)]
        opened = z
        if len(parts) > 1:  # each has a switch of its own
            z = [e / (1 + math.exp(-a)) for e, a in zip(z, alone)]
        both = sum(e @ f["p"][i] for e, f in zip(z, found) if f["some"][i])
        total = sum(e.sum() for e in z)
        mixture = (lm + both) / (1 + total)
        trust_ = 1 / (1 + math.exp(-odds))
        lambdas[i] = trust_ * total / (1 + total)
        knn_[i] = math.log(both / total) if both > 0 else -INF
        out[i] = math.log(trust_ * mixture + (1 - trust_) * lm)
        odds += math.log(mixture) - math.log(lm)
        for n, (h, f) in enumerate(zip(past, found)):
            if not f["some"][i]:
                continue
            alone[n] += math.log((lm + opened[n] @ f["p"][i]) / (1 + opened[n].sum())) - math.log(lm)
            ratio = (f["p"][i].mean() + 1e-9) / lm
            worth = min(3, max(-3, math.log(ratio)))
            h[:] = 0.9 * h[0] + 0.1 * worth, 0.98 * h[1] + 0.02 * math.log(0.7 + 0.3 * min(ratio, 1e9)), worth
    return lambdas, knn_, out


def mix_by_gates(where, r, rows, parts, gates):
    """Holds eval against gates. Distances of f32 are off by some 1e-6 of themselves, which the steepest of the terms
    (products of facts up to 3, one in 0.4 of a logarithm, weights about 1) makes a hundred times as much; what the text
    has shown forgets it, but for the odds, which add up."""
    lambdas, knn_, p = through_gates(rows, parts, gates)
    sure = np.ones(rows.n, bool)
    close("lambda by gates", where, lambdas, rows.lambdas, 3e-3)
    within("log p_kNN by gates", where, knn_, knn_, rows.knn, np.full(rows.n, 3e-3), sure & (knn_ > -12))
    within("log p by gates", where, p, p, rows.p, np.full(rows.n, 3e-3), sure)
    check(all(s["gated"] for s in r["stores"]), where, "is not gated", r["stores"])
    relative("perplexity by gates (relative)", where, math.exp(-p.mean()), r["ppl"], 1e-4)
    for a, b in rows.spans:  # the switch: never worse than the model alone by more than ln 2
        check(rows.p[a:b].sum() >= rows.lm[a:b].sum() - math.log(2) - 1e-6, where, "a text loses to the model alone")


def mix(where, r, rows, parts, cached=None):
    """Holds the table and the object of eval against the formulas. cached: (size, weight, temperature, metric)."""
    n, none = rows.n, np.full(rows.n, -INF)
    low, high, even_low, even_high = none, none, none, none  # logs of: lambda p_kNN, in sum; the mean of p_kNN
    weights, weight_of_cache = np.zeros(n), np.zeros(n)
    tolerance, sure = np.full(n, TOLERANCE), np.ones(n, bool)
    check(len(r["stores"]) == len(parts), where, "has", len(r["stores"]), "stores")
    for part, said in zip(parts, r["stores"]):
        d = part.search(rows)
        lo, hi = knn(d, part.e.values, rows.tokens, part.k, part.t, part.slack)
        some = ~np.isnan(lo)
        lo, hi = np.where(some, lo, -INF), np.where(some, hi, -INF)
        weight = np.full(n, part.weight, float)
        if part.by:  # edges are nearest distances themselves: eval's own, which is held against ours, decides
            weight = part.by(rows.nearest, rows.entropy)
            begins = part.begins(d)
            weight = np.where(begins, np.minimum(weight, part.common), weight)
        if part.falls is not None:
            trusted, sure_of_trust = trust(part, d)
            weight = weight * trusted
            sure &= sure_of_trust
            note("tokens whose weight falls", where, (trusted < 1).mean())
        weight[~some] = 0
        weights = weights + weight
        low, high = np.logaddexp(low, np.log(weight) + lo), np.logaddexp(high, np.log(weight) + hi)
        even_low, even_high = (np.logaddexp(e, x - np.log(len(parts))) for e, x in ((even_low, lo), (even_high, hi)))
        tolerance = np.maximum(tolerance, blur(part.slack / part.t))
        sure &= part.sure
        vague = ((hi > -INF) & (lo == -INF) | ~part.sure).mean()
        close("found", where, (hi > -INF).mean(), said["found"], 1e-9 + vague)
        near = 1e-9 if part.falls is None else 1e-5 + (~sure).mean()
        close("lambda of a store", where, weight.mean(), said["lambda"], near)
        check(said["fallback"] == (part.falls is not None), where, "says fallback", said["fallback"])
        check(said["entries"] == len(part.e.values), where, "counts", said["entries"], "entries")
        check(said["distance"] == part.metric, where, "says", said["distance"], "not", part.metric)
        check(said["k"] == min(part.k, part.e.manifest["entries"]), where, "says k", said["k"])
        check(said["temperature"] == part.t, where, "says temperature", said["temperature"])
    own = len(set().union(*(p.own for p in parts))) if parts else 0
    check(r["own_documents"] == own, where, "says", r["own_documents"], "own documents, not", own)
    check(sure.mean() > 0.9, where, "only", sure.mean(), "of the tokens are sure of their lists")
    if parts:
        nearest, slack = (np.array([getattr(p, x) for p in parts]) for x in ("nearest", "slack"))
        nearest, some = nearest.min(0), np.isfinite(nearest.min(0))
        weighed = weights > 0
        scale = np.log(np.where(weighed, weights, 1))
        ours = (np.where(weighed, x - scale, e) for x, e in ((low, even_low), (high, even_high)))
        within("log p_kNN", where, *ours, rows.knn, tolerance, sure & some)
        close("nearest", where, np.where(sure & some, nearest, 0), np.where(sure & some, rows.nearest, 0), slack.max())
        check(np.isnan(rows.nearest[sure & ~some]).all(), where, "has a nearest distance without a neighbour")
    what, near = "lambda of a token", 1e-8
    if any(p.falls is not None for p in parts):  # by distances of f32
        what, near = "lambda of a token that falls back", 1e-5
    close(what, where, np.where(sure, weights, 0), np.where(sure, rows.lambdas, 0), near)
    if cached:
        size, weight, t, metric = cached
        p = cache(rows.states, rows.tokens, rows.spans, size, t, metric)
        some, near = ~np.isnan(p), blur(doubt(rows.states, rows.states, metric) / t)
        within("log p_cache", where, p, p, rows.cache, near, some)
        check(np.isnan(rows.cache[~some]).all(), where, "has a cache before first tokens")
        p, weight_of_cache = np.where(some, p, -INF), np.where(some, weight, 0)
        low, high = (np.logaddexp(x, np.log(weight_of_cache) + p) for x in (low, high))
        tolerance = np.maximum(tolerance, near)
    else:
        check(np.isnan(rows.cache).all(), where, "has a cache")
    left = 1 - weights - weight_of_cache
    lm = np.log(np.where(left > 1e-12, left, 0)) + rows.lm
    low, high = np.logaddexp(lm, low), np.logaddexp(lm, high)
    within("log p", where, low, high, rows.p, tolerance, sure)
    totals(where, r, rows)
    if sure.all() and (tolerance <= TOLERANCE).all():  # the perplexity, from our own numbers alone
        ppl = INF if r["ppl"] is None else r["ppl"]
        relative("perplexity (relative)", where, np.clip(ppl, np.exp(-high.mean()), np.exp(-low.mean())), ppl, 1e-4)


def blur(slack):
    """What log p may be off by where distances over the temperature may be off by so much."""
    return np.where(slack > TOLERANCE / 4, TOLERANCE + 4 * slack, TOLERANCE)


def within(what, where, low, high, theirs, tolerance, which):
    """low <= theirs <= high, within the tolerance, for those that count."""
    below, above = np.where(low == theirs, 0, low - theirs), np.where(high == theirs, 0, theirs - high)
    off = np.maximum(np.maximum(below, above), 0)
    off = np.where(which, np.where(np.isnan(off), INF, off), 0)
    note(what, where, float(off[tolerance <= TOLERANCE].max(initial=0)))
    i = int((off / tolerance).argmax())
    check(off[i] <= tolerance[i], where, what, "of token", i, "oracle", low[i], "to", high[i], "knnlm", theirs[i])
    vague = (which & (low != high)).mean()
    note("part of the tokens with several k-th neighbours", where, vague)


def totals(where, r, rows):
    """The sums in the object are those of the table."""
    size, words = sum(map(len, rows.contents)), len(b"\n".join(rows.contents).split())
    counts = rows.n, len(rows.spans), words, size
    check((r["tokens"], r["documents"], r["words"], r["bytes"]) == counts, where, "does not count", counts)
    nll, lm = -rows.p.sum(), -rows.lm.sum()
    exp = lambda x: math.exp(x) if x < 700 else INF
    expected = {"nll": nll, "nll_lm": lm, "ppl": exp(nll / rows.n), "ppl_lm": exp(lm / rows.n), "ppl_word": exp(nll / words)}
    for name, x in expected.items():
        relative("totals (relative)", where + " " + name, x, r[name], 1e-7)
    relative("totals (relative)", where + " bits", nll / math.log(2) / size, r["bits_per_byte"], 1e-7)


# ---------------------------------------------------------------- what tune should find


class Kept:
    """The nearest neighbours of every token, of which one store's p_kNN follows for any k and temperature."""

    def __init__(self, part, rows, k):
        d = part.search(rows)
        # Equal keys are equally far, whatever f64 makes of them; of those the first counts.
        order = np.argsort(np.round(d, 9), 1, kind="stable")[:, : k + 1]
        near = np.take_along_axis(d, order, 1)
        self.hits = (part.e.values[order] == rows.tokens[:, None]) & np.isfinite(near)
        self.lm, self.some = np.exp(rows.lm), np.isfinite(near[:, 0])
        self.away = np.where(self.some[:, None], near - np.where(self.some, near[:, 0], 0)[:, None], INF)
        # where one or the other may be the k-th, for each k
        self.vague = (np.diff(near, axis=1) <= part.slack[:, None]) & (self.hits[:, 1:] != self.hits[:, :-1])

    def p(self, k, t):
        w = np.exp(-self.away[:, :k] / t)
        w[~self.some] = 1
        return np.where(self.some, (w * self.hits[:, :k]).sum(1) / w.sum(1), self.lm)

    def doubt(self, k):
        """What the mean of log p may be off by, roughly: neighbours that could be others."""
        return 3 * self.vague[:, k - 1].mean() if k <= self.vague.shape[1] else 0


def best_weight(a, b):
    """The w that maximises the mean of log((1 - w) a + w b): its derivative falls."""
    low, high = 0.0, 1.0
    for _ in range(60):
        w = (low + high) / 2
        if ((b - a) / ((1 - w) * a + w * b)).sum() > 0:
            low = w
        else:
            high = w
    return w


def gap(parts, weights):
    """How far the mean log of the mixture may be below its highest over all weights, by concavity."""
    mixture = sum(w * p for w, p in zip(weights, parts))
    return max((p / mixture).mean() for p in parts) - 1


def perplexity(parts, weights):
    return float(np.exp(-np.log(sum(w * p for w, p in zip(weights, parts))).mean()))
