#!/bin/sh
# A served store of shards: what is asked of it is answered as by the same store without shards; its documents are not changed here.
#   sh tests/test_serve_shards.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

mkdir texts && cp told.txt asked.txt texts
echo 'Letters are not words. Dear reader, the weather is fine.' >texts/other.txt
for project in '' '--project pca:16'; do
    name=plain
    [ -z "$project" ] || name=projected
    # shellcheck disable=SC2086 # words
    run 0 build -m "$model" --precision f32 --keys f32 --no-tune $project -o "$name-one.store" texts
    # shellcheck disable=SC2086 # words
    run 0 build -m "$model" --precision f32 --keys f32 --no-tune $project --shards 2 -o "$name-many.store" texts
done
start -m "$model" --precision f32 -s plain-one.store -s plain-many.store -s projected-one.store -s projected-many.store

# same METHOD PATH [BODY]: asked of both, whose names are left out of the answers. Figures of the same keys, in the same order.
same() {
    how=$1 where=$2
    shift 2
    for name in plain projected; do
        for kind in one many; do
            expect 200 "$how" "/v1/stores/$name-$kind$where" "$@"
            sed -e "s/$name-$kind/$name/g" -e 's/"\(generation\|bytes\|writable\)": *[a-z0-9]*//g' body >"$kind.answer"
        done
        ensure "$how $where of $name shards differs: $(head -c 200 many.answer)" cmp -s one.answer many.answer
    done
}
same GET ''
same GET /documents
same GET '/documents?like=o&limit=1&offset=1'
same GET /entries/20
same GET /map
same POST /map '{"context": "The nearest"}'
for name in plain projected; do
    for kind in one many; do
        knn="{\"stores\": [\"$name-$kind\"], \"lambda\": 0.5, \"temperature\": 10, \"k\": 16}"
        expect 200 POST /v1/completions "{\"prompt\": \"The nearest\", \"max_tokens\": 8, \"temperature\": 0, \"knn\": $knn}"
        $python -I -c 'import json; print(json.load(open("body"))["choices"][0]["text"])' >"$kind.answer"
    done
    ensure "a completion by $name shards differs" cmp -s one.answer many.answer
done

# ---- documents are changed by the commands

expect 200 GET /v1/stores/plain-one
holds 'r["writable"] is True'
expect 200 GET /v1/stores/plain-many
holds 'r["writable"] is False'
expect 403 POST /v1/stores/plain-many/documents '{"name": "new.txt", "text": "Zebras eat documents."}'
holds '"made of shards" in r["error"]["message"] and "knnlm add" in r["error"]["message"]'
expect 403 POST /v1/stores/plain-many/documents '{"name": "new.txt", "text": "Zebras eat documents."}' -H 'Content-Type: application/x-ndjson'
expect 403 DELETE /v1/stores/plain-many/documents/told.txt
holds '"made of shards" in r["error"]["message"]'
run 0 remove plain-many.store told.txt
patiently 30 sh -c "curl -s '$url/v1/stores/plain-many' | grep -q '\"documents\": *2'"
expect 200 GET /v1/stores/plain-many/documents
holds '[d["name"] for d in r["data"]] == ["asked.txt", "other.txt"]'
expect 200 GET /v1/stores/plain-many/map
holds '"told.txt" not in r["documents"]'
conclude
