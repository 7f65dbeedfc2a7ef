#!/bin/sh
# Draws columns of a CSV file with a header, such as a training log, as OUT.svg and OUT.png.
#   bench/plot.sh [-t TITLE] [-l|-x|-X|-L] LOG.csv OUT X Y...  logarithmic axes: -l y, -x x (by twos), -X x, -L both
# X and Y are names of columns. Empty fields are skipped, so that columns filled now and then draw as lines too.
set -eu

usage() {
    sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

fail() {
    echo "plot: $*" >&2
    exit 1
}

# Number of the column called $2.
column() {
    head -n 1 "$1" | tr ',' '\n' | grep -nxF "$2" | cut -d: -f1 | head -n 1
}

# A string of gnuplot's.
quoted() { printf "'%s'" "$(echo "$1" | sed "s/'/''/g")"; }

title='' scale='' style=lines
while getopts t:lxXL option; do
    case $option in
    t) title=$OPTARG ;;
    l) scale='set logscale y' ;;
    x) scale='set logscale x 2; set xrange [1:]; set key right center' style=linespoints ;;
    X) scale='set logscale x; set offsets graph 0, 0, 0.1, 0.1' style=linespoints ;;
    L) scale='set logscale xy; set key top left' style=linespoints ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 4 ] || usage
csv=$1 out=$2 x=$3
shift 3
[ -r "$csv" ] || fail "$csv: cannot be read"
"$(dirname "$0")/../scripts/install-deps" plots >&2

x_number=$(column "$csv" "$x")
[ -n "$x_number" ] || fail "$csv: no column '$x' (there are: $(head -n 1 "$csv"))"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
plots=
for y in "$@"; do
    y_number=$(column "$csv" "$y")
    [ -n "$y_number" ] || fail "$csv: no column '$y' (there are: $(head -n 1 "$csv"))"
    awk -F, -v x="$x_number" -v y="$y_number" 'NR > 1 && $x != "" && $y != "" { print $x, $y }' "$csv" \
        >"$work/$y_number"
    plots="$plots${plots:+, }$(quoted "$work/$y_number") with $style linewidth 2 title $(quoted "$y")"
done

for kind in svg png; do
    terminal="svg size 900,540 dynamic background rgb 'white'"
    [ $kind = svg ] || terminal='pngcairo size 900,540'
    gnuplot <<END
set terminal $terminal noenhanced
set output $(quoted "$out.$kind")
set title $(quoted "$title")
set xlabel $(quoted "$x")
set grid
set key top right
$scale
plot $plots
END
    echo "$out.$kind"
done
