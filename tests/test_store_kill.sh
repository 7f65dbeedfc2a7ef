#!/bin/sh
# kill -9 at random moments of build, add, remove and compact:  sh tests/test_store_kill.sh PATH_TO_knnlm SOURCE_DIR
# After every kill the store stands at a commit of the uninterrupted run, with every entry that was ever committed; the
# same command again ends with the same bytes. Then SIGINT, SIGTERM and a disk that fills up.
#   STORE_KILLS    how often to kill (24)
#   STORE_SEED     of the random moments (the time)
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
export SOURCE_DATE_EPOCH=1700000000
model=$golden/adaptive.model.gguf
wanted=${STORE_KILLS:-24}
seed=${STORE_SEED:-$(date +%s)}
kills=0 kills_build=0 kills_add=0 kills_remove=0 kills_compact=0 attempts=0 commits=0 lost=0 wrong=0
what='the beginning'
evidence() {
    echo "    seed $seed, kill $kills, $what"
    sed 's/^/    stderr: /' err 2>/dev/null | head -n 5
}

# ---- material: documents without a token, of one, of several segments, twice the same, up to the end of a segment

segment=60
write_text() { # SEED WORDS
    awk -v seed="$1" -v words="$2" 'BEGIN {
        srand(seed)
        for (i = 1; i <= words; i++) printf "w%d%s", int(rand() * 90), i % 9 ? " " : "\n"
    }'
}
mkdir texts more
: >texts/a-empty.txt
printf 'w1' >texts/b-one.txt
write_text 1 40 >texts/c-short.txt
write_text 2 900 >texts/d-long.txt
write_text 3 140 >texts/e-segment.txt # its 155 tokens end with the store's 1200th, the ends of lines included
cp texts/c-short.txt texts/f-again.txt
write_text 4 500 >texts/g-long.txt
: >texts/h-empty.txt
cp texts/?-*.txt more
write_text 5 700 >more/d-long.txt # changed: the old one goes
write_text 6 400 >more/i-new.txt
cp more/i-new.txt more/j-same.txt

# ---- manifests

# The segments of a manifest, a line each: file entries documents continued strings seals.
segments() {
    sed '1,/"segments": \[/d' "$1" | tr -d ' \n' | tr '}' '\n' | sed -n 's/^,\{0,1\}{//p'
}
# What never changes while a store lives: settings, attachments, time.
constants() { sed -n '/"created"/p; /"settings"/,/"segments"/p' "$1" | sed '/"removed": {/,/}/d'; }
number() { sed -n "s/^ \"$1\": \([0-9]*\).*/\1/p" "$2"; }
generation() { if [ -f "$1" ]; then number generation "$1"; else echo 0; fi; }
sum_entries() { segments "$1" | sed 's/.*"entries":\([0-9]*\).*/\1/' | awk '{ n += $1 } END { print n + 0 }'; }

# Every file that the manifest of store $1 names is that of store $2, whose sums are kept.
same_parts() {
    [ -f "$2.sums" ] || (cd "$2" && sha256sum ./*.*) | sort >"$2.sums"
    names=$(segments "$1/MANIFEST" | sed 's/.*"file":\([0-9]*\),.*/\1/' | while read -r file; do
        printf './%06d.text ' "$file"
        [ "$type" = none ] || printf './%06d.keys ' "$file"
    done)
    [ "$type" != pca ] || names="$names ./projection.gguf"
    # shellcheck disable=SC2086 # a list of names
    (cd "$1" && sha256sum $names ./tokenizer.gguf 2>&1) | sort | comm -23 - "$2.sums" >differing
    [ ! -s differing ]
}

