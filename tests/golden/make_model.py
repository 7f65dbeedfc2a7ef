#!/usr/bin/python3
"""Makes the tiny models that judge ours, and what they answer.

The maths stands here a second time, in torch and in float64, from the definition on top of src/lm/native/config.h; no code
is shared with the library. For every variant it writes

    NAME.model.gguf    a model file as the library reads it
    NAME.golden.gguf   inputs, targets, lengths      the windows, one after another
                       logprobs, entropies           a number for each position
                       rows, distribution, POINT@L   a few positions in full: log-probabilities, and the taps at layer L
                       grad.PARAMETER                gradient of the summed negative log-probabilities
                       golden.loss                   that sum (a key)

Debian's python3-torch and python3-numpy serve:  /usr/bin/python3 tests/golden/make_model.py [folder]
The files are committed; make them anew only when the definition of a model changes.
"""

import math
import os
import sys

import numpy as np
import torch

from gguf_write import BOOL, F32, F64, I32, STRING, U32, write_gguf

VARIANTS = {
    # The paper's WikiText-103 model: adaptive in and out, ReLU, sinusoidal, no final norm.
    "adaptive": dict(
        seed=1, vocabulary=97, width=32, layers=2, heads=2, ffn=48, context=80, positions="sinusoidal",
        activation="relu", final_norm=False, epsilon=1e-5, scale=math.sqrt(32), bands=[20, 50, 97], factor=4,
        lengths=[1, 7, 33, 33, 70],
    ),
    # GPT-2's shape, which llama.cpp calls gpt2.
    "gpt2": dict(
        seed=2, vocabulary=61, width=32, layers=2, heads=4, ffn=64, context=72, positions="learned",
        activation="gelu", final_norm=True, epsilon=1e-5, scale=1.0, bands=[61], factor=1,
        lengths=[5, 20, 20, 72],
    ),
    # Nothing is a multiple of 32, heads are of odd width, the constants are none of the usual ones.
    "plain": dict(
        seed=3, vocabulary=53, width=34, layers=3, heads=2, ffn=45, context=3072, positions="sinusoidal",
        activation="relu", final_norm=False, epsilon=1e-4, scale=5.5, bands=[53], factor=1,
        lengths=[2, 31, 31, 67],
    ),
    # The presets for CPUs: sinusoidal positions with GELU and a final norm; heads of width 4.
    "cpu": dict(
        seed=4, vocabulary=33, width=20, layers=2, heads=5, ffn=31, context=40, positions="sinusoidal",
        activation="gelu", final_norm=True, epsilon=1e-5, scale=math.sqrt(20), bands=[33], factor=1,
        lengths=[32, 3, 40],
    ),
}

# ---------------------------------------------------------------- the model


def band_width(v, band):
    return v["width"] // v["factor"] ** band


def embedding_shapes(v):
    if len(v["bands"]) == 1:
        return {"token_embd.weight": (v["vocabulary"], v["width"])}
    shapes, start = {}, 0
    for band, end in enumerate(v["bands"]):
        shapes[f"token_embd.{band}.weight"] = (end - start, band_width(v, band))
        shapes[f"token_proj.{band}.weight"] = (v["width"], band_width(v, band))
        start = end
    shapes["output_class.weight"] = (len(v["bands"]) - 1, v["width"])
    return shapes


def shapes_of(v):
    d, f = v["width"], v["ffn"]
    shapes = embedding_shapes(v)
    if v["positions"] == "learned":
        shapes["position_embd.weight"] = (v["context"], d)
    for n in range(v["layers"]):
        for part, shape in {"attn_qkv": (3 * d, d), "attn_output": (d, d), "ffn_up": (f, d), "ffn_down": (d, f)}.items():
            shapes[f"blk.{n}.{part}.weight"] = shape
            shapes[f"blk.{n}.{part}.bias"] = (shape[0],)
        for norm in ("attn_norm", "ffn_norm"):
            shapes[f"blk.{n}.{norm}.weight"] = (d,)
            shapes[f"blk.{n}.{norm}.bias"] = (d,)
    if v["final_norm"]:
        shapes["output_norm.weight"] = (d,)
        shapes["output_norm.bias"] = (d,)
    return shapes


