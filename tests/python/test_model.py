"""Models: tokens, scores and states; against the command and against a store's keys."""

import threading
import time
import unittest

import kit
import numpy as np

import knnlm


class Model(kit.WithModel):
    def test_tokens_and_text(self):
        for text in (kit.ASKED, "naïve café 雪\n", "", "a\0b"):
            tokens = self.model.encode(text)
            self.assertEqual(tokens.dtype, np.int32)
            self.assertEqual(self.model.decode(tokens), text)
        tokens, space = self.model.encode_prompt("A store ")
        self.assertTrue(space)
        self.assertEqual(self.model.decode(tokens), "A store")

    def test_info(self):
        info, told = self.model.info, kit.command("info", kit.MODEL)
        for name in ("architecture", "parameters", "fingerprint", "layers"):
            self.assertEqual(getattr(info, name), told[name])
        self.assertIn("small.gguf", repr(self.model))

    def test_scores_are_the_commands(self):
        rows = self.folder / "rows.tsv"
        told = kit.command("eval", "-m", kit.MODEL, self.asked, "--per-token", rows, "--precision", "f32")
        header, *lines = [line.split("\t") for line in rows.read_text().splitlines()]
        column = header.index("logprob")
        scores = self.model.score(kit.ASKED)
        np.testing.assert_allclose(scores, [float(line[column]) for line in lines], atol=2e-4)
        np.testing.assert_allclose(knnlm.perplexity(scores), told["ppl"], rtol=1e-5)

    def test_states_are_the_keys_of_a_store(self):
        tokens = self.model.encode(kit.REMEMBERED)
        states = self.model.states(tokens)
        self.assertEqual(states.shape, (len(tokens), self.model.info.key_width))
        np.testing.assert_array_equal(states, self.store.keys())
        np.testing.assert_array_equal(self.model.states(tokens, "ffn"), states)
        other = self.model.states(tokens, "output@0")
        self.assertFalse(np.allclose(other, states))
        with self.says(knnlm.ArgumentError, "knee"):
            self.model.states(tokens, "knee")

    def test_windows(self):
        far = self.model.score(kit.ASKED, score=4, context=60)
        near = self.model.score(kit.ASKED, score=1, context=1)
        self.assertGreater(float(np.abs(far - near).max()), 0.1)
        with self.assertRaisesRegex(TypeError, "no option is called 'contexts': there are score, context"):
            self.model.score(kit.ASKED, contexts=3)
        with self.says(knnlm.ArgumentError, "100000"):
            self.model.score(kit.ASKED, score=100000)

    def test_what_is_wrong(self):
        with self.says(knnlm.FileError, "nowhere.gguf: No such file"):
            knnlm.Model("nowhere.gguf")
        with self.says(knnlm.DataError, "asked.txt"):
            knnlm.Model(self.asked)
        with self.assertRaisesRegex(ValueError, "precision is one of auto, f32, bf16, int16, not 'f64'"):
            knnlm.Model(kit.MODEL, precision="f64")
        with self.says(knnlm.ArgumentError, "vocabulary"):
            self.model.decode([self.model.info.vocabulary])
        with self.says(knnlm.ArgumentError, "token"):
            self.model.score([-1])
        with self.assertRaisesRegex(TypeError, "whole numbers"):
            self.model.score([1.5])
        with self.assertRaisesRegex(ValueError, "beyond 32 bits"):
            self.model.score([2**40])

    def test_other_threads_run_meanwhile(self):
        tokens, turns = self.model.encode(kit.ASKED * 60), 0
        worker = threading.Thread(target=self.model.score, args=(tokens,))
        worker.start()
        # Behind a call that kept the interpreter's lock there are two turns at most: before it and after it.
        while worker.is_alive():
            time.sleep(0.001)
            turns += self.model._worker == worker.ident
        self.assertGreater(turns, 10)

    def test_threads_take_turns(self):
        texts = [kit.ASKED * (i + 1) for i in range(4)]
        alone = [self.model.score(text) for text in texts]
        got = [None] * 4

        def work(i):
            for _ in range(3):
                got[i] = self.model.score(texts[i])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for a, b in zip(alone, got):
            np.testing.assert_array_equal(a, b)


class Training(kit.Folder):
    def test_a_small_model(self):
        text, out = self.folder / "text.txt", self.folder / "model.gguf"
        text.write_text(kit.REMEMBERED * 40)
        loss = knnlm.train(text, out, preset="tiny", width=32, layers=1, heads=2, vocabulary=300, steps=3, batch=256, length=32)
        self.assertTrue(0 < loss < 10)
        with knnlm.Model(out) as model:
            self.assertEqual(model.info.layers, 1)
        with self.says(knnlm.ArgumentError, "model.gguf"):
            knnlm.train(text, out, steps=1)


if __name__ == "__main__":
    unittest.main()
