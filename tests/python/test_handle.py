"""What is opened is closed, whoever holds it; functions that the library calls may fail, and be interrupted."""

import gc
import os
import signal
import threading
import unittest

import kit
import numpy as np

import knnlm


class Handles(kit.WithModel):
    def test_context_managers(self):
        with knnlm.Store(self.store.path) as store:
            self.assertFalse(store.closed)
        self.assertTrue(store.closed)
        store.close()
        for use in (lambda: store.search(np.zeros((1, store.info.dimension))), store.tokens, lambda: store.is_current):
            with self.assertRaisesRegex(ValueError, "this Store is closed"):
                use()

    def test_what_depends_is_closed_first(self):
        model = knnlm.Model(kit.MODEL)
        mixture = knnlm.Mixture(model, self.store)
        text = mixture.generate("A", tokens=4)
        model.close()
        self.assertTrue(mixture.closed and text.closed)
        with self.assertRaisesRegex(ValueError, "this Model is closed"):
            mixture.score("A")
        with self.assertRaisesRegex(ValueError, "closed"):
            text.step()

    def test_what_nobody_holds(self):
        mixture = knnlm.Mixture(knnlm.Model(kit.MODEL), self.store)
        gc.collect()  # the mixture holds the model
        self.assertEqual(len(mixture.score("A store").p), 2)
        text = mixture.generate("A", tokens=4, seed=3)
        del mixture
        gc.collect()
        self.assertTrue(text.step())

    def test_a_store_in_use_is_closed_afterwards(self):
        store = knnlm.Store.from_arrays(self.folder / "busy", kit.points(1, 4000, 32), np.zeros(4000, int))
        queries, failed = kit.points(2, 6000, 32), []

        def work():
            try:
                store.search(queries, 10)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive() and not store._users:
            pass
        store.close()
        thread.join()
        self.assertEqual(failed, [])


class Callbacks(kit.Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.store = knnlm.Store.from_arrays(cls.folder / "s", kit.points(1, 20000, 16), np.zeros(20000, int))

    def index(self, progress):
        return self.store.index.build(lists=32, progress=progress)

    def test_progress(self):
        told = []
        self.index(lambda *now: told.append(now))
        phases = {now[0] for now in told}
        self.assertTrue(phases and all(isinstance(p, str) for p in phases))
        self.assertTrue(all(0 <= done <= max(total, done) for _, done, total, _ in told))

    def test_false_stops(self):
        with self.says(knnlm.Stopped, ""):
            self.index(lambda *now: False)

    def test_exceptions_come_through(self):
        def fail(*now):
            raise LookupError("of my own")

        with self.assertRaisesRegex(LookupError, "of my own"):
            self.index(fail)

    def test_interrupts(self):
        def interrupt(*now):
            os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            self.index(interrupt)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        self.assertEqual(self.index(None).lists, 32)

    def test_what_is_called_may_not_use_the_model(self):
        text = self.folder / "long.txt"
        text.write_text(kit.REMEMBERED * 200)  # of short ones nothing is told
        model = knnlm.Model(kit.MODEL)

        def use(*now):
            self.assertGreater(len(model.encode("but this it may")), 2)
            model.score("not this")

        for name, function in (("used", use), ("closed", lambda *now: model.close())):
            with self.assertRaisesRegex(ValueError, "this (Model|Mixture) is at work"):
                knnlm.Store.build(self.folder / name, model, text, progress=function)
        self.assertFalse(model.closed)
        model.close()


if __name__ == "__main__":
    unittest.main()
