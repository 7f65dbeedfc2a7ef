#!/bin/sh
# The server and the clients that people have: the npm package `openai`, and requests as lm-evaluation-harness, LangChain and
# Open WebUI send them.
#   sh tests/test_serve_clients.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

run 0 build -m "$model" --precision f32 -o told.store told.txt

# judged COMMAND...: what it finds wrong is one failure more.
judged() {
    last=$1
    checks=$((checks + 1))
    "$@" >judged.out 2>&1 || failed "$(cat judged.out)"
    tail -n 1 judged.out
}

# ---- lm-evaluation-harness

start -m "$model" --precision f32 -s told.store
judged "$python" -I "$source/tests/serve_harness.py" "$knnlm" "$url" "$model" told.store
judged "$python" -I "$source/tests/serve_shapes.py" "$url"
stop
run 0 build --no-tune -m "$tiny" --precision f32 -o bytes.store told.txt
start -m "$tiny" --precision f32 -s bytes.store
judged "$python" -I "$source/tests/serve_harness.py" "$knnlm" "$url" "$tiny" bytes.store
stop
# A model that likes to end a text: the row of its end token is that of a likely token, and more so. Prompts that end have
# an entry for it like any other, or the harness would drop a real one.
"$python" "$source/tests/gguf_edit.py" "$tiny" ends.gguf '@token_embd.weight[266]=60*1.5'
run 0 build --no-tune -m ends.gguf --precision f32 -o ends.store told.txt
start -m ends.gguf --precision f32 -s ends.store
judged "$python" -I "$source/tests/serve_harness.py" "$knnlm" "$url" ends.gguf ends.store ends
stop

# ---- openai

packages=$source/third_party/node/node_modules
if [ -d "$packages/openai" ] && command -v node >/dev/null; then
    start -m "$model" -s told.store --api-key sesame --cors http://page.example
    first=$server first_url=$url
    start -m "$model" --parallel 1 --queue 1 --api-key sesame
    helper=$first # so that both go with the script
    judged node "$source/tests/serve_openai.mjs" "$packages" "$first_url" sesame "$url"
    stop
    server=$first helper=
    stop
    conclude
fi
[ "$failures" -eq 0 ] || conclude
skip "the package openai is not there (scripts/get-node); the rest passed"
