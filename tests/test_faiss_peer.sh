#!/bin/sh
# Indexes beside FAISS itself:  sh tests/test_faiss_peer.sh PATH_TO_knnlm SOURCE_DIR
# FAISS reads what `knnlm export --faiss` writes and finds the same neighbours; `knnlm import --faiss` reads what
# FAISS writes and finds the same neighbours. Every check prints a line when it fails; the exit code is 1 when one
# did, 77 when there is no FAISS.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
# One thread: those of OpenMP spin while they wait for each other, for long where the machine is busy.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
search=$(dirname "$knnlm")/bench_search
needs_python "the peer (scripts/install-deps test installs it)" numpy faiss
[ -x "$search" ] || skip "no $search, which searches"

cat >kit.py <<'PYTHON'
import json, os, sys
import faiss
import numpy as np

def mixture(seed, n, d, centres=40):
    r = np.random.default_rng(seed)
    c = np.random.default_rng(1000 + d).standard_normal((centres, d)) * 2 + 1
    return (c[r.integers(0, centres, n)] + 0.4 * r.standard_normal((n, d))).astype("float32")

def train(index, d):
    index.cp.niter = index.pq.cp.niter = 3
    index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
    index.train(mixture(3, 1500, d))

def compare(index_path, ids_path, queries, k, probes):
    """Our neighbours are those of FAISS, but for those equally far to within rounding."""
    index = faiss.read_index(index_path)
    index.nprobe = probes
    queries = np.load(queries)
    theirs, their_ids = index.search(queries, k)
    ours = np.load(ids_path).astype("int64")
    assert ours.shape == their_ids.shape, (ours.shape, their_ids.shape)
    assert ((ours == 2**32 - 1) == (their_ids < 0)).all(), "another number of neighbours"
    index.make_direct_map()
    decoded = np.array([index.reconstruct(int(i)) for i in range(index.ntotal)]).astype("float64").reshape(-1, index.d)
    inner = index.metric_type == faiss.METRIC_INNER_PRODUCT
    for q, query in enumerate(queries.astype("float64")):
        n = (their_ids[q] >= 0).sum()
        rows = decoded[ours[q, :n]]
        away = -rows @ query if inner else ((rows - query) ** 2).sum(1)
        expected = -theirs[q, :n] if inner else theirs[q, :n]
        close = 2e-5 * (np.abs(expected).max(initial=0) + (query**2).sum())
        assert np.abs(away - expected).max(initial=0) <= close, (q, np.abs(away - expected).max(), close)
        assert len(set(ours[q, :n])) == n, "an entry twice"
        surely = set(their_ids[q, :n][expected < expected.max(initial=-np.inf) - 2 * close])
        assert surely <= set(ours[q, :n]), (q, surely - set(ours[q, :n]))
PYTHON

