#!/bin/sh
# Ranks that are killed:  sh tests/test_mpi_kill.sh PATH_TO_knnlm SOURCE_DIR
# A build one of whose ranks is killed goes on to the same bytes; a server one of whose ranks is killed says so and ends, and its
# store is whole.
#   MPI_KILLS    how often a random rank of a build is killed (1)
#   MPI_SEED     of the random moments (the time)
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/shards_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/mpi_kit.sh"
write_texts texts

# ---- of a build

seed=${MPI_SEED:-$(date +%s)}
kills=0 try=0 wanted=${MPI_KILLS:-1} ended=0
build="build -m $model -o killed.store --shards 4 --segment 60 --no-index texts"
ranks 3
drive 0 build -m "$model" -o whole.store --shards 4 --segment 60 --no-index texts
# Some have ended before their moment comes, the more the faster the machine: after each of those moments come sooner.
while [ $kills -lt "$wanted" ] && [ $try -lt $((3 * wanted + 20)) ]; do
    try=$((try + 1))
    rm -rf killed.store
    # shellcheck disable=SC2086 # words
    $launch "$knnlm" $build >out 2>err &
    child=$!
    moment=$(awk -v seed="$seed" -v try="$try" -v missed=$((try - 1 - kills)) 'BEGIN { srand(seed + try); print int(rand() * 3), rand() * 0.6 / 2 ^ missed }')
    for wait in $(seq 100); do # until there are three
        [ "$(pgrep -P "$child" -f killed.store | wc -l)" -lt 3 ] || break
        sleep 0.05
    done
    sleep "${moment#* }"
    victim=$(pgrep -P "$child" -f killed.store | sed -n "$((${moment% *} + 1))p")
    [ -z "$victim" ] || { kill -9 "$victim" && kills=$((kills + 1)); }
    wait "$child" && ended=$((ended + 1)) # all was done already
    child=''
    # shellcheck disable=SC2086 # words
    drive 0 $build
    ensure "seed $seed, kill $try: a build ends with other bytes" diff -r whole.store killed.store
done
check test $kills -ge "$wanted"
check test $ended -lt $try

# ---- of a server, while requests come

begin_by() { # LAUNCHER_WORD...: as begin of the kit
    : >serve.out
    last="$* knnlm serve"
    "$@" "$knnlm" serve --port 0 -m "$model" -s whole.store >serve.out 2>>serve.err </dev/null &
    server=$!
    patiently 60 listens
    url=$(sed -n 's|.*\(http://[^ /]*\).*|\1|p' serve.out | head -n 1)
    patiently 30 healthy || failed "it does not become healthy"
}
score='{"text": "w1 w2 w3 w4 w5 w6"}'
ranks 0
drive 0 index --lists 6 whole.store
cat >told <<'END'
#!/bin/sh
"$@" &
echo $! >"pid.$OMPI_COMM_WORLD_RANK"
wait $!
echo $? >"code.$OMPI_COMM_WORLD_RANK"
END
chmod +x told
begin_by mpirun -q --enable-recovery -n 3 ./told
expect 200 POST /v1/score "$score"
keep before
kill -9 "$(cat pid.1)"
# Requests wait for the rank until it counts as lost; then they hear of it.
ask POST /v1/score "$score"
holds 'r["error"]["code"] == "rank_lost" and "rank 1 (" in r["error"]["message"]'
check test "$status" = 503
checks=$((checks + 1))
patiently 30 not kill -0 "$server" || failed "the server does not end"
wait "$server" # mpirun has a code of its own
server=''
check test "$(cat code.0)" -eq 1
ensure "the rank that is gone is not named" grep -q '^knnlm serve: rank 1 (.*): does not answer any more' serve.err
check test "$(grep -c '^knnlm serve: ' serve.err)" -eq 1

# The store is as it was.
drive 0 verify whole.store
: >serve.err
begin_by mpirun -q -n 2
expect 200 POST /v1/score "$score"
holds 'r["ppl"] == kept("before")["ppl"] and r["tokens"] == kept("before")["tokens"]'
kill -TERM "$server"
patiently 15 not kill -0 "$server" || failed "the server does not end"
wait "$server"
server=''
echo "$kills kills: $kills of build, 1 of serve"
conclude
