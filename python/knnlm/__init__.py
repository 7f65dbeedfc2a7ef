"""Nearest-neighbour language models.

    import knnlm

    with knnlm.Model("small.gguf") as model:
        store = knnlm.Store.build("notes.store", model, ["notes/"])       # remember every context
        mixture = knnlm.Mixture(model, store)                             # p = (1 - lambda) p_LM + lambda p_kNN
        print(mixture.eval(["other.txt"]).mixed.ppl)                      # how well is this text predicted?
        for piece in mixture.generate("Once upon"):                       # words, and where they came from
            print(piece, end="")

    store = knnlm.Store.from_arrays("my.store", keys, values, vocabulary=50257)   # or keys of a model of your own
    ids, distances, counts = store.search(queries, k=10)

Everything is done by the library libknnlm (include/knnlm.h), which is found beside the package, in the build of its sources, or by the
system; KNNLM_LIBRARY names another one. Arrays of NumPy are read and written in place. Failures are knnlm.Error with the library's
message. While the library works, other threads of Python run."""

from ._library import kernels, llama_release, set_threads, version
from .errors import ArgumentError, Busy, DataError, Error, FileError, NotSupported, OutOfMemory, Stopped
from .index import Index
from .mixing import best_lambda, lambda_curve, mix, perplexity
from .mixture import Mixture
from .model import Model, train
from .page import coloured
from .processor import KnnLogitsProcessor
from .results import NO_ENTRY, Neighbors
from .store import Store
from .text import Text

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Busy",
    "DataError",
    "Error",
    "FileError",
    "Index",
    "KnnLogitsProcessor",
    "Mixture",
    "Model",
    "NO_ENTRY",
    "Neighbors",
    "NotSupported",
    "OutOfMemory",
    "Stopped",
    "Store",
    "Text",
    "best_lambda",
    "coloured",
    "kernels",
    "lambda_curve",
    "llama_release",
    "mix",
    "perplexity",
    "set_threads",
    "train",
    "version",
]
