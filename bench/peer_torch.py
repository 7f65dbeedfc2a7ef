"""The peer of `bench/run lm` and `bench/run train`: the same work in Debian's PyTorch, in the best way it has.

    peer_torch.py WORK PRECISION choose         tries every way once, prints the name of the fastest
    peer_torch.py WORK PRECISION REPEATS WAY    measures that way: a line a repeat, tokens per second

WORK: lm (forward pass, 16 layers of width 1024, windows of 512 tokens, no softmax)
      train (training step, 6 layers of width 256, vocabulary of 10,000, windows of 256 tokens)
      train-stream (training step of the bundled model's shape: 10 layers of width 256 with RMSNorm, rotary positions, norms of
          queries and keys, SwiGLU, attention to the last 256 tokens; vocabulary of 16,000, windows of 512 tokens)
PRECISION: f32, bf16
"""

import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import mkldnn

THREADS = 2


def sinusoids(length, width):
    rates = torch.exp(torch.arange(width // 2) * -(math.log(10000) / (width // 2 - 1)))
    angles = torch.arange(length)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Layer(nn.Module):
    """Pre-norm: x += attention(norm(x)); x += feed_forward(norm(x)). Rows are windows x tokens."""

    def __init__(self, width, heads, ffn):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.ffn_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def attention(self, qkv, windows, mask):
        rows, width = qkv.shape[0], qkv.shape[1] // 3
        parts = qkv.view(windows, rows // windows, 3, self.heads, width // self.heads)
        q, k, v = (t.reshape(windows * self.heads, rows // windows, -1) for t in parts.permute(2, 0, 3, 1, 4))
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=(width // self.heads) ** -0.5)
        mixed = torch.bmm(scores.softmax(-1), v)
        return mixed.view(windows, self.heads, rows // windows, -1).transpose(1, 2).reshape(rows, width)

    def forward(self, x, windows, mask):
        x = x + self.out(self.attention(self.qkv(self.attention_norm(x)), windows, mask))
        return x + self.down(F.relu(self.up(self.ffn_norm(x))))


class PackedLayer(Layer):
    """The same with weights that oneDNN has laid out beforehand: its fastest form, for inference only."""

    def pack(self, dtype):
        for name in ("qkv", "out", "up", "down"):
            setattr(self, name, mkldnn.to_mkldnn(getattr(self, name), dtype))
        return self

    def forward(self, x, windows, mask):
        qkv = self.qkv(self.attention_norm(x).to_mkldnn()).to_dense(x.dtype)
        x = x + self.out(self.attention(qkv, windows, mask).to_mkldnn()).to_dense(x.dtype)
        return x + self.down(F.relu(self.up(self.ffn_norm(x).to_mkldnn()))).to_dense(x.dtype)


def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


class StreamLayer(nn.Module):
    """As `Layer`, with what the bundled model has."""

    def __init__(self, width, heads, ffn):
        super().__init__()
        self.heads, head = heads, width // heads
        self.attention_norm, self.ffn_norm = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.query_norm, self.key_norm = nn.Parameter(torch.ones(head)), nn.Parameter(torch.ones(head))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, ffn, bias=False), nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)
        angles = torch.arange(4096)[:, None] * 10000.0 ** (-torch.arange(0, head, 2) / head)
        self.register_buffer("turns", torch.stack([angles.cos(), angles.sin()]), persistent=False)

    def rotate(self, x):
        cos, sin = self.turns[:, : x.shape[1]]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    def attention(self, qkv, windows, mask):
        rows, width = qkv.shape[0], qkv.shape[1] // 3
        parts = qkv.view(windows, rows // windows, 3, self.heads, width // self.heads)
        q, k, v = (t.reshape(windows * self.heads, rows // windows, -1) for t in parts.permute(2, 0, 3, 1, 4))
        q, k = self.rotate(rms_norm(q, self.query_norm)), self.rotate(rms_norm(k, self.key_norm))
        scores = torch.baddbmm(mask.to(q.dtype), q, k.transpose(1, 2), alpha=(width // self.heads) ** -0.5)
        mixed = torch.bmm(scores.softmax(-1).to(v.dtype), v)
        return mixed.view(windows, self.heads, rows // windows, -1).transpose(1, 2).reshape(rows, width)

    def forward(self, x, windows, mask):
        x = x + self.out(self.attention(self.qkv(rms_norm(x, self.attention_norm)), windows, mask))
        inner = rms_norm(x, self.ffn_norm)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))


class Model(nn.Module):
    def __init__(self, vocabulary, layers, width, heads, ffn, length, kind=Layer):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.register_buffer("positions", sinusoids(length, width))
        self.register_buffer("mask", torch.full((length, length), -1e9).triu(1)[None])
        self.layers = nn.ModuleList(kind(width, heads, ffn) for _ in range(layers))

    def see_last(self, window):
        """Attention sees that many positions at most."""
        self.mask += torch.full_like(self.mask, -1e9).tril(-window)
        return self

    def states(self, ids):
        windows, length = ids.shape
        width = self.embedding.embedding_dim
        x = (self.embedding(ids) * width**0.5 + self.positions[:length]).view(-1, width)
        for layer in self.layers:
            x = layer(x, windows, self.mask)
        return x

    def loss(self, ids, targets):
        return F.cross_entropy(F.linear(self.states(ids), self.embedding.weight).float(), targets.reshape(-1))


def timed(step, tokens):
    start = time.perf_counter()
    step()
    return tokens / (time.perf_counter() - start)


def forward_way(dtype, kind, windows):
    model = Model(1000, 16, 1024, 16, 4096, 512, kind).eval().to(dtype)
    if kind is PackedLayer:
        model.layers = nn.ModuleList(layer.pack(dtype) for layer in model.layers)
    ids = torch.randint(1000, (windows, 512))

    def step():
        with torch.no_grad():
            model.states(ids)

    return step, ids.numel()


def paper_model():
    return Model(10000, 6, 256, 4, 1024, 256), 256


def stream_model():
    """Without absolute positions and the final norm, which take no time."""
    model = Model(16000, 10, 256, 4, 704, 512, StreamLayer).see_last(256)
    return model, 512


def training_way(dtype, make, options, tokens):
    model, length = make()
    windows, vocabulary = tokens // length, model.embedding.num_embeddings
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, **options)
    ids = torch.randint(vocabulary, (windows, length + 1))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
            loss = model.loss(ids[:, :-1], ids[:, 1:])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step, windows * length


def training_ways(make):
    return {
        f"{name}-{tokens}": lambda dtype, o=options, t=tokens: training_way(dtype, make, o, t)
        for name, options in (("loop", {}), ("foreach", {"foreach": True}))
        for tokens in (2048, 4096)
    }


# Which library multiplies, how the optimiser walks, how many windows at once: name -> function of the precision
# that gives (step, tokens of a step).
WAYS = {
    "lm": {
        f"{name}-{windows}": lambda dtype, k=kind, w=windows: forward_way(dtype, k, w)
        for name, kind in (("plain", Layer), ("onednn", PackedLayer))
        for windows in (1, 2, 4)
    },
    "train": training_ways(paper_model),
    "train-stream": training_ways(stream_model),
}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def rates(make, dtype, repeats):
    step, tokens = make(dtype)
    step()
    return [timed(step, tokens) for _ in range(repeats)]


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in WAYS or sys.argv[2] not in DTYPES:
        sys.exit(__doc__)
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    ways, dtype = WAYS[sys.argv[1]], DTYPES[sys.argv[2]]
    if sys.argv[3] == "choose":
        print(max(ways, key=lambda name: max(rates(ways[name], dtype, 2))))
    else:
        print("\n".join(f"{rate:.1f}" for rate in rates(ways[sys.argv[4]], dtype, int(sys.argv[3]))))


main()
