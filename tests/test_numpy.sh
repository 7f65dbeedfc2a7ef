#!/bin/sh
# knnlm import and export beside NumPy:  sh tests/test_numpy.sh PATH_TO_knnlm SOURCE_DIR
# Every check prints a line when it fails; the exit code is 1 when one did, 77 when there is no NumPy.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
needs_python "the peer" numpy

# numpy WHAT SCRIPT: Python that must not fail. `same(a, b)`: equal in type, shape and every bit.
numpy() {
    ensure "$1" "$python" -c "
import json, numpy as np, os
def same(a, b):
    assert a.dtype == b.dtype, (a.dtype, b.dtype)
    assert a.shape == b.shape, (a.shape, b.shape)
    assert a.tobytes() == b.tobytes()
$2"
}

# ---- usage

for command in import export; do
    run 0 "$command" --help
    ensure "$command --help tells the usage" grep -q "^usage: knnlm $command " out
    ensure "$command --help has examples" grep -q "^  knnlm $command .* -o " out
done
complains 2 '\-o STORE' import keys values
complains 2 'keys' import -o a.store
complains 2 'keys' import -o a.store a b c
complains 2 'range' import -o a.store --dim 0 a b
complains 2 'one of f16, f32' import -o a.store --key-type f64 a b
complains 2 'one of int64, int32, int16, uint16' import -o a.store --value-type int8 a b
complains 2 'one of f16, f32, int8' import -o a.store --keys none a b
complains 2 '\-o DIRECTORY' export a.store
complains 2 'one store' export -o arrays
complains 2 'one of f16, f32' export a.store -o arrays --keys int8
complains 1 'nowhere: No such file' import nowhere -o a.store
complains 1 'nowhere: No such file' import nowhere values -o a.store
complains 1 'nowhere' export nowhere -o arrays
complains 2 'tap' import nowhere -o a.store --tap knee
ensure "usage makes nothing" test ! -e a.store -a ! -e arrays

# ---- the paper's code: raw memmaps, f32 and int64, or f16 and int16

numpy "NumPy writes memmaps" "
r = np.random.default_rng(1)
def raw(name, values):
    m = np.memmap(name, dtype=values.dtype, mode='w+', shape=values.shape)
    m[:] = values
    m.flush()
os.mkdir('f32'), os.mkdir('f16'), os.mkdir('kt')
keys = r.standard_normal((3001, 24)).astype('float32')
vals = r.integers(0, 32000, (3001, 1))
np.save('keys32.npy', keys), np.save('vals.npy', vals)
raw('f32/dstore_keys.npy', keys), raw('f32/dstore_vals.npy', vals.astype('int64'))
raw('f16/dstore_keys.npy', keys.astype('float16')), raw('f16/dstore_vals.npy', vals.astype('int16'))
raw('kt/dstore_gpt2_3001_24_keys.npy', keys.astype('float16'))
raw('kt/dstore_gpt2_3001_24_vals.npy', vals.astype('int32'))
big = vals.copy()
big[7] = 50256
raw('overflowed.npy', big.astype('uint16'))
raw('wide.npy', np.where(big == 50256, 2**31, big))
np.save('good.npy', big[:, 0].astype('int32'))"

complains 1 '3001 of dimension 24 (f32, int64)' import f32 -o a.store
complains 1 '6002 of dimension 24 (f16, int32)' import f32 -o a.store --dim 24
run 0 import f32 -o f32.store --entries 3001 --dim 24
ensure "import tells the entries" grep -q '^entries  *3001$' out
ensure "import tells the types" grep -q '^keys .*dstore_keys.npy: float32, dimension 24$' out
ensure "import is silent on stderr where it is no terminal" test ! -s err
run 0 verify f32.store
run 0 export f32.store -o f32.out --json
ensure "export --json tells the entries" test "$(field entries out)" = 3001
numpy "float32 keys and int64 values come out as they went in" "
keys, vals, origins = (np.load('f32.out/' + n + '.npy') for n in ('keys', 'values', 'origins'))
same(keys, np.load('keys32.npy'))
same(vals, np.load('vals.npy')[:, 0].astype('int32'))
assert origins.dtype == np.int64 and origins.shape == (3001, 3)
assert (origins[:, 0] == 0).all() and (origins[:, 1] == np.arange(3001)).all() and (origins[:, 2] == -1).all()
assert np.load('f32.out/keys.npy', mmap_mode='r')[17, 3] == keys[17, 3]
assert json.load(open('out'))['bytes'] == sum(os.path.getsize('f32.out/' + f) for f in os.listdir('f32.out'))"
ensure "one document, of the values' name" grep -q "^0	f32/dstore_vals.npy	" f32.out/documents.tsv
ensure "export makes four files" test "$(find f32.out -type f | wc -l)" -eq 4

