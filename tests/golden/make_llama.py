#!/usr/bin/python3
"""Makes the tiny models that judge the engine on llama.cpp, and what one of them answers.

The maths of a Llama and its SentencePiece tokenizer stand here a second time, in NumPy and in float64; no code is shared
with the library or with llama.cpp. Written are

    llama.model.gguf      a Llama: grouped heads, rotary positions, RMSNorm, SwiGLU, an output matrix of its own
    llama.golden.gguf     inputs, targets, lengths      its windows, one after another
                          logprobs, entropies           a number for each position
                          rows, distribution, POINT@L   some positions in full: log-probabilities, and the taps at layer L
                          golden.loss                   the sum of the negative log-probabilities (a key)
                          golden.text, tokens, offsets  a text (a key), its tokens, and the byte at which each begins
    parallel.model.gguf   a Falcon: attention and feed-forward read the same norm, so that two of the taps are not there
    encoder.model.gguf    a BERT: no causal language model
    shared.model.gguf     a GPT-2 with a byte-level vocabulary, which the library's own engine runs as well

Debian's python3-numpy serves:  /usr/bin/python3 tests/golden/make_llama.py [folder]
The files are committed; make them anew only when the definition of a model changes.
"""

import math
import os
import sys

import numpy as np

from gguf_write import BOOL, F32, F64, I32, STRING, U32, write_gguf

# ---------------------------------------------------------------- a SentencePiece vocabulary

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
SPACE = "\u2581"  # what SentencePiece writes for a space

# Each joins two pieces: characters, or pieces before it. Earlier ones are joined first.
JOINED = (
    "▁t he ▁a in re on ▁the er nd ▁s ▁w at ou ▁c ▁b or is en an ▁o ing ▁and ▁f ▁m ed it es ▁of ▁p ▁to al ▁in st ar ▁h ▁d "
    "▁is ▁it as ▁be om ve ▁th ro le ▁on ic ▁n ▁l ▁that ▁he ▁was ▁g ll ▁e ▁cat ▁▁ ▁▁▁▁"
).split()
# Not all of ASCII: G, Q, Z, 7, <, > and the line feed are spelt in bytes, and so is what lies outside of it but é.
CHARACTERS = SPACE + "etaoinsrhldcumfpgwybvkxjqz.,-'ABCDEFHIT0123é"


def llama_vocabulary():
    """Tokens, scores and types in the order of a SentencePiece file: control, bytes, joined pieces, characters."""
    pieces = JOINED + list(CHARACTERS)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + pieces
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces)
    scores = [0.0] * 259 + [-float(i) for i in range(len(pieces))]
    assert len(set(tokens)) == len(tokens)
    for i, piece in enumerate(JOINED):  # or it could never come about
        known = set(JOINED[:i]) | set(CHARACTERS)
        assert any(piece[:k] in known and piece[k:] in known for k in range(1, len(piece))), piece
    return tokens, scores, types


def llama_tokenize(text, tokens, scores):
    """Tokens and offsets. The neighbours whose union scores best are joined, the leftmost first, while any can be."""
    ids = {token: i for i, token in enumerate(tokens)}
    pieces = list((" " + text).replace(" ", SPACE))  # SentencePiece puts a space before every text
    while True:
        pairs = [(-scores[ids[a + b]], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ids]
        if not pairs:
            break
        _, i = min(pairs)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    out, offsets, at = [], [], -1  # -1: the space that is not in the text
    for piece in pieces:
        data = piece.replace(SPACE, " ").encode()
        known = piece in ids
        out += [ids[piece]] if known else [ids[f"<0x{byte:02X}>"] for byte in data]
        offsets += [max(at, 0)] if known else range(at, at + len(data))
        at += len(data)
    return out, offsets


TEXT = "the cat was in the hat.  It's A Quiet\nZoo, 1207 na\u00efve caf\u00e9s of \u00e9toile    <s> that\tis \U0001f600 on"

# ---------------------------------------------------------------- byte-level vocabularies


def byte_alphabet():
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + rest.index(b)) for b in range(256)]


