#!/bin/sh
# Many ranks:  sh tests/test_mpi.sh PATH_TO_knnlm SOURCE_DIR
# Ranks find, count and say what one process does with a store without shards; failures are one line that names the rank.
#   MPI_ALL      yes: every number of ranks from 1 to 4 with every number of shards from 1 to 5; else some of them
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/shards_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/mpi_kit.sh"
write_texts texts
{ cat begin && write_text 6 60; } >valid.txt
ranks 0
drive 0 build -m "$model" -o one.store texts
looked one.store one

# ---- the same digits

# pair RANKS SHARDS: built, and evaluated
pair() {
    ranks "$1"
    drive 0 build -m "$model" -o "r$1s$2.store" --shards "$2" texts
    drive 0 eval -m "$model" -s "r$1s$2.store" --json --per-token "r$1s$2.rows" valid.txt texts/alike-3.txt
    figures out >"r$1s$2.eval"
    for what in rows eval; do ensure "$1 ranks, $2 shards: other $what" cmp "one.$what" "r$1s$2.$what"; done
}
all=${MPI_ALL:-no}
if [ "$all" = yes ]; then
    for number in 1 2 3 4; do
        for shards in 1 2 3 4 5; do
            pair $number $shards
            looked "r${number}s$shards.store" all
            alike one all
        done
    done
else
    pair 3 2
    pair 2 5
    ranks 4
    looked r2s5.store all
    alike one all
fi

# A store is the same whoever built it, and is read by any number.
ranks 0
drive 0 build -m "$model" -o plain.store --shards 5 texts
ensure "shards depend on the ranks that built them" diff -r plain.store r2s5.store
drive 0 build -m "$model" -o projected.store --shards 2 --project pca:12 texts
ranks 2
drive 0 build -m "$model" -o projected-2.store --shards 2 --project pca:12 texts
ensure "projections depend on the ranks that learnt them" diff -r projected.store projected-2.store

# ---- a model that reads streams: documents of many windows, cut where ranks part, and of one

ranks 0
mkdir streams && write_text 11 3000 >streams/long.txt && write_text 12 700 >streams/middle.txt && cp texts/alike-3.txt streams
drive 0 train streams -o stream.gguf --preset stream-tiny --layers 2 --width 32 --ffn 40 --window 40 --tokenizer word --vocab 0 \
    --steps 3 --batch 512 --save-seconds 0
# streamed NAME: everything that is asked of a store of that model, in files NAME.*
streamed() {
    drive 0 eval -m stream.gguf -s stream.store --json --per-token "$1.rows" streams valid.txt
    figures out >"$1.eval"
    drive 0 eval -m stream.gguf -s stream.store --json streams # predictions alone
    figures out >"$1.explain"
    drive 0 tune -m stream.gguf -s stream.store --dry-run --json streams
    figures out >"$1.generate"
}
drive 0 build -m stream.gguf -o stream.store --shards 3 texts
streamed stream-one
case $all in yes) some='1 2 3 4' ;; *) some=3 ;; esac
for number in $some; do
    ranks "$number"
    streamed "stream-$number"
    alike stream-one "stream-$number"
done

# ---- upkeep by ranks

ranks 3
drive 0 add r2s5.store begin
drive 0 remove r2s5.store 'alike-[45].txt'
drive 0 compact r2s5.store
drive 0 index --lists 6 r2s5.store
drive 0 verify r2s5.store
ranks 0
drive 0 add one.store begin
drive 0 remove one.store 'alike-[45].txt'
drive 0 compact one.store
drive 0 index --lists 6 one.store
looked one.store changed
ranks 3
looked r2s5.store changed-many
alike changed changed-many

# ---- shards on the disk of a machine: found there by any number of ranks, and by one process

mkdir local
ranks 2
drive 0 build -m "$model" -o local.store --shards 3 --local "$work/local" texts
check test -d local/local-0002.store
for number in 0 3; do
    ranks "$number"
    drive 0 eval -m "$model" -s local.store --json --per-token local.rows valid.txt texts/alike-3.txt
    check cmp one.rows local.rows
done

# ---- failures: one line, which names the rank

failing() { # PATTERN
    check test ! -s out
    check test "$(grep -v 'of memory$' err | grep -c '^knnlm')" -eq 1
    says "$1"
}
ranks 2
cp -R plain.store missing.store && rm -r missing.store/shard-0001.store
drive 1 eval -m "$model" -s missing.store valid.txt
failing '^knnlm eval: rank 1 (.*): .*shard-0001.store: No such file'
cp -R plain.store damaged.store && printf x >>damaged.store/shard-0003.store/000001.text
drive 1 eval -m "$model" -s damaged.store valid.txt
failing '^knnlm eval: rank 1 (.*): .*shard-0003.store/000001.text: '
drive 1 eval -m nowhere.gguf -s plain.store valid.txt
failing '^knnlm eval: nowhere.gguf: '

# Another model on another rank: the same path leads elsewhere there.
if unshare --mount true 2>/dev/null; then
    cat >other <<END
#!/bin/sh
[ "\$OMPI_COMM_WORLD_RANK" = 0 ] || mount --bind "$golden/gpt2.model.gguf" "$model"
exec "\$@"
END
    chmod +x other
    launch="mpirun -q -n 2 unshare --mount ./other"
    drive 1 eval -m "$model" -s plain.store valid.txt
    failing '^knnlm eval: rank 1 (.*): .*model.gguf: not the model that rank 0 has'
    cat >small <<END
#!/bin/sh
[ "\$OMPI_COMM_WORLD_RANK" = 0 ] || mount -t tmpfs -o size=100k none "$work/disk"
exec "\$@"
END
    chmod +x small
    mkdir -p disk
    launch="mpirun -q -n 2 unshare --mount ./small"
    drive 1 build -m "$model" -o full.store --shards 2 --local "$work/disk" texts
    failing '^knnlm build: rank 1 (.*): .*full-0001.store.*No space left'
else
    echo "$script: no mounts can be made here: unequal models and full disks were not tried"
fi

conclude
