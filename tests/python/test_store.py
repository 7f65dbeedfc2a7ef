"""Stores of arrays: searches and p_kNN against brute force in NumPy; appending, removing, exporting; what is wrong."""

import multiprocessing
import threading
import tracemalloc
import unittest
import unittest.mock

import kit
import numpy as np

import knnlm

D, ENTRIES, VOCABULARY, QUERIES, K = 24, 3000, 40, 50, 30


def _child(store):
    global given
    given = store


def _search(queries):
    return given.search(queries, K).ids


class Search(kit.Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys, cls.queries = kit.points(1, ENTRIES, D), kit.points(2, QUERIES, D)
        cls.values = np.random.default_rng(3).integers(0, VOCABULARY, ENTRIES)
        cls.stores = {
            kind: knnlm.Store.from_arrays(cls.folder / kind, cls.keys, cls.values, keys="f32", distance=kind, vocabulary=VOCABULARY)
            for kind in ("l2", "ip", "cosine")
        }

    def check(self, found, far, k=K):
        """The nearest k, in order, but for those equally far to within rounding."""
        self.assertEqual(found.ids.shape, (len(far), k))
        self.assertTrue((found.counts == min(k, far.shape[1])).all())
        np.testing.assert_allclose(found.distances, np.sort(far, 1)[:, :k], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(np.take_along_axis(far, found.ids.astype(np.int64), 1), found.distances, rtol=1e-4, atol=1e-4)

    def test_neighbours_are_the_nearest(self):
        for kind, store in self.stores.items():
            far = kit.distances(self.queries, self.keys, kind)
            self.check(store.search(self.queries, K), far)
            self.check(store.search(self.queries[:3], K, singly=True), far[:3])
            self.check(store.search(self.queries[7], K), far[7:8])
        np.testing.assert_array_equal(store.values(store.search(self.queries, K).ids), self.values[store.search(self.queries, K).ids])

    def test_keys_of_less_precision(self):
        far = kit.distances(self.queries, self.keys, "l2")
        for kind, bound in (("f16", 5e-3), ("int8", 0.1)):
            store = knnlm.Store.from_arrays(self.folder / kind, self.keys, self.values, keys=kind)
            np.testing.assert_allclose(store.search(self.queries, K).distances, np.sort(far, 1)[:, :K], rtol=bound, atol=bound)

    def test_p_knn(self):
        for kind, temperature in (("l2", 3.0), ("ip", 20.0), ("cosine", 0.1)):
            store, far = self.stores[kind], kit.distances(self.queries, self.keys, kind)
            want = kit.p_knn(far, self.values, VOCABULARY, K, temperature)
            p = store.knn(self.queries, K, temperature)
            np.testing.assert_allclose(p, want, atol=2e-4)
            np.testing.assert_allclose(p.sum(1), 1, atol=1e-9)
            targets = self.values[:QUERIES]
            with np.errstate(divide="ignore"):
                log = np.log(p[np.arange(QUERIES), targets])
            np.testing.assert_allclose(store.knn_targets(self.queries, targets, K, temperature), log, rtol=1e-6)
            ids, distances, _ = store.search(self.queries, K)
            np.testing.assert_allclose(store.knn_of(ids[3][::-1], distances[3][::-1], temperature), p[3], atol=1e-9)

    def test_more_than_there_are(self):
        store = knnlm.Store.from_arrays(self.folder / "few", self.keys[:5], self.values[:5], keys="f32", vocabulary=VOCABULARY)
        ids, distances, counts = store.search(self.queries, 8)
        self.assertTrue((counts == 5).all() and (ids[:, 5:] == knnlm.NO_ENTRY).all() and np.isinf(distances[:, 5:]).all())
        self.assertTrue((store.values(ids)[:, 5:] == -1).all())

    def test_arrays_are_not_copied(self):
        store = self.stores["l2"]
        first = store.search(self.queries, K)
        room = knnlm.Neighbors(np.zeros_like(first.ids), np.zeros_like(first.distances), np.zeros_like(first.counts))
        again = store.search(self.queries, K, out=room)
        for a, b, c in zip(first, again, room):
            self.assertIs(b, c)
            np.testing.assert_array_equal(a, b)
        rows = knnlm._arrays.floats(self.queries, D, "queries")
        self.assertTrue(np.shares_memory(rows, self.queries))
        with self.assertRaisesRegex(ValueError, r"out.ids: .* uint32 array of shape \(50, 8\)"):
            store.search(self.queries, 8, out=room)

    def test_other_arrays(self):
        store, want = self.stores["l2"], self.stores["l2"].search(self.queries, K)
        wide = np.asfortranarray(self.queries.astype(np.float64))
        for given in (wide, wide.tolist(), np.repeat(self.queries, 2, 0)[::2]):
            np.testing.assert_array_equal(store.search(given, K).ids, want.ids)

    def test_what_is_wrong(self):
        store = self.stores["l2"]
        with self.assertRaisesRegex(ValueError, r"queries of shape \(50, 23\): \(n, 24\) is wanted"):
            store.search(self.queries[:, 1:], K)
        with self.assertRaisesRegex(TypeError, "numbers are wanted"):
            store.search([["a"] * D])
        with self.says(knnlm.DataError, "finite"):
            store.search(np.full((1, D), np.nan, np.float32), K)
        with self.says(knnlm.ArgumentError, "0"):
            store.search(self.queries, 0)
        with self.says(knnlm.ArgumentError, "temperature"):
            store.knn(self.queries, K, 0.0)
        with self.says(knnlm.ArgumentError, str(ENTRIES)):
            store.values([ENTRIES])
        with self.assertRaisesRegex(ValueError, "50 queries, but 3 targets"):
            store.knn_targets(self.queries, [1, 2, 3])
        with self.says(knnlm.ArgumentError, "`only`"):
            store.search(self.queries, K, only=["nobody"])
        with self.assertRaisesRegex(TypeError, "no option is called 'probe'"):
            store.search(self.queries, K, probe=3)

    def test_no_memory_is_taken_for_copies(self):
        queries = np.repeat(self.queries, 100, 0)
        room = self.stores["l2"].search(queries, K)
        tracemalloc.start()  # which NumPy tells of its arrays
        try:
            self.stores["l2"].search(queries, K, out=room)
            self.assertLess(tracemalloc.get_traced_memory()[1], queries.nbytes / 2)
            self.stores["l2"].search(queries.astype(np.float64), K, out=room)  # what is converted is seen
            self.assertGreater(tracemalloc.get_traced_memory()[1], queries.nbytes)
        finally:
            tracemalloc.stop()

    def test_forked_workers_search(self):
        """As loaders of data fork them: the library's own threads are not in the child, which does their work."""
        store = self.stores["l2"]
        want = store.search(self.queries, K).ids
        with multiprocessing.get_context("fork").Pool(2, _child, (store,)) as pool:
            for found in pool.map_async(_search, [self.queries] * 4).get(timeout=60):
                np.testing.assert_array_equal(found, want)

    def test_many_threads_search(self):
        store, want = self.stores["ip"], self.stores["ip"].search(self.queries, K)
        wrong = []

        def work():
            for _ in range(5):
                if not np.array_equal(store.search(self.queries, K).ids, want.ids):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Changes(kit.Folder):
    def test_append(self):
        keys, values = kit.points(4, 90, 6), np.arange(90)
        with knnlm.Store.create(self.folder / "a", 6, keys="f32", vocabulary=100) as store:
            self.assertEqual(len(store), 0)
            self.assertEqual(store.append(keys[:40], values[:40], "one"), range(0, 40))
            self.assertEqual(store.append(keys[40:], values[40:].astype(np.uint8), "two"), range(40, 90))
            np.testing.assert_array_equal(store.keys(), keys)
            np.testing.assert_array_equal(store.tokens(), values)
            np.testing.assert_array_equal(store.keys(38, 4), keys[38:42])
            self.assertEqual([d.name for d in store.documents()], ["one", "two"])
            self.assertEqual((store.entry(41).token, store.entry(41).document, store.entry(41).position), (41, 1, 1))
            other = knnlm.Store(self.folder / "a")
            self.assertEqual(store.remove("one"), 40)
            self.assertFalse(other.is_current)
            self.assertTrue((store.search(keys, 1).ids >= 40).all())
            np.testing.assert_array_equal(other.search(keys, 1).ids[:, 0], np.arange(90))
            other.refresh()
            self.assertTrue(other.is_current and other.info.removed_entries == 40)
            store.compact()
            self.assertEqual((len(store), store.verify()), (50, 0))

    def test_arrays_mapped_from_files(self):
        wide = np.lib.format.open_memmap(self.folder / "wide.npy", "w+", np.float16, (200, 6))
        wide[:] = kit.points(9, 200, 6)
        with unittest.mock.patch("knnlm.store.PIECE", 64), unittest.mock.patch("knnlm.store.floats", wraps=knnlm.store.floats) as converted:
            store = knnlm.Store.from_arrays(self.folder / "mapped", wide, np.arange(200), keys="f16")
        self.assertEqual([len(call.args[0]) for call in converted.call_args_list], [64, 64, 64, 8])
        np.testing.assert_array_equal(store.keys(), wide.astype(np.float32))
        np.testing.assert_array_equal(store.tokens(), np.arange(200))
        self.assertEqual(len(list(store.documents())), 1)

    def test_appending_what_is_wrong(self):
        store = knnlm.Store.create(self.folder / "wrong", 6, vocabulary=10)
        for error, message, keys, values in (
            (ValueError, "3 keys, but 2 values", np.zeros((3, 6)), [1, 2]),
            (ValueError, "keys of shape", np.zeros((2, 5)), [1, 2]),
            (knnlm.ArgumentError, "token", np.zeros((2, 6)), [1, 10]),
            (knnlm.ArgumentError, "token", np.zeros((2, 6)), [1, -1]),
            (knnlm.DataError, "finite", np.full((1, 6), np.inf), [1]),
            (TypeError, "whole numbers", np.zeros((1, 6)), [0.5]),
        ):
            with self.assertRaisesRegex(error, message):
                store.append(keys, values)
        store.refresh()
        self.assertEqual((len(store), store.verify()), (0, 0))

    def test_making_what_is_wrong(self):
        knnlm.Store.create(self.folder / "there", 6)
        with self.says(knnlm.FileError, "there"):
            knnlm.Store.create(self.folder / "there", 6)
        with self.says(knnlm.ArgumentError, "dimension"):
            knnlm.Store.create(self.folder / "none", 0)
        with self.assertRaisesRegex(ValueError, "keys is one of f16, f32, int8, none, not 'f8'"):
            knnlm.Store.create(self.folder / "none", 6, keys="f8")
        with self.says(knnlm.FileError, "nowhere"):
            knnlm.Store(self.folder / "nowhere")
        self.assertFalse((self.folder / "none").exists())

    def test_a_model_is_recorded(self):
        with knnlm.Model(kit.MODEL) as model:
            store = knnlm.Store.create(self.folder / "of_model", model=model)
            self.assertEqual((store.info.dimension, store.info.vocabulary), (model.info.key_width, model.info.vocabulary))
            self.assertTrue(store.info.model.endswith("small.gguf"))
        with self.assertRaisesRegex(ValueError, "this Model is closed"):
            knnlm.Store.create(self.folder / "of_none", model=model)

    def test_export(self):
        keys, values = kit.points(5, 70, 6), np.random.default_rng(6).integers(0, 9, 70)
        store = knnlm.Store.from_arrays(self.folder / "out", keys, values, keys="f32", vocabulary=9)
        store.export(self.folder / "arrays")
        np.testing.assert_array_equal(np.load(self.folder / "arrays/keys.npy"), keys)
        np.testing.assert_array_equal(np.load(self.folder / "arrays/values.npy"), values)
        again = knnlm.Store.import_files(self.folder / "in", self.folder / "arrays")
        np.testing.assert_array_equal(again.keys(), keys)
        self.assertTrue(again.last_import.restored)


class Index(kit.Folder):
    def test_lists(self):
        keys, queries = kit.points(7, 20000, 16), kit.points(8, 40, 16)
        store = knnlm.Store.from_arrays(self.folder / "listed", keys, np.zeros(len(keys), int), vocabulary=2)
        self.assertEqual(store.index.info.lists, 0)
        exact = store.search(queries, 10)
        told = []
        info = store.index.build(lists=64, progress=lambda *now: told.append(now))
        self.assertEqual((info.lists, store.index.info.lists, info.listed), (64, 64, 20000))
        self.assertTrue(told and store.info.has_index)
        np.testing.assert_array_equal(store.search(queries, 10, probes=64).ids, exact.ids)
        np.testing.assert_array_equal(store.search(queries, 10, exact=True).ids, exact.ids)
        found = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(store.index.search(queries, 10, probes=8).ids, exact.ids)])
        self.assertGreater(found, 0.9)
        rows = store.index.recall(queries=30, k=10)
        self.assertEqual((rows[-1].probes, rows[-1].recall[0]), (0, 1.0))
        self.assertGreater(rows[-2].recall[3], rows[0].recall[3])
        store.append(keys[:50], np.ones(50, int))
        self.assertEqual(store.index.info.outside, 50)
        self.assertEqual(store.index.extend().outside, 0)

    def test_what_is_wrong(self):
        store = knnlm.Store.create(self.folder / "empty", 4)
        with self.says(knnlm.ArgumentError, "empty"):
            store.index.build()
        with self.says(knnlm.ArgumentError, "pq9x9"):
            store.index.build(codes="pq9x9")


if __name__ == "__main__":
    unittest.main()
