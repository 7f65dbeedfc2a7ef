"""A text as HTML, each token coloured by what its neighbours changed: green where they helped, red where they hurt."""

from __future__ import annotations

import html
import math
from typing import Any

from .model import Model


def colour(gain: float) -> str:
    """Of a difference in log p: the more, the stronger; nothing below a hundredth."""
    strength = min(1.0, abs(gain) / 3)
    if strength < 0.01 / 3:
        return "transparent"
    red, green, blue = (46, 160, 67) if gain > 0 else (207, 54, 46)
    return f"rgba({red}, {green}, {blue}, {0.15 + 0.6 * strength:.2f})"


def token_html(text: str, row: Any) -> str:
    gain = float(row["p"] - row["lm"])
    title = f"p {_percent(row['p'])}, model {_percent(row['lm'])}, neighbours {_percent(row['knn'])}, lambda {row['lambda']:.2f}"
    return f'<span style="background: {colour(gain)}" title="{html.escape(title)}">{html.escape(text)}</span>'


def _percent(logarithm: float) -> str:
    return "-" if math.isnan(logarithm) else f"{100 * math.exp(logarithm):.2f}%"


def coloured(model: Model, rows: Any) -> str:
    """HTML of the tokens of Mixture.rows(): a <p> to put into a page or a notebook (IPython.display.HTML)."""
    pieces = _texts(model, rows["token"])
    body = "".join(token_html(piece, row) for piece, row in zip(pieces, rows))
    return f'<p style="white-space: pre-wrap; line-height: 1.6">{body}</p>'


def _texts(model: Model, tokens: Any) -> list[str]:
    """The text of each token; of a character that several make up, the last has it."""
    pieces, held = [], []
    for token in tokens:
        held.append(int(token))
        text = model.decode(held)
        if text.endswith("\ufffd") and len(held) < 8:
            pieces.append("")
            continue
        pieces.append(text)
        held = []
    if held:
        pieces[-1] = model.decode(held)
    return pieces
