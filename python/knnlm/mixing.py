"""The paper's equation in NumPy, for models of one's own: log p from log p_LM and log p_kNN, and the lambda that suits a text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def mix(lm: Any, knn: Any, lambda_: Any) -> NDArray[np.float64]:
    """log((1 - lambda) e^lm + lambda e^knn), where -inf is a probability of 0. Any shapes that go together."""
    lm, knn, lambda_ = (np.asarray(x, np.float64) for x in (lm, knn, lambda_))
    if np.any((lambda_ < 0) | (lambda_ > 1)):
        raise ValueError("lambda is from 0 to 1")
    with np.errstate(divide="ignore"):
        mixed: NDArray[np.float64] = np.logaddexp(np.log1p(-lambda_) + lm, np.log(lambda_) + knn)
    return mixed


def perplexity(logprobs: Any) -> float:
    """e to the mean of -log p."""
    return float(np.exp(-np.mean(np.asarray(logprobs, np.float64))))


def best_lambda(lm: Any, knn: Any) -> float:
    """The lambda under which these tokens are most probable: there is one maximum, where the slope of the likelihood changes its sign,
    and that is found by bisection."""
    with np.errstate(invalid="ignore"):
        gap = np.asarray(knn, np.float64) - np.asarray(lm, np.float64)  # log of p_kNN / p_LM
    if gap.size == 0:
        raise ValueError("no tokens to find lambda by")
    if np.isnan(gap).any():
        raise ValueError("tokens without a probability, or impossible by both")
    low, high = 0.0, 1.0
    if _slope(gap, low) <= 0:
        return low
    if _slope(gap, high) >= 0:
        return high
    for _ in range(50):
        lambda_ = (low + high) / 2
        low, high = (lambda_, high) if _slope(gap, lambda_) > 0 else (low, lambda_)
    return low


def _slope(gap: NDArray[np.float64], lambda_: float) -> float:
    """Of the mean of log((1 - lambda) + lambda e^gap), in the form that does not overflow."""
    small = np.exp(-np.abs(gap))
    with np.errstate(divide="ignore", over="ignore"):  # at 0 and 1 where one of the two says that a token is impossible, or nearly so
        worse = (small - 1) / (1 - lambda_ + lambda_ * small)
        better = (1 - small) / ((1 - lambda_) * small + lambda_)
        return float(np.mean(np.where(gap < 0, worse, better)))


def lambda_curve(lm: Any, knn: Any, lambdas: Any = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lambdas (0 to 1 by default, a hundred steps) and the perplexity by each."""
    lambdas = np.linspace(0, 1, 101) if lambdas is None else np.asarray(lambdas, np.float64)
    return lambdas, np.array([perplexity(mix(lm, knn, x)) for x in lambdas])
