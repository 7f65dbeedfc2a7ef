#!/usr/bin/python3
"""Makes tiny models, with random weights, of architectures that llama.cpp serves:  make_archs.py FOLDER [ARCHITECTURE...]

    qwen2       biases of queries, keys and values; a byte-level vocabulary that adds no token at the start
    qwen2moe    the same with four experts, two of which are asked, and one that always is
    gemma3      a window of 8 tokens in every other layer, scaled embeddings, norms before and after every part
    mellum      a window of 8 tokens in two layers of three, and experts; all else as in a Llama
    phi3        one matrix for queries, keys and values, one for both halves of SwiGLU
    gptneox     attention and feed-forward side by side, each with a norm of its own; half of a head is rotated
    mamba       recurrent: no attention at all
    jamba       layers of Mamba around one of attention, which has experts
    falcon-h1   Mamba-2 and attention side by side in every layer

ARCHITECTURE.gguf is written for each, some dozens of kilobytes. With --check, what `knnlm export` made of taps is
judged instead:  make_archs.py --check ARCHITECTURE FOLDER ROWS WHOLE  (FOLDER/POINT@L/keys.npy: all of one text, and ROWS
what `knnlm eval --per-token` says of it; WHOLE/keys.npy and WHOLE.rows: the last norm's and what is said, both read in
windows that are full and do not overlap). Whatever the architecture, a tap after a norm is the norm of the tap before
it, a layer's output is the next one's input, and the last norm times the output matrix is what the model answers.

No file is committed: the tests that use them make them. Debian's python3-numpy serves.
"""

import os
import sys

import numpy as np

from gguf_write import BOOL, F32, I32, STRING, U32, write_gguf
from make_llama import CONTROL, EPSILON, bpe_keys, llama_vocabulary, log_softmax, model_keys, random_weight

WIDTH, LAYERS, HEADS, KV_HEADS, HEAD, FFN, CONTEXT = 16, 3, 2, 1, 8, 24, 64
KV, EXPERTS, EXPERTS_USED, WINDOW = KV_HEADS * HEAD, 4, 2, 8
INNER, STATE, CONVOLUTION, RANK = 2 * WIDTH, 16, 4, 4  # of Mamba
SSM_HEADS, SSM_GROUPS = 4, 2  # of Mamba-2

# ---------------------------------------------------------------- vocabularies


def sentencepiece(space_prefix):
    tokens, scores, types = llama_vocabulary()
    tokens, scores, types = [*tokens, "<|endoftext|>"], [*scores, 0.0], [*types, CONTROL]  # a Phi-3 must have it
    return len(tokens), [
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", STRING, tokens),
        ("tokenizer.ggml.scores", F32, scores),
        ("tokenizer.ggml.token_type", I32, types),
        ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.unknown_token_id", U32, 0),
        ("tokenizer.ggml.add_space_prefix", BOOL, space_prefix),
    ]


def byte_level(pre):
    size, keys = bpe_keys(pre)
    return size, keys + [("tokenizer.ggml.add_bos_token", BOOL, False)]


# ---------------------------------------------------------------- parts of a layer: {name: shape}


def attention(biases=()):
    parts = {"attn_q": (WIDTH, WIDTH), "attn_k": (KV, WIDTH), "attn_v": (KV, WIDTH), "attn_output": (WIDTH, WIDTH)}
    return with_biases(parts, biases)


def with_biases(parts, biases):
    shapes = {name + ".weight": shape for name, shape in parts.items()}
    return shapes | {name + ".bias": parts[name][:1] for name in biases}


def norms(*names, width=WIDTH):
    return {name + ".weight": (width,) for name in names}


def swiglu(suffix="", ffn=FFN):
    return {f"ffn_{part}{suffix}.weight": (ffn, WIDTH) for part in ("gate", "up")} | {
        f"ffn_down{suffix}.weight": (WIDTH, ffn)
    }


def experts(ffn=FFN):
    return {"ffn_gate_inp.weight": (EXPERTS, WIDTH)} | {
        name: (EXPERTS, *shape) for name, shape in swiglu("_exps", ffn).items()
    }


