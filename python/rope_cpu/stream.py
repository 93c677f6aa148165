"""Answers piece by piece, while they are generated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .answer import Answer, ChatAnswer, ToolCall

if TYPE_CHECKING:
    from typing_extensions import Self

    from . import _native


class Stream(Iterator[str]):
    """An iterator over the pieces of an answer.

    Until the stream has ended, its model computes nothing else, unless it was opened with `parallel`.
    Closing it stops the answer, as do the end of a `with` block and Ctrl-C.
    """

    def __init__(self, native: _native.Stream) -> None:
        self._native = native

    def __next__(self) -> str:
        return next(self._native)

    def close(self) -> None:
        """Stops the answer, unless it has ended."""
        self._native.close()

    @property
    def answer(self) -> Answer | None:
        """The whole answer; None until the stream has ended."""
        outcome = self._native.outcome
        return None if outcome is None else Answer(outcome)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ChatPiece(NamedTuple):
    """A piece of an answer in a conversation."""

    #: `text`, `reasoning`, `call` (a tool call starts), `arguments` (of it) or `end` (of it).
    kind: str
    #: The text; of a call, the tool's name.
    text: str
    #: The identifier of a call that starts.
    id: str = ""


class ChatStream(Iterator[ChatPiece]):
    """An iterator over the pieces of an answer in a conversation. See `Stream`."""

    def __init__(self, native: _native.Stream, parser: _native.Parser) -> None:
        self._native = native
        self._parser = parser
        self._pieces: list[ChatPiece] = []
        self._text = ""
        self._reasoning = ""
        self._calls: list[ToolCall] = []

    def __next__(self) -> ChatPiece:
        while not self._pieces:
            piece = next(self._native, None)
            parts = self._parser.finish() if piece is None else self._parser.push(piece)
            self._add(parts)
            if piece is None and not self._pieces:
                raise StopIteration
        return self._pieces.pop(0)

    def _add(self, parts: list[tuple[str, str, str]]) -> None:
        for kind, text, call in parts:
            if kind == "text":
                self._text += text
            elif kind == "reasoning":
                self._reasoning += text
            elif kind == "call":
                self._calls.append(ToolCall(call, text, ""))
            elif kind == "arguments" and self._calls:
                self._calls[-1].arguments += text
            self._pieces.append(ChatPiece(kind, text, call))

    def close(self) -> None:
        """Stops the answer, unless it has ended."""
        self._native.close()

    @property
    def answer(self) -> ChatAnswer | None:
        """The whole answer; None until the stream has ended."""
        outcome = self._native.outcome
        if outcome is None:
            return None
        self._add(self._parser.finish())
        answer = ChatAnswer(outcome, self._text)
        answer.reasoning = self._reasoning
        answer.tool_calls = self._calls
        if self._calls and answer.finish_reason == "stop":
            answer.finish_reason = "tool_calls"
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
