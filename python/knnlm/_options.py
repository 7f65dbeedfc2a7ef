"""Structs of options by keyword, with the library's own defaults for all that is not given."""

from __future__ import annotations

import ctypes as c
import os
import signal
import threading
from typing import Any, Callable, Optional, Type, TypeVar

from . import _header as h
from ._library import fits, library, text

Options = TypeVar("Options", bound=c.Structure)
Progress = Callable[[str, int, int, str], Optional[bool]]

# Numbers that have names in Python, by the member that has them.
KEYS = ("f16", "f32", "int8", "none")
DISTANCES = ("l2", "ip", "cosine")
SPLITS = ("file", "wiki", "jsonl")
ARRAYS = ("any", "f16", "f32", "int64", "int32", "int16", "uint16")
NAMED: dict[str, tuple[str, ...]] = {
    "keys": KEYS,
    "keep": KEYS,
    "distance": DISTANCES,
    "split": SPLITS,
    "key_type": ARRAYS,
    "value_type": ARRAYS,
    "precision": ("auto", "f32", "bf16", "int16"),
    "engine": ("auto", "native", "llama"),
    "tokenizer": ("word", "bpe", "wordpiece"),
    "positions": ("sinusoidal", "learned", "rotary"),
    "activation": ("relu", "gelu", "relu2", "swiglu"),
    "norm": ("layer", "rms"),
    "optimizer": ("adamw", "nesterov", "muon"),
    "schedule": ("cosine", "linear", "constant", "plateau", "restarts"),
    "type": ("f32", "f16", "bf16", "q8_0"),
}


def paths(given: Any) -> list[bytes]:
    """One path or several, as the library takes them."""
    several = [given] if isinstance(given, (str, bytes, os.PathLike)) else list(given)
    return [fits(c.c_char_p, os.fsencode(path), "a name") for path in several]


def strings(given: list[bytes]) -> Any:
    """An array of strings."""
    return (c.c_char_p * len(given))(*given)


def fields_of(kind: Any) -> dict[str, Any]:
    """The types of a struct's members."""
    return dict(kind._fields_)


class Listener:
    """Who listens to one long call: tells `function` how far it is (False stops the work), and ends it by Ctrl-C. C cannot carry
    exceptions: those of `function` stop the work, wait here, and are raised when the call has ended."""

    def __init__(self, function: Progress | None) -> None:
        self.function = function
        self.error: BaseException | None = None
        self.handler: Any = None
        self.progress = h.knnlm_progress(fields_of(h.knnlm_progress)["report"](self._report), None)

    def _report(self, _: Any, phase: bytes, done: int, total: int, unit: bytes) -> bool:
        try:
            go_on = self.function is None or self.function(text(phase), done, total, text(unit)) is not False
        except BaseException as error:
            self.error = error
        return self.error is None and go_on

    def _interrupt(self, *_: Any) -> None:
        self.error = KeyboardInterrupt()

    def __enter__(self) -> Listener:
        # Python's own handler would raise in the middle of _report, where ctypes only prints it.
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.handler:
            signal.signal(signal.SIGINT, self.handler)
        if self.error:
            raise self.error from None


def _names(name: str, value: str) -> int:
    if value not in NAMED[name]:
        raise ValueError(f"{name} is one of {', '.join(NAMED[name])}, not {value!r}")
    return NAMED[name].index(value)


def _set(options: Any, fields: dict[str, Any], name: str, value: Any) -> None:
    """One member; a list brings its count, a path or a name what stands for it. What it points at is kept with the options."""
    kind = fields[name]
    counted = {"only": "only_count", "except": "except_count", "stops": "stop_count", "include": "include_count",
               "exclude": "exclude_count", "patterns": "pattern_count", "stores": "store_count", "ngram": "ngram_count"}  # fmt: skip
    if name in counted:
        array = strings(paths(value))
        options.kept.append(array)
        setattr(options, counted[name], len(array))
        value = c.cast(array, c.c_void_p)
    elif name in NAMED and isinstance(value, str):
        value = _names(name, value)
    elif kind is c.c_char_p and value is not None:
        value = os.fsencode(value)
    fits(kind, value, name)
    try:
        setattr(options, name, value)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def options_of(kind: Type[Options], given: dict[str, Any]) -> Options:
    """The library's defaults, and over them what was given by keyword; None is: not given. Python's keywords have a "_" behind them:
    lambda_, except_."""
    options = kind()
    getattr(library, kind.__name__ + "_init")(c.byref(options), c.sizeof(options))
    fields = fields_of(kind)
    options.kept = []
    for name, value in given.items():
        member = name[:-1] if name.endswith("_") else name
        if member not in fields or member == "size" or member.endswith("_count"):
            known = ", ".join(n for n in fields if n != "size" and not n.endswith("_count"))
            raise TypeError(f"no option is called {name!r}: there are {known}")
        if value is not None:
            _set(options, fields, member, value)
    return options


def reading(given: dict[str, Any] | None, options: Any) -> None:
    """How texts are found and read: `given` becomes the `texts` of options."""
    if given is not None:
        inner = options_of(h.knnlm_input_options, given)
        options.kept.append(inner)
        options.texts = c.pointer(inner)
