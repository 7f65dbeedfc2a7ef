#!/bin/sh
# What others build on: an installed copy found by CMake, the Python package installed by pip, and the Debian package, unpacked into an
# empty root and run there.  sh tests/test_package.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
build=$(dirname "$knnlm")
[ -e "$build/libknnlm.so" ] || skip "no shared library in this build"
has() { for program in "$@"; do command -v "$program" >/dev/null || return 1; done; }
has cmake cc || skip "no cmake, or no C compiler"
unset KNNLM_LIBRARY PYTHONPATH LD_LIBRARY_PATH
export PYTHONDONTWRITEBYTECODE=1

# ---- a project of somebody's that says find_package(knnlm)

last='cmake --install'
check cmake --install "$build" --prefix "$work/prefix"
mkdir consumer
cat >consumer/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES C)
find_package(knnlm 0.1 REQUIRED)
add_executable(consumer main.c)
target_link_libraries(consumer PRIVATE knnlm::knnlm)
END
cat >consumer/main.c <<'END'
#include <knnlm.h>
#include <stdio.h>
int main(void) {
    knnlm_search_options o = knnlm_search_options_default();
    printf("%s %zu %zu\n", knnlm_version(), o.k, o.size == sizeof o ? o.k : 0);
}
END
last='find_package(knnlm)'
check cmake -S consumer -B consumer/build -DCMAKE_PREFIX_PATH="$work/prefix"
check cmake --build consumer/build
check sh -c 'consumer/build/consumer >out'
check test "$(cat out)" = '0.1.0 1024 1024'
ensure "it is the shared library that was installed" \
    sh -c "ldd consumer/build/consumer | grep -q 'libknnlm.so.0 => $work/prefix/'"
mv prefix moved
check cmake -S consumer -B consumer/again -DCMAKE_PREFIX_PATH="$work/moved"
sed 's/knnlm 0.1/knnlm 0.2/' consumer/CMakeLists.txt >newer && mv newer consumer/CMakeLists.txt
ensure "another version is not taken" not cmake -S consumer -B consumer/other -DCMAKE_PREFIX_PATH="$work/moved"

# ---- Python: from the prefix, and by pip

# from_python PATH WHERE: the package there imports, with the library that is WHERE.
from_python() {
    PYTHONPATH=$1 "$python" -c "
import knnlm, sys
assert knnlm.version() == knnlm.__version__ == '0.1.0'
assert knnlm.__file__.startswith('$1'), knnlm.__file__
where = {line.split()[-1] for line in open('/proc/self/maps') if 'libknnlm' in line}
assert all(path.startswith('$2') for path in where) and where, where"
}
if "$python" -c 'import numpy' 2>/dev/null; then
    last='import knnlm'
    check from_python "$work/moved/lib/python3/dist-packages" "$work/moved/lib/"
    [ "$build" != "$source/build" ] || check from_python "$source/python" "$source/build/"
    if "$python" -c 'import setuptools, wheel' 2>/dev/null && "$python" -m pip --version >/dev/null 2>&1; then
        cp -r "$source/python" sources
        last='pip install ./python'
        check "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-index --no-build-isolation \
            --no-deps --target "$work/pip" ./sources
        export KNNLM_LIBRARY="$work/moved/lib/libknnlm.so.0"
        check from_python "$work/pip" "$work/moved/lib/"
        unset KNNLM_LIBRARY
        check test -e pip/knnlm/py.typed
    else
        echo "skipped: pip (no python3-pip, python3-setuptools and python3-wheel)"
    fi
else
    echo "skipped: the Python package (no python3-numpy)"
fi

# ---- the Debian package

has dpkg-shlibdeps file || {
    echo "skipped: the Debian package (no dpkg-dev, or no file)"
    conclude
}
last=cpack
check cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/packed"
deb=$(find packed -maxdepth 1 -name 'knnlm_0.1.0_*.deb')
check test -s "$deb"
dpkg-deb --field "$deb" >control
dpkg-deb --contents "$deb" | awk '{ print $6 }' >files
for line in '^Package: knnlm$' '^Version: 0.1.0$' '^Depends: .*libc6 (>= ' '^Depends: .*libjansson4' '^Depends: .*libmicrohttpd12' \
    '^Recommends: python3-numpy$' '^Description: nearest-neighbour'; do
    check grep -q "$line" control
done
for file in bin/knnlm lib/libknnlm.so lib/libknnlm.so.0 lib/libknnlm.so.0.1.0 lib/libknnlm.a include/knnlm.h lib/pkgconfig/knnlm.pc \
    lib/cmake/knnlm/knnlm-config.cmake lib/python3/dist-packages/knnlm/__init__.py lib/python3/dist-packages/knnlm/py.typed \
    share/man/man1/knnlm.1 share/bash-completion/completions/knnlm; do
    ensure "the package has usr/$file" grep -qx "./usr/$file" files
done
ensure "everything is below /usr" not grep -v -e '^\./$' -e '^\./usr/' files
ensure "no caches of Python's" not grep -q __pycache__ files
dpkg-deb --control "$deb" control.d
check grep -q '^libknnlm 0 knnlm' control.d/shlibs
check grep -qx "activate-noawait ldconfig" control.d/triggers

last='dpkg -x'
mkdir root
check dpkg -x "$deb" root
ensure "no path of the build in the binaries" not sh -c 'readelf -d root/usr/bin/knnlm root/usr/lib/libknnlm.so.0 | grep -q -i -e rpath -e runpath'
check sh -c 'root/usr/bin/knnlm --version >out'
check grep -q '^knnlm 0.1.0' out
# It may have come after the build was configured.
{ [ ! -e "$build/../third_party/llama/RELEASE" ] || "$build/knnlm" --version | grep -q 'llama.cpp: not in this build'; } || check grep -q "$work/root/usr/bin/../lib/knnlm/llama" out
! "$python" -c 'import numpy' 2>/dev/null || check from_python "$work/root/usr/lib/python3/dist-packages" "$work/root/usr/lib/"

# A root that has nothing but the package and the libraries that its binaries name, each of a package that it depends on.
last='chroot'
ldd root/usr/bin/knnlm root/usr/lib/libknnlm.so.0 | awk '$2 == "=>" && $3 ~ "^/" { print $3 } $1 ~ "^/.*ld-linux" { print $1 }' | sort -u >libraries
while read -r library; do
    mkdir -p "root$(dirname "$library")" && cp -L "$library" "root$library"
done <libraries
if [ "$(id -u)" -eq 0 ] && [ -e root/usr/share/knnlm/small.gguf ]; then
    printf 'A store remembers every context, and the word that followed it.\n' >root/text.txt
    mkdir -p root/tmp root/proc root/dev
    check chroot root /usr/bin/knnlm build -m /usr/share/knnlm/small.gguf -o /text.store /text.txt
    ensure "it evaluates there" sh -c 'chroot root /usr/bin/knnlm eval -s /text.store /text.txt --json >out'
    check grep -q '"ppl": ' out
else
    echo "skipped: a bare root (needs root, and the bundled model)"
fi
conclude
