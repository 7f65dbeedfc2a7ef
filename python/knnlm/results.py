"""What calls give back. Members are called as in include/knnlm.h, which tells more of them; `lambda_` is its lambda."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple, Type, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import _header as h
from ._library import sized, text
from ._options import DISTANCES, KEYS

Record = TypeVar("Record")


def record(kind: Type[Record], struct: Any, **known: Any) -> Record:
    """A dataclass of the members of a struct that have its fields' names; `known` are others, or otherwise."""

    def value(name: str) -> Any:
        raw = getattr(struct, name[:-1] if name.endswith("_") else name)
        return text(raw) if isinstance(raw, bytes) else raw

    values = {f.name: known[f.name] if f.name in known else value(f.name) for f in dataclasses.fields(kind)}
    return kind(**values)


@dataclass(frozen=True)
class ModelInfo:
    path: str
    architecture: str
    engine: str
    kernels: str
    tokenizer: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    ffn: int
    context: int
    key_width: int
    parameters: int
    file_bytes: int
    fingerprint: str
    window: int


@dataclass(frozen=True)
class Tuned:
    """How to mix what a store finds, as tuned on some text."""

    known: bool
    lambda_: float
    temperature: float
    k: int
    probes: int
    cache: int
    cache_lambda: float
    cache_temperature: float
    tokens: int
    gate: bool
    quick: bool
    entries: int


@dataclass(frozen=True)
class StoreInfo:
    path: str
    model: str
    tokenizer: str
    tap: str
    split: str
    entries: int
    documents: int
    removed_entries: int
    removed_documents: int
    bytes: int
    commits: int
    created: int
    dimension: int
    model_dimension: int
    vocabulary: int
    keys: str
    distance: str
    complete: bool
    has_tokenizer: bool
    has_projection: bool
    has_index: bool
    tuned: Tuned


def store_info(struct: h.knnlm_store_info) -> StoreInfo:
    return record(
        StoreInfo, struct, keys=KEYS[struct.keys], distance=DISTANCES[struct.distance], tuned=record(Tuned, struct.tuned)
    )


@dataclass(frozen=True)
class Document:
    number: int
    name: str
    path: str
    bytes: int
    tokens: int
    first: int
    entries: int
    removed: bool


def document(number: int, struct: h.knnlm_document) -> Document:
    return record(
        Document, struct, number=number, name=sized(struct.name, struct.name_size), path=sized(struct.path, struct.path_size)
    )


@dataclass(frozen=True)
class Entry:
    id: int
    token: int
    document: int
    position: int
    offset: int
    removed: bool


@dataclass(frozen=True)
class Origin:
    """An entry with its document and the text around it."""

    entry: Entry
    document: Document
    before: str
    word: str
    after: str


def origin(struct: h.knnlm_origin) -> Origin:
    return Origin(
        record(Entry, struct.entry),
        document(struct.entry.document, struct.document),
        sized(struct.before, struct.before_size),
        sized(struct.word, struct.word_size),
        sized(struct.after, struct.after_size),
    )


@dataclass(frozen=True)
class BuildResult:
    documents_added: int
    documents_unchanged: int
    documents_replaced: int
    documents_removed: int
    entries_added: int
    documents: int
    entries: int
    bytes: int
    resumed: bool
    seconds: float


@dataclass(frozen=True)
class IndexInfo:
    """lists 0: there is no index, every search looks at every entry."""

    lists: int
    probes: int
    listed: int
    outside: int
    code_bytes: int
    code_bits: int
    bytes: int
    imbalance: float
    drift: float


class Recall(NamedTuple):
    """What searches of so many lists (0: every entry) find of the nearest 1, 10, 100 and k."""

    probes: int
    recall: tuple[float, ...]
    queries_per_second: float


@dataclass(frozen=True)
class ImportResult:
    keys: str
    values: str
    key_type: str
    value_type: str
    entries: int
    documents: int
    dimension: int
    vocabulary: int
    restored: bool


class Neighbors(NamedTuple):
    """Of n queries: ids and distances (n, k), nearest first; counts (n). Behind its count a row has NO_ENTRY and infinity."""

    ids: NDArray[np.uint32]
    distances: NDArray[np.float32]
    counts: NDArray[np.uint32]


NO_ENTRY = np.uint32(h.KNNLM_ENTRIES_MAX)


class Scores(NamedTuple):
    """Of each token log p, and log p by the model alone."""

    p: NDArray[np.float32]
    lm: NDArray[np.float32]


class Next(NamedTuple):
    """What comes next, of every token of the vocabulary: p, p by the model, p_kNN (probabilities, no logarithms)."""

    p: NDArray[np.float64]
    lm: NDArray[np.float64]
    knn: NDArray[np.float64]
    lambda_: float
    entropy: float
    nearest: float


@dataclass(frozen=True)
class MixtureStore:
    """How a store is searched and weighed: as given, as tuned, or by default."""

    path: str
    entries: int
    lambda_: float
    temperature: float
    k: int
    probes: int
    codes: bool
    adaptive: bool
    gated: bool
    fallback: bool
    tuned: bool
    distance: str


@dataclass(frozen=True)
class MixtureInfo:
    stores: list[MixtureStore]
    cache: int
    cache_lambda: float
    cache_temperature: float


