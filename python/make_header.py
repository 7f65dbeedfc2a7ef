#!/usr/bin/python3 -I
"""Writes knnlm/_header.py, what the Python package knows of include/knnlm.h: constants, structs, functions.
    python/make_header.py            writes it
    python/make_header.py --check    only tells whether it is as it should be: exit code 1 if not
Knows just the C that the header is written in, and fails, with the line, on any other. tests/python/test_header.py holds the
result against the compiler."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parent / "include" / "knnlm.h"
OUTPUT = HERE / "knnlm" / "_header.py"

NUMBERS = {
    "bool": "c.c_bool", "int": "c.c_int", "size_t": "c.c_size_t", "float": "c.c_float", "double": "c.c_double",
    "uint8_t": "c.c_uint8", "uint16_t": "c.c_uint16", "int32_t": "c.c_int32", "uint32_t": "c.c_uint32",
    "int64_t": "c.c_int64", "uint64_t": "c.c_uint64", "char": "c.c_char",
}  # fmt: skip

# "const char *const *include" and the like: type, stars, name, and a size or the arguments of a function
DECLARATOR = re.compile(r"^(?P<stars>(?:\*|const|\s)*)(?P<name>\w+)?(?:\[(?P<count>\w+)\])?$")
CALLBACK = re.compile(r"^(?P<result>.+?)\(\*(?P<name>\w+)\)\((?P<args>.*)\)$")


class Header:
    """What was read so far: enums are ints, opaque structs are addresses."""

    def __init__(self):
        self.enums, self.structs, self.functions, self.lines = set(), set(), set(), []

    def number(self, name):
        return "c.c_int" if name in self.enums else NUMBERS[name]

    def value(self, base, stars, sized=False):
        """The ctypes of a member or a result. `sized`: a string that need not end with a NUL."""
        if not stars and base in self.structs:
            return base
        if not stars:
            return None if base == "void" else self.number(base)
        if base == "char" and stars == 1:
            return "c.c_void_p" if sized else "c.c_char_p"
        if stars > 1 or base == "void" or base not in self.structs and base not in self.enums and base not in NUMBERS:
            return "c.c_void_p"
        return f"c.POINTER({self.value(base, 0)})"

    def argument(self, text):
        """The ctypes of an argument: of arrays and structs any address will do."""
        base, (stars, _, _) = split_type(text)
        if base in self.functions or stars and not (base == "char" and stars == 1):
            return "c.c_void_p"
        return self.value(base, stars)

    def callback(self, result, args):
        base, (stars, _, _) = split_type(result + " ")
        return f"c.CFUNCTYPE({', '.join([str(self.value(base, stars))] + [self.argument(a) for a in args])})"


def split_type(text):
    """("char", (2, "include", None)) of "const char *const *include"."""
    text = " ".join(re.sub(r"\b(const|struct)\b", " ", text).split())
    base, rest = re.match(r"(\w+)\s*(.*)$", text).groups()
    return base, split_declarator(rest)


def split_declarator(text):
    match = DECLARATOR.match(re.sub(r"\bconst\b", " ", text).strip())
    if not match:
        raise ValueError(text)
    return match["stars"].count("*"), match["name"], match["count"]


def split_list(text):
    text = text.strip()
    return [] if text == "void" else [" ".join(part.split()) for part in text.split(",") if part.strip()]


# ---- the parts of the header


def take_constants(h, body):
    for part in split_list(body):
        name, _, value = part.partition("=")
        h.lines.append(f"{name.strip()} = {value.strip()}")


def members(h, body):
    """(name, ctypes) of the members of a struct."""
    statements = [" ".join(s.split()) for s in body.split(";") if s.strip()]
    names = set(re.findall(r"\b(\w+_size)\b", body))
    for statement in statements:
        function = CALLBACK.match(statement)
        if function:
            yield function["name"], h.callback(function["result"], split_list(function["args"]))
            continue
        base, _ = split_type(statement.split(",")[0])
        for declarator in statement[statement.index(base) + len(base) :].split(","):
            stars, name, count = split_declarator(declarator)
            kind = h.value(base, stars, f"{name}_size" in names)
            yield name, f"{kind} * {count}" if count else kind


def take_struct(h, name, body):
    h.structs.add(name)
    fields = "".join(f'        ("{field}", {kind}),\n' for field, kind in members(h, body))
    h.lines.append(f"\n\nclass {name}(c.Structure):\n    _fields_ = [\n{fields}    ]\n\n")


def take_function(h, result, name, arguments):
    base, (stars, _, _) = split_type(result + " ")
    kinds = ", ".join(h.argument(a) for a in split_list(arguments))
    h.lines.append(f'FUNCTIONS["{name}"] = ({h.value(base, stars)}, [{kinds}])')


RULES = [
    (r'#define (KNNLM_VERSION) (".*")\n', lambda h, m: h.lines.append(f"{m[1]} = {m[2]}")),
    (r"#define (KNNLM_\w+) UINT32_MAX\n", lambda h, m: h.lines.append(f"{m[1]} = 2**32 - 1")),
    (r"#define (KNNLM_\w+) ([\d.e+-]+)\n", lambda h, m: h.lines.append(f"{m[1]} = {m[2]}")),
    (r"#(?:[^\\\n]|\\\n)*\n", lambda h, m: None),
    (r"extern \"C\" \{|\}", lambda h, m: None),
    (r"typedef enum (\w+) \{([^}]*)\} \w+;", lambda h, m: (h.enums.add(m[1]), take_constants(h, m[2]))),
    (r"enum \{([^}]*)\};", lambda h, m: take_constants(h, m[1])),
    (r"typedef struct (\w+) \1;", lambda h, m: None),
    (r"typedef struct (\w+) \{([^}]*)\} \1;", lambda h, m: take_struct(h, m[1], m[2])),
    (r"typedef void (\w+)\(([^)]*)\);", lambda h, m: (h.functions.add(m[1]), h.lines.append(f"{m[1]} = {h.callback('void', split_list(m[2]))}"))),
    (r"KNNLM_DEFAULTS\((\w+)\);", lambda h, m: take_function(h, "void", m[1] + "_init", f"{m[1]} *options, size_t size")),
    (r"KNNLM_API ([\w\s]+?[\s*]+)(\w+)\(([^)]*)\);", lambda h, m: take_function(h, m[1], m[2], m[3])),
]


def parse(text):
    h, at = Header(), 0
    text = re.sub(r"//[^\n]*", "", text)
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        for pattern, act in RULES:
            match = re.compile(pattern).match(text, at)
            if match:
                act(h, match)
                at = match.end()
                break
        else:
            line = text.count("\n", 0, at) + 1
            raise SystemExit(f"{HEADER}:{line}: make_header.py knows no such declaration: {text[at:at + 60]!r}")
    return h


def write(h):
    out = '"""What include/knnlm.h declares, by python/make_header.py: not to be edited."""\n\n'
    out += "from __future__ import annotations\n\nimport ctypes as c\nfrom typing import Any\n\n"
    out += "# Of each function what it returns, and its arguments.\nFUNCTIONS: dict[str, tuple[Any, list[Any]]] = {}\n\n"
    out += "\n".join(h.lines)
    return re.sub(r"\n{4,}", "\n\n\n", out).rstrip() + "\n"


def main():
    text = write(parse(HEADER.read_text(encoding="utf-8")))
    if sys.argv[1:] == ["--check"]:
        same = OUTPUT.read_text(encoding="utf-8") == text
        print("" if same else f"{OUTPUT}: not as include/knnlm.h has it: run python/make_header.py", end="" if same else "\n")
        return 0 if same else 1
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
