#!/bin/sh
# What the scripts about stores of shards share, on top of cli_kit.sh: texts, and how two stores are compared.
# shellcheck disable=SC2034,SC2154 # some names are the kit's, some the scripts'
export SOURCE_DATE_EPOCH=1700000000
cp "$golden/adaptive.model.gguf" model.gguf # words w1, w2, ...; states of 32 dimensions, a context of 80
model=$work/model.gguf
write_text() { # SEED WORDS
    awk -v seed="$1" -v words="$2" 'BEGIN {
        srand(seed)
        for (i = 1; i <= words; i++) printf "w%d%s", int(rand() * 90), i % 9 ? " " : "\n"
    }'
}

# Documents that begin alike (their first entries are equally near to everything), one twice, one without a token, two
# files of one name.
write_texts() { # FOLDER
    mkdir -p "$1/a" "$1/b"
    write_text 1 120 >begin
    for i in 1 2 3 4 5 6 7 8 9; do
        { cat begin && write_text "2$i" $((i * i * 7)); } >"$1/alike-$i.txt"
    done
    write_text 3 400 >"$1/long.txt"
    cp "$1/long.txt" "$1/twice.txt"
    : >"$1/empty.txt"
    write_text 4 90 >"$1/a/note.txt"
    write_text 5 60 >"$1/b/note.txt"
}

# What depends on the machine, the moment and the name of the store is left out.
figures() { # FILE
    sed -E -e 's/,? ?"(seconds[a-z_]*|tokens_per_second|bytes_per_query|threads)": [-0-9.e+]+//g' -e 's/"(store|path)": "[^"]*"//g' "$1"
}

launch='' # what stands before knnlm: mpirun ...
drive() { # CODE ARGUMENT...
    code=$1
    shift
    last="$launch knnlm $*"
    checks=$((checks + 1))
    # shellcheck disable=SC2086 # words
    $launch "$knnlm" "$@" >out 2>err </dev/null
    got=$?
    [ $got -eq "$code" ] || failed "exit code $got, not $code"
}

# looked STORE NAME OPTION...: everything that is asked of a store, in files NAME.*
looked() {
    looked_at=$1 files=$2
    shift 2
    drive 0 eval -m "$model" -s "$looked_at" --json --per-token "$files.rows" "$@" valid.txt texts/alike-3.txt
    figures out >"$files.eval"
    drive 0 explain -m "$model" -s "$looked_at" --json "$@" "w3 w4 w5 w6"
    figures out >"$files.explain"
    drive 0 generate -m "$model" -s "$looked_at" --seed 7 -n 20 --json "$@" -p "w1 w2"
    figures out >"$files.generate"
}
alike() { # NAME NAME
    for what in rows eval explain generate; do
        ensure "$1.$what and $2.$what differ: $(diff "$1.$what" "$2.$what" 2>&1 | head -n 3 | cut -c 1-300)" cmp -s "$1.$what" "$2.$what"
    done
}
