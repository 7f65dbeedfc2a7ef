#!/bin/sh
# What the scripts that fetch from npm share; read by them, after `fail` is defined.

# npm_fetch PACKAGE@VERSION FOLDER: unpacks the package into a new folder. `npm pack` prints the name of the file that it made
# on its last line. One retry, soon: by itself npm tries for a minute.
npm_fetch() {
    mkdir -p "$2"
    file=$(cd "$2" && npm pack --loglevel=error --fetch-retries=1 --fetch-retry-mintimeout=1000 "$1" 2>npm.log | tail -n 1)
    if [ -z "$file" ] || [ ! -f "$2/$file" ]; then
        reason=$(sed -n 's/^npm \(error\|ERR!\) code //p' "$2/npm.log" | head -n 1)
        fail "cannot fetch $1 from the npm registry (is there a network?)${reason:+: $reason}"
    fi
    tar -xzf "$2/$file" -C "$2" --strip-components=1 || fail "$1: not a readable package"
    rm "$2/$file" "$2/npm.log"
}

# npm_tools TOOL...: ends where one is missing.
npm_tools() {
    for tool in "$@"; do
        command -v "$tool" >/dev/null || fail "$tool is needed and not installed (scripts/install-deps npm)"
    done
}
