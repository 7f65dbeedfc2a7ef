"""Stores: keys, values and origins on disk; building, adding, searching, p_kNN."""

from __future__ import annotations

import contextlib
import ctypes as c
import os
import warnings
from typing import Any, Iterator

import numpy as np
from numpy.typing import NDArray

from . import _header as h
from ._arrays import address, floats, integers, room
from ._handle import Handle, opened
from ._library import call, library, take_text
from .errors import Error, Stopped
from ._options import Listener, Progress, options_of, paths, reading, strings
from .index import Index
from .model import Model, take_tokens
from .results import (
    BuildResult,
    Document,
    Entry,
    ImportResult,
    Neighbors,
    Origin,
    StoreInfo,
    document,
    origin,
    record,
    store_info,
)


TUNED_FROM = 64  # entries
PIECE = 65536  # rows that append() converts at a time: arrays of others, mapped from files, may be larger than memory


def _open(path: Any) -> int:
    handle = c.c_void_p()
    call("knnlm_store_open", os.fsencode(path), c.byref(handle))
    return opened(handle)


def _rows(keys: Any, dimension: int) -> Any:
    """Keys (n, dimension) as they are given, one of them as n = 1; no array is copied."""
    rows = keys if hasattr(keys, "shape") else np.asarray(keys)
    if len(rows.shape) == 1:
        rows = rows[None]
    if len(rows.shape) != 2 or rows.shape[1] != dimension:
        raise ValueError(f"keys of shape {tuple(rows.shape)}: (n, {dimension}) is wanted")
    return rows


def _recorded(model: Model | None) -> contextlib.AbstractContextManager[int | None]:
    """A model that is named in a store, and not worked with."""
    return contextlib.nullcontext() if model is None else model._use(shared=True)


