"""Log-probabilities of tokens, in the shape of OpenAI's completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .model import Model


def logprobs(
    model: Model, before: Sequence[int], tokens: Sequence[int], top: int, offset: int
) -> dict[str, Any]:
    """Computes the log-probabilities of tokens after a text.

    Args:
        model: The model.
        before: The tokens of the text. Without any, the first of `tokens` has no probability.
        tokens: The tokens to score.
        top: How many of the most likely tokens are listed for each.
        offset: The length of the text, at which the first token starts.
    """
    logits = model.logits([*before, *tokens]) if tokens else np.empty((0, model.vocabulary), np.float32)
    found: dict[str, Any] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
    for index, token in enumerate(tokens, len(before)):
        text = model.detokenize([token], special=True)
        found["text_offset"].append(offset)
        found["tokens"].append(text)
        offset += len(text)
        if index == 0:
            found["token_logprobs"].append(None)
            found["top_logprobs"].append(None)
            continue
        row = logits[index - 1].astype(np.float64)
        row -= row.max()
        row -= np.log(np.exp(row).sum())
        likely = np.argsort(-row, kind="stable")[:top]
        listed = {model.detokenize([int(other)], special=True): float(row[other]) for other in likely}
        listed[text] = float(row[token])
        found["token_logprobs"].append(float(row[token]))
        found["top_logprobs"].append(listed)
    return found
