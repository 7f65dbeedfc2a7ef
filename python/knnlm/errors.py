"""What failures of the library are in Python: its message, under a class for each status."""

from __future__ import annotations

from . import _header as h


class Error(Exception):
    """A call of the library failed. str() is its message: one line that names what is wrong, and where."""

    status = 0


class ArgumentError(Error, ValueError):
    """An argument or an option is wrong."""

    status = h.KNNLM_EINVAL


class FileError(Error, OSError):
    """A file or a device failed."""

    status = h.KNNLM_EIO


class DataError(Error, ValueError):
    """A file's content is malformed."""

    status = h.KNNLM_EDATA


class OutOfMemory(Error, MemoryError):
    """Memory could not be had."""

    status = h.KNNLM_ENOMEM


class NotSupported(Error, NotImplementedError):
    """Well formed, but not something that this build can do."""

    status = h.KNNLM_ENOTSUP


class Stopped(Error):
    """A progress function said so. What could be kept was kept."""

    status = h.KNNLM_ESTOPPED


class Busy(Error):
    """Another writer has the store: try again when it has ended."""

    status = h.KNNLM_EBUSY


_BY_STATUS = {kind.status: kind for kind in (ArgumentError, FileError, DataError, OutOfMemory, NotSupported, Stopped, Busy)}


def error_of(status: int, message: str) -> Error:
    """The exception for a status of the library."""
    return _BY_STATUS.get(status, Error)(message)
