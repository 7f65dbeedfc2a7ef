"""Arrays as the library takes them: C order, one type. What is so already is passed as it is, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def floats(given: Any, dimension: int, what: str) -> NDArray[np.float32]:
    """Vectors (n, dimension) of f32; one vector is n = 1."""
    array = np.asarray(given)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{what}: numbers are wanted, not {array.dtype}")
    array = np.ascontiguousarray(array, dtype=np.float32)
    if array.ndim == 1:
        array = array[np.newaxis]
    if array.ndim != 2 or array.shape[1] != dimension:
        raise ValueError(f"{what} of shape {array.shape}: (n, {dimension}) is wanted")
    return array


def integers(given: Any, what: str) -> NDArray[np.int32]:
    """A list of tokens."""
    array = np.asarray(given)
    if array.size == 0:
        return np.zeros(0, np.int32)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TypeError(f"{what}: a row of whole numbers is wanted, not {array.dtype} of shape {array.shape}")
    if array.min() < -(2**31) or array.max() >= 2**31:
        raise ValueError(f"{what}: numbers beyond 32 bits")
    return np.ascontiguousarray(array, dtype=np.int32)


def address(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def room(given: NDArray[Any] | None, shape: tuple[int, ...], kind: Any, what: str) -> NDArray[Any]:
    """The caller's own array to write into, or a new one."""
    if given is None:
        return np.empty(shape, kind)
    if given.shape != shape or given.dtype != kind or not given.flags.c_contiguous or not given.flags.writeable:
        raise ValueError(f"{what}: a writable {np.dtype(kind)} array of shape {shape} in C order is wanted")
    return given
