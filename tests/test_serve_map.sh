#!/bin/sh
# The map of a served store: its points beside NumPy's principal components of the same keys, and contexts where their
# own entries are.
#   sh tests/test_serve_map.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"
needs_python "the peer" numpy

# judge WHAT SCRIPT: Python that must not fail; `r` is the answer, `keys` are those of told.store.
judge() {
    ensure "$1" "$python" -c "
import json, numpy as np
r = json.load(open('body', encoding='utf-8'))
keys = np.load('arrays/keys.npy').astype(np.float64)
$2"
}

echo 'Letters are not words. Dear reader, the weather is fine.' >other.txt
run 0 build -m "$model" --precision f32 --keys f32 -o told.store told.txt other.txt
run 0 export told.store -o arrays
run 0 build -m "$model" --precision f32 --keys f32 --project pca:16 -o small.store told.txt other.txt
start -m "$model" --precision f32 -s told.store -s small.store

# ---- points

expect 200 GET /v1/stores/told/map
judge "a map of every entry" '
assert r["object"] == "map" and r["store"] == "told"
assert [p["entry"] for p in r["points"]] == list(range(len(keys)))
assert sorted(r["documents"]) == ["other.txt", "told.txt"]'
judge "principal components, up to sign" '
centred = keys - keys.mean(0)
_, s, vt = np.linalg.svd(centred, full_matrices=False)
places = np.array([[p["x"], p["y"]] for p in r["points"]])
expected = centred @ vt[:2].T
expected *= np.sign((expected * places).sum(0))
assert np.abs(places - expected).max() < 1e-3 * np.abs(expected).max(), np.abs(places - expected).max()
variances = s ** 2 / (len(keys) - 1)
assert np.allclose(r["variances"], variances[:2], rtol=1e-3), (r["variances"], variances[:2])
assert np.isclose(r["variance"], variances.sum(), rtol=1e-3)'
keep map
expect 200 GET /v1/stores/told/entries/7
holds 'r["document"] == kept("map")["documents"][kept("map")["points"][7]["document"]]'
holds 'r["text"] == kept("map")["points"][7]["text"]'

# ---- the place of a context is that of the entry which was made of it

# places STORE FIRST N: after N tokens of the document that begins with entry FIRST of the map that was kept
places() {
    $python -I -c '
import json, sys
points = json.load(open("map.json", encoding="utf-8"))["points"]
first, n = int(sys.argv[1]), int(sys.argv[2])
json.dump({"tokens": [p["token"] for p in points[first:first + n]]}, open("sent", "w"))' "$2" "$3"
    expect 200 POST "/v1/stores/$1/map" @sent
    holds "r['object'] == 'map.place' and r['generation'] == kept('map')['generation']"
    holds "all(abs(r[c] - kept('map')['points'][$2 + $3][c]) <= 1e-3 * max(abs(p[c]) for p in kept('map')['points']) for c in 'xy')"
}
begins=$("$python" -I -c 'import json; print(next(i for i, p in enumerate(json.load(open("map.json"))["points"]) if p["document"] == 1))')
places told 0 0
places told 0 9
places told "$begins" 3
expect 200 GET /v1/stores/small/map
keep map
places small 0 9

# ---- what changes, and what is refused

expect 201 POST /v1/stores/told/documents '{"name": "new.txt", "text": "Zebras eat documents every day."}'
expect 200 DELETE /v1/stores/told/documents/other.txt
expect 200 GET /v1/stores/told/map
holds '"new.txt" in r["documents"] and "other.txt" not in r["documents"]'
expect 404 GET /v1/stores/none/map
expect 404 POST /v1/stores/none/map '{"context": "x"}'
expect 400 POST /v1/stores/told/map '{"tokens": [-1]}'
expect 400 POST /v1/stores/told/map '[]'
expect 405 DELETE /v1/stores/told/map
expect 200 POST /v1/stores/told/map '{"context": "The nearest"}'
for document in new.txt told.txt; do expect 200 DELETE /v1/stores/told/documents/$document; done
expect 200 GET /v1/stores/told/map
holds 'r["points"] == [] and r["documents"] == []'
expect 200 POST /v1/stores/told/map '{"context": "The nearest"}'
conclude