run 0 import f16/dstore_keys.npy f16/dstore_vals.npy -o f16.store --key-type f16 --value-type int16 --vocab 32000 --json
ensure "import --json tells the dimension" test "$(field dimension out)" = 24
numpy "import --json is JSON" "
r = json.load(open('out'))
assert r['entries'] == 3001 and r['key_type'] == 'float16' and r['value_type'] == 'int16' and not r['restored']
assert r['settings']['vocabulary'] == 32000 and r['settings']['keys'] == 'f16' and r['seconds'] > 0"
run 0 export f16.store -o f16.out
numpy "float16 keys and int16 values come out as they went in" "
same(np.load('f16.out/keys.npy'), np.load('keys32.npy').astype('float16'))
same(np.load('f16.out/values.npy'), np.load('vals.npy')[:, 0].astype('int32'))"

# ---- knn-transformers: shape in the name

run 0 import kt -o kt.store
run 0 export kt.store -o kt.out
ensure "its float16 keys come out" cmp f16.out/keys.npy kt.out/keys.npy
ensure "its int32 values come out" cmp f16.out/values.npy kt.out/values.npy
run 0 import kt/dstore_gpt2_3001_24_keys.npy -o kt2.store --json
ensure "the keys' name suffices" test "$(field entries out)" = 3001
cp kt/dstore_gpt2_3001_24_vals.npy kt/dstore_gpt2_3001_25_vals.npy
cp kt/dstore_gpt2_3001_24_keys.npy kt/dstore_gpt2_3001_25_keys.npy
complains 1 'several pairs' import kt -o a.store
complains 1 '144048 bytes.*12004 bytes.*3001 entries of dimension 25' import kt/dstore_gpt2_3001_25_keys.npy -o a.store

# ---- int8, conversions

for type in f16 f32 int8; do
    run 0 import f32 -o "$type.kept" --entries 3001 --dim 24 --keys $type
    run 0 export "$type.kept" -o "$type.arrays" --keys f32
done
numpy "keys are kept as told" "
keys = np.load('keys32.npy')
same(np.load('f32.arrays/keys.npy'), keys)
same(np.load('f16.arrays/keys.npy'), keys.astype('float16').astype('float32'))
off = np.abs(np.load('int8.arrays/keys.npy') - keys)
assert (off <= np.abs(keys).max(1, keepdims=True) / 127 * 0.5001).all() and off.max() > 0"
run 0 export int8.kept -o int8.plain
ensure "int8 goes out as float32" cmp int8.plain/keys.npy int8.arrays/keys.npy

# ---- traps

complains 1 'value 7 is -15280: int16 has overflowed.*--value-type uint16' \
    import f16/dstore_keys.npy overflowed.npy -o a.store --dim 24 --entries 3001
run 0 import f16/dstore_keys.npy overflowed.npy -o recovered.store --dim 24 --value-type uint16 --vocab 50257
run 0 export recovered.store -o recovered
numpy "uint16 recovers what int16 had wrapped" "same(np.load('recovered/values.npy'), np.load('good.npy'))"
complains 1 'value 7 is 50256: the vocabulary has 50256' \
    import f16/dstore_keys.npy overflowed.npy -o a.store --dim 24 --value-type uint16 --vocab 50256
complains 1 'value 7 is 2147483648: not a token' import f16/dstore_keys.npy wide.npy -o a.store --dim 24
complains 1 '144048 bytes.*6002 bytes.*dimension 23' import f16 -o a.store --dim 23
head -c 144000 f16/dstore_keys.npy >short.npy
complains 1 'short.npy has 144000 bytes.*6002 bytes' import short.npy f16/dstore_vals.npy -o a.store
complains 1 'is a store already' import kt/dstore_gpt2_3001_24_keys.npy -o kt.store
complains 1 'holds other files' import f16 -o f16.out --dim 24 --key-type f16
complains 1 'is a store' export kt.store -o kt.store
ensure "failures make nothing" test ! -e a.store
run 0 verify kt.store

# ---- NumPy's own files, whatever their versions and types

numpy "NumPy writes arrays" "
keys, vals = np.load('keys32.npy'), np.load('vals.npy')
for i, t in enumerate(['i2', 'i4', 'i8', 'u2', 'u4', 'u8']):
    os.mkdir('np%d' % i)
    with open('np%d/keys.npy' % i, 'wb') as f: np.lib.format.write_array(f, keys, version=(1 + i % 2, 0))
    with open('np%d/values.npy' % i, 'wb') as f: np.lib.format.write_array(f, vals.astype(t), version=(2 - i % 2, 0))
