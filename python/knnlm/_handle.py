"""What models, stores, mixtures and texts have in common: they are opened and closed, and several threads may hold them."""

from __future__ import annotations

import contextlib
import ctypes as c
import threading
import weakref
from typing import Any, Iterator, TypeVar

from ._library import library

Self = TypeVar("Self", bound="Handle")


class Handle:
    """Something open of the library, closed by close(), at the end of a `with`, or when nobody holds it any more.

    A handle that the library lets one thread at a time use makes the others wait; one that any number of threads may use is
    closed when the last of them is done. What depends on a handle (a mixture on its model) is closed before it."""

    _closer = ""
    _one_at_a_time = False

    def __init__(self, address: int) -> None:
        self._address: int | None = address
        self._state = threading.Condition()
        self._users: list[int] = []  # threads
        self._worker = 0  # the one of them that has it for itself; 0: none
        self._dependents: weakref.WeakSet[Handle] = weakref.WeakSet()

    @contextlib.contextmanager
    def _use(self, shared: bool = False) -> Iterator[int]:
        """`shared`: what the library lets any thread do, although another one works with it."""
        me = threading.get_ident()
        alone = self._one_at_a_time and not shared
        with self._state:
            while alone and self._worker:
                self._wait(self._worker == me)
            address = self._address
            if not address:
                raise ValueError(f"this {type(self).__name__} is closed")
            self._users.append(me)
            self._worker = me if alone else self._worker
        try:
            yield address
        finally:
            with self._state:
                self._users.remove(me)
                self._worker = 0 if alone else self._worker
                self._state.notify_all()

    def _wait(self, mine: bool) -> None:
        """Until a user is done, who is not to be the caller: a function that the library calls is told so."""
        if mine:
            raise ValueError(f"this {type(self).__name__} is at work: what it calls meanwhile may not use it")
        self._state.wait()

    def _replace(self, address: int | None) -> None:
        with self._state:
            while self._users:
                self._wait(threading.get_ident() in self._users)
            old, self._address = self._address, address
        if old:
            getattr(library, self._closer)(old)

    def close(self) -> None:
        """Releases it. Closing twice does nothing."""
        for dependent in list(self._dependents):
            dependent.close()
        self._replace(None)

    @property
    def closed(self) -> bool:
        return not self._address

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        # Nobody holds it: neither does another thread use it, nor has it open dependents, for they would hold it.
        address = getattr(self, "_address", None)
        if address:
            self._address = None
            getattr(library, self._closer)(address)


def opened(pointer: c.c_void_p) -> int:
    """The address that an _open function has put into `pointer`."""
    assert pointer.value
    return pointer.value
