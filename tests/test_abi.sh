#!/bin/sh
# The shared library exports what include/knnlm.h declares with KNNLM_API, and nothing else; its name has the SOVERSION.
# Usage: test_abi.sh KNNLM SOURCES
set -u
library=$(dirname "$1")/libknnlm.so header=$2/include/knnlm.h
[ -e "$library" ] || { echo "no shared library in this build" && exit 77; }
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT

nm -D --defined-only "$library" | awk '{print $NF}' | sort >"$folder/exported"
sed -n 's/^KNNLM_API .*\(knnlm_[a-z_]*\)(.*/\1/p' "$header" | sort >"$folder/declared"
[ -s "$folder/declared" ] || { echo "$header declares nothing" && exit 1; }
grep -vE '^(//|[[:space:]]|typedef|KNNLM_API)' "$header" | grep -E '\bknnlm_[a-z_]+\(' && echo "declared without KNNLM_API" && exit 1
diff "$folder/declared" "$folder/exported" || { echo "declared (<) and exported (>) differ" && exit 1; }

version=$(sed -n 's/^#define KNNLM_VERSION "\([0-9]*\)\..*"/\1/p' "$header")
name=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ "$name" = "libknnlm.so.$version" ] || { echo "SONAME $name, not libknnlm.so.$version" && exit 1; }

# Every value of a public enum is said.
sed -n '/^typedef enum/,/^}/p' "$header" | grep -oE '^    KNNLM_[A-Z0-9_]+[^=]*$' && echo "values without a number" && exit 1
exit 0
