# Sizes and costs of the scales of experiments/paper: of texts in bytes, of trainings in updates.
# shellcheck shell=sh disable=SC2034,SC2154 # names are of experiments/paper/run, texts.sh and rows.sh

# home: what the home model reads; second: the other domain; other: the part of it that Table 4 adapts to; some: what is read over and
# over (taps, distances); heart: what is learnt by heart. Models that are trained for this have the shape of stream-tiny.
sizes_small() {
    home_bytes=1200000 second_bytes=380000 other_bytes=400000 some_bytes=400000 heart_bytes=40000 valid_bytes=70000 test_bytes=80000
    whole_steps=400 tenth_steps=60 second_steps=200 heart_epochs=60 tune_rate=0.0005 page=$work
    shape="--preset stream-tiny --length 256 --batch 4096 --micro 4096"
    fractions="0.03 0.1 0.3 1"
}

sizes_full() {
    home_bytes=24000000 second_bytes=12000000 other_bytes=8000000 some_bytes=3000000 heart_bytes=200000 valid_bytes=500000 test_bytes=2000000
    whole_steps=2000 tenth_steps=600 second_steps=1200 heart_epochs=60 words_steps=7000 words_bytes=100000000 tune_rate=0.0005 page=experiments/paper
    shape="--preset stream-tiny --length 256 --batch 8192 --micro 4096"
    fractions="0.01 0.03 0.1 0.3 1"
}

sizes_try() {
    home_bytes=60000 second_bytes=30000 other_bytes=20000 some_bytes=20000 heart_bytes=6000 valid_bytes=6000 test_bytes=6000
    whole_steps=8 tenth_steps=4 second_steps=6 heart_epochs=2 words_steps=4 words_bytes=20000 page=$work
    shape="--preset stream-tiny --length 64 --batch 512 --micro 512" fractions="0.3 1"
}

"sizes_$scale"
[ -z "$try" ] || sizes_try

# Minutes of a row on 2 quiet cores of an AMD EPYC (Zen 4), when those before it are there; GB of disk at its largest; "model" where
# both grow with the bundled model, which was one of 21.4 MB when this was measured.
cost_of() {
    case $scale$try-$1 in
    full-table1) echo 20 7 model ;;
    full-wikitext2) echo 31 2 ;;
    full-table2) echo 22 2 ;;
    full-table3) echo 44 3.5 ;;
    full-figure2) echo 4 0 ;;
    full-table4) echo 19 3 model ;;
    full-table5) echo 15 1 model ;;
    full-c10) echo 4 1 model ;;
    full-c15) echo 3 1 model ;;
    full-c11) echo 6 0 model ;;
    full-c12) echo 10 0.2 ;;
    full-table6) echo 3 0 model ;;
    small-table1) echo 1.6 0.2 ;;
    small-table3 | small-table2 | small-table5 | small-c12) echo 0.6 0.1 ;;
    small-table4) echo 1.8 0.2 model ;;
    *) echo 0.1 0.05 ;;
    esac
}

# tell_cost ROW...: what is still to be done, before it begins; too small a disk is told now.
tell_cost() {
    for row; do
        [ -e "$work/$row.done" ] || cost_of "$row"
    done | awk -v free="$(df -Pk "$work" | awk 'NR == 2 { print $4 / 1e6 }')" -v work="$work" \
        -v times="$(wc -c <"$bundled" | awk '{ print $1 / 21.4e6 }')" '
        $3 == "model" { $1 *= times; $2 *= times }
        { minutes += $1; disk += $2 }
        END {
            if (!NR) exit
            printf "paper: about %.0f minutes on 2 quiet cores, up to %.1f GB in %s (%.0f GB are free there)\n", minutes, disk, work, free
            exit free < disk
        }' >&2 || fail "$work: the disk is too small (WORK names another folder)"
}

# ---- what must be there

check_data() {
    for file in wiki/train.txt.zst wiki/valid.txt wiki/test.txt books/train.txt.zst books/valid.txt books/test.txt \
        wikitext-2/train.txt wikitext-2/valid.txt wikitext-2/test.txt; do
        [ -r "$data/$file" ] || fail "$data/$file: not there (docs/data.md tells what is expected; --scale small needs none)"
    done
}

check_programs() {
    [ -x /usr/bin/python3 ] || fail "/usr/bin/python3: not there (scripts/install-deps paper)"
    for program in gnuplot zstd flock; do
        command -v $program >/dev/null || fail "$program: not there (scripts/install-deps plots corpus)"
    done
    [ "$scale" = full ] || dpkg -L perl-doc debian-policy >/dev/null 2>&1 || fail "perl-doc, debian-policy: not installed (scripts/install-deps corpus paper)"
}

# What results depend on: a folder that has others is not gone on with.
settings() {
    echo "model $(cksum <"$bundled" | cut -d' ' -f1)"
    echo "texts $home_bytes $second_bytes $other_bytes $some_bytes $heart_bytes $valid_bytes $test_bytes"
    echo "training $whole_steps $tenth_steps $second_steps $heart_epochs ${words_steps:-} $shape"
}

check_settings() {
    cat >"$work/settings.new"
    [ ! -e "$work/settings" ] || cmp -s "$work/settings" "$work/settings.new" ||
        fail "$work: made with another model or other sizes (settings, settings.new there): remove the folder, or set WORK"
    mv "$work/settings.new" "$work/settings"
}
