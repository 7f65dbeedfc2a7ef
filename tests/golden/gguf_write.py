"""GGUF files, written by hand: what the makers of goldens share."""

import struct

import numpy as np

U32, I32, F32, BOOL, STRING, ARRAY, F64 = 4, 5, 6, 7, 8, 9, 12
TENSOR_F32, TENSOR_I32, ALIGNMENT = 0, 26, 32
FORMAT = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", F64: "<d"}


def packed_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def packed_value(kind, value):
    return packed_string(value) if kind == STRING else struct.pack(FORMAT[kind], value)


def packed_key(key, kind, value):
    head = packed_string(key)
    if not isinstance(value, list):
        return head + struct.pack("<i", kind) + packed_value(kind, value)
    items = b"".join(packed_value(kind, v) for v in value)
    return head + struct.pack("<iiQ", ARRAY, kind, len(value)) + items


def padding(size):
    return bytes(-size % ALIGNMENT)


def write_gguf(path, keys, tensors):
    """keys: [(name, type, value or list)]; tensors: {name: array}, stored as f32 or i32."""
    table, data = b"", b""
    for name, array in tensors.items():
        whole = np.issubdtype(array.dtype, np.integer)
        array = np.ascontiguousarray(array, dtype="<i4" if whole else "<f4")
        table += packed_string(name) + struct.pack("<I", array.ndim)
        table += b"".join(struct.pack("<q", n) for n in reversed(array.shape))
        table += struct.pack("<iQ", TENSOR_I32 if whole else TENSOR_F32, len(data))
        data += array.tobytes()
        data += padding(len(data))
    head = b"GGUF" + struct.pack("<Iqq", 3, len(tensors), len(keys))
    head += b"".join(packed_key(*key) for key in keys) + table
    with open(path, "wb") as file:
        file.write(head + padding(len(head)) + data)
