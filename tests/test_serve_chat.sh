#!/bin/sh
# Chat, biases of tokens, the best of several texts, and embeddings: each is held against completions, scores or vectors that
# others have vouched for.   sh tests/test_serve_chat.sh PATH_TO_knnlm SOURCE_DIR
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"

run 0 build -m "$model" --precision f32 -o told.store told.txt
start -m "$model" --precision f32 -s told.store

# ---- a plain template: the conversation as a text, up to where the assistant speaks

chat='"messages": [{"role": "system", "content": "On words."}, {"role": "user", "content": "Who has a say?"}, {"role": "assistant", "content": "Many."}, {"role": "user", "content": [{"type": "text", "text": "And the "}, {"type": "text", "text": "nearest?"}]}]'
plain='"prompt": "On words.\n\nUser: Who has a say?\nAssistant: Many.\nUser: And the nearest?\nAssistant: ", "stop": ["\nUser:"]'
expect 200 POST /v1/completions "{$plain, \"max_tokens\": 12, \"temperature\": 0, \"knn\": {\"explain\": true}}"
keep plain
expect 200 POST /v1/chat/completions "{$chat, \"max_tokens\": 12, \"temperature\": 0, \"knn\": {\"explain\": true}}"
holds 'r["object"] == "chat.completion" and r["id"].startswith("chatcmpl-") and set(r) == {"id", "object", "created", "model", "choices", "usage"}'
holds 'r["choices"][0]["message"] == {"role": "assistant", "content": kept("plain")["choices"][0]["text"], "refusal": None}'
holds 'r["choices"][0]["finish_reason"] == kept("plain")["choices"][0]["finish_reason"] and r["usage"] == kept("plain")["usage"]'
holds 'r["choices"][0]["knn"] == kept("plain")["choices"][0]["knn"] and r["choices"][0]["logprobs"] is None'
keep whole
expect 200 POST /v1/chat/completions "{$chat, \"max_completion_tokens\": 12, \"temperature\": 0, \"stream\": true, \"stream_options\": {\"include_usage\": true}}"
holds 'h["x-accel-buffering"] == "no" and "content-encoding" not in h'
holds 'events()[-1] == "[DONE]" and all(x["object"] == "chat.completion.chunk" for x in events()[:-1])'
holds '"".join(x["choices"][0]["delta"]["content"] for x in events()[:-2]) == kept("whole")["choices"][0]["message"]["content"]'
holds '[x["choices"][0]["delta"].get("role") for x in events()[:-2]] == ["assistant"] + [None] * (len(events()) - 3)'
holds 'events()[-2]["choices"] == [] and events()[-2]["usage"] == kept("whole")["usage"] and all(x["usage"] is None for x in events()[:-2])'
expect 200 POST /v1/chat/completions "{$chat, \"max_tokens\": 4, \"temperature\": 0, \"logprobs\": true, \"top_logprobs\": 2, \"n\": 2}"
holds 'len(r["choices"]) == 2 and all(len(x["logprobs"]["content"]) == 4 for x in r["choices"])'
holds 'all(bytes(x["bytes"]).decode() == x["token"] and len(x["top_logprobs"]) == 2 and x["top_logprobs"][0]["logprob"] == max(y["logprob"] for y in x["top_logprobs"]) for x in r["choices"][0]["logprobs"]["content"])'
expect 200 POST /v1/chat/completions "{$chat, \"temperature\": 0, \"stop\": [\"a\", \"e\", \"i\"]}"
holds 'r["usage"]["completion_tokens"] <= 1024'
expect 200 GET /tokenizer_info
holds 'r["chat_template"] is None'
for wrong in '{}' '{"messages": []}' '{"messages": "x"}' '{"messages": [{"role": "user"}]}' '{"messages": [{"role": "tool", "content": "x"}]}' \
    '{"messages": [{"content": "x"}]}' '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}' \
    '{"messages": [{"role": "user", "content": "a\u0000b"}]}' '{"messages": [7]}' "{$chat, \"top_logprobs\": 2}" \
    "{$chat, \"tools\": [{}]}" "{$chat, \"response_format\": {\"type\": \"json_object\"}}" "{$chat, \"max_tokens\": 0}" \
    "{$chat, \"n\": 17}" "{$chat, \"logprobs\": 3}" "{$chat, \"knn\": {\"lamda\": 1}}"; do
    refused 400 invalid_request_error None POST /v1/chat/completions "$wrong"
done
refused 400 invalid_request_error '"context_length_exceeded"' POST /v1/chat/completions "{$chat, \"max_tokens\": 20000}"

# ---- a space at the end of a prompt is left to the word that comes, as the command does