# The same again by what a reader gets: the arrays of store $1 are those of OLD and then those that NEW adds to them, as
# far as they go; or those of NEW, when that was reached.
payload() { tail -c +129 "$1" 2>/dev/null; }
same_arrays() { # STORE OLD NEW
    rm -rf exported
    run 0 export "$1" -o exported
    more=$(($(number entries "$3/MANIFEST") - $(entries_of "$2")))
    for array in values keys; do
        all=$3.arrays/$array.npy
        [ -f "$all" ] || continue
        row=$(($(payload "$all" | wc -c) / ($(payload "$3.arrays/values.npy" | wc -c) / 4)))
        payload "exported/$array.npy" >got.array
        if cmp -s "$1/MANIFEST" "$3/MANIFEST"; then
            payload "$all" >want.array
        else
            {
                payload "$2.arrays/$array.npy"
                payload "$all" | tail -c $((more * row))
            } | head -c "$(($(number entries "$1/MANIFEST") * row))" >want.array
        fi
        cmp -s got.array want.array || return 1
    done
}
entries_of() { if [ -f "$1/MANIFEST" ]; then number entries "$1/MANIFEST"; else echo 0; fi; }

not() { ! "$@"; }
same_store() { diff -r -x LOCK "$1" "$2" >diff.out 2>&1; }

# ---- what a store must be after a kill

readable() { # STORE
    run 0 verify "$1"
    run 0 info --json "$1"
    entries=$(sum_entries "$1/MANIFEST")
    [ "$(number entries "$1/MANIFEST")" -eq "$entries" ] || failed "the manifest's counts disagree"
    grep -q "^{.*\"entries\": $entries, \"document_count\".*}\$" out || failed "info tells another number of entries"
}

# build and add: commits are those of the uninterrupted run, one after another.
check_growing() { # STORE OLD NEW: OLD may not exist
    if [ ! -f "$1/MANIFEST" ]; then
        [ ! -f before ] && [ ! -d "$2" ] && return
        lost=$((lost + 1))
        failed "the store is gone"
        return
    fi
    readable "$1"
    segments "$1/MANIFEST" >now
    segments "$3/MANIFEST" >all
    head -n "$(wc -l <now)" all | cmp -s - now || { wrong=$((wrong + 1)) && failed "segments are not those of $3"; }
    constants "$1/MANIFEST" >left
    constants "$3/MANIFEST" >right
    cmp -s left right || failed "settings are not those of $3"
    same_parts "$1" "$3" || { wrong=$((wrong + 1)) && failed "differing: $(tr '\n' ' ' <differing)"; }
    same_arrays "$1" "$2" "$3" || { wrong=$((wrong + 1)) && failed "exports other $array"; }
    for had in before "$2/MANIFEST"; do
        [ -f "$had" ] || continue
        segments "$had" >had.segments
        head -n "$(wc -l <had.segments)" now | cmp -s - had.segments || { lost=$((lost + 1)) && failed "lost what $had had"; }
    done
}

# remove and compact: the old state or the new one.
check_either() { # STORE OLD NEW
    [ -f "$1/MANIFEST" ] || { lost=$((lost + 1)) && failed "the store is gone" && return; }
    readable "$1"
    state=$2
    cmp -s "$1/MANIFEST" "$2/MANIFEST" || state=$3
    cmp -s "$1/MANIFEST" "$state/MANIFEST" || { wrong=$((wrong + 1)) && failed "neither $2 nor $3"; }
    same_parts "$1" "$state" || { wrong=$((wrong + 1)) && failed "differing: $(tr '\n' ' ' <differing)"; }
    same_arrays "$1" "$state" "$state" || { wrong=$((wrong + 1)) && failed "exports other $array"; }
    [ ! -f before ] || [ "$(generation before)" -le "$(generation "$1/MANIFEST")" ] ||
        { lost=$((lost + 1)) && failed "went back to $2"; }
}

# ---- killing

# A moment within $1 milliseconds, as sleep(1) takes it.
moments=$work/moments
awk -v seed="$seed" -v n=$((20 * wanted + 1000)) 'BEGIN { srand(seed); while (n--) print rand() }' >"$moments"
exec 3<"$moments"
moment() {
    read -r part <&3
    awk -v part="$part" -v most="$1" 'BEGIN { printf "%.4f", part * most / 1000 }'
}

