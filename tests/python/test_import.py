"""Stores that others made: the arrays of the paper's code, those of knn-transformers, and an index of FAISS."""

import unittest

import kit
import numpy as np

import knnlm


def raw(path, array):
    """As NumPy's memmap writes it, which is what both have."""
    out = np.memmap(path, dtype=array.dtype, mode="w+", shape=array.shape)
    out[:] = array
    out.flush()


class Import(kit.Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys = kit.points(1, 801, 12)
        cls.values = np.random.default_rng(2).integers(0, 500, (801, 1))

    def test_the_papers_code(self):
        folder = self.folder / "paper"
        folder.mkdir()
        raw(folder / "dstore_keys.npy", self.keys.astype(np.float16))
        raw(folder / "dstore_vals.npy", self.values.astype(np.int16))
        with self.says(knnlm.ArgumentError, "dimension"):
            knnlm.Store.import_files(self.folder / "none.store", folder)
        store = knnlm.Store.import_files(
            self.folder / "paper.store", folder, dimension=12, key_type="f16", value_type="int16", vocabulary=500
        )
        self.check(store, self.keys.astype(np.float16).astype(np.float32))
        self.assertEqual((store.last_import.key_type, store.last_import.value_type), ("float16", "int16"))

    def test_knn_transformers(self):
        folder = self.folder / "transformers"
        folder.mkdir()
        raw(folder / "dstore_gpt2_801_12_keys.npy", self.keys.astype(np.float16))
        raw(folder / "dstore_gpt2_801_12_vals.npy", self.values.astype(np.int32))
        store = knnlm.Store.import_files(self.folder / "transformers.store", folder, vocabulary=500, keep="f32")
        self.assertEqual(store.info.keys, "f32")
        self.check(store, self.keys.astype(np.float16).astype(np.float32))

    def check(self, store, keys):
        np.testing.assert_array_equal(store.keys(), keys)
        np.testing.assert_array_equal(store.tokens(), self.values[:, 0])
        far = kit.distances(keys[:20] + 0.1, keys, "l2")
        np.testing.assert_allclose(store.knn(keys[:20] + 0.1, 64, 5.0), kit.p_knn(far, self.values[:, 0], 500, 64, 5.0), atol=1e-3)

    def test_an_index_of_faiss(self):
        golden = kit.SOURCE / "tests/golden"
        store = knnlm.Store.import_files(self.folder / "faiss.store", faiss=golden / "faiss-l2.index")
        queries, want = np.load(golden / "faiss-queries.npy"), np.load(golden / "faiss-l2.ids.npy")
        found = store.search(queries[:, : store.info.dimension], want.shape[1], probes=store.index.info.lists)
        self.assertEqual(found.ids.shape, want.shape)
        with self.assertRaisesRegex(knnlm.NotSupported, "keys"):
            store.keys()

    def test_what_is_wrong(self):
        with self.says(knnlm.FileError, "nowhere"):
            knnlm.Store.import_files(self.folder / "none.store", "nowhere", "values")
        with self.says(knnlm.ArgumentError, "no `keys`"):
            knnlm.Store.import_files(self.folder / "none.store")
        self.assertFalse((self.folder / "none.store").exists())


if __name__ == "__main__":
    unittest.main()
