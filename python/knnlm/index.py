"""The index of a store: entries in lists by the nearest of some thousand centroids, so that searches look at a few of them."""

from __future__ import annotations

import ctypes as c
import os
from typing import TYPE_CHECKING, Any

from . import _header as h
from ._library import call
from ._options import Listener, Progress, options_of
from .results import IndexInfo, Neighbors, Recall, record

if TYPE_CHECKING:
    from .model import Model
    from .store import Store


class Index:
    """Of a store, which it lies in: without one, searches look at every entry."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def info(self) -> IndexInfo:
        out = h.knnlm_index_info()
        with self.store._use() as store:
            call("knnlm_store_index_describe", store, c.byref(out))
        return record(IndexInfo, out)

    def __repr__(self) -> str:
        return f"<knnlm.Index of {self.store.path}: {self.info.lists} lists>"

    def build(self, model: Model | None = None, *, progress: Progress | None = None, **options: Any) -> IndexInfo:
        """Sorts the entries into lists, in place of those it had. Options: lists, codes ("none", "pq64", "pq64x4", "auto"), train,
        probes, iterations, seed, memory, force. `model` is needed for stores without keys alone."""
        return self._make("knnlm_index", model, progress, options)

    def extend(self, *, progress: Progress | None = None, **options: Any) -> IndexInfo:
        """Puts what was added since into the lists that there are."""
        return self._make("knnlm_index", None, progress, {"extend": True, **options})

    def update(self, model: Model | None = None, *, progress: Progress | None = None, **options: Any) -> IndexInfo:
        """What is needed of both: what `knnlm build` and `knnlm add` do last."""
        return self._make("knnlm_index_update", model, progress, options)

    def _make(self, function: str, model: Model | None, progress: Progress | None, options: dict[str, Any]) -> IndexInfo:
        o = options_of(h.knnlm_index_options, options)
        path = os.fsencode(self.store.path)
        with Listener(progress) as listener:
            o.progress = listener.progress
            if model is None:
                call(function, None, path, c.byref(o), None)
            else:
                with model._use() as m:
                    call(function, m, path, c.byref(o), None)
        self.store.refresh()
        return self.info

    def search(self, queries: Any, k: int = 1024, **options: Any) -> Neighbors:
        """As Store.search."""
        return self.store.search(queries, k, **options)

    def recall(self, *, progress: Progress | None = None, **options: Any) -> list[Recall]:
        """What searches of 1, 2, 4, ... lists find of the true neighbours of entries drawn from the store; the last looks at every
        entry. Options: queries, k, seed, memory."""
        rows, count = (h.knnlm_recall * h.KNNLM_RECALL_MAX)(), c.c_size_t()
        o = options_of(h.knnlm_recall_options, options)
        with Listener(progress) as listener, self.store._use() as store:
            o.progress = listener.progress
            call("knnlm_store_recall", store, c.byref(o), rows, c.byref(count))
        return [Recall(r.probes, tuple(r.recall), r.queries_per_second) for r in rows[: count.value]]
