#!/bin/sh
# Stores of shards, by one process:  sh tests/test_shards.sh PATH_TO_knnlm SOURCE_DIR
# The same figures, neighbours and words as a store without shards, whatever their number; and what is refused.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/shards_kit.sh"
write_texts texts
{ cat begin && write_text 6 60; } >valid.txt

# ---- the same as one store

drive 0 build -m "$model" -o one.store texts
looked one.store one
for shards in 1 3 5; do
    drive 0 build -m "$model" -o "s$shards.store" --shards $shards texts
    looked "s$shards.store" "s$shards"
    alike one "s$shards"
done

# ---- with lists, and other keys and distances

# both NAME BUILD_OPTION...: a store and one of 3 shards, built and looked at alike
both() {
    name=$1
    shift
    drive 0 build -m "$model" -o "$name-one.store" "$@" texts
    drive 0 build -m "$model" -o "$name-many.store" --shards 3 "$@" texts
    # shellcheck disable=SC2086 # words
    for kind in one many; do looked "$name-$kind.store" "$name-$kind" $how; done
    alike "$name-one" "$name-many"
}
how=''
both listed --lists 12 --probes 3
both int8 --keys int8 --lists 8 --probes 2
how='-k 50'
both cosine --keys f32 --distance cosine --lists 8 --probes 4
both ip --distance ip --segment 100
how=''
both projected --project pca:12 --keys int8 --lists 8 --probes 3
drive 0 build -m "$model" -o coded-one.store --lists 8 --codes pq8 texts
drive 0 build -m "$model" -o coded-many.store --lists 8 --codes pq8 --shards 2 texts
for kind in one many; do
    drive 0 eval -m "$model" -s "coded-$kind.store" --codes --fallback --json --per-token "coded-$kind.rows" valid.txt
done
ensure "figures of codes differ" cmp coded-one.rows coded-many.rows

# ---- only some of the documents

for store in one s5; do
    drive 0 eval -m "$model" -s $store.store --only 'alike-*' --not alike-2.txt --json --per-token $store.only valid.txt
    drive 0 eval -m "$model" -s $store.store --fraction 0.5 --json --per-token $store.half valid.txt
done
check cmp one.only s5.only
check cmp one.half s5.half
complains 1 'leave none of its documents' eval -m "$model" -s s5.store --only nobody valid.txt

# ---- searched by keys of their own

for kind in one many; do
    drive 0 export "projected-$kind.store" -o "projected-$kind.arrays" --keys f32
    drive 0 search "projected-$kind.store" "projected-$kind.arrays/keys.npy" -k 3 -o "projected-$kind.found"
done
check diff -r projected-one.found projected-many.found

# ---- exported: the same arrays; an index is of one shard

for kind in one many; do
    for keys in '' '--keys f32'; do
        rm -rf "int8-$kind.arrays"
        # shellcheck disable=SC2086 # words
        drive 0 export "int8-$kind.store" -o "int8-$kind.arrays" $keys
    done
    drive 0 export "listed-$kind.store" -o "listed-$kind.arrays"
done
check diff -r listed-one.arrays listed-many.arrays
check diff -r int8-one.arrays int8-many.arrays
complains 1 'is made of shards, each with an index of its own: name one, such as .*/coded-many.store/shard-0000.store' export coded-many.store --faiss x.faiss
drive 0 export coded-many.store/shard-0000.store --faiss x.faiss
complains 1 'is made of shards, each with an index of its own' verify --recall coded-many.store

# ---- changes: the same as of one store

mkdir more && write_text 8 700 >more/new.txt && { cat begin && write_text 9 30; } >more/alike-0.txt
for store in one.store s3.store listed-one.store listed-many.store; do
    cp -R "$store" "changed-$store"
    drive 0 add "changed-$store" more
    write_text 10 80 >texts/long.txt
    drive 0 sync "changed-$store" texts
    says '1 added, 12 unchanged, 1 replaced'
    drive 0 remove "changed-$store" 'alike-[45].txt'
    says '^removed *2 documents'
    looked "changed-$store" "changed-${store%.store}"
    drive 0 compact "changed-$store"
    looked "changed-$store" "compact-${store%.store}"
    drive 0 verify "changed-$store"
    write_text 3 400 >texts/long.txt # as it was