def bpe_keys(pre):
    merges = ["\u0120 t", "h e", "\u0120t he", "i n", "\u0120 a", "n d", "\u0120a nd", "e r", "a t", "in g"]
    tokens = byte_alphabet() + [m.replace(" ", "") for m in merges] + ["<|endoftext|>"]
    end = len(tokens) - 1
    return len(tokens), [
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, pre),
        ("tokenizer.ggml.tokens", STRING, tokens),
        ("tokenizer.ggml.token_type", I32, [NORMAL] * end + [CONTROL]),
        ("tokenizer.ggml.merges", STRING, merges),
        ("tokenizer.ggml.bos_token_id", U32, end),
        ("tokenizer.ggml.eos_token_id", U32, end),
    ]


# ---------------------------------------------------------------- weights


def random_weight(random, name, shape):
    """Large enough that every part of the model matters to every answer."""
    values = random.standard_normal(shape)
    if "norm.weight" in name:
        return 1 + 0.3 * values
    if len(shape) == 1:
        return 0.2 * values
    if "embd" in name or "types" in name:
        return 0.7 * values
    # The head's rows are longer, so that the model is sure of some tokens and rules others out.
    return (3.0 if name == "output.weight" else 1.0) * values / math.sqrt(shape[-1])


def random_weights(seed, shapes):
    random = np.random.default_rng(seed)
    return {name: random_weight(random, name, shape).astype(np.float32) for name, shape in shapes.items()}


def model_keys(arch, width, layers, heads, ffn, context):
    return [
        ("general.architecture", STRING, arch),
        ("general.name", STRING, arch + ", random weights for tests"),
        (arch + ".context_length", U32, context),
        (arch + ".embedding_length", U32, width),
        (arch + ".block_count", U32, layers),
        (arch + ".feed_forward_length", U32, ffn),
        (arch + ".attention.head_count", U32, heads),
    ]


# ---------------------------------------------------------------- the Llama

WIDTH, LAYERS, HEADS, KV_HEADS, FFN, CONTEXT = 32, 3, 4, 2, 64, 64
HEAD = WIDTH // HEADS
EPSILON = float(np.float32(1e-5))
ROPE_BASE = 5000.0  # not llama.cpp's own, so that the file's is seen to be read
LENGTHS = [1, 9, 23, 9, 40, 64]


def llama_shapes(vocabulary):
    shapes = {"token_embd.weight": (vocabulary, WIDTH)}
    for n in range(LAYERS):
        blk = f"blk.{n}."
        shapes[blk + "attn_norm.weight"] = (WIDTH,)
        shapes[blk + "attn_q.weight"] = (WIDTH, WIDTH)
        shapes[blk + "attn_k.weight"] = (KV_HEADS * HEAD, WIDTH)
        shapes[blk + "attn_v.weight"] = (KV_HEADS * HEAD, WIDTH)
        shapes[blk + "attn_output.weight"] = (WIDTH, WIDTH)
        shapes[blk + "ffn_norm.weight"] = (WIDTH,)
        shapes[blk + "ffn_gate.weight"] = (FFN, WIDTH)
        shapes[blk + "ffn_up.weight"] = (FFN, WIDTH)
        shapes[blk + "ffn_down.weight"] = (WIDTH, FFN)
    shapes["output_norm.weight"] = (WIDTH,)
    shapes["output.weight"] = (vocabulary, WIDTH)
    return shapes


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


def rotate(x):
    """x (length, heads, HEAD). Neighbouring numbers are a point in the plane, turned by its position."""
    angle = np.arange(len(x))[:, None] * ROPE_BASE ** (-np.arange(0, HEAD, 2) / HEAD)
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None, :]
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


def attention(p, blk, h):
    length = len(h)
    q, k, v = (
        (h @ p[f"{blk}attn_{part}.weight"].T).reshape(length, heads, HEAD)
        for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
    )
    q, k = rotate(q), rotate(k)
    out = np.zeros((length, HEADS, HEAD))
    for head in range(HEADS):
        shared = head // (HEADS // KV_HEADS)
        for i in range(length):
            weights = np.exp(log_softmax(k[: i + 1, shared] @ q[i, head] / math.sqrt(HEAD)))
            out[i, head] = weights @ v[: i + 1, shared]
    return out.reshape(length, WIDTH) @ p[blk + "attn_output.weight"].T


