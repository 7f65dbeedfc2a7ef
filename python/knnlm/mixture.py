"""Mixtures: a model with its stores predicts, evaluates, tunes, explains and generates."""

from __future__ import annotations

import contextlib
import ctypes as c
import os
from typing import Any, Iterator, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from . import _header as h
from ._arrays import address
from ._handle import Handle, opened
from ._library import call, library
from ._options import Listener, Progress, fields_of, options_of, paths, reading, strings
from .model import Model, Tokens
from .results import (
    EvalResult,
    Explanation,
    MixtureInfo,
    Next,
    Scores,
    TokenGains,
    TuneResult,
    Word,
    eval_result,
    mixture_info,
    neighbors_of,
    record,
    token_gain,
    tune_result,
)
from .store import Store
from .text import Text

Stores = Union[str, "os.PathLike[str]", Store, Sequence[Union[str, "os.PathLike[str]", Store]]]


def _row_type() -> np.dtype[Any]:
    """knnlm_token_row without the name of its document: rows are written straight into an array."""
    kinds = {c.c_uint64: "u8", c.c_int32: "i4", c.c_double: "f8"}
    fields = [(name, kind) for name, kind in fields_of(h.knnlm_token_row).items() if kind in kinds]
    return np.dtype({
        "names": [name for name, _ in fields],
        "formats": [kinds[kind] for _, kind in fields],
        "offsets": [getattr(h.knnlm_token_row, name).offset for name, _ in fields],
        "itemsize": c.sizeof(h.knnlm_token_row),
    })  # fmt: skip


ROW = _row_type()


def _per_store(options: Any, name: str, given: Any, kind: Any) -> None:
    """A number for each store; one for a single store. None among them: not given."""
    if given is None:
        return
    several = list(given) if isinstance(given, (list, tuple, np.ndarray)) else [given]
    if len(several) != options.store_count:
        raise ValueError(f"{name}: {len(several)} numbers for {options.store_count} stores")
    missing = float("nan") if kind is c.c_double else 0
    array = (kind * len(several))(*[missing if x is None else x for x in several])
    options.kept.append(array)
    setattr(options, name, array)


