#!/bin/sh
# The shared library exports what include/knnlm.h declares with KNNLM_API, and nothing else; its name has the SOVERSION.
# Usage: test_abi.sh KNNLM SOURCES
# shellcheck disable=SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
library=$(dirname "$knnlm")/libknnlm.so header=$source/include/knnlm.h
[ -e "$library" ] || skip "no shared library in this build"

nm -D --defined-only "$library" | awk '{print $NF}' | sort >exported
sed -n -e 's/^KNNLM_API .*\(knnlm_[a-z_]*\)(.*/\1/p' -e 's/^KNNLM_DEFAULTS(\(knnlm_[a-z_]*\)).*/\1_init/p' "$header" | sort >declared
[ -s declared ] || { echo "$header declares nothing" && exit 1; }
grep -vE '^(//|[[:space:]]|typedef|KNNLM_)' "$header" | grep -E '\bknnlm_[a-z_]+\(' && echo "declared without KNNLM_API" && exit 1
diff declared exported || { echo "declared (<) and exported (>) differ" && exit 1; }

version=$(sed -n 's/^#define KNNLM_VERSION "\([0-9]*\)\..*"/\1/p' "$header")
name=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ "$name" = "libknnlm.so.$version" ] || { echo "SONAME $name, not libknnlm.so.$version" && exit 1; }

# Every value of a public enum is said.
sed -n '/^typedef enum/,/^}/p' "$header" | grep -oE '^    KNNLM_[A-Z0-9_]+[^=]*$' && echo "values without a number" && exit 1
exit 0
