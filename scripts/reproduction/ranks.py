"""Spearman's rank correlation and its bootstrap interval."""

import random

RESAMPLES = 2000


def ranks(values):
    """Ranks from 1; equal values share their mean rank."""
    ordered = sorted(values)
    first, count = {}, {}
    for i, value in enumerate(ordered, 1):
        first.setdefault(value, i)
        count[value] = count.get(value, 0) + 1
    return [first[value] + (count[value] - 1) / 2 for value in values]


def correlation(xs, ys):
    """Pearson's; None if one side does not vary."""
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    products = sum((a - x) * (b - y) for a, b in zip(xs, ys))
    squares = sum((a - x) ** 2 for a in xs) * sum((b - y) ** 2 for b in ys)
    return products / squares**0.5 if squares else None


def spearman(groups):
    """Of the ranks within each group, as shares, so that groups of any size and unit count alike."""
    xs, ys = [], []
    for points in groups:
        for side, axis in ((xs, 0), (ys, 1)):
            found = ranks([point[axis] for point in points])
            side.extend((rank - 0.5) / len(points) for rank in found)
    return correlation(xs, ys)


def interval(groups):
    """The middle 95 % of the correlation, with the points of each group drawn again."""
    draw = random.Random(0)
    again = (spearman([draw.choices(points, k=len(points)) for points in groups]) for _ in range(RESAMPLES))
    found = sorted(value for value in again if value is not None)
    return found[round(0.025 * len(found))], found[round(0.975 * len(found)) - 1]
