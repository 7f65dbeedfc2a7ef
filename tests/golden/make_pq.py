#!/usr/bin/python3
"""Makes pq.golden.gguf: product quantizers as FAISS makes and uses them.

For learning, the error that FAISS's quantizer leaves of vectors that test_pq.c computes by the same formula (keys, f64):

    error.D.PARTS.BITS      mean squared distance between the vectors and what their codes stand for

For coding, with centroids that FAISS learnt: bytes (8 bits a part) and halves (4 bits, an odd number of parts):

    NAME.centroids, NAME.vectors, NAME.codes (a byte a number), NAME.decoded      tensors

Debian's python3-faiss serves:  /usr/bin/python3 tests/golden/make_pq.py [folder]
The file is committed; make it anew only when the definition changes.
"""

import os
import sys

import faiss
import numpy as np

from make_pca import write_gguf

VECTORS, CENTRES = 4000, 60


def mix(z):
    """kn_mix64 of src/base/random.h."""
    z = np.asarray(z, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def unit(z):
    return (mix(z) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def make_vectors(n, d):
    """Clouds around centres: sums of three uniform numbers, each decided by its place alone."""
    row, column = np.meshgrid(np.arange(1, n + 1, dtype=np.uint64), np.arange(d, dtype=np.uint64), indexing="ij")
    centre = (mix(row) % np.uint64(CENTRES)) << np.uint64(20)
    place = (row << np.uint64(20)) + column * np.uint64(2) + np.uint64(1 << 60)
    return (unit(centre + column) + 0.25 * unit(place) + 0.25 * unit(place + np.uint64(1))).astype(np.float32)


def learn(vectors, parts, bits):
    pq = faiss.ProductQuantizer(vectors.shape[1], parts, bits)
    pq.train(vectors)
    return pq


def error(pq, vectors):
    decoded = pq.decode(pq.compute_codes(vectors)).astype(np.float64)
    return ((decoded - vectors) ** 2).sum(axis=1).mean()


def coding(d, parts, bits):
    vectors = make_vectors(600, d)
    pq = learn(vectors, parts, bits)
    some = vectors[:100] + np.float32(0.125) * make_vectors(1000, d)[-100:]
    codes = pq.compute_codes(some)
    centroids = faiss.vector_to_array(pq.centroids).reshape(parts << bits, d // parts)
    return dict(centroids=centroids, vectors=some, codes=codes, decoded=pq.decode(codes))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    faiss.omp_set_num_threads(1)
    keys, tensors = {}, {}
    for d, parts, bits in (32, 8, 8), (32, 8, 4), (32, 4, 8), (32, 32, 4):
        vectors = make_vectors(VECTORS, d)
        keys[f"error.{d}.{parts}.{bits}"] = float(error(learn(vectors, parts, bits), vectors))
    for name, d, parts, bits in ("bytes", 12, 3, 8), ("halves", 10, 5, 4):
        tensors.update({f"{name}.{key}": array for key, array in coding(d, parts, bits).items()})
    write_gguf(os.path.join(folder, "pq.golden.gguf"), keys, tensors)


if __name__ == "__main__":
    main()