def random_weight(random, name, shape):
    """Large enough that every part of the model matters to every answer."""
    values = random.standard_normal(shape)
    if "norm.weight" in name:
        return 1 + 0.3 * values
    if len(shape) == 1:
        return 0.2 * values
    if "token_embd" in name:
        return 0.5 * values / math.sqrt(shape[-1])
    # A band's projection is (width, band width); by its rows, narrow bands come out no larger than wide ones.
    return values / math.sqrt(shape[0] if "token_proj" in name else shape[-1])


def random_weights(v):
    random = np.random.default_rng(v["seed"])
    return {name: random_weight(random, name, shape).astype(np.float32) for name, shape in shapes_of(v).items()}


def layer_norm(x, weight, bias, epsilon):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    y = (x - mean) / torch.sqrt(variance + epsilon)
    return y if weight is None else y * weight + bias


def sinusoids(v, length):
    half = v["width"] // 2
    frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / (half - 1))
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def band_of(v, token):
    return next(band for band, end in enumerate(v["bands"]) if token < end)


def embed_token(v, p, token):
    if len(v["bands"]) == 1:
        return p["token_embd.weight"][token]
    band = band_of(v, token)
    start = v["bands"][band - 1] if band else 0
    return p[f"token_proj.{band}.weight"] @ p[f"token_embd.{band}.weight"][token - start]


def embed(v, p, tokens):
    x = v["scale"] * torch.stack([embed_token(v, p, int(t)) for t in tokens])
    learned = v["positions"] == "learned"
    return x + (p["position_embd.weight"][: len(tokens)] if learned else sinusoids(v, len(tokens)))


def attention(v, qkv):
    length, d, heads = qkv.shape[0], v["width"], v["heads"]
    q, k, values = (qkv[:, i * d : (i + 1) * d].reshape(length, heads, -1).transpose(0, 1) for i in range(3))
    scores = q @ k.transpose(1, 2) / math.sqrt(d // heads)
    future = torch.ones(length, length).triu(1).bool()
    weights = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)
    return (weights @ values).transpose(0, 1).reshape(length, d)


def activation(v, x):
    if v["activation"] == "relu":
        return x * (x > 0)
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def linear(p, name, x):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def norm(v, p, name, x):
    return layer_norm(x, p[name + ".weight"], p[name + ".bias"], v["epsilon"])


def run_layer(v, p, n, x, taps):
    blk = f"blk.{n}."
    taps[f"attention-raw@{n}"] = x
    taps[f"attention@{n}"] = h = norm(v, p, blk + "attn_norm", x)
    x = x + linear(p, blk + "attn_output", attention(v, linear(p, blk + "attn_qkv", h)))
    taps[f"ffn-raw@{n}"] = x
    taps[f"ffn@{n}"] = h = norm(v, p, blk + "ffn_norm", x)
    x = x + linear(p, blk + "ffn_down", activation(v, linear(p, blk + "ffn_up", h)))
    taps[f"output@{n}"] = x
    return x


def output_norm(v, p, n, x):
    """The LayerNorm that follows layer n; without weights where the model has none."""
    if n + 1 < v["layers"]:
        return norm(v, p, f"blk.{n + 1}.attn_norm", x)
    if v["final_norm"]:
        return norm(v, p, "output_norm", x)
    return layer_norm(x, None, None, v["epsilon"])


def log_softmax_adaptive(v, p, h):
    words = v["bands"][0]
    head = torch.cat([p["token_embd.0.weight"], p["output_class.weight"]])
    first = torch.log_softmax(h @ head.T, dim=-1)
    parts = [first[:, :words]]
    for band in range(1, len(v["bands"])):
        logits = (h @ p[f"token_proj.{band}.weight"]) @ p[f"token_embd.{band}.weight"].T
        parts.append(first[:, words + band - 1, None] + torch.log_softmax(logits, dim=-1))
    return torch.cat(parts, dim=1)


