"""Models of the Hugging Face Hub."""

from __future__ import annotations

import os
from collections.abc import Callable

from . import _native


def download(
    repo: str,
    filename: str | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[str, int, int], object] | None = None,
) -> str:
    """Downloads a model, unless it is in the cache. Ctrl-C stops it, and a later call resumes.

    Args:
        repo: `"USER/MODEL"`, or `"USER/MODEL:QUANT"`. Without a quant: Q4_K_M, else Q8_0, else the
            first model file.
        filename: The file, instead of a quant. `*` stands for any text: `"*Q8_0.gguf"`.
        cache_dir: The cache. By default that of the hub's own programs: see LLAMA_CACHE, HF_HUB_CACHE, HF_HOME.
        progress: A function that is called with the name of a file, the bytes that have arrived, and
            its size.

    Returns:
        The path of the model, or of its first part. HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE act as
        with the hub's own programs.

    Raises:
        ValueError: If there is no such model or file.
        rope_cpu.Error: If the download fails.
    """
    cache = None if cache_dir is None else os.fspath(cache_dir)
    return os.fspath(_native.download(repo, filename, cache, progress))
