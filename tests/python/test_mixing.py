"""Mixing for models of one's own: the formula, the best lambda, and a processor of scores by its shape."""

import unittest
import warnings

import kit
import numpy as np

import knnlm

try:
    import torch
except ImportError:
    torch = None


class Mixing(unittest.TestCase):
    def test_mix(self):
        r = np.random.default_rng(1)
        lm, knn = np.log(r.uniform(size=50)), np.log(r.uniform(size=50))
        for x in (0.0, 0.25, 1.0):
            np.testing.assert_allclose(np.exp(knnlm.mix(lm, knn, x)), (1 - x) * np.exp(lm) + x * np.exp(knn))
        self.assertAlmostEqual(float(knnlm.mix(-1.0, -np.inf, 0.5)), -1 + np.log(0.5))
        self.assertEqual(float(knnlm.mix(-1.0, -np.inf, 1.0)), -np.inf)
        with self.assertRaisesRegex(ValueError, "from 0 to 1"):
            knnlm.mix(-1.0, -1.0, 1.5)

    def test_best_lambda(self):
        r = np.random.default_rng(2)
        for bias in (-1.0, 0.0, 1.0):
            lm, knn = np.log(r.uniform(size=4000)), np.log(r.uniform(size=4000)) + bias
            knn[::3] = -np.inf
            lambdas, curve = knnlm.lambda_curve(lm, knn, np.linspace(0, 0.999, 1000))
            best = knnlm.best_lambda(lm, knn)
            self.assertLess(abs(best - lambdas[curve.argmin()]), 0.001)
            self.assertLessEqual(knnlm.perplexity(knnlm.mix(lm, knn, best)), curve.min())
        # One token in a hundred is better by e^9 with neighbours, the rest are impossible: (1 - x)^99 (1 - x + x e^9) is largest at
        # x = (e^9 - 100) / (100 (e^9 - 1)).
        lm, knn = np.full(100, -10.0), np.full(100, -np.inf)
        knn[7] = -1.0
        self.assertAlmostEqual(knnlm.best_lambda(lm, knn), (np.exp(9) - 100) / (100 * (np.exp(9) - 1)), places=12)
        self.assertEqual(knnlm.best_lambda([-np.inf, -1.0], [-1.0, -1.0]), 1.0)
        self.assertEqual(knnlm.best_lambda([-1.0, -1.0], [-np.inf, -np.inf]), 0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # e^-740 is not 0, and what is divided by it overflows: x (1 - x) e^740 is largest at 1/2
            self.assertAlmostEqual(knnlm.best_lambda([-740.0, 0.0], [0.0, -740.0]), 0.5, places=12)
        with self.assertRaisesRegex(ValueError, "no tokens"):
            knnlm.best_lambda([], [])
        with self.assertRaisesRegex(ValueError, "impossible by both"):
            knnlm.best_lambda([-np.inf, -1.0], [-np.inf, -1.0])


class Processor(kit.Folder):
    """Called as transformers' generate() calls it: processor(input_ids, scores) -> scores of the same type."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys, cls.values = kit.points(1, 500, 8), np.random.default_rng(2).integers(0, 11, 500)
        cls.store = knnlm.Store.from_arrays(cls.folder / "s", cls.keys, cls.values, keys="f32", vocabulary=11)
        cls.states, cls.scores = kit.points(3, 4, 8), np.random.default_rng(4).standard_normal((4, 11)).astype(np.float32)
        lm = np.exp(cls.scores.astype(np.float64))
        knn = kit.p_knn(kit.distances(cls.states, cls.keys, "l2"), cls.values, 11, 20, 4.0)
        cls.want = 0.4 * knn + 0.6 * lm / lm.sum(1, keepdims=True)

    def test_arrays(self):
        seen = []
        processor = knnlm.KnnLogitsProcessor(self.store, lambda ids: (seen.append(ids), self.states)[1], lambda_=0.4, temperature=4.0, k=20)
        ids = np.arange(8).reshape(4, 2)
        out = processor(ids, self.scores)
        self.assertIs(seen[0], ids)
        self.assertEqual((out.dtype, out.shape), (np.float32, (4, 11)))
        np.testing.assert_allclose(np.exp(out), self.want, atol=1e-5)

    @unittest.skipUnless(torch, "no torch (scripts/install-deps bench)")
    def test_tensors(self):
        states = torch.tensor(self.states, requires_grad=True)
        processor = knnlm.KnnLogitsProcessor(self.store, lambda ids: states, lambda_=0.4, temperature=4.0, k=20)
        for kind, bound in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
            out = processor(torch.zeros((4, 3), dtype=torch.long), torch.tensor(self.scores).to(kind))
            self.assertTrue(isinstance(out, torch.Tensor) and out.dtype == kind)
            np.testing.assert_allclose(torch.softmax(out.float(), -1).numpy(), self.want, atol=bound)

    def test_what_was_ruled_out_stays_so(self):
        banned = self.scores.copy()
        banned[:, 3] = -np.inf
        self.assertTrue((self.want[:, 3] > 0).all() and 3 in self.values)
        out = knnlm.KnnLogitsProcessor(self.store, lambda ids: self.states, lambda_=0.4, temperature=4.0, k=20)(None, banned)
        self.assertTrue(np.isneginf(out[:, 3]).all() and np.isfinite(np.delete(out, 3, 1)).all())

    def test_nothing_found(self):
        empty = knnlm.Store.create(self.folder / "empty", 8, vocabulary=11)
        out = knnlm.KnnLogitsProcessor(empty, lambda ids: self.states, lambda_=0.4)(None, self.scores)
        lm = np.exp(self.scores) / np.exp(self.scores).sum(1, keepdims=True)
        np.testing.assert_allclose(np.exp(out), lm, atol=1e-6)

    def test_what_is_wrong(self):
        processor = knnlm.KnnLogitsProcessor(self.store, lambda ids: self.states[:2])
        with self.assertRaisesRegex(ValueError, r"scores of shape \(4, 11\), but p_kNN of shape \(2, 11\)"):
            processor(None, self.scores)
        with self.assertRaisesRegex(ValueError, "lambda is from 0 to 1"):
            knnlm.KnnLogitsProcessor(self.store, lambda ids: None, lambda_=2.0)


if __name__ == "__main__":
    unittest.main()
