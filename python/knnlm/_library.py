"""Finds libknnlm, loads it, and calls it: a failure is an exception with its message. ctypes lets other threads run meanwhile."""

from __future__ import annotations

import ctypes as c
import os
import pathlib
from typing import Any, Iterator

from . import _header as h
from .errors import error_of

NAME = "libknnlm.so." + h.KNNLM_VERSION.split(".")[0]


def candidates() -> Iterator[str]:
    """Where the library may be: what the user says; the prefix that this package was installed into; the build of the sources
    that it lies in; wherever the system finds it."""
    given = os.environ.get("KNNLM_LIBRARY")
    if given:
        yield given
        return
    package = pathlib.Path(__file__).resolve().parent
    if package.parent.name in ("dist-packages", "site-packages"):
        lib = package.parent.parent.parent  # PREFIX/lib/python3/dist-packages/knnlm
        yield from (str(path) for path in [lib / NAME, *sorted(lib.glob("*/" + NAME))] if path.exists())
    built = package.parent.parent / "build" / NAME
    if built.exists() and (package.parent / "pyproject.toml").exists():
        yield str(built)
    yield NAME
    yield "/usr/local/lib/" + NAME


def load() -> c.CDLL:
    tried = []
    for path in candidates():
        try:
            return prepare(c.CDLL(path), path)
        except OSError as error:
            tried.append(str(error))
    raise ImportError(
        f"{NAME} cannot be loaded ({'; '.join(tried)}): install knnlm (cmake --install build), or let KNNLM_LIBRARY name the file"
    )


def prepare(library: c.CDLL, path: str) -> c.CDLL:
    """Declares its functions. One of another version has other structs, and would read and write beyond ours."""
    library.knnlm_version.restype = c.c_char_p
    version = library.knnlm_version().decode()
    if version.split(".")[:2] != h.KNNLM_VERSION.split(".")[:2]:
        raise ImportError(f"{path} is knnlm {version}, this package is made for {h.KNNLM_VERSION}: install both from one source")
    for name, (result, arguments) in h.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}: it is older than this package; install both from one source") from None
        function.restype, function.argtypes = result, arguments
    return library


library = load()


INTEGERS = (c.c_int8, c.c_uint8, c.c_int16, c.c_uint16, c.c_int32, c.c_uint32, c.c_int64, c.c_uint64, c.c_size_t, c.c_int)


def fits(kind: Any, value: Any, what: str) -> Any:
    """What ctypes would cut without a word: whole numbers beyond their type, strings at a NUL."""
    if kind in INTEGERS and isinstance(value, int) and kind(value).value != value:
        raise OverflowError(f"{what}: {value} is out of range")
    if kind is c.c_char_p and isinstance(value, bytes) and b"\0" in value:
        raise ValueError(f"{what}: a NUL character within it")
    return value


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status; anything but done is an exception. A text whose size comes next may have any byte."""
    function = getattr(library, name)
    kinds = list(function.argtypes)
    for i, (kind, value) in enumerate(zip(kinds, arguments)):
        if kind is not c.c_char_p or kinds[i + 1 : i + 2] != [c.c_size_t]:
            fits(kind, value, name)
    status = function(*arguments)
    if status != h.KNNLM_OK:
        raise error_of(status, text(library.knnlm_message()))


def text(raw: bytes | None) -> str:
    """A string of the library."""
    return "" if raw is None else raw.decode("utf-8", "surrogateescape")


def take_text(pointer: c.c_void_p, size: c.c_size_t) -> str:
    """A text that the library handed out: copied, and given back."""
    try:
        return c.string_at(pointer, size.value).decode("utf-8", "replace")
    finally:
        library.knnlm_free(pointer)


def sized(pointer: int | None, size: int) -> str:
    """A string with its length, which need not end with a NUL."""
    return c.string_at(pointer, size).decode("utf-8", "replace") if pointer else ""


def version() -> str:
    """The version of the library."""
    return text(library.knnlm_version())


def kernels() -> list[str]:
    """The kernels that this CPU can use, best first."""
    names: list[str] = []
    while raw := library.knnlm_kernels(len(names)):
        names.append(text(raw))
    return names


def llama_release() -> str | None:
    """The release of llama.cpp behind the library; None without it."""
    raw = library.knnlm_llama_release()
    return text(raw) if raw else None


def set_threads(threads: int) -> None:
    """Worker threads of the process; 0: one per CPU that it may use. Not while another call is under way."""
    call("knnlm_threads_set", threads)