np.save('fortran.npy', np.asfortranarray(keys)), np.save('big-endian.npy', keys.astype('>f4'))
np.save('double.npy', keys.astype('f8')), np.save('cut.npy', keys[:-1])"
for i in 0 1 2 3 4 5; do
    run 0 import "np$i" -o "np$i.store"
    run 0 export "np$i.store" -o "np$i.out"
    ensure "arrays of type $i come out equal" cmp f32.out/keys.npy "np$i.out/keys.npy"
    ensure "values of type $i come out equal" cmp f32.out/values.npy "np$i.out/values.npy"
done
complains 1 'fortran.npy: .*Fortran' import fortran.npy np1/values.npy -o a.store
complains 1 "big-endian.npy: .*'>f4'" import big-endian.npy np1/values.npy -o a.store
complains 1 "double.npy: .*'<f8'" import double.npy np1/values.npy -o a.store
complains 1 'cut.npy has 3000 x 24.*values.npy has 3001' import cut.npy np1/values.npy -o a.store

# ---- a store that knnlm has built: out, in, out

write_text() { # SEED SENTENCES
    awk -v seed="$1" -v sentences="$2" 'BEGIN {
        srand(seed)
        n = split("cat dog river mountain caf\303\251 stone letter window garden", noun, " ")
        for (i = 0; i < sentences; i++)
            printf "The %s sees the %s.%s", noun[int(rand() * n) + 1], noun[int(rand() * n) + 1], i % 5 ? " " : "\n"
    }'
}
mkdir texts
write_text 1 300 >texts/one.txt
write_text 2 40 >texts/two.txt
write_text 3 90 >"texts/a	tab.txt"
run 0 train texts -o model.gguf --preset gpt2-tiny --vocab 300 --steps 2 --batch 512 --length 64
run 0 build -m model.gguf -o built.store texts --segment 500
run 0 export built.store -o built
numpy "NumPy finds the texts' tokens where they are" "
keys, values, origins = (np.load('built/' + n + '.npy') for n in ('keys', 'values', 'origins'))
rows = [l.split('\t') for l in open('built/documents.tsv', encoding='utf-8').read().split('\n')[1:-1]]
assert [int(r[0]) for r in rows] == [0, 1, 2]
assert keys.dtype == np.float16 and len(keys) == len(values) == len(origins) == sum(int(r[4]) for r in rows)
for r in rows:
    name = r[2].replace('\\\\t', '\t')
    own = origins[origins[:, 0] == int(r[0])]
    assert int(r[3]) == os.path.getsize(name) and len(own) == int(r[4])
    assert (own[:, 1] == np.arange(len(own))).all() and (np.diff(own[:, 2]) > 0).all()
    assert own[0, 2] == 0 and own[-1, 2] < int(r[3])
# one token, one text
text = {}
for r in rows:
    data = open(r[2].replace('\\\\t', '\t'), 'rb').read()
    at = origins[:, 0] == int(r[0])
    ends = list(origins[at][1:, 2]) + [len(data)]
    for v, a, b in zip(values[at], origins[at][:, 2], ends):
        assert text.setdefault(v, data[a:b]) == data[a:b]"
run 0 import built -o again.store -m model.gguf --json
ensure "documents are restored" grep -q '"restored": true' out
run 0 export again.store -o again
for file in keys.npy values.npy origins.npy documents.tsv; do
    ensure "$file survives" cmp "built/$file" "again/$file"
done
run 0 verify again.store
run 0 import np1 -o a.store --dim 24
rm -r a.store
complains 1 'dimension' import np1 -o a.store -m model.gguf
complains 2 '\-\-dim 24: the keys of model.gguf' import np1 -o a.store -m model.gguf --dim 24
complains 2 '\-\-vocab 32000: the vocabulary of model.gguf' import built -o a.store -m model.gguf --vocab 32000
cp -r built moved && rm moved/origins.npy
complains 1 'origins.npy is not' import moved -o a.store
run 0 build -m model.gguf -o none.store texts --keys none
run 0 export none.store -o none
ensure "a store without keys exports none" test ! -e none/keys.npy -a -s none/values.npy
ensure "and says so" grep -q '^keys  *none' out
complains 1 'no pair' import none -o a.store
complains 1 'keys.npy: ' export none.store -o built
ensure "failures make no store" test ! -e a.store

# ---- a disk that is too small

mkdir disk
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=64k none disk 2>/dev/null; then
    mounted=$work/disk
    complains 1 'disk/out: .*--force' export f32.store -o disk/out
    complains 1 'disk/a.store: .*--force' import f32 -o disk/a.store --entries 3001 --dim 24
    complains 1 'No space' export f32.store -o disk/out --force
    complains 1 'No space' import f32 -o disk/a.store --entries 3001 --dim 24 --force
    ensure "a full disk keeps nothing half-written" test -z "$(ls -A disk)"
    umount disk && mounted=
else
    echo "skipped: a disk that is too small (needs root, to mount a small one)"
fi

conclude
