"""Neighbours in the generation of other programs: a processor of scores, in the shape of Hugging Face's LogitsProcessor."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from .mixing import mix
from .store import Store


class KnnLogitsProcessor:
    """Mixes p_kNN into the scores of a step of generate(): processor(input_ids, scores) -> scores.

    `states` gives the model's states (batch, dimension) before the next token, for the input_ids of the step: whatever was taken as
    keys when the store was made. With a torch model that is a forward hook which keeps the last one. Scores come and go as torch
    tensors or as arrays, and come back as log p: softmax of them is the mixture. Tokens that a processor before it has ruled out (a
    score of -inf) stay so, whatever the neighbours say."""

    def __init__(
        self, store: Store, states: Callable[[Any], Any], *, lambda_: float = 0.25, temperature: float = 1.0, k: int = 1024, **search: Any
    ) -> None:
        if not 0 <= lambda_ <= 1:
            raise ValueError(f"lambda is from 0 to 1, not {lambda_}")
        self.store, self.states = store, states
        self.lambda_, self.temperature, self.k, self.search = lambda_, temperature, k, search

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        logits = np.asarray(_to_numpy(scores), np.float64)
        queries = _to_numpy(self.states(input_ids))
        knn = self.store.knn(queries, self.k, self.temperature, **self.search)
        if knn.shape != logits.shape:
            raise ValueError(f"scores of shape {logits.shape}, but p_kNN of shape {knn.shape}: is the store of this model?")
        lm = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        # Where nothing was found the model speaks alone.
        lambdas = np.where(knn.sum(-1, keepdims=True) > 0, self.lambda_, 0.0)
        with np.errstate(divide="ignore"):
            mixed = mix(lm, np.log(knn), lambdas)
        return _like(scores, np.where(np.isneginf(logits), -np.inf, mixed))


def _to_numpy(given: Any) -> Any:
    """A tensor of torch, wherever it is, as an array; arrays as they are."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        return given.float().numpy() if given.is_floating_point() else given.numpy()
    return np.asarray(given)


def _like(given: Any, array: Any) -> Any:
    """An array as `given` is: its type, and where it lies."""
    if hasattr(given, "new_tensor"):
        return given.new_tensor(array)
    return array.astype(given.dtype)
