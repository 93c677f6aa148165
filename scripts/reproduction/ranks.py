"""Spearman's rank correlation, its bootstrap intervals and its p value."""

import itertools
import math
import random

RESAMPLES = 2000
# Above this number of points, p is from random orders.
EXACT, ORDERS = 8, 10_000


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
    return middle(lambda draw: [draw.choices(points, k=len(points)) for points in groups])


def interval_of_sources(sources):
    """The same with whole sources drawn again: lists of groups that depend on each other."""
    return middle(lambda draw: [group for groups in draw.choices(sources, k=len(sources)) for group in groups])


def middle(resample):
    draw = random.Random(0)
    again = (spearman(resample(draw)) for _ in range(RESAMPLES))
    found = sorted(value for value in again if value is not None)
    return found[round(0.025 * len(found))], found[round(0.975 * len(found)) - 1]


def significance(points):
    """p of the correlation, two-sided: the share of all orders of one side that correlate as much."""
    xs, ys = (ranks([point[axis] for point in points]) for axis in (0, 1))
    if correlation(xs, ys) is None:
        return None
    if len(points) <= EXACT:
        orders, more = itertools.permutations(ys), 0
        count = math.factorial(len(points))
    else:
        draw = random.Random(0)
        orders, more = (draw.sample(ys, len(ys)) for _ in range(ORDERS)), 1
        count = ORDERS + 1
    # Only the sum of products depends on the order.
    center = sum(xs) * sum(ys) / len(xs)
    least = abs(sum(x * y for x, y in zip(xs, ys)) - center) - 1e-9
    return (more + sum(abs(sum(x * y for x, y in zip(xs, order)) - center) >= least for order in orders)) / count