done
alike changed-one changed-s3
alike compact-one compact-s3
alike changed-listed-one changed-listed-many
alike compact-listed-one compact-listed-many
drive 0 sync --dry-run changed-s3.store texts
says long.txt
drive 0 index --lists 6 changed-s3.store
drive 0 index --lists 6 changed-one.store
looked changed-s3.store again-s3
looked changed-one.store again-one
alike again-one again-s3
drive 0 tune -m "$model" -s s3.store valid.txt --json
figures out >tuned-s3
drive 0 tune -m "$model" -s one.store valid.txt --json
figures out >tuned-one
ensure "tuned differently: $(diff tuned-one tuned-s3 | cut -c 1-300)" cmp tuned-one tuned-s3
drive 0 info s3.store
says '^shards  *3$'
says 'shard-0002.store$'
drive 0 info --json s3.store
ensure "no shards in the JSON" grep -q '"path": ".*shard-0001.store", "host": null' out

# ---- a build that was killed goes on as it was dealt, to the same bytes

drive 0 build -m "$model" -o whole.store --shards 3 --segment 60 --no-index texts
for kill in 1 2 3; do
    rm -rf killed.store
    killed=0
    for moment in 0.01 0.03 0.05 0.08; do
        "$knnlm" build -m "$model" -o killed.store --shards 3 --segment 60 --no-index texts >out 2>err &
        child=$!
        sleep "$(awk -v s="$moment" -v k="$kill" 'BEGIN { print s * k }')"
        kill -9 "$child" 2>/dev/null && killed=$((killed + 1))
        wait "$child" 2>/dev/null
        child=''
    done
    drive 0 build -m "$model" -o killed.store --shards 3 --segment 60 --no-index texts
    ensure "killed $killed times, a build ends with other bytes" diff -r whole.store killed.store
    check test ! -e killed.store/PLAN
done

# ---- refusals

plan=' entries from '
complains 2 'shards 0: out of range' build -m "$model" -o x.store --shards 0 texts
complains 2 'local DIRECTORY is for --shards' build -m "$model" -o x.store --local /tmp texts
complains 2 'not an absolute path' build -m "$model" -o x.store --shards 2 --local here texts
complains 2 'states have 32 dimensions' build -m "$model" -o x.store --shards 2 --project pca:40 texts
check test ! -e x.store
complains 1 'keeps its keys' build -m "$model" -o x.store --shards 2 --keys none texts
complains 1 'cannot be dealt to shards' build -m "$model" -o x.store --shards 2 -
complains 1 'has 3 shards, not 2' build -m "$model" -o s3.store --shards 2 texts
complains 1 'is a store without shards' build -m "$model" -o one.store --shards 2 texts
complains 1 'was built with --keys f16, not int8' build -m "$model" -o s3.store --keys int8 texts
cp -R s3.store missing.store && rm -r missing.store/shard-0001.store
complains 1 'shard-0001.store: No such file' eval -m "$model" -s missing.store valid.txt
cp -R s3.store damaged.store && printf x >>damaged.store/shard-0001.store/000001.text
complains 1 'shard-0001.store/000001.text: ' eval -m "$model" -s damaged.store valid.txt
cp -R s3.store other.store && rm -r other.store/shard-0001.store
drive 0 build -m "$golden/gpt2.model.gguf" -o other.store/shard-0001.store texts/long.txt
complains 1 'shard-0001.store has another model than' eval -m "$model" -s other.store valid.txt
cp -R s3.store torn.store && printf x >>torn.store/SHARDS
complains 1 'torn.store/SHARDS: damaged: its checksum is wrong' eval -m "$model" -s torn.store valid.txt
printf 'knnlm-shards 2 0000000000000000\n{}\n' >torn.store/SHARDS
complains 1 'SHARDS: of version 2: this knnlm knows up to 1' eval -m "$model" -s torn.store valid.txt
cp -R s3.store nested.store && rm -r nested.store/shard-0002.store && cp -R s1.store nested.store/shard-0002.store
complains 1 'a shard cannot be made of shards' eval -m "$model" -s nested.store valid.txt
complains 1 'shard-0001.store/000001.text: has' verify damaged.store
cp -R s3.store rotten.store
printf x | dd of=rotten.store/shard-0001.store/000001.text bs=1 seek=200 conv=notrunc 2>/dev/null
drive 1 verify rotten.store
says 'shard-0001.store/000001.text: '
drive 1 verify --repair rotten.store
says 'repair the one that is damaged'
conclude