def feed_forward(p, blk, h):
    gate = h @ p[blk + "ffn_gate.weight"].T
    return (gate / (1 + np.exp(-gate)) * (h @ p[blk + "ffn_up.weight"].T)) @ p[blk + "ffn_down.weight"].T


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def llama_run(p, tokens):
    """Log-probabilities (length, vocabulary) and the taps of every layer, p in float64."""
    taps = {}
    x = p["token_embd.weight"][np.asarray(tokens)]
    for n in range(LAYERS):
        blk = f"blk.{n}."
        taps[f"attention-raw@{n}"] = x
        taps[f"attention@{n}"] = h = rms_norm(x, p[blk + "attn_norm.weight"])
        x = x + attention(p, blk, h)
        taps[f"ffn-raw@{n}"] = x
        taps[f"ffn@{n}"] = h = rms_norm(x, p[blk + "ffn_norm.weight"])
        x = x + feed_forward(p, blk, h)
        taps[f"output@{n}"] = x
        following = f"blk.{n + 1}.attn_norm" if n + 1 < LAYERS else "output_norm"
        taps[f"output-norm@{n}"] = h = rms_norm(x, p[following + ".weight"])
    return log_softmax(h @ p["output.weight"].T), taps


def llama_windows(p, vocabulary):
    """Tokens as the model itself would have them, but for one in ten: so every kind of token turns up, and the model
    is neither always right nor always wrong."""
    random = np.random.default_rng(11)
    windows = []
    for length in LENGTHS:
        text = [1]  # <s>
        while len(text) <= length:
            likely = np.exp(llama_run(p, text)[0][-1])
            text.append(int(random.integers(vocabulary) if random.random() < 0.1 else random.choice(vocabulary, p=likely)))
        windows.append((text[:-1], text[1:]))
    return windows


def picked_rows():
    """The third window in full; of the others every sixth position, the first and the last."""
    rows, start = [], 0
    for i, length in enumerate(LENGTHS):
        rows += [start + at for at in range(length) if i == 2 or at % 6 == 0 or at == length - 1]
        start += length
    return rows


def llama_answers(p, windows):
    runs = [llama_run(p, inputs) for inputs, _ in windows]
    log = np.concatenate([log for log, _ in runs])
    inputs, targets = (np.array(sum((w[i] for w in windows), [])) for i in range(2))
    rows = picked_rows()
    tensors = {
        "inputs": inputs,
        "targets": targets,
        "lengths": np.array(LENGTHS),
        "logprobs": log[np.arange(len(targets)), targets],
        "entropies": -(np.exp(log) * log).sum(1),
        "rows": np.array(rows),
        "distribution": log[rows],
    }
    for name in runs[0][1]:
        tensors[name] = np.concatenate([taps[name] for _, taps in runs])[rows]
    return tensors


def make_llama(folder):
    tokens, scores, types = llama_vocabulary()
    weights = random_weights(1, llama_shapes(len(tokens)))
    p = {name: weight.astype(np.float64) for name, weight in weights.items()}
    answers = llama_answers(p, llama_windows(p, len(tokens)))
    ids, offsets = llama_tokenize(TEXT, tokens, scores)
    answers |= {"tokens": np.array(ids), "offsets": np.array(offsets)}
    loss = -float(answers["logprobs"].sum())
    keys = model_keys("llama", WIDTH, LAYERS, HEADS, FFN, CONTEXT) + [
        ("llama.attention.head_count_kv", U32, KV_HEADS),
        ("llama.attention.layer_norm_rms_epsilon", F32, EPSILON),
        ("llama.rope.dimension_count", U32, HEAD),
        ("llama.rope.freq_base", F32, ROPE_BASE),
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", STRING, tokens),
        ("tokenizer.ggml.scores", F32, scores),
        ("tokenizer.ggml.token_type", I32, types),
        ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.unknown_token_id", U32, 0),
    ]
    write_gguf(os.path.join(folder, "llama.model.gguf"), keys, weights)
    golden = [("golden.loss", F64, loss), ("golden.text", STRING, TEXT)]
    write_gguf(os.path.join(folder, "llama.golden.gguf"), golden, answers)
    print(
        f"llama: {len(tokens)} tokens, {sum(w.size for w in weights.values())} parameters, "
        f"perplexity {math.exp(loss / sum(LENGTHS)):.1f}, mean entropy {answers['entropies'].mean():.2f}"
    )


# ---------------------------------------------------------------- the others


def layered(shapes, layers, parts, norms):
    for n in range(layers):
        for part, shape in parts.items():
            shapes[f"blk.{n}.{part}"] = shape
        for norm in norms:
            shapes[f"blk.{n}.{norm}.weight"] = shapes[f"blk.{n}.{norm}.bias"] = (shapes["token_embd.weight"][1],)
    return shapes


