"""Our side of `bench/run python`: searches by the Python package, of the arrays that the others search, too.

    search.py batch STORE QUERIES.npy K PROBES REPEATS IDS.npy
        A line a repeat: queries/s; writes what was found. The first search, which meets the files' pages, is not timed.
    search.py single STORE QUERIES.npy K PROBES
        Median milliseconds of a query that comes alone.

Environment: PYTHONPATH=python, KNNLM_LIBRARY=build/libknnlm.so.
"""

import sys
import time

import numpy as np

import knnlm


def batch(path, queries, k, probes, repeats, out):
    store, queries = knnlm.Store(path), np.load(queries)
    found = store.search(queries, int(k), probes=int(probes))
    for _ in range(int(repeats)):
        start = time.perf_counter()
        store.search(queries, int(k), probes=int(probes), out=found)
        print(f"{len(queries) / (time.perf_counter() - start):.1f}")
    np.save(out, found.ids)


def single(path, queries, k, probes):
    store, queries, times = knnlm.Store(path), np.load(queries), []
    for query in queries[:, np.newaxis]:
        start = time.perf_counter()
        store.search(query, int(k), probes=int(probes), singly=True)
        times.append(time.perf_counter() - start)
    print(f"{1e3 * np.median(times):.4f}")


if __name__ == "__main__":
    {"batch": batch, "single": single}[sys.argv[1]](*sys.argv[2:])
