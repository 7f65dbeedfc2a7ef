#!/usr/bin/python3
"""A look at one store, cell by cell: the curve over lambda, the neighbours of a context, a text coloured by what they changed.
    examples/notebook.py [--model MODEL] [--out FOLDER] [REMEMBERED [ASKED]]
Editors that know "# %%" run it as a notebook. Leaves lambda.png and text.html in FOLDER. Needs python3-matplotlib."""

# %% What is remembered, and what is asked
import argparse
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import knnlm

HERE = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("remembered", nargs="?", default=HERE / "docs" / "theory.md")
parser.add_argument("asked", nargs="?", default=HERE / "docs" / "format.md")
parser.add_argument("--model", default=HERE / "models" / "small.gguf")
parser.add_argument("--out", type=pathlib.Path, default=HERE / "build" / "notebook")
given = parser.parse_args()
given.out.mkdir(parents=True, exist_ok=True)

# %% A store: every context of the text, with the word that followed. Run again, it is found as it is.
model = knnlm.Model(given.model)
store = knnlm.Store.build(given.out / "text.store", model, given.remembered)
print(store, store.last_build)

# %% The curve over lambda: what perplexity would be by each weight of the neighbours
tuned = knnlm.Mixture(model, store).tune(given.asked, dry_run=True)
print(f"model alone {tuned.ppl_lm:.2f}, with one lambda {tuned.ppl:.2f}, by the gate {tuned.ppl_gate:.2f}")
figure, axes = plt.subplots(figsize=(6, 4))
axes.plot(tuned.lambdas[:-1], tuned.by_lambda[:-1])
axes.axvline(tuned.tuned.lambda_, linestyle=":", color="grey", label=f"best: λ = {tuned.tuned.lambda_:.2f}, {tuned.ppl:.1f}")
axes.axhline(tuned.ppl_lm, linestyle="--", color="grey", label=f"model alone: {tuned.ppl_lm:.1f}")
axes.legend(loc="upper center")
axes.set(xlabel="λ", ylabel="perplexity per token", title=f"{pathlib.Path(given.asked).name} with {pathlib.Path(given.remembered).name}")
figure.savefig(given.out / "lambda.png", dpi=120, bbox_inches="tight")

# %% The neighbours of a context: where they come from, and what followed
mixture = knnlm.Mixture(model, store)
explained = mixture.explain("The model reads the", neighbors=5)
for word in explained.words[:5]:
    print(f"{word.p:8.4f}  (model {word.lm:.4f}, neighbours {word.knn:.4f})  {word.text!r}")
for neighbor in explained.neighbors:
    origin = neighbor.origin
    print(f"{neighbor.share:6.1%}  {origin.before[-50:]!r} -> {origin.word!r}  ({origin.document.name}, token {origin.entry.position})")

# %% A text, each token coloured by what its neighbours changed
text = pathlib.Path(given.asked).read_text(encoding="utf-8")[:3000]
page = knnlm.coloured(model, mixture.rows(text))
legend = "<p><i>Green: more probable by its neighbours; red: less. Point at a token for its probabilities.</i></p>"
head = f"<!doctype html><meta charset=utf-8><title>{pathlib.Path(given.asked).name}</title>"
(given.out / "text.html").write_text(f"{head}{legend}{page}\n", encoding="utf-8")
print(f"{given.out}: lambda.png, text.html")
model.close()
