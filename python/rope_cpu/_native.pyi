import os
from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

__version__: str

__all__ = [
    "Conversation",
    "Error",
    "Model",
    "Outcome",
    "Parser",
    "Plan",
    "Stream",
    "__version__",
    "download",
    "rope_settings",
]

class Error(Exception): ...

def download(
    repo: str,
    file: str | None,
    cache: str | os.PathLike[str] | None,
    progress: Callable[[str, int, int], object] | None,
) -> str: ...
def rope_settings() -> list[tuple[str, str]]: ...
@final
class Plan:
    @property
    def method(self) -> str: ...
    @property
    def factor(self) -> float: ...
    @property
    def base(self) -> float: ...
    @property
    def context(self) -> int: ...
    @property
    def trained_context(self) -> int: ...
    @property
    def attention_scale(self) -> float: ...
    @property
    def frequencies(self) -> NDArray[np.float64]: ...
    @property
    def trained_frequencies(self) -> NDArray[np.float64]: ...
    @property
    def sources(self) -> dict[str, str]: ...
    @property
    def warnings(self) -> list[str]: ...

@final
class Outcome:
    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> list[int]: ...
    @property
    def end(self) -> str: ...
    @property
    def stop(self) -> str | None: ...
    @property
    def seed(self) -> int: ...
    @property
    def reused(self) -> int: ...
    @property
    def read(self) -> int: ...
    @property
    def generated(self) -> int: ...
    @property
    def prompt_seconds(self) -> float: ...
    @property
    def seconds(self) -> float: ...

@final
class Stream:
    def __iter__(self) -> Self: ...
    def __next__(self) -> str: ...
    def close(self) -> None: ...
    @property
    def outcome(self) -> Outcome | None: ...

@final
class Parser:
    def push(self, piece: str) -> list[tuple[str, str, str]]: ...
    def finish(self) -> list[tuple[str, str, str]]: ...

@final
class Conversation:
    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> list[int]: ...
    def parser(self) -> Parser: ...

@final
class Model:
    def __new__(
        cls,
        path: str,
        *,
        ctx: int | None,
        rope: str | None,
        settings: list[tuple[str, str]],
        context_shift: bool,
        cache_type_k: str,
        cache_type_v: str,
        threads: int | None,
        ubatch_size: int,
        memory_check: bool,
        override_kv: list[str],
        lora: list[tuple[str, float]],
        parallel: int,
        cache_disk: str | None,
    ) -> Self: ...
    def with_context(
        self, ctx: int | None, rope: tuple[str | None, list[tuple[str, str]]] | None
    ) -> Model: ...
    def close(self) -> None: ...
    def properties(self) -> dict[str, Any]: ...
    def metadata(self) -> dict[str, str | int | float | bool]: ...
    def plan(self) -> Plan: ...
    def tokenize(self, text: bytes, add_special: bool, parse_special: bool) -> list[int]: ...
    def detokenize(self, tokens: list[int], special: bool) -> bytes: ...
    def logits(self, tokens: list[int]) -> NDArray[np.float32]: ...
    def log_likelihoods(
        self, tokens: list[int], window: int, stride: int | None, windows_max: int | None
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.float64]]: ...
    def embed(
        self, texts: list[list[int]], pooling: str | None, normalize: bool
    ) -> list[NDArray[np.float32]]: ...
    def conversation(
        self,
        messages: str,
        tools: str,
        tool_choice: str,
        parallel_tool_calls: bool,
        template: str | None,
        template_kwargs: str,
        enable_thinking: bool,
        reasoning_budget: int | None,
    ) -> Conversation: ...
    def stream(
        self, prompt: list[int], request: dict[str, Any], conversation: Conversation | None
    ) -> Stream: ...
    def batch(
        self,
        prompts: list[list[int]],
        request: dict[str, Any],
        slots: int,
        progress: Callable[[int, int], object] | None,
    ) -> list[Outcome]: ...
