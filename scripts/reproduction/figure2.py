#!/usr/bin/env python3
"""Figure 2 of the PI paper: scores fitted to random points within 2,048 positions, and beyond them.

The fit has 128 unknowns that nearly depend on each other, so rounding decides how high the scores rise. This prints the
largest score inside and outside the fitted positions, by the normal equations as in the paper's listing.

usage: $(scripts/python-tools) scripts/reproduction/figure2.py
"""
import numpy as np

DIMENSIONS, FITTED, SEEDS = 128, 2048, 3


def basis(positions, kind):
    """The sines and cosines of each pair at these positions."""
    frequencies = 10000.0 ** (-np.arange(0, DIMENSIONS, 2) / DIMENSIONS)
    angles = np.outer(positions.astype(kind), frequencies.astype(kind))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


for kind in (np.float32, np.float64):
    inside, everywhere = basis(np.arange(FITTED), kind), basis(np.arange(2 * FITTED), kind)
    singular = np.linalg.svd(inside, compute_uv=False)
    print(f"{kind.__name__}: condition number {singular[0] / singular[-1]:.0e}")
    for seed in range(SEEDS):
        points = np.random.default_rng(seed).standard_normal(FITTED).astype(kind)
        scores = everywhere @ np.linalg.solve(inside.T @ inside, inside.T @ points)
        print(f"  up to {abs(scores[:FITTED]).max():.2f} inside, {abs(scores[FITTED:]).max():.0f} outside")
