"""Texts that grow, word after word, and know which passages of the stores they stand in."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING, Any, Iterator

from . import _header as h
from ._arrays import address
from ._handle import Handle, opened
from ._library import call, library
from ._options import options_of
from .results import Source, TextToken, record, source

if TYPE_CHECKING:
    from .mixture import Mixture

FINISH = {h.KNNLM_FINISH_NOT: None, h.KNNLM_FINISH_LENGTH: "length", h.KNNLM_FINISH_STOP: "stop"}


class Text(Handle):
    """What is generated after a prompt. `for piece in text` gives it as it comes; str(text) runs it to its end."""

    _closer = "knnlm_text_close"

    def __init__(self, mixture: Mixture, prompt: Any = "", **options: Any) -> None:
        if isinstance(prompt, str):
            tokens, space = mixture.model.encode_prompt(prompt)
            options.setdefault("begin_with_space", space)
        else:
            tokens = mixture.model.tokens(prompt)
        o = options_of(h.knnlm_text_options, options)
        self.mixture = mixture
        handle = c.c_void_p()
        with mixture._work() as (m, _):
            call("knnlm_text_open", m, address(tokens), len(tokens), c.byref(o), c.byref(handle))
        super().__init__(opened(handle))
        mixture._dependents.add(self)

    def step(self) -> bool:
        """One token more; whether it goes on."""
        finish = c.c_int()
        with self.mixture._work(), self._use() as text:
            call("knnlm_text_step", text, c.byref(finish))
        return finish.value == h.KNNLM_FINISH_NOT

    @property
    def finish(self) -> str | None:
        """None: it goes on; "length": all tokens are there; "stop": before a stop string, or at the text's end."""
        info = h.knnlm_text_info()
        with self.mixture._work(), self._use() as text:
            library.knnlm_text_describe(text, c.byref(info))
        return FINISH[info.finish]

    @property
    def text(self) -> str:
        """What is final of it, without the prompt."""
        return self._bytes().decode("utf-8", "replace")

    def _bytes(self) -> bytes:
        size = c.c_size_t()
        with self.mixture._work(), self._use() as text:
            # What is valid until the next step is copied before another thread may take one.
            return _copy(_read(text, c.byref(size)), size)

    def __iter__(self) -> Iterator[str]:
        """The pieces of it that become final, until it has ended."""
        seen = len(self._bytes())
        while self.finish is None:
            self.step()
            new = self._bytes()
            if len(new) > seen:
                yield new[seen:].decode("utf-8", "replace")
                seen = len(new)

    def __str__(self) -> str:
        for _ in self:
            pass
        return self.text

    @property
    def tokens(self) -> list[TextToken]:
        """Its tokens so far, with their probabilities."""
        out, found = h.knnlm_text_token(), []
        with self.mixture._work(), self._use() as text:
            for number in range(library.knnlm_text_tokens(text)):
                call("knnlm_text_token_at", text, number, c.byref(out))
                found.append(record(TextToken, out))
        return found

    @property
    def sources(self) -> list[Source]:
        """The passages that it stands in so far."""
        out, found = h.knnlm_text_source(), []
        with self.mixture._work(), self._use() as text:
            for number in range(1, library.knnlm_text_sources(text) + 1):
                call("knnlm_text_source_at", text, number, c.byref(out))
                found.append(source(out))
        return found


def _copy(pointer: int, size: c.c_size_t) -> bytes:
    """The size is known only when the pointer is."""
    return c.string_at(pointer, size.value)


# As an address: a text may have NULs of its own.
_read = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_void_p)(("knnlm_text_read", library))