def make_parallel(folder):
    """A Falcon with one head of keys and values; its pre-tokenizer is not GPT-2's."""
    width, layers, heads, ffn = 16, 2, 2, 32
    size, vocabulary = bpe_keys("falcon")
    parts = {
        "attn_qkv.weight": (width + 2 * width // heads, width),
        "attn_output.weight": (width, width),
        "ffn_up.weight": (ffn, width),
        "ffn_down.weight": (width, ffn),
    }
    shapes = layered({"token_embd.weight": (size, width)}, layers, parts, ["attn_norm"])
    shapes |= {"output_norm.weight": (width,), "output_norm.bias": (width,)}
    keys = model_keys("falcon", width, layers, heads, ffn, 32) + [
        ("falcon.attention.head_count_kv", U32, 1),
        ("falcon.attention.layer_norm_epsilon", F32, EPSILON),
    ]
    write_gguf(os.path.join(folder, "parallel.model.gguf"), keys + vocabulary, random_weights(2, shapes))


def make_encoder(folder):
    width, layers, heads, ffn, context = 16, 1, 2, 32, 32
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [SPACE + word for word in ["the", "cat", "was", "in", "hat", "."]] + ["s", "ing", "a", "t"]
    size = len(special) + len(words)
    parts = {}
    for part, shape in {
        "attn_q": (width, width),
        "attn_k": (width, width),
        "attn_v": (width, width),
        "attn_output": (width, width),
        "ffn_up": (ffn, width),
        "ffn_down": (width, ffn),
    }.items():
        parts |= {part + ".weight": shape, part + ".bias": shape[:1]}
    shapes = {
        "token_embd.weight": (size, width),
        "position_embd.weight": (context, width),
        "token_types.weight": (2, width),
        "token_embd_norm.weight": (width,),
        "token_embd_norm.bias": (width,),
    }
    shapes = layered(shapes, layers, parts, ["attn_output_norm", "layer_output_norm"])
    keys = model_keys("bert", width, layers, heads, ffn, context) + [
        ("bert.attention.layer_norm_epsilon", F32, EPSILON),
        ("bert.attention.causal", BOOL, False),
        ("tokenizer.ggml.model", STRING, "bert"),
        ("tokenizer.ggml.token_type_count", U32, 2),
        ("tokenizer.ggml.tokens", STRING, special + words),
        ("tokenizer.ggml.token_type", I32, [CONTROL] * len(special) + [NORMAL] * len(words)),
        ("tokenizer.ggml.padding_token_id", U32, 0),
        ("tokenizer.ggml.unknown_token_id", U32, 1),
        ("tokenizer.ggml.bos_token_id", U32, 2),
        ("tokenizer.ggml.eos_token_id", U32, 3),
        ("tokenizer.ggml.seperator_token_id", U32, 3),  # llama.cpp's spelling
        ("tokenizer.ggml.mask_token_id", U32, 4),
    ]
    write_gguf(os.path.join(folder, "encoder.model.gguf"), keys, random_weights(3, shapes))


def make_shared(folder):
    """gpt2.model.gguf has words for a vocabulary, which llama.cpp does not know; hence another GPT-2."""
    width, layers, heads, ffn, context = 16, 2, 2, 32, 48
    size, vocabulary = bpe_keys("gpt-2")
    parts = {}
    for part, shape in {
        "attn_qkv": (3 * width, width),
        "attn_output": (width, width),
        "ffn_up": (ffn, width),
        "ffn_down": (width, ffn),
    }.items():
        parts |= {part + ".weight": shape, part + ".bias": shape[:1]}
    shapes = {"token_embd.weight": (size, width), "position_embd.weight": (context, width)}
    shapes = layered(shapes, layers, parts, ["attn_norm", "ffn_norm"])
    shapes |= {"output_norm.weight": (width,), "output_norm.bias": (width,)}
    keys = model_keys("gpt2", width, layers, heads, ffn, context) + [
        ("gpt2.attention.layer_norm_epsilon", F32, EPSILON)
    ]
    write_gguf(os.path.join(folder, "shared.model.gguf"), keys + vocabulary, random_weights(4, shapes))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for make in (make_llama, make_parallel, make_encoder, make_shared):
        make(folder)


if __name__ == "__main__":
    main()
