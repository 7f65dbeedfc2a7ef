"""Mixtures: the formula, and evaluation, tuning, explanations and texts as the command has them."""

import unittest

import kit
import numpy as np

import knnlm


class Mixture(kit.WithModel):
    def mixture(self, **options):
        return knnlm.Mixture(self.model, self.store, **{"lambda_": 0.3, "temperature": 5.0, "k": 8, **options})

    def test_what_ctypes_would_cut(self):
        with self.says(ValueError, "NUL"):
            knnlm.Store(str(self.store.path) + "\0x")
        with self.says(ValueError, "NUL"):
            self.mixture().explain("The\0 nearest")
        with self.says(ValueError, "NUL"):
            self.mixture().generate("The", stops=["a\0b"])
        with self.says(OverflowError, "out of range"):
            self.store.entry(2**64)
        with self.says(OverflowError, "k: -1 is out of range"):
            self.mixture(k=-1)
        self.assertEqual(self.model.decode(self.model.encode("a\0b")), "a\0b")

    def test_scores_are_the_formula(self):
        tokens = self.model.encode(kit.ASKED)
        with self.mixture() as mixture:
            p, lm = mixture.score(tokens)
            rows = mixture.rows(tokens)
        knn = self.store.knn_targets(self.model.states(tokens), tokens, 8, 5.0)
        np.testing.assert_allclose(lm, self.model.score(tokens), atol=1e-5)
        np.testing.assert_allclose(p, knnlm.mix(lm, knn, 0.3), atol=1e-4)
        np.testing.assert_array_equal(rows["token"], tokens)
        np.testing.assert_array_equal(rows["position"], np.arange(len(tokens)))
        np.testing.assert_allclose(rows["p"], p, rtol=1e-6)
        np.testing.assert_allclose(rows["knn"], knn, rtol=1e-4)
        np.testing.assert_allclose(rows["lambda"], 0.3)
        nearest = kit.distances(self.model.states(tokens), self.store.keys(), "l2").min(1)
        np.testing.assert_allclose(rows["nearest"], nearest, rtol=1e-3, atol=1e-2)

    def test_next_is_a_distribution(self):
        tokens = self.model.encode("A store remembers every")
        with self.mixture() as mixture:
            following = mixture.next(tokens)
            scores = mixture.score(np.append(tokens, 17)).p
        for p in following[:3]:
            self.assertEqual(p.shape, (self.model.info.vocabulary,))
            self.assertAlmostEqual(p.sum(), 1, places=4)
        np.testing.assert_allclose(following.p, 0.7 * following.lm + 0.3 * following.knn, atol=1e-12)
        self.assertAlmostEqual(np.log(following.p[17]), float(scores[-1]), places=3)
        self.assertAlmostEqual(following.entropy, -(following.lm * np.log(following.lm)).sum(), places=3)

    def test_the_model_alone(self):
        with knnlm.Mixture(self.model) as mixture:
            p, lm = mixture.score(kit.ASKED)
            self.assertEqual(mixture.info.stores, [])
        np.testing.assert_array_equal(p, lm)

    def test_settings(self):
        with knnlm.Mixture(self.model, [self.store, self.store.path], weights=[0.3, None], ks=[None, 7], cache=40) as mixture:
            first, second = mixture.info.stores
            self.assertEqual((first.lambda_, second.k, second.lambda_, mixture.info.cache), (0.3, 7, 0.125, 40))
        with self.assertRaisesRegex(ValueError, "weights: 1 numbers for 2 stores"):
            knnlm.Mixture(self.model, [self.store, self.store], weights=0.2)
        with self.says(knnlm.ArgumentError, "weight"):
            knnlm.Mixture(self.model, self.store, weights=1.5)
        with self.says(knnlm.FileError, "nowhere"):
            knnlm.Mixture(self.model, "nowhere")
        with self.says(knnlm.ArgumentError, "temperature"):
            knnlm.Mixture(self.model, self.store, temperature=0.0)

    def test_eval_is_the_commands(self):
        told = kit.command("eval", "-m", kit.MODEL, "-s", self.store.path, self.asked, "--precision", "f32", "--lambda", 0.3,
                           "--temperature", 5, "-k", 8)  # fmt: skip
        with self.mixture() as mixture:
            result = mixture.eval(self.asked)
        for name in ("tokens", "words", "bytes", "documents"):
            self.assertEqual(getattr(result, name), told[name])
        np.testing.assert_allclose([result.lm.ppl, result.mixed.ppl, result.mixed.nll], [told["ppl_lm"], told["ppl"], told["nll"]], rtol=1e-9)
        np.testing.assert_allclose(result.stores[0].found, told["stores"][0]["found"])
        self.assertEqual(result.stores[0].path, str(self.store.path))

    def test_an_ngram_model_beside_it(self):
        told = kit.command("eval", "-m", kit.MODEL, self.asked, "--ngram", self.remembered, "--ngram-order", 3, "--ngram-lambda", 0.2,
                           "--precision", "f32")  # fmt: skip
        with knnlm.Mixture(self.model) as mixture:
            result = mixture.eval(self.asked, ngram=self.remembered, ngram_order=3, ngram_lambda=0.2)
            self.assertIsNone(mixture.eval(self.asked).ngram)
            with self.says(knnlm.ArgumentError, "ngram_order"):
                mixture.eval(self.asked, ngram=self.remembered, ngram_order=9)
        self.assertEqual((result.ngram.order, result.ngram.grams), (3, told["ngram"]["grams"]))
        np.testing.assert_allclose([result.mixed.ppl, result.ngram.score.ppl], [told["ppl"], told["ngram"]["ppl_alone"]], rtol=1e-9)
        np.testing.assert_allclose(result.ngram.by_lambda, [ppl for _, ppl in told["ngram"]["by_lambda"]], rtol=1e-9)

    def test_tune_is_the_commands(self):
        told = kit.command("tune", "-m", kit.MODEL, "-s", self.store.path, self.asked, "--precision", "f32", "--dry-run")
        with knnlm.Mixture(self.model, self.store) as mixture:
            result = mixture.tune(self.asked, dry_run=True)
        np.testing.assert_allclose([result.ppl_lm, result.ppl, result.tuned.lambda_], [told["ppl_lm"], told["ppl"], told["lambda"]], rtol=1e-9)
        self.assertEqual(len(result.points), len(told["points"]))
        self.assertFalse(result.written)
        self.assertEqual(result.by_lambda.shape, (101,))
        # The curve is the formula: at the best temperature and k, by a hundred lambdas.
        tokens = self.model.encode(kit.ASKED)
        knn = self.store.knn_targets(self.model.states(tokens), tokens, result.tuned.k, result.tuned.temperature)
        lambdas, curve = knnlm.lambda_curve(self.model.score(tokens), knn, result.lambdas[:-1])
        np.testing.assert_allclose(result.by_lambda[:-1], curve, rtol=2e-3)
        self.assertLessEqual(abs(knnlm.best_lambda(self.model.score(tokens), knn) - lambdas[curve.argmin()]), 0.011)

    def test_tuning_is_kept(self):
        text = self.folder / "long.txt"
        text.write_text(kit.REMEMBERED * 3 + kit.ASKED * 3)
        store = knnlm.Store.build(self.folder / "tuned.store", self.model, text)
        self.assertTrue(store.info.tuned.known and store.info.tuned.quick)
        with knnlm.Mixture(self.model, store) as mixture:
            self.assertTrue(mixture.tune(self.asked).written)
        store.refresh()
        self.assertFalse(store.info.tuned.quick)
        with knnlm.Mixture(self.model, store) as mixture:
            self.assertTrue(mixture.info.stores[0].tuned)

    def test_explain_is_the_commands(self):
        context, target = "A store remembers every", " context"
        told = kit.command("explain", "-m", kit.MODEL, "-s", self.store.path, context, "--target", target, "--precision", "f32",
                           "--lambda", 0.3, "--temperature", 5, "-k", 8)  # fmt: skip
        with self.mixture() as mixture:
            result = mixture.explain(context, target)
        self.assertEqual([w.token for w in result.words], [w["token"] for w in told["words"]])
        np.testing.assert_allclose([w.p for w in result.words], [w["p"] for w in told["words"]], rtol=1e-9)
        self.assertEqual([n.origin.entry.id for n in result.neighbors], [n["entry"] for n in told["neighbors"]])
        nearest = result.neighbors[0].origin
        self.assertEqual((nearest.word, nearest.document.name), (" context", "remembered.txt"))
        self.assertTrue(nearest.before.endswith("A store remembers every") and nearest.after.startswith(", and"))
        self.assertAlmostEqual(sum(w.p for w in result.targets), result.targets[0].p)
        with self.says(knnlm.ArgumentError, "target"):
            mixture = self.mixture()
            mixture.explain(context, "")

    def test_explain_texts(self):
        with self.mixture() as mixture:
            gains = mixture.explain_texts(self.asked, best=3, worst=2)
            rows = mixture.rows(kit.ASKED)
        self.assertEqual((len(gains.best), len(gains.worst), gains.tokens), (3, 2, len(rows)))
        gain = rows["p"] - rows["lm"]
        np.testing.assert_allclose([g.p - g.lm for g in gains.best], np.sort(gain)[::-1][:3], rtol=1e-6)
        self.assertTrue(gains.best[0].neighbors)

    def test_texts_are_the_commands(self):
        told = kit.command("generate", "-m", kit.MODEL, "-s", self.store.path, "-p", "A store remembers", "-n", 24, "--seed", 7,
                           "--precision", "f32", "--sources")  # fmt: skip
        with knnlm.Mixture(self.model, self.store) as mixture:
            text = mixture.generate("A store remembers", tokens=24, seed=7)
            pieces = list(text)
            self.assertGreater(len(pieces), 3)
            self.assertEqual("".join(pieces), told["text"])
            self.assertEqual(str(text), told["text"])
            self.assertEqual((text.finish, len(text.tokens)), (told["finish"], len(told["tokens"])))
            self.assertEqual([t.token for t in text.tokens], [t["token"] for t in told["tokens"]])
            self.assertEqual([s.text for s in text.sources], [s["text"] for s in told["sources"]])
            again = mixture.generate(self.model.encode("A store remembers"), tokens=24, seed=7)
            self.assertEqual(str(again), told["text"])
            with self.says(knnlm.ArgumentError, "finished"):
                again.step()
            stopped = mixture.generate("A store remembers", tokens=24, seed=7, temperature=0.0, stops=["word"])
            self.assertTrue("word" not in str(stopped))
            with self.says(knnlm.ArgumentError, "top_p"):
                mixture.generate("A", top_p=-1.0)


class Page(kit.WithModel):
    def test_coloured(self):
        with knnlm.Mixture(self.model, self.store, lambda_=0.3, temperature=5.0, k=8) as mixture:
            rows = mixture.rows("A <b> naïve café remembers every context")
        page = knnlm.coloured(self.model, rows)
        self.assertEqual(page.count("<span"), len(rows))
        self.assertIn("&lt;", page)
        self.assertNotIn("<b>", page)
        import html
        import re

        self.assertEqual(html.unescape(re.sub("<[^>]*>", "", page)), "A <b> naïve café remembers every context")


if __name__ == "__main__":
    unittest.main()