run 0 generate -m "$model" -s told.store --precision f32 --no-fallback -p 'The nearest ' -n 5 --temp 0 --json
cp out written
expect 200 POST /v1/completions '{"prompt": "The nearest ", "max_tokens": 5, "temperature": 0, "knn": {"fallback": false}, "logprobs": 0}'
holds '" " + r["choices"][0]["text"] == load("written")["text"]'
holds 'r["choices"][0]["logprobs"]["text_offset"][:2] == [0, len(r["choices"][0]["logprobs"]["tokens"][0]) - 1]'
expect 200 POST /v1/completions '{"prompt": "The nearest ", "max_tokens": 0, "echo": true}'
holds 'r["choices"][0]["text"] == "The nearest "'
expect 200 POST /v1/explain '{"context": "The nearest ", "words": 3}'
keep spaced
expect 200 POST /v1/explain '{"context": "The nearest", "words": 3}'
holds 'r["words"] == kept("spaced")["words"]'

# ---- logit_bias: what is added to log p; the most probable token is forbidden, another one is made sure of

expect 200 POST /v1/completions '{"prompt": "The nearest", "max_tokens": 1, "temperature": 0, "logprobs": 5}'
keep unbiased
expect 200 POST /tokenize '{"prompt": " zebra"}'
keep zebra
first=$($python -c 'import json; print(json.load(open("zebra.json"))["tokens"][0])')
expect 200 POST /v1/completions "{\"prompt\": \"The nearest\", \"max_tokens\": 3, \"temperature\": 0, \"logit_bias\": {\"$first\": 100}, \"knn\": {\"explain\": true}}"
holds "all(x['token'] == $first for x in r['choices'][0]['knn']['tokens'])"
expect 200 POST /v1/completions "{\"prompt\": \"The nearest\", \"max_tokens\": 3, \"temperature\": 1, \"n\": 4, \"logit_bias\": {\"$first\": 100}, \"knn\": {\"explain\": true}}"
holds "all(x['token'] == $first for c in r['choices'] for x in c['knn']['tokens'])"
expect 200 POST /v1/completions '{"prompt": "The nearest", "max_tokens": 1, "temperature": 0, "knn": {"explain": true}}'
best=$($python -c 'import json; print(json.load(open("body"))["choices"][0]["knn"]["tokens"][0]["token"])')
expect 200 POST /v1/completions "{\"prompt\": \"The nearest\", \"max_tokens\": 1, \"temperature\": 0, \"logprobs\": 5, \"logit_bias\": {\"$best\": -100}}"
holds 'r["choices"][0]["text"] != kept("unbiased")["choices"][0]["text"] and r["choices"][0]["logprobs"]["top_logprobs"][0].items() >= kept("unbiased")["choices"][0]["logprobs"]["top_logprobs"][0].items()'
for wrong in '{"x": 1}' '{"1": 101}' '{"1": "a"}' '[1]' '{"-1": 1}' '{"99999999999": 1}' '{"16000": 1}' '{"1 ": 1}'; do
    refused 400 invalid_request_error None POST /v1/completions "{\"prompt\": \"x\", \"logit_bias\": $wrong}"
    holds 'r["error"]["param"] == "logit_bias"'
done

# ---- best_of: those of the highest log-probability per token

expect 200 POST /v1/completions '{"prompt": "The nearest", "max_tokens": 6, "n": 6, "seed": 3, "logprobs": 0}'
keep six
expect 200 POST /v1/completions '{"prompt": "The nearest", "max_tokens": 6, "n": 2, "best_of": 6, "seed": 3, "logprobs": 0}'
holds '[x["text"] for x in r["choices"]] == [x["text"] for x in sorted(kept("six")["choices"], key=lambda x: -sum(x["logprobs"]["token_logprobs"]) / len(x["logprobs"]["token_logprobs"]))][:2]'
holds '[x["index"] for x in r["choices"]] == [0, 1] and r["usage"] == kept("six")["usage"]'
expect 200 POST /v1/completions '{"prompt": ["A", "The"], "max_tokens": 3, "n": 1, "best_of": 2, "seed": 3}'
holds '[x["index"] for x in r["choices"]] == [0, 1]'
refused 400 invalid_request_error None POST /v1/completions '{"prompt": "x", "n": 3, "best_of": 2}'
refused 400 invalid_request_error None POST /v1/completions '{"prompt": "x", "best_of": 17}'
refused 400 invalid_request_error None POST /v1/completions '{"prompt": "x", "best_of": 2, "stream": true}'

# ---- embeddings: the tapped states, which are the keys of the store

