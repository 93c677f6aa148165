"""How far apart two sets of logits are, and whether that is allowed."""
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

ROWS = 32  # at a time, to bound the memory that the f64 copies take


@dataclass
class Distance:
    """Of logits from a reference's, both (tokens, vocabulary)."""
    mean_kl: float     # mean over tokens of KL(reference || ours), nats
    diff_999: float    # 99.9 % of the logit differences are at most this, rounded up by 0.8 % at most
    same_top: float    # share of tokens whose most probable successor is the same

    def __str__(self):
        return f"mean KL {self.mean_kl:.1e}, 99.9 % of differences within {self.diff_999:.1e}, same top {self.same_top:.1%}"


def distance(reference, ours):
    """A NaN or an infinity in `ours` makes a distance that is below no bound."""
    assert reference.shape == ours.shape, f"{reference.shape} and {ours.shape}"
    if not np.isfinite(ours).all():
        return Distance(np.inf, np.inf, 0.0)

    def of_rows(start):
        a, b = reference[start:start + ROWS], ours[start:start + ROWS]
        # A histogram by the upper half of the f32 bits: the exponent and 7 bits of the fraction.
        counts = np.bincount((np.abs(a - b).view(np.uint32) >> 16).ravel(), minlength=1 << 16)
        same = int((a.argmax(axis=1) == b.argmax(axis=1)).sum())
        p, q = log_softmax(a), log_softmax(b)
        return float((np.exp(p) * (p - q)).sum()), same, counts

    with ThreadPoolExecutor(2) as threads:
        kl, same, counts = map(sum, zip(*threads.map(of_rows, range(0, len(reference), ROWS))))
    bucket = int(np.searchsorted(np.cumsum(counts), 0.999 * reference.size))
    upper = np.uint32((bucket + 1) << 16).view(np.float32)
    return Distance(kl / len(reference), float(upper), same / len(reference))


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


SPAN = 16.0  # nats below the likeliest, the least that llama-perplexity saves


def as_saved(rows):
    """Logits as the log-probabilities that `rope-cpu perplexity` saves, but for their rounding."""
    rows = log_softmax(rows)
    return np.maximum(rows, rows.max(axis=1, keepdims=True) - SPAN).astype(np.float32)


class Report:
    """Prints each finding beside its bound, and remembers what failed."""

    def __init__(self):
        self.failures = []

    def at_most(self, what, value, bound):
        self._note(what, value <= bound, f"{value:.2e} (at most {bound:.2e})")

    def at_least(self, what, value, bound):
        self._note(what, value >= bound, f"{value:.2e} (at least {bound:.2e})")

    def _note(self, what, good, figures):
        print(f"{'ok    ' if good else 'FAILED'} {what}: {figures}", flush=True)
        if not good:
            self.failures.append(what)
