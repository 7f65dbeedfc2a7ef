#!/usr/bin/env python3
"""Learns the gate that all stores begin with from the rows of several (dump.c):  prior.py OUT STORE...
Each STORE is a folder of *.rows; own.rows is the store's own text, by whose median the nearest distance is measured.
Maximises the mean log-likelihood of all rows with L2 regularisation (as of 50 rows), by Adam; writes C to OUT."""

import glob
import os
import sys

import numpy as np

USUAL = np.array([0, 4, -1, 0.8, 0, 0.2, 0])
SCALE = np.array([0.6, 2, 1, 0.4, 1.2, 0.4, 2])
FEATURES, TERMS, PULL, STEPS = 7, 36, 50, 500


def running(document, x, decay):
    out, s, before = np.zeros(len(x)), 0.0, -1
    for i in range(len(x)):
        if document[i] != before:
            s, before = 0.0, document[i]
        out[i], s = s, decay * s + (1 - decay) * x[i]
    return out


def read(path, centre=None):
    document, lm, entropy, near, far, begins, agree, sharp, flat = np.fromfile(path, "<f4").reshape(-1, 9).T.astype(float)
    if centre is None:
        return np.log(np.median(near))
    log = lambda x: np.log(np.maximum(x, 1e-6))
    p = np.exp(np.stack([lm, np.maximum(sharp, -60), np.maximum(flat, -60)], 1))
    ratio = (p[:, 1:].mean(1) + 1e-9) / p[:, 0]
    worth, mixed = np.clip(np.log(ratio), -3, 3), np.log(0.7 + 0.3 * np.minimum(ratio, 1e9))
    nearest, spread = (np.where(begins > 0, y, x) for x, y in ((log(near) - centre, 0), (log(far) - log(near), 1)))
    past = [running(document, worth, 0.9), running(document, mixed, 0.98), running(document, worth, 0)]
    features = np.stack([nearest, entropy, np.log(np.maximum(agree, 1e-4)), spread, *past], 1)
    features = np.clip((features - USUAL) / SCALE, -3, 3)
    pairs = [features[:, i] * features[:, j] for i in range(FEATURES) for j in range(i, FEATURES)]
    return np.column_stack([np.ones(len(lm)), features, *pairs]), p


def weigh(terms, weights):
    z = np.exp(np.clip(terms @ weights, -20, 20))
    return np.column_stack([np.ones(len(z)), z]) / (1 + z.sum(1, keepdims=True))


def fit(terms, p):
    weights, m, v = (np.zeros((TERMS, 2)) for _ in range(3))
    for step in range(1, STEPS + 1):
        g = weigh(terms, weights)
        joint = g * p
        slope = terms.T @ (joint / joint.sum(1, keepdims=True) - g)[:, 1:] / len(p) - PULL / len(p) * weights
        m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
        rate = 0.1 * min(1, (STEPS - step) / (0.4 * STEPS))
        weights += rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return weights


rows = {}
for folder in sys.argv[2:]:
    centre = read(os.path.join(folder, "own.rows"))
    for path in sorted(glob.glob(folder + "/*.rows")):
        rows[path] = read(path, centre)
weights = fit(*(np.concatenate([r[i] for r in rows.values()]) for i in (0, 1)))
for path, (terms, p) in rows.items():
    mixed = (weigh(terms, weights) * p).sum(1)
    print("%-40s %7d tokens, alone %8.2f, by the gate %8.2f" % (path, len(p), *(np.exp(-np.log(x).mean()) for x in (p[:, 0], mixed))))
with open(sys.argv[1], "w") as f:
    f.write("// What gates are like, learnt from several stores and texts together. Written by experiments/gate/prior.py.\n")
    f.write('#include "mix/gate.h"\n\n// clang-format off\nconst double kn_gate_prior[KN_GATE_WEIGHTS] = {\n')
    flat = weights.T.reshape(-1)
    for i in range(0, len(flat), 8):
        f.write("    " + ", ".join("%.4f" % x for x in flat[i : i + 8]) + ",\n")
    f.write("};\n")
