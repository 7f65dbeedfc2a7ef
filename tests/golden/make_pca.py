#!/usr/bin/python3
"""Makes pca.golden.gguf: principal components and eigenvalues as numpy finds them.

The components come from a singular value decomposition of the centred samples in float64, not from the eigenvectors of
a covariance as in src/math/pca.c: another way to the same numbers. For tall (more samples than dimensions) and wide
(fewer):

    NAME.samples, NAME.mean, NAME.components, NAME.variances, NAME.projected      tensors
    NAME.total                                                                    key: the variance of all dimensions

and of a symmetric matrix eigen.matrix (tensor) the eigen.values (key, f64, largest first).

Debian's python3-numpy serves:  /usr/bin/python3 tests/golden/make_pca.py [folder]
The file is committed; make it anew only when the definition changes.
"""

import os
import struct
import sys

import numpy as np

ARRAY, F64 = 9, 12


def packed_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def packed_key(key, value):
    if np.ndim(value) == 0:
        return packed_string(key) + struct.pack("<id", F64, value)
    return packed_string(key) + struct.pack("<iiQ", ARRAY, F64, len(value)) + np.asarray(value, "<f8").tobytes()


def padding(size):
    return bytes(-size % 32)


def write_gguf(path, keys, tensors):
    table, data = b"", b""
    for name, array in tensors.items():
        array = np.ascontiguousarray(array, dtype="<f4")
        table += packed_string(name) + struct.pack("<I", array.ndim)
        table += b"".join(struct.pack("<q", n) for n in reversed(array.shape))
        table += struct.pack("<iQ", 0, len(data))
        data += array.tobytes()
        data += padding(len(data))
    head = b"GGUF" + struct.pack("<Iqq", 3, len(tensors), len(keys))
    head += b"".join(packed_key(*key) for key in keys.items()) + table
    with open(path, "wb") as file:
        file.write(head + padding(len(head)) + data)


def make_samples(random, count, width):
    """Directions of distinct variances, mixed, far from the origin; rounded to f32, as the library is given them."""
    spread = random.standard_normal((count, width)) * 0.7 ** np.arange(width)
    mixed = spread @ np.linalg.qr(random.standard_normal((width, width)))[0]
    return (mixed + 20 * random.standard_normal(width)).astype(np.float32).astype(np.float64)


def principal_components(samples, out):
    mean = samples.mean(axis=0)
    centred = samples - mean
    _, singular, rows = np.linalg.svd(centred, full_matrices=False)
    components = rows[:out]
    largest = np.abs(components).argmax(axis=1)
    components = components * np.sign(components[np.arange(out), largest])[:, None]
    variances = singular**2 / (len(samples) - 1)
    return dict(samples=samples, mean=mean, components=components, variances=variances[:out],
                projected=centred @ components.T), variances.sum()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    random = np.random.default_rng(7)
    keys, tensors = {}, {}
    for name, count, width, out in ("tall", 90, 13, 6), ("wide", 7, 12, 4):
        arrays, keys[name + ".total"] = principal_components(make_samples(random, count, width), out)
        tensors.update({f"{name}.{key}": array for key, array in arrays.items()})
    square = random.standard_normal((20, 20)).astype(np.float32)
    symmetric = np.tril(square) + np.tril(square, -1).T
    tensors["eigen.matrix"] = symmetric
    keys["eigen.values"] = np.linalg.eigvalsh(symmetric.astype(np.float64))[::-1]
    write_gguf(os.path.join(folder, "pca.golden.gguf"), keys, tensors)


if __name__ == "__main__":
    main()
