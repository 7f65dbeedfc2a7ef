"""The peer of `bench/run search`: the same work in Debian's FAISS.

    peer_faiss.py kmeans POINTS.npy CLUSTERS [ITERATIONS] [CENTROIDS.npy]
        faiss.Clustering over IndexFlatL2, as IndexIVF.train runs it (10 iterations); writes the centroids when asked.
        Prints "seconds S cpu C objective O": O as bench_kmeans measures it: of the last centroids, not of those before.
    peer_faiss.py pq POINTS.npy PARTS BITS [train|encode [REPEATS]]
        faiss.ProductQuantizer on all points: train prints "vectors/s vectors/s-of-CPU error" (mean squared distance
        to what the codes stand for), encode (of random centroids, as bench_pq) "vectors/s vectors/s-of-CPU".

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


VERBS = {"kmeans": kmeans, "pq": pq}

if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in VERBS:
        sys.exit(__doc__)
    VERBS[sys.argv[1]](*sys.argv[2:])
