#!/usr/bin/python3
"""Writes a GGUF file anew with something changed, right or wrong:  gguf_edit.py IN OUT CHANGE...

    KEY=VALUE        a value of the file, in the type that it has (items of a list: KEY[3]=VALUE)
    KEY=             the key is left out
    +KEY=VALUE       a new key, a text
    @TENSOR=         the tensor is left out
    @TENSOR=f16      its values, f32 before, are rounded to f16
    @TENSOR=nan      its first value, f32, is no number; @TENSOR=huge: all are as large as f32 has them
    @TENSOR[N]=M*F   its row N, of f32, becomes F times its row M
    @TENSOR.type=N, @TENSOR.offset=N, @TENSOR.shape=A,B    what the file says of it; the data stays as it is

An OUT that ends in -00001-of-00002.gguf is the first of two parts, with half of the tensors each.
"""

import struct
import sys

FORMAT = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY, F32, F16, ALIGNMENT = 8, 9, 0, 1, 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, kind):
        value = struct.unpack_from("<" + kind, self.data, self.at)[0]
        self.at += struct.calcsize("<" + kind)
        return value

    def string(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size : self.at]

    def value(self, kind):
        if kind == ARRAY:
            item, count = self.take("I"), self.take("Q")
            return item, [self.value(item) for _ in range(count)]
        return self.string() if kind == STRING else self.take(FORMAT[kind])


def read(path):
    with open(path, "rb") as file:
        r = Reader(file.read())
    r.at = 8
    tensor_count, key_count = r.take("Q"), r.take("Q")
    keys, tensors = {}, {}
    for _ in range(key_count):
        name = r.string().decode()
        kind = r.take("I")
        keys[name] = (kind, r.value(kind))
    for _ in range(tensor_count):
        name = r.string().decode()
        shape = [r.take("Q") for _ in range(r.take("I"))]
        tensors[name] = {"shape": shape, "type": r.take("I"), "offset": r.take("Q")}
    data = r.data[r.at + -r.at % ALIGNMENT :]
    ends = sorted(t["offset"] for t in tensors.values()) + [len(data)]
    for t in tensors.values():
        t["data"] = data[t["offset"] : min(e for e in ends if e > t["offset"])]
    return keys, tensors


def packed(kind, value):
    if kind == STRING:
        return struct.pack("<Q", len(value)) + value
    if kind == ARRAY:
        item, values = value
        return struct.pack("<IQ", item, len(values)) + b"".join(packed(item, v) for v in values)
    return struct.pack("<" + FORMAT[kind], value)


def write(path, keys, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, (kind, value) in keys.items():
        head += packed(STRING, name.encode()) + struct.pack("<I", kind) + packed(kind, value)
    data = b""
    for name, t in tensors.items():
        head += packed(STRING, name.encode()) + struct.pack("<I", len(t["shape"]))
        head += struct.pack(f"<{len(t['shape'])}Q", *t["shape"])
        head += struct.pack("<IQ", t["type"], t.get("claimed", len(data)))
        data += t["data"] + bytes(-len(t["data"]) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT) + data)


def write_parts(path, keys, tensors):
    names = list(tensors)
    half = len(names) // 2
    for number, part in enumerate((names[:half], names[half:])):
        split = {"split.no": (2, number), "split.count": (2, 2), "split.tensors.count": (5, len(names))}
        name = path.replace("-00001-", f"-{number + 1:05}-")
        write(name, {**(keys if number == 0 else {}), **split}, {n: tensors[n] for n in part})


def parsed(kind, text):
    if kind == STRING:
        return text.encode()
    return float(text) if FORMAT[kind] in "fd" else text == "true" if FORMAT[kind] == "?" else int(text)


def change_key(keys, name, text):
    name, _, item = name.partition("[")
    kind, value = keys[name]
    if item:
        value[1][int(item[:-1])] = parsed(value[0], text)
    elif text:
        keys[name] = (kind, parsed(kind, text))
    else:
        del keys[name]


def change_tensor(tensors, name, text):
    name, _, what = name.rpartition(".") if name.endswith((".type", ".offset", ".shape")) else (name, "", "")
    name, _, row = name.partition("[")
    t = tensors[name]
    if row:
        other, _, factor = text.partition("*")
        width = 4 * t["shape"][0]
        at, of = int(row[:-1]) * width, int(other) * width
        values = struct.unpack(f"<{width // 4}f", t["data"][of : of + width])
        scaled = struct.pack(f"<{width // 4}f", *(float(factor) * v for v in values))
        t["data"] = t["data"][:at] + scaled + t["data"][at + width :]
    elif what == "type":
        t["type"] = int(text)
    elif what == "offset":
        t["claimed"] = int(text)
    elif what == "shape":
        t["shape"] = [int(n) for n in text.split(",")]
    elif text == "f16":
        count = len(t["data"]) // 4
        t["data"] = struct.pack(f"<{count}e", *struct.unpack(f"<{count}f", t["data"]))
        t["type"] = F16
    elif text == "nan":
        t["data"] = struct.pack("<f", float("nan")) + t["data"][4:]
    elif text == "huge":
        t["data"] = struct.pack("<f", 3.4e38) * (len(t["data"]) // 4)
    else:
        del tensors[name]


def main(source, target, *changes):
    keys, tensors = read(source)
    for change in changes:
        name, _, text = change.partition("=")
        if name.startswith("@"):
            change_tensor(tensors, name[1:], text)
        elif name.startswith("+"):
            keys[name[1:]] = (STRING, text.encode())
        else:
            change_key(keys, name, text)
    parts = target.endswith("-00001-of-00002.gguf")
    (write_parts if parts else write)(target, keys, tensors)


main(*sys.argv[1:])
