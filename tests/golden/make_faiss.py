#!/usr/bin/python3
"""Makes the IVFPQ indexes that tests/test_faiss.c reads, with Debian's FAISS:  /usr/bin/python3 tests/golden/make_faiss.py

faiss-NAME.index is what faiss.write_index wrote; faiss-NAME.ids.npy and .distances.npy are the neighbours that FAISS found
in it for faiss-queries.npy (-1: fewer than asked for). faiss-half-L-M.index has entries in M of its L lists. Still smaller ones are the seeds of fuzz/corpus/faiss.
"""
import os

import faiss
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SEEDS = os.path.join(HERE, "..", "..", "fuzz", "corpus", "faiss")
D, N, QUERIES, K = 12, 300, 16, 20
# name, lists, parts, bits, inner product, residuals, crowded (entries in few lists: sizes are written sparse), direct map
SHAPES = [
    ("l2", 16, 4, 8, False, True, False, 0),
    ("l2-plain", 16, 3, 4, False, False, False, 1),
    ("l2-sparse", 40, 4, 4, False, True, True, 0),
    ("ip", 16, 4, 8, True, True, False, 2),
    ("ip-plain", 16, 6, 4, True, False, False, 0),
    ("ip-sparse", 40, 1, 4, True, True, True, 0),
]


def mixture(random, n, d, centres):
    return (centres[random.integers(0, len(centres), n)] + 0.3 * random.standard_normal((n, d))).astype("float32")


def make(shape, random, d, n):
    _, lists, parts, bits, inner, residuals, crowded, direct = shape
    metric = faiss.METRIC_INNER_PRODUCT if inner else faiss.METRIC_L2
    quantizer = faiss.IndexFlatIP(d) if inner else faiss.IndexFlatL2(d)
    index = faiss.IndexIVFPQ(quantizer, d, lists, parts, bits, metric)
    index.by_residual = residuals
    index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
    centres = random.standard_normal((lists, d)) * 2 + 1
    index.train(mixture(random, 40 * lists, d, centres))
    keys = mixture(random, n, d, centres[:5] if crowded else centres)
    index.add_with_ids(keys, random.permutation(n))  # ids in no order
    index.nprobe = 5
    index.set_direct_map_type(direct if direct != 1 else faiss.DirectMap.NoMap)
    if direct == 1:  # an array wants ids in order
        index.reset()
        index.set_direct_map_type(faiss.DirectMap.Array)
        index.add(keys)
    return index


def make_half(lists, filled, random):
    """Entries in `filled` lists: around half of them FAISS changes the way in which it writes their sizes."""
    index = faiss.IndexIVFPQ(faiss.IndexFlatL2(4), 4, lists, 2, 4)
    index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
    index.train((10 * random.standard_normal((50 * lists, 4))).astype("float32"))
    index.add(faiss.downcast_index(index.quantizer).reconstruct_n(0, lists)[lists - filled :])
    return index


def main():
    random = np.random.default_rng(5)
    queries = (2 * random.standard_normal((QUERIES, D)) + 1).astype("float32")
    np.save(os.path.join(HERE, "faiss-queries.npy"), queries)
    os.makedirs(SEEDS, exist_ok=True)
    for shape in SHAPES:
        index = make(shape, random, D, N)
        path = os.path.join(HERE, "faiss-" + shape[0])
        faiss.write_index(index, path + ".index")
        distances, ids = index.search(queries, K)
        np.save(path + ".ids.npy", ids.astype("int32"))
        np.save(path + ".distances.npy", distances)
        seed = (shape[0], 12 if shape[6] else 3, 2, 4) + shape[4:]
        faiss.write_index(make(seed, random, 4, 9), os.path.join(SEEDS, shape[0] + ".index"))
    for lists, filled in ((8, 4), (8, 5), (7, 3), (7, 4)):
        name = "faiss-half-%d-%d.index" % (lists, filled)
        faiss.write_index(make_half(lists, filled, random), os.path.join(HERE, name))


main()