def mixture_info(struct: h.knnlm_mixture_info) -> MixtureInfo:
    stores = [record(MixtureStore, s, distance=DISTANCES[s.distance]) for s in struct.stores[: struct.store_count]]
    return record(MixtureInfo, struct, stores=stores)


@dataclass(frozen=True)
class Score:
    """Of a text: sum of -log p in nats; perplexity per token, and per word; bits per byte."""

    nll: float
    ppl: float
    ppl_word: float
    bits_per_byte: float


@dataclass(frozen=True)
class EvalStore:
    path: str
    entries: int
    lambda_: float
    temperature: float
    k: int
    probes: int
    found: float


@dataclass(frozen=True)
class EvalNgram:
    """An n-gram model that was mixed in: `score` by it alone; perplexity by its weight."""

    order: int
    tokens: int
    grams: list[int]
    score: Score
    lambda_: float
    lambdas: NDArray[np.float64]
    by_lambda: NDArray[np.float64]


@dataclass(frozen=True)
class EvalResult:
    documents: int
    tokens: int
    words: int
    bytes: int
    own_documents: int
    lm: Score
    mixed: Score
    stores: list[EvalStore]
    seconds: float
    seconds_lm: float
    seconds_search: float
    tokens_per_second: float
    skipped: float
    ngram: EvalNgram | None


def eval_ngram(struct: h.knnlm_eval_ngram) -> EvalNgram | None:
    if not struct.order:
        return None
    curve = {name: np.array(getattr(struct, name)) for name in ("lambdas", "by_lambda")}
    return record(EvalNgram, struct, grams=list(struct.grams[: struct.order]), score=record(Score, struct.score), **curve)


def eval_result(struct: h.knnlm_eval_result) -> EvalResult:
    stores = [record(EvalStore, s) for s in struct.stores[: struct.store_count]]
    scores = {"lm": record(Score, struct.lm), "mixed": record(Score, struct.mixed)}
    return record(EvalResult, struct, stores=stores, ngram=eval_ngram(struct.ngram), **scores)


@dataclass(frozen=True)
class TunePoint:
    """One setting of one store beside the model, with the best weight for it."""

    store: int
    probes: int
    temperature: float
    lambda_: float
    cache_lambda: float
    ppl: float
    k: int


@dataclass(frozen=True)
class TuneResult:
    tokens: int
    ppl_lm: float
    ppl: float
    ppl_cache: float
    ppl_adaptive: float
    ppl_gate: float
    points: list[TunePoint]
    lambdas: NDArray[np.float64]
    by_lambda: NDArray[np.float64]
    tuned: Tuned
    written: bool
    seconds: float


def tune_result(struct: h.knnlm_tune_result) -> TuneResult:
    return record(
        TuneResult,
        struct,
        points=[record(TunePoint, p) for p in struct.points[: struct.point_count]],
        lambdas=np.array(struct.lambdas),
        by_lambda=np.array(struct.by_lambda),
        tuned=record(Tuned, struct.tuned),
    )


@dataclass(frozen=True)
class Word:
    """A token with p by the model, p_kNN and p."""

    token: int
    text: str
    lm: float
    knn: float
    p: float


@dataclass(frozen=True)
class Neighbor:
    """A neighbour with its origin: what followed it is origin.word."""

    store: int
    share: float
    distance: float
    origin: Origin


@dataclass(frozen=True)
class Explanation:
    tokens: int
    cut: bool
    words: list[Word]
    targets: list[Word]
    neighbors: list[Neighbor]
    lambda_: float
    nearest: float
    entropy: float


@dataclass(frozen=True)
class TokenGain:
    """A token of a text at which neighbours made a difference; logarithms."""

    document: str
    before: str
    position: int
    offset: int
    token: int
    lm: float
    knn: float
    cache: float
    p: float
    lambda_: float
    neighbors: list[Neighbor]


@dataclass(frozen=True)
class TokenGains:
    best: list[TokenGain]
    worst: list[TokenGain]
    tokens: int
    ppl_lm: float
    ppl: float


def neighbors_of(pointer: Any, count: int) -> list[Neighbor]:
    return [record(Neighbor, n, origin=origin(n.origin)) for n in pointer[:count]]


def token_gain(struct: h.knnlm_token_gain) -> TokenGain:
    return record(
        TokenGain,
        struct,
        before=sized(struct.before, struct.before_size),
        neighbors=neighbors_of(struct.neighbors, struct.neighbor_count),
    )


@dataclass(frozen=True)
class TextToken:
    """A token of a generated text; logarithms."""

    token: int
    p: float
    lm: float
    knn: float
    lambda_: float
    nearest: float
    entropy: float
    offset: int
    size: int
    source: int


@dataclass(frozen=True)
class Source:
    """A passage of a store that a generated text stands in."""

    store: str
    document: str
    entry: int
    position: int
    before: str
    text: str
    after: str
    first: int
    tokens: int
    share: float
    footnote: int


def source(struct: h.knnlm_text_source) -> Source:
    strings = {name: sized(getattr(struct, name), getattr(struct, name + "_size")) for name in ("document", "before", "text", "after")}
    return record(Source, struct, **strings)