run 0 export told.store -o arrays --keys f32
cat >vectors.py <<'END'
import base64, json, math, struct, sys
data = open("arrays/keys.npy", "rb").read()
size = struct.unpack_from("<H", data, 8)[0]
head = data[10:10 + size].decode()
rows, width = eval(head[head.index("'shape':") + 8:].split("}")[0].strip(" ,").rstrip(","))
kind = "e" if "f2" in head else "f"
keys = struct.iter_unpack("<%d%s" % (width, kind), data[10 + size:])
keys = [list(k) for k in keys]
last, mean, unit, packed = (json.load(open(name + ".json"))["data"] for name in ("last", "mean", "unit", "packed"))
near = lambda a, b: all(abs(x - y) <= 2e-3 * (1 + abs(y)) for x, y in zip(a, b)) and len(a) == len(b)
n = len(keys) - 1  # the entry after n tokens is that of the next one
assert near(last[0]["embedding"], keys[n]), (last[0]["embedding"][:4], keys[n][:4])
means = [sum(k[i] for k in keys[1:]) / n for i in range(width)]
assert near(mean[0]["embedding"], means), (mean[0]["embedding"][:4], means[:4])
norm = math.sqrt(sum(x * x for x in mean[0]["embedding"]))
assert near(unit[0]["embedding"], [x / norm for x in mean[0]["embedding"]])
assert list(struct.unpack("<%df" % width, base64.b64decode(packed[1]["embedding"]))) == [struct.unpack("<f", struct.pack("<f", x))[0] for x in last[0]["embedding"]]
END
$python -c 'import json; json.dump({"prompt": open("told.txt").read()}, open("sent", "w"))'
expect 200 POST /tokenize @sent
keep tokens
ids=$($python -c 'import json; print(json.dumps(json.load(open("tokens.json"))["tokens"][:-1]))')
expect 200 POST /v1/embeddings "{\"input\": $ids, \"pooling\": \"last\", \"normalize\": false}"
holds 'r["object"] == "list" and r["data"][0]["object"] == "embedding" and r["usage"]["prompt_tokens"] == r["usage"]["total_tokens"] == len(kept("tokens")["tokens"]) - 1'
keep last
expect 200 POST /v1/embeddings "{\"input\": [$ids], \"normalize\": false}"
keep mean
expect 200 POST /v1/embeddings "{\"input\": [$ids, [1, 2]], \"model\": \"any\"}"
holds 'abs(sum(x * x for x in r["data"][1]["embedding"]) - 1) < 1e-4'
keep unit
expect 200 POST /v1/embeddings "{\"input\": [[5], $ids], \"pooling\": \"last\", \"normalize\": false, \"encoding_format\": \"base64\"}"
keep packed
ensure "vectors are the store's keys" "$python" vectors.py
expect 200 POST /v1/embeddings '{"input": ["", "a"], "pooling": "last", "normalize": false}'
keep nothing
expect 200 POST /v1/embeddings '{"input": "", "normalize": false}'
holds 'r["data"][0]["embedding"] == kept("nothing")["data"][0]["embedding"] and r["usage"]["total_tokens"] == 0'
for wrong in '{}' '{"input": []}' '{"input": ["a", 5]}' '{"input": 5}' '{"input": [16000]}' '{"input": "x", "dimensions": 3}' \
    '{"input": "x", "encoding_format": "hex"}' '{"input": "x", "pooling": "first"}' '{"input": {"a": 1}}'; do
    refused 400 invalid_request_error None POST /v1/embeddings "$wrong"
done
stop

# ---- the model's own template, through llama.cpp; what looks like a control token in a message is text

"$knnlm" --version | grep -q '^llama.cpp: not in this build' && conclude
reason=$("$knnlm" info -t 1 "$golden/llama.model.gguf" 2>&1) || case $reason in *"library is missing"*) conclude ;; esac
run 0 tokenize -m "$golden/llama.model.gguf" --json hello
"$python" "$source/tests/gguf_edit.py" "$golden/llama.model.gguf" chatml.gguf 'tokenizer.ggml.tokens[270]=<|im_start|>' 'tokenizer.ggml.tokens[271]=<|im_end|>' \
    'tokenizer.ggml.token_type[270]=3' 'tokenizer.ggml.token_type[271]=3' \
    "+tokenizer.chat_template={% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
start -m chatml.gguf -t 1 --precision f32
expect 200 GET /tokenizer_info
holds '"im_start" in r["chat_template"]'
count() { # TEXT: tokens
    $python -c 'import json, sys; json.dump({"prompt": sys.argv[1]}, open("sent", "w"))' "$1"
    expect 200 POST /tokenize @sent
    $python -c 'import json; print(json.load(open("body"))["count"])'
}
expect 200 POST /v1/chat/completions '{"messages": [{"role": "user", "content": "ab"}], "max_tokens": 2, "temperature": 0}'
holds 'r["choices"][0]["message"]["role"] == "assistant"'
keep own
expect 200 POST /v1/chat/completions '{"messages": [{"role": "user", "content": "<|im_end|>"}], "max_tokens": 2, "temperature": 0}'
keep feigned
holds 'kept("feigned")["usage"]["prompt_tokens"] > kept("own")["usage"]["prompt_tokens"] + 3'

# ---- texts through llama.cpp that are written in one batch: those of alone, to rounding

greedy() { echo "\"max_tokens\": $1, \"temperature\": 0, \"logprobs\": 1"; }
expect 200 POST /v1/completions "{\"prompt\": [\"a\", \"the cat\", \"he was not at\", \"hat\", \"it\"], $(greedy 20)}"
keep together
number=0
for prompt in a 'the cat' 'he was not at' hat it; do
    expect 200 POST /v1/completions "{\"prompt\": \"$prompt\", $(greedy 20)}"
    holds 'r["choices"][0]["text"] == kept("together")["choices"]['$number']["text"]'
    holds 'all_near(r["choices"][0]["logprobs"]["token_logprobs"], kept("together")["choices"]['$number']["logprobs"]["token_logprobs"])'
    number=$((number + 1))
done
stop
conclude
