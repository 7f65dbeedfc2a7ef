"""The peer of `bench/run search`: the same work in Debian's FAISS.

    peer_faiss.py kmeans POINTS.npy CLUSTERS [ITERATIONS] [CENTROIDS.npy]
        faiss.Clustering over IndexFlatL2, as IndexIVF.train runs it (10 iterations); writes the centroids when asked.
        Prints "seconds S cpu C objective O": O as bench_kmeans measures it: of the last centroids, not of those before.
    peer_faiss.py pq POINTS.npy PARTS BITS [train|encode [REPEATS]]
        faiss.ProductQuantizer on all points: train prints "vectors/s vectors/s-of-CPU error" (mean squared distance
        to what the codes stand for), encode (of random centroids, as bench_pq) "vectors/s vectors/s-of-CPU".
    peer_faiss.py build KEYS.npy LISTS TRAIN DIRECTORY
        IVF-Flat and IVF-PQ64 over one coarse quantizer (learnt from TRAIN keys), written to the directory.
    peer_faiss.py batch KIND DIRECTORY KEYS.npy QUERIES.npy K PROBES REPEATS IDS.npy
        KIND: flat, ivfflat, ivfpq, or refine (IVF-PQ, twice as many as wanted, and their exact distances): a line a
        repeat, queries/s; writes what was found.
    peer_faiss.py single ivfpq DIRECTORY KEYS.npy QUERIES.npy K PROBES
        Median milliseconds of a query that comes alone.
    peer_faiss.py rotation KEYS.npy [PARTS...]
        Does a learnt rotation (OPQ) make codes better? Recall by codes of 16, 32 and 64 bytes, with it and without.
    peer_faiss.py recall FOUND.npy TRUE.npy
        Parts of the true nearest 1, 10, 100 and K that were found.

Environment: OPENBLAS_CORETYPE=SkylakeX where the CPU has AVX-512 (OpenBLAS does not know newer ones), OMP_NUM_THREADS.
"""

import sys
import time

import faiss
import numpy as np


def kmeans(path, clusters, iterations=10, out=None):
    x = np.load(path)
    clusters, iterations = int(clusters), int(iterations)
    clustering = faiss.Clustering(x.shape[1], clusters)
    clustering.niter = iterations
    clustering.max_points_per_centroid = len(x)
    index = faiss.IndexFlatL2(x.shape[1])
    start, cpu = time.perf_counter(), time.process_time()
    clustering.train(x, index)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    distances, _ = index.search(x, 1)
    objective = distances.sum(dtype=np.float64)
    print(f"seconds {seconds:.3f} cpu {cpu:.3f} objective {objective:.6g}")
    if out:
        np.save(out, faiss.vector_to_array(clustering.centroids).reshape(clusters, -1))


def timed(work, count):
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return f"{count / (time.perf_counter() - start):.1f} {count / (time.process_time() - cpu):.1f}"


def pq(path, parts, bits, what="train", repeats=1):
    x = np.load(path)
    quantizer = faiss.ProductQuantizer(x.shape[1], int(parts), int(bits))
    if what == "encode":
        count = x.shape[1] << int(bits)
        faiss.copy_array_to_vector(np.random.default_rng(2).standard_normal(count).astype("f4"), quantizer.centroids)
    for _ in range(int(repeats)):
        if what == "encode":
            print(timed(lambda: quantizer.compute_codes(x), len(x)), flush=True)
            continue
        rates = timed(lambda: quantizer.train(x), min(len(x), quantizer.ksub * quantizer.cp.max_points_per_centroid))
        error = np.square(quantizer.decode(quantizer.compute_codes(x)) - x).sum(axis=1, dtype=np.float64).mean()
        print(f"{rates} {error:.6g}", flush=True)


def build(path, lists, train, out):
    x = np.load(path)
    sample = x[np.random.default_rng(1).permutation(len(x))[: int(train)]]
    quantizer = faiss.IndexFlatL2(x.shape[1])
    flat = faiss.IndexIVFFlat(quantizer, x.shape[1], int(lists))
    flat.train(sample)
    flat.add(x)
    faiss.write_index(flat, f"{out}/ivfflat")
    codes = faiss.IndexIVFPQ(quantizer, x.shape[1], int(lists), 64, 8)
    codes.cp.niter = 1  # the quantizer is trained already
    codes.train(sample[:4096])  # it takes a minute; better codes are searched no faster
    codes.add(x)
    faiss.write_index(codes, f"{out}/ivfpq")


def opened(kind, directory, keys, probes):
    if kind == "flat":
        x = np.load(keys)
        index = faiss.IndexFlatL2(x.shape[1])
        index.add(x)
        return index
    index = faiss.read_index(f"{directory}/{'ivfflat' if kind == 'ivfflat' else 'ivfpq'}")
    index.nprobe = int(probes)
    if kind != "refine":
        return index
    x = np.load(keys)
    refined = faiss.IndexRefineFlat(index, faiss.swig_ptr(x))
    refined.k_factor = 2
    return refined


def batch(kind, directory, keys, queries, k, probes, repeats, out):
    index, q = opened(kind, directory, keys, probes), np.load(queries)
    for _ in range(int(repeats)):
        start = time.perf_counter()
        _, ids = index.search(q, int(k))
        print(f"{len(q) / (time.perf_counter() - start):.1f}", flush=True)
    np.save(out, np.where(ids < 0, 2**32 - 1, ids).astype("u4"))


def single(kind, directory, keys, queries, k, probes):
    index, q = opened(kind, directory, keys, probes), np.load(queries)[:300]
    times = []
    for i in range(len(q)):
        start = time.perf_counter()
        index.search(q[i : i + 1], int(k))
        times.append(time.perf_counter() - start)
    print(f"{1e3 * float(np.median(times)):.4f}")


def overlap(a, b, depth):
    return np.mean([len(np.intersect1d(a[i, :depth], b[i, :depth])) / depth for i in range(len(b))])


def rotation(path, *parts):
    x = np.load(path, mmap_mode="r")
    keys, q = x[:200000].copy(), x[-500:].copy()
    exact = faiss.IndexFlatL2(x.shape[1])
    exact.add(keys)
    _, true = exact.search(q, 100)
    for m in map(int, parts or (16, 32, 64)):
        for name in (f"IVF256,PQ{m}np", f"OPQ{m},IVF256,PQ{m}np"):
            index = faiss.index_factory(x.shape[1], name)
            if name.startswith("OPQ"):
                opq = faiss.downcast_VectorTransform(index.chain.at(0))
                opq.niter, opq.max_train_points = 8, 8000
            index.train(keys[::10].copy())
            index.add(keys)
            faiss.extract_index_ivf(index).nprobe = 256
            _, ids = index.search(q, 100)
            print(f"{name}: recall@10 {overlap(ids, true, 10):.3f}, @100 {overlap(ids, true, 100):.3f}", flush=True)


def recall(found, true):
    a, b = np.load(found), np.load(true)
    n = min(len(a), len(b))
    k = b.shape[1]
    print(" ".join(f"{overlap(a[:n], b[:n], depth):.4f}" for depth in (1, 10, 100, k)))


VERBS = {"kmeans": kmeans, "pq": pq, "build": build, "batch": batch, "single": single, "rotation": rotation, "recall": recall}

if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in VERBS:
        sys.exit(__doc__)
    VERBS[sys.argv[1]](*sys.argv[2:])
