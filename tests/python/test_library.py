"""How the library is found, and what is said where it is not, or is another one."""

import ctypes
import os
import shutil
import subprocess
import sys
import unittest

import kit
import knnlm
from knnlm import _header
from knnlm._library import library

KEEPS_THE_LOCK = 0x4  # FUNCFLAG_PYTHONAPI of ctypes


class Library(kit.Folder):
    def imported(self, library, program="import knnlm"):
        environment = {**os.environ, "KNNLM_LIBRARY": str(library)}
        return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)

    def made(self, name, text):
        source, library = self.folder / "fake.c", self.folder / name
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
        return library

    def test_it_tells_of_itself(self):
        self.assertEqual(knnlm.version(), knnlm.__version__)
        self.assertEqual(knnlm.kernels()[-1], "portable")
        self.assertTrue(knnlm.llama_release() is None or knnlm.llama_release())

    def test_every_call_lets_other_threads_run(self):
        self.assertNotIsInstance(library, ctypes.PyDLL)
        for name in _header.FUNCTIONS:
            self.assertFalse(getattr(library, name)._flags_ & KEEPS_THE_LOCK, name)

    def test_none(self):
        run = self.imported("/nowhere/libknnlm.so")
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr.splitlines()[-1], r"ImportError: libknnlm.so.0 cannot be loaded \(/nowhere/.*KNNLM_LIBRARY")

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_another_version(self):
        run = self.imported(self.made("other.so", 'const char *knnlm_version(void) { return "9.1.0"; }'))
        self.assertRegex(run.stderr.splitlines()[-1], "ImportError: .*other.so is knnlm 9.1.0, this package is made for 0.1.0")

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_an_older_one(self):
        run = self.imported(self.made("old.so", 'const char *knnlm_version(void) { return "0.1.0"; }'))
        self.assertRegex(run.stderr.splitlines()[-1], "ImportError: .*old.so has no knnlm_[a-z_]+: it is older")

    def test_threads_are_refused_where_they_make_no_sense(self):
        with self.says(knnlm.ArgumentError, "-3"):
            knnlm.set_threads(-3)
        self.assertEqual(knnlm.ArgumentError.status, 1)


if __name__ == "__main__":
    unittest.main()