# killed MILLISECONDS STORE ARGUMENT...: runs knnlm and kills it at a random moment; `before` is the manifest that stood
# right before, `got` the exit code.
killed() {
    delay=$(moment "$1") store=$2
    shift 2
    rm -f before
    "$knnlm" "$@" >out 2>err </dev/null &
    child=$!
    sleep "$delay"
    # A manifest is never changed, only replaced: what is opened here is read after the kill.
    if [ -f "$store/MANIFEST" ] && command exec 4<"$store/MANIFEST"; then seen=yes; else seen=no; fi
    kill -9 $child 2>/dev/null
    wait $child 2>/dev/null
    got=$?
    child=''
    [ $seen = no ] || { cat <&4 >before && exec 4<&-; }
    attempts=$((attempts + 1))
}

# Kills that come before every commit, or after the end, tell little: the time is stretched and shrunk, so that both are
# as frequent.
for command in build add remove compact; do eval "percent_$command=100"; done
adapt() { # COMMAND
    if [ $finished = yes ]; then
        [ "$percent" -le 20 ] || percent=$((percent - 5))
    elif [ "$ended" -eq "$began" ]; then
        [ "$percent" -ge 1000 ] || percent=$((percent + 5))
    fi
    eval "percent_$1=$percent"
}

# torture TIMES MILLISECONDS CHECK STORE OLD NEW ARGUMENT...: kills the command that makes NEW of OLD up to TIMES times
# in a row, lets it end, and compares.
torture() {
    times=$1 most=$2 check=$3 store=$4 old=$5 new=$6
    shift 6
    rm -rf "$store"
    [ ! -d "$old" ] || cp -R "$old" "$store"
    what="$1, $type"
    while [ "$times" -gt 0 ] && not cmp -s "$store/MANIFEST" "$new/MANIFEST"; do
        times=$((times - 1))
        began=$(generation "$store/MANIFEST")
        eval "percent=\$percent_$1"
        killed $((most * percent / 100)) "$store" "$@"
        finished=no
        if [ $got -eq 137 ]; then
            kills=$((kills + 1))
            eval "kills_$1=\$((kills_$1 + 1))"
        else
            finished=yes
            [ $got -eq 0 ] || failed "exit code $got"
        fi
        $check "$store" "$old" "$new"
        ended=$(generation "$store/MANIFEST")
        [ "$ended" -ge "$began" ] || failed "generation $ended after $began"
        commits=$((commits + ended - began))
        adapt "$1"
    done
    if [ "$1" = remove ] && cmp -s "$store/MANIFEST" "$new/MANIFEST"; then
        run 1 "$@"
        run 0 verify "$store"
    else
        run 0 "$@"
    fi
    same_store "$store" "$new" || failed "not as the uninterrupted one: $(head -n 3 diff.out)"
}

# ---- the uninterrupted runs, and how long they take

# timed ARGUMENT...: knnlm's milliseconds, as NAME_ms=... in the file TYPE.times
timed() {
    start=$(date +%s%N)
    run 0 "$@"
    echo "$1_ms=$((($(date +%s%N) - start) / 1000000))" >>"$type.times"
}

options_of() {
    case $1 in
    pca) echo '--keys f32 --project pca:5' ;;
    *) echo "--keys $1" ;;
    esac
}

swap_texts() { mv texts kept && mv more texts && mv kept more; }

build_args() { # STORE
    echo "build --no-tune -m $model -o $1 --segment $segment -t 1 $(options_of "$type") texts"
}

make_references() {
    # shellcheck disable=SC2046 # a list of arguments
    timed $(build_args "$type.built")
    cp -R "$type.built" "$type.added"
    swap_texts
    timed add --no-tune "$type.added" -t 1 texts
    swap_texts
    cp -R "$type.added" "$type.removed"
    timed remove "$type.removed" '[ce]*' g-long.txt
    cp -R "$type.removed" "$type.compacted"
    timed compact "$type.compacted"
    for store in built added removed compacted; do
        run 0 verify "$type.$store"
        run 0 export "$type.$store" -o "$type.$store.arrays"
    done
}