def run(v, p, tokens):
    """Log-probabilities (length, vocabulary) and the taps of every layer."""
    taps = {}
    x = embed(v, p, tokens)
    for n in range(v["layers"]):
        x = run_layer(v, p, n, x, taps)
        taps[f"output-norm@{n}"] = output_norm(v, p, n, x)
    h = norm(v, p, "output_norm", x) if v["final_norm"] else x
    if len(v["bands"]) > 1:
        return log_softmax_adaptive(v, p, h), taps
    return torch.log_softmax(h @ p["token_embd.weight"].T, dim=-1), taps


# ---------------------------------------------------------------- files


def random_windows(v):
    """Every token and every band turns up; targets follow their inputs, as in a text."""
    random = np.random.default_rng(v["seed"] + 100)
    windows = []
    for length in v["lengths"]:
        text = random.integers(0, v["vocabulary"], length + 1)
        windows.append((text[:-1], text[1:]))
    return windows


def answers(v, weights, windows):
    """The golden tensors and the loss."""
    p = {name: torch.tensor(w, dtype=torch.float64, requires_grad=True) for name, w in weights.items()}
    logs, taps = [], []
    for inputs, _ in windows:
        log, tap = run(v, p, inputs)
        logs.append(log)
        taps.append(tap)
    log = torch.cat(logs)
    targets = torch.tensor(np.concatenate([t for _, t in windows]))
    logprobs = log.gather(1, targets[:, None])[:, 0]
    loss = -logprobs.sum()
    loss.backward()

    total = len(targets)
    rows = sorted(set(range(0, total, 11)) | {total - 1})
    tensors = {
        "inputs": np.concatenate([i for i, _ in windows]),
        "targets": targets.numpy(),
        "lengths": np.array(v["lengths"]),
        "logprobs": logprobs.detach().numpy(),
        "entropies": -(log.exp() * log).sum(1).detach().numpy(),
        "rows": np.array(rows),
        "distribution": log[rows].detach().numpy(),
    }
    for name in taps[0]:
        layer = int(name.split("@")[1])
        if layer in (0, v["layers"] - 1):
            tensors[name] = torch.cat([t[name] for t in taps])[rows].detach().numpy()
    for name, value in p.items():
        tensors["grad." + name] = value.grad.numpy()
    return tensors, float(loss.detach())


def model_keys(v):
    arch = "gpt2" if v["positions"] == "learned" else "knnlm"
    words = ["<unk>", "<eos>"] + [f"w{i}" for i in range(2, v["vocabulary"])]
    keys = [
        ("general.architecture", STRING, arch),
        (arch + ".context_length", U32, v["context"]),
        (arch + ".embedding_length", U32, v["width"]),
        (arch + ".block_count", U32, v["layers"]),
        (arch + ".feed_forward_length", U32, v["ffn"]),
        (arch + ".attention.head_count", U32, v["heads"]),
        (arch + ".attention.layer_norm_epsilon", F32, v["epsilon"]),
        ("tokenizer.ggml.model", STRING, "knnlm-word"),
        ("tokenizer.ggml.tokens", STRING, words),
        ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 1),
    ]
    if arch == "knnlm":
        keys += [
            ("knnlm.positions", STRING, v["positions"]),
            ("knnlm.activation", STRING, v["activation"]),
            ("knnlm.embedding_scale", F32, v["scale"]),
            ("knnlm.final_norm", BOOL, v["final_norm"]),
        ]
    if len(v["bands"]) > 1:
        keys += [("knnlm.band_ends", I32, v["bands"]), ("knnlm.band_factor", U32, v["factor"])]
    return keys


def make(folder, name, v):
    for constant in ("epsilon", "scale"):  # as the file will hold them
        v[constant] = float(np.float32(v[constant]))
    weights, windows = random_weights(v), random_windows(v)
    tensors, loss = answers(v, weights, windows)
    write_gguf(os.path.join(folder, name + ".model.gguf"), model_keys(v), weights)
    write_gguf(os.path.join(folder, name + ".golden.gguf"), [("golden.loss", F64, loss)], tensors)
    print(f"{name}: {sum(w.size for w in weights.values())} parameters, loss a token {loss / sum(v['lengths']):.3f}")


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for name, variant in VARIANTS.items():
        make(folder, name, variant)


if __name__ == "__main__":
    main()
