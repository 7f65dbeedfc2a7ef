# The texts of experiments/paper: what is remembered, tuned on and reported on, of a home and of a second domain.
# shellcheck shell=sh disable=SC2034,SC2154 # names are of experiments/paper/run and rows.sh

# part FILE BYTES OUT: its beginning, whole lines
part() {
    [ -s "$3" ] || { case $1 in *.zst) zstd -dqc "$1" ;; *.gz) gzip -dc "$1" ;; *) cat "$1" ;; esac 2>/dev/null | head -c "$2" | sed '$d' >"$3"; }
}

# The manual's pages, without the changes of old versions, as the home; three of its questions and answers are held out.
small_texts() {
    pods=$(dirname "$(dpkg -L perl-doc | grep '/perlintro\.pod$' | head -n 1)")
    home_bytes=${BYTES:-1500000}
    home=$work/home.txt second=$work/second.txt split=file minutes=${MINUTES:-1}
    [ -s "$home" ] || find "$pods" -name 'perl*.pod' ! -name 'perlfaq*' ! -name 'perl*delta.pod' ! -name perltoc.pod ! -name perluniprops.pod |
        sort | xargs cat 2>/dev/null | head -c "$home_bytes" >"$home"
    home_valid=$work/home.valid home_test=$work/home.test
    head -c $((home_bytes / 4)) "$pods/perlfaq4.pod" >"$home_valid"
    cat "$pods/perlfaq3.pod" "$pods/perlfaq8.pod" | head -c $((home_bytes / 4)) >"$home_test"
    gzip -dc /usr/share/doc/debian-policy/policy.txt.gz >"$work/policy.txt"
    lines=$(wc -l <"$work/policy.txt")
    head -n $((lines * 8 / 10)) "$work/policy.txt" >"$second"
    second_valid=$work/second.valid second_test=$work/second.test
    tail -n +$((lines * 8 / 10 + 1)) "$work/policy.txt" | head -n $((lines / 10)) >"$second_valid"
    tail -n $((lines / 10)) "$work/policy.txt" >"$second_test"
    part "$home" $((home_bytes / 4)) "$work/some.txt" # for what is made over and over
    train_options="--preset stream-tiny --length 256 --batch 4096"
}

# Figures of the full scale are of 40 MB of Wikipedia (10M entries) and 20 MB of books.
full_texts() {
    home=$work/home.txt second=$work/second.txt split=wiki minutes=${MINUTES:-60}
    part "$data/wiki/train.txt.zst" 40000000 "$home"
    part "$data/books/train.txt.zst" 20000000 "$second"
    home_valid=$data/wiki/valid.txt home_test=$data/wiki/test.txt
    second_valid=$data/books/valid.txt second_test=$data/books/test.txt
    part "$home" 8000000 "$work/some.txt"
    train_options="--preset stream --length 512 --batch 8192"
}

prepare_texts() { "${scale}_texts"; }
