"""RoPE methods: their frequencies, their settings, and where each value comes from.

>>> from rope_cpu import rope                                 # doctest: +SKIP
>>> plan = rope.plan("model.gguf", ctx=32768, rope="yarn")    # doctest: +SKIP
>>> plan.factor, plan.sources["factor"]                       # doctest: +SKIP
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import _native, options as _options
from ._native import Plan

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .model import Model
    from .options import Rope
    from .settings import RopeOptions

__all__ = ["Plan", "plan", "settings"]


def plan(
    model: str | os.PathLike[str] | Model,
    ctx: int | None = None,
    rope: Rope | None = None,
    **options: Unpack[RopeOptions],
) -> Plan:
    """Resolves the RoPE settings of a model in a context. Nothing is computed with the model.

    Args:
        model: The path of a GGUF file, or an open model, whose settings hold unless others are given.
        ctx: The context in tokens. By default as trained, or the largest that fits in memory.
        rope: The method: `"yarn"`, `"yarn:4"`, `"yarn:4:yarn-ramp=turns"`, or a dict of settings
            with `"method"`.
        **options: Further settings: see `settings()`.

    Returns:
        The plan: `frequencies` and `trained_frequencies` (float64, one per pair, in radians per
        position), `attention_scale`, `factor`, `base`, `context`, the `sources` of these values, and
        `warnings`.

    Raises:
        ValueError: If settings contradict each other or the file.
    """
    from .model import Model

    if isinstance(model, Model):
        method = None if rope is None and not options else _options.rope(rope, options)
        return model._native.with_context(ctx, method).plan()
    with Model.open(model, ctx=ctx, rope=rope, **options) as opened:
        return opened.rope


def settings() -> dict[str, str]:
    """Returns the name and the description of each RoPE setting."""
    return dict(_native.rope_settings())
