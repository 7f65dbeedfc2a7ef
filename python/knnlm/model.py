"""Language models: text to tokens, tokens to log-probabilities and to states."""

from __future__ import annotations

import ctypes as c
import os
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from . import _header as h
from ._arrays import address, integers
from ._handle import Handle, opened
from ._library import call, library, take_text
from ._options import Listener, Progress, fields_of, options_of, paths, reading, strings
from .results import ModelInfo, record

Tokens = Union[str, Any]  # a text, or a row of numbers


def take_tokens(pointer: c.c_void_p, count: c.c_size_t) -> NDArray[np.int32]:
    """Tokens that the library handed out: copied, and given back."""
    try:
        if not count.value:
            return np.zeros(0, np.int32)
        row = c.cast(pointer, c.POINTER(c.c_int32))
        return np.ctypeslib.as_array(row, (count.value,)).copy()
    finally:
        library.knnlm_free(pointer)


class Model(Handle):
    """A language model with its tokenizer, from a GGUF file.

    Options: precision ("auto", "f32", "bf16", "int16"), engine ("auto", "native", "llama"), accept (stores that another model made may be
    used with this one). One thread at a time uses a model: others wait."""

    _closer = "knnlm_model_close"
    _one_at_a_time = True

    def __init__(self, path: str | os.PathLike[str], *, progress: Progress | None = None, **options: Any) -> None:
        o = options_of(h.knnlm_model_options, options)
        handle = c.c_void_p()
        with Listener(progress) as listener:
            o.progress = listener.progress
            call("knnlm_model_open", os.fsencode(path), c.byref(o), c.byref(handle))
        super().__init__(opened(handle))
        self.info = self._describe()

    def _describe(self) -> ModelInfo:
        info = h.knnlm_model_info()
        with self._use(shared=True) as model:
            library.knnlm_model_describe(model, c.byref(info))
            return record(ModelInfo, info)

    def __repr__(self) -> str:
        return f"<knnlm.Model {self.info.path}: {self.info.architecture}, {self.info.parameters} parameters>"

    def encode(self, text: str) -> NDArray[np.int32]:
        """The tokens of a text."""
        data, tokens, count = text.encode(), c.c_void_p(), c.c_size_t()
        with self._use(shared=True) as model:
            call("knnlm_model_encode", model, data, len(data), c.byref(tokens), c.byref(count))
        return take_tokens(tokens, count)

    def encode_prompt(self, text: str) -> tuple[NDArray[np.int32], bool]:
        """The same of a prompt, and whether it ended with a space, which is left to the word that comes."""
        data, tokens, count, space = text.encode(), c.c_void_p(), c.c_size_t(), c.c_bool()
        with self._use(shared=True) as model:
            call("knnlm_model_encode_prompt", model, data, len(data), c.byref(tokens), c.byref(count), c.byref(space))
        return take_tokens(tokens, count), space.value

    def decode(self, tokens: Any) -> str:
        """The text of tokens."""
        row, text, size = integers(tokens, "tokens"), c.c_void_p(), c.c_size_t()
        with self._use(shared=True) as model:
            call("knnlm_model_decode", model, address(row), len(row), c.byref(text), c.byref(size))
        return take_text(text, size)

    def tokens(self, given: Tokens) -> NDArray[np.int32]:
        """Tokens: those of a text, or numbers that are some already."""
        return self.encode(given) if isinstance(given, str) else integers(given, "tokens")

    def score(self, tokens: Tokens, **windows: Any) -> NDArray[np.float32]:
        """log p of every token of one document (a text or its tokens), each given those before it. `score` tokens are read at a
        time, after up to `context` before them."""
        row = self.tokens(tokens)
        out = np.empty(len(row), np.float32)
        o = options_of(h.knnlm_score_options, windows)
        with self._use() as model:
            call("knnlm_model_score", model, address(row), len(row), c.byref(o), address(out))
        return out

    def states(self, tokens: Tokens, tap: str | None = None, **windows: Any) -> NDArray[np.float32]:
        """The states (n, key_width) before every token of one document, which a store has as keys; `tap` tells where in the model:
        "ffn" (the paper's, and the default), "ffn-raw", "attention", "attention-raw", "output-norm", "output", each with "@LAYER"."""
        row = self.tokens(tokens)
        out = np.empty((len(row), self.info.key_width), np.float32)
        o = options_of(h.knnlm_score_options, windows)
        with self._use() as model:
            call("knnlm_model_states", model, address(row), len(row), tap.encode() if tap else None, c.byref(o), address(out))
        return out


def train(
    texts: Any, output: str | os.PathLike[str], *, texts_options: dict[str, Any] | None = None, progress: Progress | None = None,
    **options: Any
) -> float:  # fmt: skip
    """Trains a model on texts and writes it to `output`; options are those of knnlm_train_options (preset="tiny", steps=200,
    valid="held-out.txt", ...). Gives the last training loss in nats. One call at a time in a process."""
    result, given = h.knnlm_train_result(), strings(paths(texts))
    o = options_of(h.knnlm_train_options, options)
    reading(texts_options, o)
    with Listener(progress) as listener:
        o.progress = listener.progress
        o.stop = fields_of(h.knnlm_train_options)["stop"](lambda _: listener.error is not None)
        call("knnlm_train", given, len(given), os.fsencode(output), c.byref(o), c.byref(result))
    return float(result.last.loss)