class Store(Handle):
    """A store, as its last commit before it was opened left it; any number of threads may read it. What this object changes
    (append, add, remove, index.build, ...) it sees at once; what others change, after refresh()."""

    _closer = "knnlm_store_close"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        super().__init__(_open(path))
        self._read_info()
        self.last_build: BuildResult | None = None
        self.last_import: ImportResult | None = None

    def _read_info(self) -> None:
        info = h.knnlm_store_info()
        with self._use() as store:
            library.knnlm_store_describe(store, c.byref(info))
            self.info: StoreInfo = store_info(info)

    def refresh(self) -> None:
        """Opens the store again, as its last commit has it."""
        self._replace(_open(self.path))
        self._read_info()

    @property
    def is_current(self) -> bool:
        """Whether no commit has been made since it was opened."""
        with self._use() as store:
            return bool(library.knnlm_store_is_current(store))

    def __len__(self) -> int:
        """Entries, removed ones included: their ids are below it."""
        return self.info.entries

    def __repr__(self) -> str:
        return f"<knnlm.Store {self.path}: {self.info.entries} entries of dimension {self.info.dimension}>"

    # ---- making and changing

    @classmethod
    def create(cls, path: str | os.PathLike[str], dimension: int = 0, *, model: Model | None = None, **settings: Any) -> Store:
        """A new store without entries, for keys of one's own: append() them. Settings: vocabulary, keys ("f16", "f32", "int8",
        "none"), distance ("l2", "ip", "cosine"), segment. A `model` that is given is recorded, and tells dimension and vocabulary."""
        writer = c.c_void_p()
        s = options_of(h.knnlm_store_settings, {"dimension": dimension, **settings})
        with _recorded(model) as s.model:
            call("knnlm_writer_create", os.fsencode(path), c.byref(s), c.byref(writer))
        try:
            call("knnlm_writer_commit", writer)
        finally:
            library.knnlm_writer_close(writer)
        return cls(path)

    @classmethod
    def from_arrays(cls, path: str | os.PathLike[str], keys: Any, values: Any, /, **settings: Any) -> Store:
        """A new store of keys (n, dimension) and values (n)."""
        keys = keys if hasattr(keys, "shape") else np.asarray(keys)
        if len(keys.shape) != 2:
            raise ValueError(f"keys of shape {tuple(keys.shape)}: (n, dimension) is wanted")
        store = cls.create(path, keys.shape[1], **settings)
        store.append(keys, values)
        return store

    def append(self, keys: Any, values: Any, name: str | None = None) -> range:
        """Adds a document of keys (n, dimension) and the tokens that followed (n), and commits. Gives the ids of its entries.
        Arrays that are mapped from files are read piece by piece; f16 need not be made f32 before."""
        rows = None if self.info.keys == "none" and keys is None else _rows(keys, self.info.dimension)
        tokens = integers(values, "values")
        if rows is not None and len(rows) != len(tokens):
            raise ValueError(f"{len(rows)} keys, but {len(tokens)} values")
        label = (name if name is not None else f"{self.info.documents}").encode()
        kept = c.c_char_p(label)
        d = h.knnlm_document(name=c.cast(kept, c.c_void_p), name_size=len(label), tokens=len(tokens))
        writer = c.c_void_p()
        call("knnlm_writer_open", os.fsencode(self.path), c.byref(writer))
        try:
            call("knnlm_writer_begin", writer, c.byref(d))
            for first in range(0, len(tokens), PIECE):
                few = tokens[first : first + PIECE]
                part = None if rows is None else floats(rows[first : first + PIECE], self.info.dimension, "keys")
                call("knnlm_writer_append", writer, address(few), None, address(part), len(few))
            call("knnlm_writer_commit", writer)
        finally:
            library.knnlm_writer_close(writer)
        self.refresh()
        return range(len(self) - len(tokens), len(self))

    @classmethod
    def build(
        cls, path: str | os.PathLike[str], model: Model, texts: Any, *, index: bool = True, tune: bool = True,
        texts_options: dict[str, Any] | None = None, progress: Progress | None = None, **options: Any
    ) -> Store:  # fmt: skip
        """Reads texts (files, directories) with the model and remembers every context, as `knnlm build` does: a new store, or one
        that the same settings began. Options are those of knnlm_build_options (tap, keys, distance, project, memory, split, ...).
        `index`: makes lists where they are needed; `tune`: a first guess of how to mix it in, from its own text."""
        if "split" in options:
            options["split_given"] = True
        result = _read_texts("knnlm_build", model, path, texts, texts_options, progress, options)
        store = cls(path)
        store.last_build = result
        store._finish(model, index, tune, progress)
        return store

    def add(
        self, model: Model, texts: Any, *, index: bool = True, tune: bool = True, texts_options: dict[str, Any] | None = None,
        progress: Progress | None = None, **options: Any
    ) -> BuildResult:  # fmt: skip
        """The same into this store, by its own settings; what is in it already is left alone."""
        return self._change("knnlm_build_add", model, texts, index, tune, texts_options, progress, options)

    def sync(
        self, model: Model, directories: Any, *, index: bool = True, tune: bool = True, texts_options: dict[str, Any] | None = None,
        progress: Progress | None = None, **options: Any
    ) -> BuildResult:  # fmt: skip
        """The same, and documents whose files are gone from the directories are removed."""
        return self._change("knnlm_build_sync", model, directories, index, tune, texts_options, progress, options)

    def _change(
        self, function: str, model: Model, texts: Any, index: bool, tune: bool, texts_options: Any, progress: Any, options: Any
    ) -> BuildResult:  # fmt: skip
        self.last_build = _read_texts(function, model, self.path, texts, texts_options, progress, options)
        self.refresh()
        self._finish(model, index, tune, progress)
        return self.last_build

    def _finish(self, model: Model, index: bool, tune: bool, progress: Progress | None) -> None:
        """What the command does last."""
        if index:
            self.index.update(model, progress=progress)
        if not tune or not self._worth_tuning():
            return
        from .mixture import Mixture  # which needs stores

        try:
            with Mixture(model, self) as mixture:
                mixture.tune(None, progress=progress)
        except Stopped:
            raise
        except Error as error:  # a store that cannot be tuned is still a store
            warnings.warn(f"{self.path}: not tuned: {error}", stacklevel=3)
        self.refresh()

    def _worth_tuning(self) -> bool:
        """As the command has it: not of too few entries, nor where somebody tuned on a text of his own; what was guessed stands until
        the store has grown by a quarter."""
        tuned, entries = self.info.tuned, self.info.entries - self.info.removed_entries
        if entries < TUNED_FROM or (self.info.keys == "none" and not self.info.has_index):
            return False
        return not tuned.known or (tuned.quick and entries > tuned.entries + tuned.entries // 4)

    def remove(self, patterns: Any, *, dry_run: bool = False) -> int:
        """Removes the documents that are called so ("*" and "?" as in a shell), all or none; gives the number of their entries."""
        result = h.knnlm_remove_result()
        o = options_of(h.knnlm_remove_options, {"patterns": patterns, "dry_run": dry_run})
        call("knnlm_store_remove", os.fsencode(self.path), c.byref(o), c.byref(result))
        self.refresh()
        return int(result.entries)

    def compact(self, *, progress: Progress | None = None, **options: Any) -> None:
        """Drops what was removed and merges small segments: entries get new ids."""
        o = options_of(h.knnlm_compact_options, options)
        with Listener(progress) as listener:
            o.progress = listener.progress
            call("knnlm_store_compact", os.fsencode(self.path), c.byref(o), None)
        self.refresh()

    def verify(self, *, progress: Progress | None = None) -> int:
        """Reads everything, and gives the number of problems."""
        result, o = h.knnlm_verify_result(), options_of(h.knnlm_verify_options, {})
        with Listener(progress) as listener, self._use() as store:
            o.progress = listener.progress
            call("knnlm_store_verify", store, c.byref(o), c.byref(result))
        problems = int(result.problems)
        library.knnlm_verify_result_free(c.byref(result))
        return problems

    # ---- files of other programs

    @classmethod
    def import_files(
        cls, path: str | os.PathLike[str], keys: str | os.PathLike[str] | None = None, values: str | os.PathLike[str] | None = None, *,
        faiss: str | os.PathLike[str] | None = None, model: Model | None = None, progress: Progress | None = None, **options: Any
    ) -> Store:  # fmt: skip
        """A new store of files that others made: those of the paper's code and of knn-transformers (`keys` is a file, with its
        `values`, or a directory that holds a pair), NumPy's arrays, or an IVFPQ index of FAISS. Options: entries, dimension,
        vocabulary, tap, key_type, value_type, keep, distance, ... as `knnlm import` has them."""
        result = h.knnlm_import_result()
        if "keep" in options:
            options["convert"] = True
        o = options_of(h.knnlm_import_options, {"keys": None, "values": values, "faiss": faiss, **options})
        o.keys = None if keys is None else os.fsencode(keys)
        with Listener(progress) as listener, _recorded(model) as o.model:
            o.progress = listener.progress
            call("knnlm_import", os.fsencode(path), c.byref(o), c.byref(result))
        store = cls(path)
        store.last_import = record(ImportResult, result)
        library.knnlm_import_result_free(c.byref(result))
        return store

    def export(self, directory: str | os.PathLike[str], *, progress: Progress | None = None, **options: Any) -> None:
        """keys.npy, values.npy, origins.npy and documents.tsv in a directory."""
        self._export("knnlm_store_export", directory, progress, options)

    def export_faiss(self, file: str | os.PathLike[str], *, progress: Progress | None = None, **options: Any) -> None:
        """The index with its codes as an IVFPQ file of FAISS."""
        self._export("knnlm_store_export_faiss", file, progress, options)

    def _export(self, function: str, target: Any, progress: Progress | None, options: dict[str, Any]) -> None:
        if "keys" in options:
            options["convert"] = True
        o = options_of(h.knnlm_export_options, options)
        with Listener(progress) as listener, self._use() as store:
            o.progress = listener.progress
            call(function, store, os.fsencode(target), c.byref(o), None)

    # ---- reading

    def keys(self, first: int = 0, count: int | None = None) -> NDArray[np.float32]:
        """Keys (count, dimension) of the entries from `first` on, as f32; all without a count."""
        count = max(0, len(self) - first) if count is None else count
        out = np.empty((count, self.info.dimension), np.float32)
        with self._use() as store:
            call("knnlm_store_keys", store, first, count, address(out))
        return out

    def tokens(self, first: int = 0, count: int | None = None) -> NDArray[np.int32]:
        """The values of the entries from `first` on; all without a count."""
        count = max(0, len(self) - first) if count is None else count
        out = np.empty(count, np.int32)
        with self._use() as store:
            call("knnlm_store_tokens", store, first, count, address(out))
        return out

    def values(self, ids: Any) -> NDArray[np.int32]:
        """The values of any entries, in the shape of `ids`: of what search() finds; -1 behind a row's count."""
        ids = np.ascontiguousarray(ids, np.uint32)
        out = np.empty(ids.shape, np.int32)
        with self._use() as store:
            call("knnlm_store_values", store, address(ids), ids.size, address(out))
        return out

    def text(self, first: int, count: int) -> str:
        """The text of these entries, by the tokenizer that the store keeps."""
        text, size = c.c_void_p(), c.c_size_t()
        with self._use() as store:
            call("knnlm_store_text", store, first, count, c.byref(text), c.byref(size))
        return take_text(text, size)

    def encode(self, text: str) -> NDArray[np.int32]:
        """The tokens of a text, by that tokenizer."""
        data, tokens, count = text.encode(), c.c_void_p(), c.c_size_t()
        with self._use() as store:
            call("knnlm_store_encode", store, data, len(data), c.byref(tokens), c.byref(count))
        return take_tokens(tokens, count)

    def decode(self, tokens: Any) -> str:
        """The text of tokens, by that tokenizer."""
        row, text, size = integers(tokens, "tokens"), c.c_void_p(), c.c_size_t()
        with self._use() as store:
            call("knnlm_store_decode", store, address(row), len(row), c.byref(text), c.byref(size))
        return take_text(text, size)

    def entry(self, id: int) -> Entry:
        out = h.knnlm_entry()
        with self._use() as store:
            call("knnlm_store_entry", store, id, c.byref(out))
        return record(Entry, out)

    def document(self, number: int) -> Document:
        out = h.knnlm_document()
        with self._use() as store:
            call("knnlm_store_document", store, number, c.byref(out))
            return document(number, out)

    def documents(self) -> Iterator[Document]:
        """Those that are not removed."""
        return (d for d in map(self.document, range(self.info.documents)) if not d.removed)

    def origin(self, id: int, around: int = 12) -> Origin:
        """An entry with its document and the text around it, `around` tokens on both sides."""
        out = h.knnlm_origin()
        with self._use() as store:
            call("knnlm_store_origin", store, id, around, c.byref(out))
            found = origin(out)
        library.knnlm_origin_free(c.byref(out))
        return found

    # ---- searching

    @property
    def index(self) -> Index:
        """Its index: making, extending, measuring."""
        return Index(self)

    def search(self, queries: Any, k: int = 1024, *, out: Neighbors | None = None, progress: Progress | None = None, **options: Any) -> Neighbors:
        """The k nearest entries to each of the queries (n, dimension), written straight into arrays: new ones, or those of `out`.
        Options: probes, exact, singly (sooner for one or a few), memory, only and except_ (names of documents). `queries` of f32 in
        C order are not copied."""
        rows = floats(queries, self.info.dimension, "queries")
        shape = (len(rows), k)
        found = Neighbors(
            room(out.ids if out else None, shape, np.uint32, "out.ids"),
            room(out.distances if out else None, shape, np.float32, "out.distances"),
            room(out.counts if out else None, shape[:1], np.uint32, "out.counts"),
        )
        o = options_of(h.knnlm_search_options, {"k": k, **options})
        if o.singly:  # nobody listens to these: what that costs would be half of what calling costs
            self._find(rows, o, found)
            return found
        with Listener(progress) as listener:
            o.progress = listener.progress
            self._find(rows, o, found)
        return found

    def _find(self, rows: NDArray[np.float32], o: h.knnlm_search_options, found: Neighbors) -> None:
        with self._use() as store:
            call("knnlm_store_search", store, address(rows), len(rows), c.byref(o), *map(address, found))

    def knn(self, queries: Any, k: int = 1024, temperature: float = 1.0, **options: Any) -> NDArray[np.float64]:
        """p_kNN (n, vocabulary) after each query: the share of exp(-distance / temperature) that the neighbours followed by a token
        have. Rows are 1 in sum, or all 0 where nothing is found."""
        rows = floats(queries, self.info.dimension, "queries")
        p = np.empty((len(rows), self.info.vocabulary), np.float64)
        o = options_of(h.knnlm_search_options, {"k": k, **options})
        with self._use() as store:
            call("knnlm_store_knn", store, address(rows), len(rows), c.byref(o), temperature, address(p))
        return p

    def knn_targets(self, queries: Any, targets: Any, k: int = 1024, temperature: float = 1.0, **options: Any) -> NDArray[np.float64]:
        """log p_kNN of one token per query: -inf where no neighbour has it."""
        rows, tokens = floats(queries, self.info.dimension, "queries"), integers(targets, "targets")
        if len(rows) != len(tokens):
            raise ValueError(f"{len(rows)} queries, but {len(tokens)} targets")
        out = np.empty(len(rows), np.float64)
        o = options_of(h.knnlm_search_options, {"k": k, **options})
        with self._use() as store:
            call("knnlm_store_knn_targets", store, address(rows), len(rows), address(tokens), c.byref(o), temperature, address(out))
        return out

    def knn_of(self, ids: Any, distances: Any, temperature: float = 1.0) -> NDArray[np.float64]:
        """p_kNN (vocabulary) of neighbours that are known: one row of search(), up to its count."""
        entries = np.ascontiguousarray(ids, np.uint32).ravel()
        far = np.ascontiguousarray(distances, np.float32).ravel()
        if len(entries) != len(far):
            raise ValueError(f"{len(entries)} ids, but {len(far)} distances")
        p = np.empty(self.info.vocabulary, np.float64)
        with self._use() as store:
            call("knnlm_store_knn_of", store, address(entries), address(far), len(far), temperature, address(p))
        return p


def _read_texts(
    function: str, model: Model, path: Any, texts: Any, texts_options: Any, progress: Progress | None, options: dict[str, Any]
) -> BuildResult:  # fmt: skip
    result, given = h.knnlm_build_result(), strings(paths(texts))
    o = options_of(h.knnlm_build_options, options)
    reading(texts_options, o)
    with Listener(progress) as listener, model._use() as m:
        o.progress = listener.progress
        call(function, m, os.fsencode(path), given, len(given), c.byref(o), c.byref(result))
    return record(BuildResult, result)
