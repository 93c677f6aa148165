"""The class of models."""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _native, options as _options
from .answer import Answer, ChatAnswer
from .stream import ChatStream, Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self, TypeAlias, Unpack

    from .options import AnswerOptions, OpenOptions
    from .rope import Plan

#: A text, which may be in UTF-8, or its tokens.
Prompt: TypeAlias = Union[str, bytes, Sequence[int]]
#: Messages as in OpenAI's API, or the text of one message of the user.
Messages: TypeAlias = Union[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Perplexity:
    """The log-likelihoods of a text's tokens, and its perplexity."""

    #: e to the mean negative log-likelihood.
    value: float
    #: Natural logarithm of each scored token's probability: float64, (scored,).
    log_likelihoods: NDArray[np.float64]
    #: Position of each scored token in its window: uint64, (scored,).
    positions: NDArray[np.uint64]
    #: Index of each scored token in the text: uint64, (scored,).
    indices: NDArray[np.uint64]

    def by_position(self, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the perplexity of each `width` positions of a window.

        Returns:
            The middles of the ranges of positions, and the perplexity in each: float64, (ranges,).

        Raises:
            ValueError: If `width` is not at least 1.
        """
        _options.in_range("width", width, 1)
        buckets = self.positions // np.uint64(width)
        found, which = np.unique(buckets, return_inverse=True)
        means = np.bincount(which, weights=self.log_likelihoods) / np.bincount(which)
        return (found + 0.5) * width, np.exp(-means)


#: All models, whose locks another thread may have held when the process was forked.
_models: weakref.WeakSet[Model] = weakref.WeakSet()


class Model:
    """A GGUF model in memory, with one context for `generate`, `stream` and `chat`.

    The start of a prompt that the cache already holds is not computed again. Calls from several
    threads wait for each other; open the model with `parallel` for several streams at a time, and
    use `generate_batch` to answer many prompts. The GIL is
    released while the model computes, and Ctrl-C stops it within a step.

    Use it in a `with` block, or `close` it, to free its memory. After a fork, the child process cannot
    use the context of a model that its parent has used: open the model in the child.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Unpack[OpenOptions]) -> None:
        """Opens a model.

        Args:
            path: The GGUF file; of a split model, the first file.
            **options: The context (`ctx`), the RoPE method (`rope`) and its settings, the cache
                (`cache_type_k`, `cache_type_v`, `cache_disk`, `parallel`), drafts (`spec_type`,
                `spec_draft_model` ...), `threads`, `lora` ...: see `rope_cpu.options.OpenOptions`.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If an argument is invalid.
            TypeError: If an argument is unknown.
            MemoryError: If the model with its context does not fit in memory.
            rope_cpu.Error: If the file is invalid or not supported.
        """
        self._native = _native.Model(os.fspath(path), _options.opening(options))
        _warn(self._native)
        self._properties = self._native.properties()
        self._lock = threading.Lock()
        # The model with the context of a call, and what the call asked for.
        self._other: tuple[object, _native.Model] | None = None
        _models.add(self)

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Unpack[OpenOptions]) -> Self:
        """Opens a model, as `Model(path, ...)` does."""
        return cls(path, **options)

    def close(self) -> None:
        """Frees the model. Later calls raise a ValueError."""
        self._native.close()
        if self._other is not None:
            self._other[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Model {self.path}, ctx {self.ctx}>"

    @property
    def path(self) -> str:
        """The path of the file."""
        return str(self._properties["path"])

    @property
    def architecture(self) -> str:
        """The name of the architecture, such as `llama`."""
        return str(self._properties["architecture"])

    @property
    def ctx(self) -> int:
        """The context in tokens."""
        return int(self._properties["ctx"])

    @property
    def trained_ctx(self) -> int:
        """The context in tokens that the model was trained for."""
        return int(self._properties["trained_ctx"])

    @property
    def memory(self) -> int:
        """The memory in bytes that the model with a full context needs."""
        return int(self._properties["memory"])

    @property
    def vocabulary(self) -> int:
        """The number of tokens in the vocabulary."""
        return int(self._properties["vocabulary"])

    @property
    def embedding(self) -> int:
        """The width of embeddings."""
        return int(self._properties["embedding"])

    @property
    def threads(self) -> int:
        """The number of threads."""
        return int(self._properties["threads"])

    @property
    def bos(self) -> int | None:
        """The token that starts a text; None without one."""
        token: int | None = self._properties["bos"]
        return token

    @property
    def eos(self) -> int | None:
        """The token that ends a text; None without one."""
        token: int | None = self._properties["eos"]
        return token

    @property
    def metadata(self) -> dict[str, str | int | float | bool]:
        """The metadata of the file, without its lists."""
        return self._native.metadata()

    @property
    def rope(self) -> Plan:
        """The RoPE plan: frequencies, attention scale, and the source of each value."""
        return self._native.plan()

    def tokenize(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Returns the tokens of a text.

        Args:
            text: The text.
            add_special: Whether to add the tokens that start and end a text, if the model has them.
            parse_special: Whether names of control tokens in the text are those tokens. Use False
                for text that you do not trust.
        """
        data = text.encode() if isinstance(text, str) else text
        return self._native.tokenize(data, add_special, parse_special)

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Returns the text of tokens. Incomplete characters are replaced by U+FFFD.

        Args:
            tokens: The tokens.
            special: Whether control tokens are written by their names.
        """
        return self._native.detokenize(self._checked(tokens), special).decode(errors="replace")

    def generate(self, prompt: Prompt, **options: Unpack[AnswerOptions]) -> Answer:
        """Continues a prompt. For questions to a chat model, use `chat`.

        Args:
            prompt: A text, in which names of control tokens are those tokens, or its tokens.
            **options: Limits (`max_tokens`, `stop`, `time_max`), sampling (`temperature`, `top_k`,
                `top_p`, `min_p`, `seed` ...) and a form (`grammar`, `regex`, `json_schema`): see
                `AnswerOptions`. Names are as on the command line. `ctx` and `rope` replace those of
                `Model` for this call. The model keeps that context as well,
                until a call asks for another one.

        Returns:
            The text without the prompt: a `str` with `usage`, `tokens` and `finish_reason`.

        Raises:
            ValueError: If an argument is invalid, or the prompt is empty or does not fit.
            TypeError: If an argument is unknown.
            rope_cpu.Error: If computing fails, or a stream is open.
        """
        with self._lock:
            stream = self._stream(prompt, options)
            for _ in stream:
                pass
        answer = stream.answer
        assert answer is not None, "the stream has ended"
        return answer

    def stream(self, prompt: Prompt, **options: Unpack[AnswerOptions]) -> Stream:
        """Continues a prompt piece by piece. Arguments are as for `generate`.

        Returns:
            An iterator of texts. After the last one, its `answer` is the whole answer.
        """
        with self._lock:
            return self._stream(prompt, options)

    def _stream(self, prompt: Prompt, options: Mapping[str, Any]) -> Stream:
        native, options = self._for(options)
        return Stream(native.stream(self._tokens(prompt), _options.request(options), None))

    def _for(self, options: Mapping[str, Any]) -> tuple[_native.Model, dict[str, Any]]:
        """Returns the model with the context of a call, and the call's other options."""
        rest = dict(options)
        ctx, rope = rest.pop("ctx", None), rest.pop("rope", None)
        if rope is None and ctx in (None, self.ctx):
            return self._native, rest
        _options.in_range("ctx", ctx, 1, _options.CTX_MAX)
        method = None if rope is None else _options.rope(rope, {})
        if self._other is None or self._other[0] != (ctx, method):
            self._other = None
            other = self._native.with_context(ctx, method)
            _warn(other)
            self._other = ((ctx, method), other)
        return self._other[1], rest

    def _tokens(self, prompt: Prompt, parse_special: bool = True) -> list[int]:
        if isinstance(prompt, (str, bytes)):
            return self.tokenize(prompt, parse_special=parse_special)
        return self._checked(prompt)

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        """Returns tokens as a list, after checking that the vocabulary has each."""
        for token in tokens:
            _options.in_range("token", token, 0, self.vocabulary - 1)
        return list(tokens)

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        slots: int = 8,
        progress: Callable[[int, int], object] | None = None,
        **options: Unpack[AnswerOptions],
    ) -> list[Answer]:
        """Continues prompts side by side, which is faster than one after the other.

        Prompts that start alike share the computation of their start. Answers are as with
        `generate`, except that sampling differs if `seed` is not given.

        Args:
            prompts: The prompts.
            slots: How many answers are generated at a time, from 1 to 256; each has a context.
            progress: A function that is called with the number of finished answers and of all.
            **options: The settings of every answer, as for `generate`.

        Returns:
            The answers, in the order of the prompts.
        """
        _options.in_range("slots", slots, 1, 256)
        _options.several("prompts", prompts)
        with self._lock:
            native, rest = self._for(options)
            request = _options.request(rest)
            texts = [self._tokens(prompt) for prompt in prompts]
            outcomes = native.batch(texts, request, min(slots, max(len(texts), 1)), progress)
        return [Answer(outcome) for outcome in outcomes]

    def chat(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "auto",
        parallel_tool_calls: bool = False,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        enable_thinking: bool = True,
        reasoning_budget: int | None = None,
        **options: Unpack[AnswerOptions],
    ) -> ChatAnswer:
        """Answers the last message of a conversation.

        Args:
            messages: Messages as in OpenAI's API: `[{"role": "user", "content": "Hello!"}]`. A text
                is one message of the user.
            tools: The functions that the model may call, as in OpenAI's API.
            tool_choice: `auto`, `none`, `required`, or the name of the tool to call.
            parallel_tool_calls: Whether an answer may have several calls.
            chat_template: A Jinja template instead of the file's, or the name of a built-in one.
            chat_template_kwargs: Variables for the template.
            enable_thinking: Whether a reasoning model reasons before its answer.
            reasoning_budget: Maximum tokens of reasoning.
            **options: As for `generate`.

        Returns:
            The text: a `str` that also has `reasoning`, `tool_calls`, and `message`, which continues
            the conversation.

        Raises:
            ValueError: If an argument is invalid, or the template refuses the conversation.
            TypeError: If an argument is unknown.
            rope_cpu.Error: If computing fails, or a stream is open.
        """
        with self._lock:
            stream = self._chat_stream(
                messages, tools, tool_choice, parallel_tool_calls, chat_template,
                chat_template_kwargs, enable_thinking, reasoning_budget, options,
            )  # fmt: skip
            for _ in stream:
                pass
        answer = stream.answer
        assert answer is not None, "the stream has ended"
        return answer

    def chat_stream(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "auto",
        parallel_tool_calls: bool = False,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        enable_thinking: bool = True,
        reasoning_budget: int | None = None,
        **options: Unpack[AnswerOptions],
    ) -> ChatStream:
        """Answers the last message piece by piece. Arguments are as for `chat`.

        Returns:
            An iterator of pieces with a `kind` and a `text`. After the last one, its `answer` is
            the whole answer.
        """
        with self._lock:
            return self._chat_stream(
                messages, tools, tool_choice, parallel_tool_calls, chat_template,
                chat_template_kwargs, enable_thinking, reasoning_budget, options,
            )  # fmt: skip

    def _chat_stream(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: str,
        parallel_tool_calls: bool,
        chat_template: str | None,
        chat_template_kwargs: Mapping[str, Any] | None,
        enable_thinking: bool,
        reasoning_budget: int | None,
        options: Mapping[str, Any],
    ) -> ChatStream:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        _options.in_range("reasoning_budget", reasoning_budget, 0, hint=", or None for no limit")
        kwargs = dict(chat_template_kwargs or {})
        if not enable_thinking:
            kwargs.setdefault("enable_thinking", False)
        native, options = self._for(options)
        conversation = native.conversation(
            json.dumps(list(messages)),
            json.dumps(list(tools)),
            tool_choice,
            parallel_tool_calls,
            chat_template,
            json.dumps(kwargs),
            enable_thinking,
            reasoning_budget,
        )
        request = _options.request(options)
        stream = native.stream(conversation.tokens, request, conversation)
        return ChatStream(stream, conversation.parser())

    def logits(self, tokens: Prompt) -> NDArray[np.float32]:
        """Computes the logits after each token of a text.

        Returns:
            float32, (tokens, vocabulary): row i has the logits of the token after `tokens[i]`.
        """
        tokens = self._tokens(tokens)
        with self._lock:
            return self._native.logits(tokens)

    def perplexity(
        self,
        text: Prompt,
        *,
        window: int | None = None,
        stride: int | None = None,
        max_windows: int | None = None,
    ) -> Perplexity:
        """Computes how well the model predicts a text.

        Args:
            text: A text, in which names of control tokens are text, or its tokens.
            window: The number of tokens that are read at once. By default the context, but at most
                half of the text.
            stride: None for adjacent windows with the second half of each scored, as in
                llama.cpp's perplexity. Otherwise all tokens of the first window are scored, and the
                last `stride` tokens of each further one.
            max_windows: The maximum number of windows.

        Raises:
            ValueError: If the text is too short, or an argument is invalid.
        """
        tokens = self._tokens(text, parse_special=False)
        for name, value in [("window", window), ("stride", stride), ("max_windows", max_windows)]:
            _options.in_range(name, value, 1)
        if window is None:
            window = min(self.ctx, len(tokens) // 2)
        with self._lock:
            found = self._native.log_likelihoods(tokens, window, stride, max_windows)
        indices, positions, scores = found
        return Perplexity(float(np.exp(-scores.mean())), scores, positions, indices)

    def embed(
        self, texts: str | bytes | Sequence[Prompt], *, pooling: str | None = None, normalize: bool = True
    ) -> NDArray[np.float32]:
        """Computes the embeddings of texts.

        Args:
            texts: The texts, or one text.
            pooling: `mean`, `cls` or `last`. By default as trained, or else the mean.
            normalize: Whether embeddings are scaled to length 1.

        Returns:
            float32, (texts, width).
        """
        if pooling in ("none", "rank"):
            raise ValueError(f"pooling {pooling}: must be mean, cls or last; see embed_tokens")
        texts = [texts] if isinstance(texts, (str, bytes)) else texts
        if not texts:
            return np.empty((0, self.embedding), np.float32)
        tokens = [self._tokens(text) for text in texts]
        with self._lock:
            return np.concatenate(self._native.embed(tokens, pooling, normalize))

    def embed_tokens(self, text: Prompt) -> NDArray[np.float32]:
        """Computes the embedding of each token of a text, without pooling.

        Returns:
            float32, (tokens, width).
        """
        tokens = self._tokens(text)
        with self._lock:
            return self._native.embed([tokens], "none", False)[0]


def _renew_locks() -> None:
    """Frees the locks of threads that a fork has not copied."""
    for model in _models:
        model._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _warn(native: _native.Model) -> None:
    """Shows the warnings of a RoPE plan, at the line outside of the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("rope_cpu."):
        frame, level = frame.f_back, level + 1
    for warning in native.plan().warnings:
        warnings.warn(warning.replace("`", ""), stacklevel=level)