# numpy WHAT SCRIPT: Python, with the kit, that must not fail.
numpy() { ensure "$1" "$python" -c "from kit import *
$2"; }

# same_neighbors INDEX STORE QUERIES K PROBES
same_neighbors() {
    ensure "$2 can be searched" "$search" batch "$2" "$3" "$4" "$5" 1 ids.npy
    numpy "$2 finds what FAISS finds in $1 (k $4, $5 probes)" "compare('$1', 'ids.npy', '$3', $4, $5)"
}

# ---- usage

complains 2 'one at a time' export a.store -o arrays --faiss a.index
complains 2 '\-\-faiss FILE' export a.store
complains 2 '\-\-keys' export a.store --faiss a.index --keys f32
complains 2 'values' import --faiss a.index keys values -o a.store
complains 2 'tells' import --faiss a.index -o a.store --distance ip
complains 2 '\-o STORE' import --faiss a.index
complains 1 'nowhere: No such file' import --faiss nowhere -o a.store

# ---- we read FAISS's

numpy "FAISS writes indexes" "
os.makedirs('theirs')
for d in (16, 33):
    np.save('queries%d.npy' % d, mixture(2, 60, d))
def put(name, d, parts, bits, inner, residuals, lists=64, crowded=False, n=4000, probes=8):
    metric = faiss.METRIC_INNER_PRODUCT if inner else faiss.METRIC_L2
    index = faiss.index_factory(d, 'IVF%d,PQ%dx%dnp' % (lists, parts, bits), metric)
    index.by_residual = residuals
    train(index, d)
    index.add(mixture(4, n, d, 3 if crowded else 40))
    index.nprobe = probes
    faiss.write_index(index, 'theirs/%s-%d-%s-%d-%d.index' % (name, d, 'ip' if inner else 'l2', bits, residuals))
for inner in (False, True):
    for residuals in (False, True):
        put('full', 16, 8, 8, inner, residuals)
        put('full', 33, 11, 4, inner, residuals)
        put('sparse', 16, 8, 4, inner, residuals, crowded=True)
        put('empty', 16, 4, 4, inner, residuals, n=0)
        put('odd', 33, 3, 8, inner, residuals, lists=7, n=700, probes=6)
        put('one', 16, 1, 8, inner, residuals, lists=1, n=50, probes=1)
assert b'sprs' in open('theirs/sparse-16-l2-4-1.index', 'rb').read()
np.save('values.npy', np.arange(4000, dtype='int32') % 100)
faiss.write_index(faiss.index_factory(16, 'Flat'), 'flat.index')
faiss.write_index(faiss.index_factory(16, 'OPQ4,IVF8,PQ4x4'), 'opq.index')
faiss.write_index(faiss.index_factory(16, 'IVF8,PQ4x4'), 'untrained.index')
faiss.write_index(faiss.index_factory(16, 'IVF8,PQ4x6'), 'six.index')
ids = faiss.index_factory(16, 'IVF8,PQ4x4np')
train(ids, 16)
ids.add_with_ids(mixture(4, 100, 16), np.arange(100) * 3)
faiss.write_index(ids, 'gaps.index')"
for index in theirs/*.index; do
    store=${index%.index}.store
    d=$(echo "$index" | cut -d- -f2)
    run 0 import --faiss "$index" -o "$store"
    run 0 verify "$store"
    same_neighbors "$index" "$store" "queries$d.npy" 25 3
    run 0 export "$store" --faiss again.index
    ensure "$index goes out as it came in" cmp "$index" again.index
done
index=theirs/full-16-l2-8-1.index
same_neighbors $index theirs/full-16-l2-8-1.store queries16.npy 4500 64
run 0 import --faiss $index values.npy -o values.store --json
numpy "import --json tells the index" "
r = json.load(open('out'))
assert r['entries'] == 4000 and r['lists'] == 64 and r['probes'] == 8 and r['code_parts'] == 8 and r['code_bits'] == 8
assert r['residuals'] and r['value_type'] == 'int32' and r['dimension'] == 16 and r['settings']['distance'] == 'l2'"
run 0 export values.store -o values.out
ensure "values come along" cmp values.npy values.out/values.npy
complains 1 "type 'IxF2'.*IVFPQ" import --faiss flat.index -o a.store
complains 1 "type 'IxPT'.*IVFPQ" import --faiss opq.index -o a.store
complains 1 'not trained' import --faiss untrained.index -o a.store
complains 1 'six.index: ' import --faiss six.index -o a.store
complains 1 'gaps.index: .*id [0-9]* names no entry.*0 to 99' import --faiss gaps.index -o a.store
complains 1 'values.npy has 4000 of int32: not the values of 50' \
    import --faiss theirs/one-16-l2-8-1.index values.npy -o a.store
complains 1 'values.npy: value 99 is 99' import --faiss $index values.npy -o a.store --vocab 99
complains 1 'dimension 16, not 17' import --faiss $index -o a.store --dim 17
complains 1 'is a store already' import --faiss $index -o values.store
ensure "failures make nothing" test ! -e a.store

# ---- FAISS reads ours

numpy "NumPy writes keys" "
os.makedirs('keys')
np.save('keys/keys.npy', mixture(5, 6000, 16)), np.save('keys/values.npy', np.arange(6000) % 90)"
for distance in l2 ip; do
    for codes in pq8 pq4x4; do
        name=ours-$distance-$codes
        run 0 import keys -o $name.store --distance $distance
        complains 1 'knnlm index .* --codes' export $name.store --faiss $name.index
        run 0 index $name.store --lists 50 --codes $codes
        run 0 export $name.store --faiss $name.index --json
        numpy "export --json tells the index" "
r = json.load(open('out'))
assert r['entries'] == 6000 and r['left_out'] == 0 and r['lists'] == 50 and r['bytes'] == os.path.getsize('$name.index')"
        run 0 import --faiss $name.index keys/values.npy -o $name-codes.store
        same_neighbors $name.index $name-codes.store queries16.npy 40 5
        same_neighbors $name.index $name-codes.store queries16.npy 40 50
        numpy "FAISS writes the same bytes again" "faiss.write_index(faiss.read_index('$name.index'), 'again.index')"
        ensure "and they are ours" cmp $name.index again.index
    done
done
run 0 import keys -o cosine.store --distance cosine
run 0 index cosine.store --lists 50 --codes pq8
complains 1 'cosine' export cosine.store --faiss a.index
ensure "failures make nothing" test ! -e a.index

conclude
