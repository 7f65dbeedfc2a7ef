#!/usr/bin/python3
"""Neighbours for a model of one's own, here one of torch's: its hidden states are the keys, knnlm keeps, searches and mixes.
    examples/torch_knnlm.py [--steps N] [TEXT]
Trains a GRU over bytes for a moment, remembers its states over the training part of the text, finds lambda and temperature on the next
part, reports perplexity on the last, and holds that against the same formula in torch, over every key. Needs python3-torch."""

import argparse
import pathlib
import sys
import tempfile

import numpy as np
import torch

import knnlm

K = 64
HERE = pathlib.Path(__file__).resolve().parent


class ByteModel(torch.nn.Module):
    """Bytes to the next byte. The state before it, which the head reads, is what a store has as key."""

    def __init__(self, width=64):
        super().__init__()
        self.embed = torch.nn.Embedding(256, width)
        self.recur = torch.nn.GRU(width, width, batch_first=True)
        self.head = torch.nn.Linear(width, 256)

    def forward(self, ids):
        states, _ = self.recur(self.embed(ids))
        return self.head(states), states


def train(model, data, steps, batch=16, length=64):
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        starts = torch.randint(len(data) - length - 1, (batch, 1))
        window = data[starts + torch.arange(length + 1)]
        logits, _ = model(window[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.item()


@torch.no_grad()
def read(model, data):
    """(log p_LM, states, targets) of every byte but the first."""
    logits, states = model(data[None, :-1])
    targets = data[1:]
    logprobs = torch.log_softmax(logits[0], -1).gather(1, targets[:, None])[:, 0]
    return logprobs, states[0], targets


def tune(store, lm, states, targets):
    """(perplexity, temperature, lambda): the best of a few temperatures, each with its best lambda."""
    scale = float(store.search(states, K).distances.mean())
    tried = []
    for temperature in scale * np.array([0.02, 0.05, 0.1, 0.2, 0.5, 1.0]):
        knn = store.knn_targets(states, targets, K, temperature)
        lambda_ = knnlm.best_lambda(lm, knn)
        tried.append((knnlm.perplexity(knnlm.mix(lm, knn, lambda_)), temperature, lambda_))
    return min(tried)


@torch.no_grad()
def by_torch(keys, values, lm, states, targets, temperature, lambda_):
    """Perplexity by the definition, in torch and in double precision: every distance, the K smallest, their shares."""
    nll = 0.0
    for one_lm, state, target in zip(lm.double(), states.double(), targets):
        distances = ((keys.double() - state) ** 2).sum(1)
        near = torch.topk(distances, K, largest=False)
        shares = torch.softmax(-near.values / temperature, 0)
        knn = shares[values[near.indices] == target].sum()
        nll -= torch.log((1 - lambda_) * one_lm.exp() + lambda_ * knn).item()
    return float(np.exp(nll / len(targets)))


@torch.no_grad()
def generate(model, store, prompt, count, temperature, lambda_):
    """As generate() of transformers does it: scores of a step go through the processor. The states of the step are the model's own."""
    last = {}
    processor = knnlm.KnnLogitsProcessor(store, lambda ids: last["state"], lambda_=lambda_, temperature=temperature, k=K)
    ids = torch.tensor([list(prompt.encode())])
    for _ in range(count):
        logits, states = model(ids)
        last["state"] = states[:, -1]
        scores = processor(ids, logits[:, -1])
        ids = torch.cat([ids, scores.argmax(-1, keepdim=True)], 1)
    return bytes(ids[0].tolist()).decode("utf-8", "replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="?", default=HERE.parent / "docs" / "theory.md")
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    torch.manual_seed(1)
    data = torch.tensor(list(pathlib.Path(given.text).read_bytes()))
    first, second = int(0.8 * len(data)), int(0.9 * len(data))
    model = ByteModel()
    print(f"loss after {given.steps} steps: {train(model, data[:first], given.steps):.3f}")

    _, keys, values = read(model, data[:first])
    with tempfile.TemporaryDirectory() as folder:
        store = knnlm.Store.from_arrays(folder + "/torch.store", keys, values, keys="f32", vocabulary=256)
        valid, test = read(model, data[first:second]), read(model, data[second:])
        _, temperature, lambda_ = tune(store, *valid)
        lm, states, targets = test
        knn = store.knn_targets(states, targets, K, temperature)
        alone, mixed = knnlm.perplexity(lm), knnlm.perplexity(knnlm.mix(lm, knn, lambda_))
        formula = by_torch(keys, values, lm, states, targets, temperature, lambda_)
        print(f"store of {len(store)} states; lambda {lambda_:.3f}, temperature {temperature:.3g}")
        print(f"perplexity per byte: model {alone:.4f}, with neighbours {mixed:.4f}, by the formula in torch {formula:.4f}")
        print(repr(generate(model, store, "The store ", 40, temperature, lambda_)))
        store.close()
    return 0 if abs(mixed - formula) < 1e-3 * formula and mixed < alone else 1


if __name__ == "__main__":
    sys.exit(main())
