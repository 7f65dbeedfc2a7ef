#!/bin/sh
# kill -9 at random moments of index, add and compact of an indexed store:  sh tests/test_index_kill.sh PATH_TO_knnlm SOURCE_DIR
# After every kill the store is intact and holds what it held before or what the command makes of it, by what a reader gets;
# the same command again ends as if it had not been interrupted.
#   STORE_KILLS    how often to kill (12)
#   STORE_SEED     of the random moments (the time)
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
export SOURCE_DATE_EPOCH=1700000000
model=$golden/adaptive.model.gguf
wanted=${STORE_KILLS:-12}
seed=${STORE_SEED:-$(date +%s)}
kills=0 lost=0 wrong=0 what=''
evidence() {
    echo "    seed $seed, kill $kills, $what"
    sed 's/^/    stderr: /' err 2>/dev/null | head -n 5
}

# ---- states of a store: 0 without an index, 1 with, 2 with more in its lists, 3 with a document removed, 4 compacted

text() { awk -v seed="$1" -v n="$2" 'BEGIN { srand(seed); for (i = 1; i <= n; i++) printf "w%d%s", int(rand() * 95), i % 12 ? " " : "\n" }'; }
mkdir texts
for i in 1 2 3 4; do text $i 700 >texts/$i.txt; done
text 5 1500 >more.txt
command_of() { # STATE that it leads to, STORE
    case $1 in
    1) echo "index $2 --lists 8 --codes pq8" ;;
    2) echo "add $2 more.txt" ;;
    3) echo "remove $2 2.txt" ;;
    4) echo "compact $2" ;;
    esac
}
arrays() { # STORE FOLDER
    rm -rf "$2"
    run 0 export "$1" -o "$2"
}
same_arrays() { cmp -s "$1/keys.npy" "$2/keys.npy" && cmp -s "$1/values.npy" "$2/values.npy" && cmp -s "$1/documents.tsv" "$2/documents.tsv"; }
# An addition is committed segment by segment: what there is of it is the beginning of all, and all of what was there before.
payload() { tail -c +129 "$1"; }
is_between() { # FOLDER OLD NEW
    for array in values keys; do
        size=$(payload "$1/$array.npy" | wc -c)
        [ "$size" -ge "$(payload "$2/$array.npy" | wc -c)" ] || return 1
        payload "$1/$array.npy" >got.bytes
        payload "$3/$array.npy" | head -c "$size" | cmp -s - got.bytes || return 1
    done
}
run 0 build -m "$model" -o 0.store --keys int8 --segment 500 texts
arrays 0.store 0.arrays
for state in 1 2 3 4; do
    cp -R $((state - 1)).store $state.store
    begun=$(date +%s%N)
    # shellcheck disable=SC2046 # words
    run 0 $(command_of $state $state.store)
    eval "takes_$state=$((($(date +%s%N) - begun) / 1000000 + 1))" # ms
    arrays $state.store "$state.arrays"
done
ensure "keys lie in the lists" test "$(find 4.store -name '*.keys' | wc -l)" -eq 0

# ---- killing

# Moments within the time that the command took, which is stretched and shrunk so that half of the kills come too late.
awk -v seed="$seed" -v n=$((20 * wanted + 100)) 'BEGIN { srand(seed); while (n--) print rand(), 1 + int(rand() * 4) }' >moments
exec 3<moments
percent_1=100 percent_2=100 percent_3=100 percent_4=100
attempts=0
while [ $kills -lt "$wanted" ] && [ $attempts -lt $((20 * wanted + 100)) ]; do
    read -r part state <&3
    eval "takes=\$takes_$state percent=\$percent_$state"
    delay=$(awk -v part="$part" -v ms=$((takes * percent / 100)) 'BEGIN { printf "%.4f", part * ms / 1000 }')
    attempts=$((attempts + 1))
    before=$((state - 1))
    what=$(command_of "$state" s.store)
    rm -rf s.store
    cp -R $before.store s.store
    # shellcheck disable=SC2086 # words
    "$knnlm" $what >out 2>err </dev/null &
    child=$!
    sleep "$delay"
    kill -9 $child 2>/dev/null
    wait $child 2>/dev/null
    if [ $? -eq 137 ]; then
        kills=$((kills + 1))
        [ "$percent" -ge 400 ] || percent=$((percent + 5))
    elif [ "$percent" -gt 20 ]; then
        percent=$((percent - 5))
    fi
    eval "percent_$state=$percent"
    run 0 verify s.store
    arrays s.store got
    same_arrays got "$before.arrays" || same_arrays got "$state.arrays" || { [ "$state" -eq 2 ] && is_between got "$before.arrays" "$state.arrays"; } || { wrong=$((wrong + 1)) && failed "neither the state before nor the one after"; }
    if ! same_arrays got "$state.arrays" || [ "$state" -ne 3 ]; then # what is removed cannot be removed again
        # shellcheck disable=SC2086 # words
        run 0 $what
    fi
    [ "$state" -ne 2 ] || run 0 index s.store --extend
    arrays s.store got
    same_arrays got "$state.arrays" || { lost=$((lost + 1)) && failed "not what the uninterrupted command makes"; }
    run 0 verify s.store
done
ensure "some were killed" test $kills -gt 0 # how many, is the machine's pace
echo "$kills kills in $attempts attempts: lost $lost, wrong $wrong, seed $seed"
conclude