# ---- the torture

# One round for a type of keys. Three in a row are a kill, a kill of the run that goes on, and a kill of that.
round() {
    build_ms=0 add_ms=0 remove_ms=0 compact_ms=0
    # shellcheck disable=SC1090 # written above
    . "./$type.times"
    # shellcheck disable=SC2046 # a list of arguments
    torture 3 "$build_ms" check_growing victim none "$type.built" $(build_args victim)
    swap_texts
    torture 2 "$add_ms" check_growing victim "$type.built" "$type.added" add victim --no-tune -t 1 texts
    swap_texts
    torture 1 "$remove_ms" check_either victim "$type.added" "$type.removed" \
        remove victim '[ce]*' g-long.txt
    torture 2 "$compact_ms" check_either victim "$type.removed" "$type.compacted" compact victim
}

types='f16 int8 none f32 pca'
for type in $types; do make_references; done
while [ $kills -lt "$wanted" ] && [ "$failures" -lt 20 ] && [ $attempts -lt $((10 * wanted)) ]; do
    for type in $types; do
        [ $kills -ge "$wanted" ] || round
    done
done
[ $kills -ge "$wanted" ] || failed "only $kills kills came in time"

# ---- signals that can be caught: one line, exit code 1, the last commit

type=f16
write_text 7 6000 >long.txt # the model reads on while its first commits are written
long_args() { echo "build --no-tune -m $model -o $1 --segment $2 -t 1 long.txt"; }
# shellcheck disable=SC2046 # a list of arguments
run 0 $(long_args long.built 150)
# shellcheck disable=SC2046 # a list of arguments
run 0 $(long_args long.whole 1000000)
run 0 build --no-tune -m "$model" -o long.base --segment 150 texts
cp -R long.base long.added
run 0 add --no-tune long.added -t 1 long.txt
cp -R long.added long.removed
run 0 remove long.removed c-short.txt
cp -R long.removed long.compacted
run 0 compact long.compacted
for store in built whole base added removed compacted; do run 0 export long.$store -o long.$store.arrays; done

# signalled SIGNAL FILE ARGUMENT...: runs knnlm and sends the signal as soon as FILE is there
signalled() {
    signal=$1 awaited=$2
    shift 2
    "$knnlm" "$@" >out 2>err </dev/null &
    child=$!
    while [ ! -e "$awaited" ] && kill -0 $child 2>/dev/null; do :; done
    kill "-$signal" $child 2>/dev/null
    wait $child 2>/dev/null
    got=$?
    child=''
}

# stops SIGNAL FILE PATTERN CHECK OLD NEW ARGUMENT...: as `torture`, with a signal, until it comes in time
stops() {
    signal=$1 awaited=$2 pattern=$3 check=$4 old=$5 new=$6 tries=20 got=0
    shift 6
    what="$1, SIG$signal"
    while [ $got -eq 0 ] && [ $tries -gt 0 ]; do
        tries=$((tries - 1))
        rm -rf victim before
        [ ! -d "$old" ] || cp -R "$old" victim
        signalled "$signal" "$awaited" "$@"
    done
    [ $got -eq 1 ] || failed "exit code $got, not 1"
    [ "$(grep -vc '^knnlm [a-z]*: about' err)" -eq 1 ] || failed "not one line"
    grep -q "^knnlm $1: .*$pattern" err || failed "does not say '$pattern'"
    [ ! -s out ] || failed "prints a result"
    $check victim "$old" "$new"
    run 0 "$@"
    same_store victim "$new" || failed "not as the uninterrupted one: $(head -n 3 diff.out)"
}