def mamba_parts():
    return {
        "ssm_in.weight": (2 * INNER, WIDTH),
        "ssm_conv1d.weight": (INNER, CONVOLUTION),
        "ssm_conv1d.bias": (INNER,),
        "ssm_x.weight": (RANK + 2 * STATE, INNER),
        "ssm_dt.weight": (INNER, RANK),
        "ssm_dt.bias": (INNER,),
        "ssm_a": (INNER, STATE),
        "ssm_d": (INNER,),
        "ssm_out.weight": (WIDTH, INNER),
    }


def mamba2_parts():
    mixed = INNER + 2 * SSM_GROUPS * STATE
    return {
        "ssm_in.weight": (INNER + mixed + SSM_HEADS, WIDTH),
        "ssm_conv1d.weight": (mixed, CONVOLUTION),
        "ssm_conv1d.bias": (mixed,),
        "ssm_dt.bias": (SSM_HEADS,),
        "ssm_a": (SSM_HEADS, 1),
        "ssm_d": (SSM_HEADS, 1),
        "ssm_norm.weight": (SSM_GROUPS, INNER // SSM_GROUPS),
        "ssm_out.weight": (WIDTH, INNER),
    }


# ---------------------------------------------------------------- architectures

RMS = ("attention.layer_norm_rms_epsilon", F32, EPSILON)
SHARED_HEADS = ("attention.head_count_kv", U32, KV_HEADS)
SSM = [
    ("ssm.conv_kernel", U32, CONVOLUTION),
    ("ssm.inner_size", U32, INNER),
    ("ssm.state_size", U32, STATE),
]
EXPERT_KEYS = [("expert_count", U32, EXPERTS), ("expert_used_count", U32, EXPERTS_USED)]


class Model:
    """keys: without the architecture's name. layer(n): the parts of layer n. norm: "rms", or "layer" with biases."""

    def __init__(self, vocabulary, keys, layer, norm="rms", tied=False):
        self.vocabulary, self.keys, self.layer, self.norm, self.tied = vocabulary, keys, layer, norm, tied


def jamba_layer(n):
    recurrent = mamba_parts() | norms("ssm_dt_norm", width=RANK) | norms("ssm_b_norm", "ssm_c_norm", width=STATE)
    whole = recurrent | swiglu() if n != 1 else attention() | experts()
    return whole | norms("attn_norm", "ffn_norm")


def neox_layer(_):
    parts = {"attn_qkv": (WIDTH + 2 * KV, WIDTH), "attn_output": (WIDTH, WIDTH), "ffn_up": (FFN, WIDTH)}
    parts["ffn_down"] = (WIDTH, FFN)
    shapes = with_biases(parts, parts) | norms("attn_norm", "ffn_norm")
    return shapes | {"attn_norm.bias": (WIDTH,), "ffn_norm.bias": (WIDTH,)}


QKV_BIASES = ("attn_q", "attn_k", "attn_v")
MODELS = {
    "qwen2": Model(
        byte_level("qwen2"),
        [RMS, SHARED_HEADS, ("rope.freq_base", F32, 1e6)],
        lambda n: attention(QKV_BIASES) | swiglu() | norms("attn_norm", "ffn_norm"),
    ),
    "qwen2moe": Model(
        byte_level("qwen2"),
        [
            RMS,
            SHARED_HEADS,
            *EXPERT_KEYS,
            ("expert_feed_forward_length", U32, 12),
            ("expert_shared_feed_forward_length", U32, FFN),
        ],
        lambda n: attention(QKV_BIASES)
        | experts(12)
        | {"ffn_gate_inp_shexp.weight": (WIDTH,)}
        | swiglu("_shexp")
        | norms("attn_norm", "ffn_norm"),
    ),
    "gemma3": Model(
        sentencepiece(False),
        [
            RMS,
            SHARED_HEADS,
            ("attention.key_length", U32, HEAD),
            ("attention.value_length", U32, HEAD),
            ("attention.sliding_window", U32, WINDOW),
            ("attention.sliding_window_pattern", U32, 2),
            ("rope.freq_base", F32, 1e6),
            ("rope.freq_base_swa", F32, 1e4),
        ],
        lambda n: attention()
        | swiglu()
        | norms("attn_q_norm", "attn_k_norm", width=HEAD)
        | norms("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"),
        tied=True,
    ),
    "mellum": Model(
        byte_level("mellum"),
        [
            RMS,
            SHARED_HEADS,
            *EXPERT_KEYS,
            ("expert_feed_forward_length", U32, 12),
            ("attention.sliding_window", U32, WINDOW),
            ("attention.sliding_window_pattern", BOOL, [True, False, True]),
        ],
        lambda n: attention()
        | experts(12)
        | norms("attn_q_norm", "attn_k_norm", width=HEAD)
        | norms("attn_norm", "ffn_norm"),
    ),
    "phi3": Model(
        sentencepiece(True),
        [RMS, SHARED_HEADS, ("rope.dimension_count", U32, HEAD)],
        lambda n: {
            "attn_qkv.weight": (WIDTH + 2 * KV, WIDTH),
            "attn_output.weight": (WIDTH, WIDTH),
            "ffn_up.weight": (2 * FFN, WIDTH),
            "ffn_down.weight": (WIDTH, FFN),
        }
        | norms("attn_norm", "ffn_norm"),
    ),
    "gptneox": Model(
        byte_level("olmo"),
        [
            ("attention.layer_norm_epsilon", F32, EPSILON),
            SHARED_HEADS,
            ("use_parallel_residual", BOOL, True),
            ("rope.dimension_count", U32, HEAD // 2),
        ],
        neox_layer,
        norm="layer",
    ),
    "mamba": Model(
        byte_level("olmo"),
        [RMS, *SSM, ("ssm.time_step_rank", U32, RANK)],
        lambda n: mamba_parts() | norms("attn_norm"),
        tied=True,
    ),
    "jamba": Model(
        sentencepiece(True),
        [
            RMS,
            *SSM,
            ("ssm.time_step_rank", U32, RANK),
            ("attention.head_count_kv", U32, [0, KV_HEADS, 0]),
            *EXPERT_KEYS,
        ],
        jamba_layer,
        tied=True,
    ),
    "falcon-h1": Model(
        byte_level("falcon-h1"),
        [
            RMS,
            SHARED_HEADS,
            *SSM,
            ("ssm.time_step_rank", U32, SSM_HEADS),
            ("ssm.group_count", U32, SSM_GROUPS),
            ("attention.key_length", U32, HEAD),
            ("attention.value_length", U32, HEAD),
        ],
        lambda n: attention() | mamba2_parts() | swiglu() | norms("attn_norm") | {"ffn_norm": (WIDTH,)},
        tied=True,
    ),
}


def weight(random, name, shape):
    part = name.split(".")[-1]
    if part == "ssm_a":  # how fast a state is forgotten
        return -np.exp(random.standard_normal(shape))
    if part in ("ssm_d", "ffn_norm"):
        return 1 + 0.3 * random.standard_normal(shape)
    if name.endswith("norm.weight"):
        return random_weight(random, "norm.weight", shape)
    return random_weight(random, name, shape)


def weights(arch):
    model, random = MODELS[arch], np.random.default_rng([5, *arch.encode()])
    shapes = {"token_embd.weight": (model.vocabulary[0], WIDTH)}
    for n in range(LAYERS):
        shapes |= {f"blk.{n}.{part}": shape for part, shape in model.layer(n).items()}
    shapes |= norms("output_norm")
    if model.norm == "layer":
        shapes["output_norm.bias"] = (WIDTH,)
    if not model.tied:
        shapes["output.weight"] = (model.vocabulary[0], WIDTH)
    return {name: weight(random, name, shape).astype(np.float32) for name, shape in shapes.items()}


def make(arch, folder):
    model = MODELS[arch]
    heads, ffn = (0, 0) if arch == "mamba" else (HEADS, FFN)
    keys = model_keys(arch, WIDTH, LAYERS, heads, ffn, CONTEXT)
    keys += [(f"{arch}.{name}", kind, value) for name, kind, value in model.keys]
    path = os.path.join(folder, arch + ".gguf")
    write_gguf(path, keys + model.vocabulary[1], weights(arch))
    assert os.path.getsize(path) < 100000, path


# ---------------------------------------------------------------- taps judge each other


# Of every value also how far rounding can take it, whatever the order of the sums and the width of the registers: a sum of
# n products of f32 is off by n units of rounding of the sum of their absolute values, at most.
UNIT = 2.0**-24


def norm_of(arch, p, name, x):
    x = x.astype(np.float64)
    moved = 0
    if MODELS[arch].norm == "layer":
        moved = (WIDTH + 1) * UNIT * np.abs(x).mean(-1, keepdims=True)  # the mean
        x = x - x.mean(-1, keepdims=True)
    size = np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)
    scale = p[name + ".weight"] if name + ".weight" in p else p[name]
    y = x / size * scale
    shifted = y + p.get(name + ".bias", 0)
    # The root halves what its sum is off by; a division, a root, two products and an addition round once each, and a
    # vector unit's root or division may do so twice.
    off = (WIDTH / 2 + 8) * UNIT * np.abs(y) + UNIT * np.abs(shifted) + 2 * moved / size * np.abs(scale)
    return shifted, off


def answers(arch, p, keys, values):
    keys, head = keys.astype(np.float64), p["token_embd.weight" if MODELS[arch].tied else "output.weight"].T
    logits = keys @ head
    off = (WIDTH + 1) * UNIT * (np.abs(keys) @ np.abs(head)).max(-1)
    # The target's and the others' sum; as many exponentials, each two units off, and those of their arguments; at last a
    # logarithm and two differences. Ten digits are written.
    vocabulary, largest = len(head.T), np.abs(logits).max(-1)
    off = 2 * off + (vocabulary + 4) * UNIT + 4 * UNIT * (largest + np.log(vocabulary)) + 1e-8
    return log_softmax(logits)[np.arange(len(values)), values], off


def rows_of(path, values):
    """The log-probabilities in what `knnlm eval --per-token` wrote."""
    said = np.loadtxt(path, delimiter="\t", skiprows=1, usecols=(3, 5), quotechar=None, comments=None)
    assert (said[:, 0] == values).all()
    return said[:, 1]


def check(arch, folder, rows, whole):
    p, taps, wrong = weights(arch), {}, 0
    for tap in sorted(os.listdir(folder)):
        taps[tap] = np.load(os.path.join(folder, tap, "keys.npy"))
    rules = []  # (what is told, tap, what it must be and how far it may be from that)
    for n in range(LAYERS):
        for after, before, name in (
            (f"attention@{n}", f"attention-raw@{n}", f"blk.{n}.attn_norm"),
            (f"ffn@{n}", f"ffn-raw@{n}", f"blk.{n}.ffn_norm"),
            (f"output-norm@{n}", f"output@{n}", f"blk.{n + 1}.attn_norm" if n + 1 < LAYERS else "output_norm"),
        ):
            if after in taps and before in taps:
                rules.append((f"{after} is {before} after {name}", taps[after], *norm_of(arch, p, name, taps[before])))
        for one, other in ((f"output@{n}", f"attention-raw@{n + 1}"), (f"output-norm@{n}", f"attention@{n + 1}")):
            if one in taps and other in taps:
                rules.append((f"{one} is {other}", taps[one], taps[other].astype(np.float64), 0))
    values = np.load(os.path.join(folder, f"output-norm@{LAYERS - 1}", "values.npy"))
    should, off = answers(arch, p, taps[f"output-norm@{LAYERS - 1}"], values)
    # The first window of a document is longer for build than for eval, and llama.cpp's flash attention sums in f16 or in
    # f32 by the window's length and the CPU: what comes later is read in the same windows by both.
    later = slice(CONTEXT // 2, None)
    rules.append(("eval says the last layer's", rows_of(rows, values)[later], should[later], off[later]))
    values = np.load(os.path.join(whole, "values.npy"))
    should, off = answers(arch, p, np.load(os.path.join(whole, "keys.npy")), values)
    rules.append(("eval of whole windows says the last layer's", rows_of(whole + ".rows", values), should, off))
    for said, is_, should, off in rules:
        apart = np.abs(is_ - should)
        if not (apart <= off).all():
            wrong += 1
            print(f"{arch}: not so: {said} (off by {apart.max():.2g}, {np.max(apart / np.maximum(off, 1e-30)):.3g} of what rounding allows)")
    for tap, keys in taps.items():
        if not np.isfinite(keys).all() or len(np.unique(keys, axis=0)) < 10:
            wrong += 1
            print(f"{arch}: {tap} is no state of a model")
    if len(rules) < 8:
        wrong += 1
        print(f"{arch}: too few taps to judge: {', '.join(taps)}")
    return wrong


def main(arguments):
    if arguments[0] == "--check":
        sys.exit(1 if check(*arguments[1:]) else 0)
    for arch in arguments[1:] or MODELS:
        make(arch, arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