class Mixture(Handle):
    """p = (1 - lambda) p_LM + lambda p_kNN, of a model and stores (Store objects or their paths; none: the model alone).

    What is not given is as tuned (knnlm tune, or tune()), else k 1024, lambda .25, temperature 1. Options: lambda_, temperature, k,
    probes; per store: weights, temperatures, ks; fixed (one lambda, although there is a gate), bins, fallback, codes, exact, distance,
    cache, cache_lambda, cache_temperature, include_self, skip_entropy, memory, fraction, only, except_. It uses its model: one thread at a time."""

    _closer = "knnlm_mixture_close"

    def __init__(
        self, model: Model, stores: Stores = (), *, weights: Any = None, temperatures: Any = None, ks: Any = None, **options: Any
    ) -> None:
        several = [stores] if isinstance(stores, (str, os.PathLike, Store)) else list(stores)
        given = [s.path if isinstance(s, Store) else s for s in several]
        self._options = options_of(h.knnlm_mixture_options, {"stores": given, **options})
        _per_store(self._options, "weights", weights, c.c_double)
        _per_store(self._options, "temperatures", temperatures, c.c_double)
        _per_store(self._options, "ks", ks, c.c_int64)
        self.model = model
        handle = c.c_void_p()
        with model._use() as m:
            call("knnlm_mixture_open", m, c.byref(self._options), c.byref(handle))
        super().__init__(opened(handle))
        model._dependents.add(self)

    @contextlib.contextmanager
    def _work(self) -> Iterator[tuple[int, int]]:
        """The mixture and its model, for this thread alone."""
        with self.model._use() as model, self._use() as mixture:
            yield mixture, model

    @property
    def info(self) -> MixtureInfo:
        """How each store is searched and weighed."""
        out = h.knnlm_mixture_info()
        with self._use() as mixture:
            library.knnlm_mixture_describe(mixture, c.byref(out))
            return mixture_info(out)

    # ---- predicting

    def score(self, tokens: Tokens, **windows: Any) -> Scores:
        """log p of every token of one document (a text or its tokens), and log p by the model alone."""
        row = self.model.tokens(tokens)
        p, lm = np.empty(len(row), np.float32), np.empty(len(row), np.float32)
        o = options_of(h.knnlm_score_options, windows)
        with self._work() as (mixture, _):
            call("knnlm_mixture_score", mixture, address(row), len(row), c.byref(o), address(p), address(lm))
        return Scores(p, lm)

    def rows(self, tokens: Tokens, **windows: Any) -> NDArray[Any]:
        """All that is known of each token: an array with the fields token, position, lm, knn, cache and p (logarithms; nan: there is
        none), lambda, nearest (distance) and entropy (of p_LM)."""
        row = self.model.tokens(tokens)
        out = np.empty(len(row), ROW)
        o = options_of(h.knnlm_score_options, windows)
        with self._work() as (mixture, _):
            call("knnlm_mixture_rows", mixture, address(row), len(row), c.byref(o), address(out))
        return out

    def next(self, tokens: Tokens) -> Next:
        """What comes after a context: the probabilities of every token of the vocabulary."""
        row = self.model.tokens(tokens)
        p, lm, knn = (np.empty(self.model.info.vocabulary) for _ in range(3))
        out = h.knnlm_next()
        with self._work() as (mixture, _):
            call("knnlm_mixture_next", mixture, address(row), len(row), address(p), address(lm), address(knn), c.byref(out))
        return Next(p, lm, knn, getattr(out, "lambda"), out.entropy, out.nearest)

    # ---- texts

    def eval(
        self, texts: Any, *, texts_options: dict[str, Any] | None = None, progress: Progress | None = None, **options: Any
    ) -> EvalResult:
        """Perplexity of texts (files, directories), of the model alone and with neighbours. A document that is in a store is scored
        without itself. Options: split, score, context, per_token and report (files to write), report_tokens; ngram (texts to learn an
        n-gram model from, which is mixed in), ngram_order, ngram_lambda."""
        result, given = h.knnlm_eval_result(), strings(paths(texts))
        o = self._text_options(h.knnlm_eval_options, options, texts_options)
        with Listener(progress) as listener, self._work() as (_, model):
            o.progress = listener.progress
            call("knnlm_eval", model, given, len(given), c.byref(self._options), c.byref(o), c.byref(result))
        return eval_result(result)

    def tune(
        self, texts: Any, *, probes: Sequence[int] = (), texts_options: dict[str, Any] | None = None, progress: Progress | None = None,
        **options: Any
    ) -> TuneResult:  # fmt: skip
        """Finds the settings that suit texts best; a single store remembers them (but with dry_run=True). None: a first guess by the
        store's own documents. Options: split, score, context, auto_probes. A mixture opened afterwards uses what was found."""
        result, given = h.knnlm_tune_result(), strings([] if texts is None else paths(texts))
        o = self._text_options(h.knnlm_tune_options, {"own": texts is None, **options}, texts_options)
        tried = (c.c_int64 * len(probes))(*probes)
        o.probes, o.probe_count = tried, len(probes)
        with Listener(progress) as listener, self._work() as (_, model):
            o.progress = listener.progress
            call("knnlm_tune", model, given, len(given), c.byref(self._options), c.byref(o), c.byref(result))
        found = tune_result(result)
        library.knnlm_tune_result_free(c.byref(result))
        return found

    def _text_options(self, kind: Any, options: dict[str, Any], texts_options: dict[str, Any] | None) -> Any:
        if "split" in options:
            options["split_given"] = True
        o = options_of(kind, options)
        reading(texts_options, o)
        return o

    # ---- explaining and generating

    def explain(self, context: str, target: str | None = None, **options: Any) -> Explanation:
        """Who says what comes after a context: the most probable words, and the neighbours with their origins. `target`: a word that
        is told of too. Options: words, neighbors, around (tokens of text on both sides of a neighbour)."""
        out = h.knnlm_explanation()
        o = options_of(h.knnlm_explain_options, {"target": target, **options})
        with self._work() as (mixture, _):
            call("knnlm_explain", mixture, context.encode(), c.byref(o), c.byref(out))
            try:
                return self._explanation(out)
            finally:
                library.knnlm_explanation_free(c.byref(out))

    def _explanation(self, out: h.knnlm_explanation) -> Explanation:
        def words(pointer: Any, count: int) -> list[Word]:
            return [record(Word, w, text=self.model.decode([w.token])) for w in pointer[:count]]

        return record(
            Explanation,
            out,
            words=words(out.words, out.word_count),
            targets=words(out.targets, out.target_count),
            neighbors=neighbors_of(out.neighbors, out.neighbor_count),
        )

    def explain_texts(
        self, texts: Any, *, texts_options: dict[str, Any] | None = None, progress: Progress | None = None, **options: Any
    ) -> TokenGains:
        """Those tokens of texts at which neighbours helped most, and hurt most. Options: best, worst, neighbors, around, split."""
        out, given = h.knnlm_token_gains(), strings(paths(texts))
        o = self._text_options(h.knnlm_explain_texts_options, options, texts_options)
        with Listener(progress) as listener, self._work() as (mixture, _):
            o.progress = listener.progress
            call("knnlm_explain_texts", mixture, given, len(given), c.byref(o), c.byref(out))
            try:
                best = [token_gain(g) for g in out.best[: out.best_count]]
                worst = [token_gain(g) for g in out.worst[: out.worst_count]]
                return TokenGains(best, worst, out.tokens, out.ppl_lm, out.ppl)
            finally:
                library.knnlm_token_gains_free(c.byref(out))

    def generate(self, prompt: Tokens = "", **options: Any) -> Text:
        """A text that grows behind a prompt (a text or its tokens): iterate over its pieces, or take str() of it. Options: tokens,
        seed, temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, stops, sources, around, keep_lambda, ignore_end, no_carry,
        dry_multiplier, dry_base, dry_allowed_length."""
        return Text(self, prompt, **options)