added=victim/$(printf %06d $(($(number next_file long.base/MANIFEST) + 2))).text
copied=victim/$(printf %06d $(($(number next_file long.removed/MANIFEST) + 1))).text
for name in INT TERM; do
    # shellcheck disable=SC2046 # a list of arguments
    stops $name victim/MANIFEST 'last commit; the same command goes on' check_growing none long.built \
        $(long_args victim 150)
    # shellcheck disable=SC2046 # a list of arguments
    stops $name victim/LOCK 'stopped' check_growing none long.whole $(long_args victim 1000000)
    stops $name "$added" 'last commit; the same command goes on' check_growing long.base long.added \
        add victim --no-tune -t 1 long.txt
    stops $name "$copied" 'stopped: victim is as it was' check_either long.removed long.compacted compact victim
done

# ---- what else may be done to an interrupted store: it stays whole, and the build still ends with every entry

meanwhile() { # ARGUMENT...: on `victim`, killed in the middle of d-long.txt or after it
    what="$1 of an interrupted store"
    rm -rf victim
    # shellcheck disable=SC2046 # a list of arguments
    signalled KILL victim/000004.text $(build_args victim)
    readable victim
    run 0 "$@"
    run 0 verify victim
    run 0 compact victim
    run 0 verify victim
    # shellcheck disable=SC2046 # a list of arguments
    run 0 $(build_args victim)
    run 0 compact victim
    readable victim
    [ "$(entries_of victim)" -eq "$(entries_of $type.built)" ] || failed "$(entries_of victim) entries in the end"
}
type=int8
meanwhile compact victim
meanwhile remove victim c-short.txt
meanwhile remove victim '*'
meanwhile add victim --no-tune -t 1 texts/g-long.txt
meanwhile add victim --no-tune -t 1 texts/c-short.txt

# ---- a disk that fills up, and then has room again

# fills KIB CHECK OLD NEW ARGUMENT...: the command, in disk/victim, on a disk with so much room beside the store
fills() {
    room=$1 check=$2 old=$3 new=$4
    shift 4
    what="$1, $type, a disk of $room KiB"
    rm -rf disk/victim before
    mount -o remount,size=64m disk
    [ ! -d "$old" ] || cp -R "$old" disk/victim
    mount -o "remount,size=$(($(df -k disk | awk 'NR == 2 { print $3 }') + room))k" disk
    run 1 "$@"
    [ "$(grep -vc '^knnlm [a-z]*: about' err)" -eq 1 ] || failed "not one line"
    grep -q "^knnlm $1: disk/victim.*No space left" err || failed "does not tell of the disk"
    $check disk/victim "$old" "$new"
    mount -o remount,size=64m disk
    run 0 "$@"
    same_store disk/victim "$new" || failed "not as the uninterrupted one: $(head -n 3 diff.out)"
}

mkdir disk
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=64m none disk 2>/dev/null; then
    mounted=$work/disk
    for room in 4 8 12 24 100; do
        type=f16
        # shellcheck disable=SC2046 # a list of arguments
        fills $room check_growing none $type.built $(build_args disk/victim) --force
    done
    for type in int8 none pca; do
        # shellcheck disable=SC2046 # a list of arguments
        fills 48 check_growing none "$type.built" $(build_args disk/victim) --force
        swap_texts
        fills 0 check_growing "$type.built" "$type.added" add disk/victim --no-tune -t 1 texts --force
        fills 50 check_growing "$type.built" "$type.added" add disk/victim --no-tune -t 1 texts --force
        swap_texts
        fills 0 check_either "$type.added" "$type.removed" remove disk/victim '[ce]*' g-long.txt
        fills 4 check_either "$type.added" "$type.removed" remove disk/victim '[ce]*' g-long.txt
        fills 0 check_either "$type.removed" "$type.compacted" compact disk/victim --force
        fills 40 check_either "$type.removed" "$type.compacted" compact disk/victim --force
    done
    umount disk && mounted=''
else
    echo "skipped: a disk that fills up (needs root, to mount a small one)"
fi

echo "$kills kills ($kills_build of build, $kills_add of add, $kills_remove of remove, $kills_compact of compact)," \
    "$commits commits seen, lost $lost, wrong $wrong; seed $seed"
conclude
