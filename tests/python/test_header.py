"""What the package knows of include/knnlm.h: as the header has it, and laid out as the compiler does."""

import ctypes
import shutil
import subprocess
import sys
import unittest

import kit
from knnlm import _header


def structs():
    return [x for x in vars(_header).values() if isinstance(x, type) and issubclass(x, ctypes.Structure)]


class Header(kit.Folder):
    def test_it_is_as_the_header_has_it(self):
        made = subprocess.run([sys.executable, kit.SOURCE / "python/make_header.py", "--check"], capture_output=True, text=True)
        self.assertEqual((made.returncode, made.stdout, made.stderr), (0, "", ""))

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_layouts_are_the_compilers(self):
        self.assertGreater(len(structs()), 50)
        wanted = {}
        lines = ['#include "knnlm.h"', "#include <stdio.h>", "int main(void) {"]
        for struct in structs():
            for name, _ in struct._fields_:
                place = getattr(struct, name)
                wanted[f"{struct.__name__}.{name}"] = (place.offset, place.size)
                member = f"(({struct.__name__} *)0)->{name}"
                lines.append(
                    f'printf("{struct.__name__}.{name} %zu %zu\\n", offsetof({struct.__name__}, {name}), sizeof {member});'
                )
            wanted[struct.__name__] = (0, ctypes.sizeof(struct))
            lines.append(f'printf("{struct.__name__} 0 %zu\\n", sizeof({struct.__name__}));')
        source, program = self.folder / "layout.c", self.folder / "layout"
        source.write_text("\n".join(lines + ["}"]))
        # knnlm_..._options_default, inline, refer to the library, which is not needed
        subprocess.run(["cc", "-O1", "-I", kit.SOURCE / "include", source, "-o", program], check=True)
        printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        got = {name: (int(at), int(size)) for name, at, size in map(str.split, printed.splitlines())}
        self.assertEqual(got, wanted)

    def test_constants(self):
        self.assertEqual((_header.KNNLM_EBUSY, _header.KNNLM_STORES_MAX, _header.KNNLM_ENTRIES_MAX), (7, 14, 2**32 - 1))


if __name__ == "__main__":
    unittest.main()
