"""Answers: texts with their tokens, their usage, and why they ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

    from . import _native

#: The reasons of OpenAI's API for the library's reasons.
_FINISH_REASONS = {
    "model": "stop",
    "stop": "stop",
    "complete": "stop",
    "max_tokens": "length",
    "context": "length",
    "closed": "closed",
}


@dataclass(frozen=True)
class Usage:
    """The tokens and seconds that an answer took."""

    #: Tokens of the prompt, reused ones included.
    prompt_tokens: int
    #: Generated tokens.
    completion_tokens: int
    #: Tokens of the prompt that were found in the cache.
    cached_tokens: int
    #: Seconds of prompt processing.
    prompt_seconds: float
    #: Seconds of generation.
    completion_seconds: float

    @property
    def total_tokens(self) -> int:
        """Tokens of the prompt and the answer."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second; 0 without any."""
        return self.completion_tokens / self.completion_seconds if self.completion_seconds else 0.0


class Answer(str):
    """A generated text. It is a `str` with attributes.

    Attributes:
        tokens: The generated tokens.
        end: Why it ended: `model`, `stop`, `complete` (a grammar allows no more), `max_tokens`,
            `context` (it is full) or `closed`.
        finish_reason: The same in OpenAI's words: `stop`, `length` or `closed`.
        stop: The stop string that ended it, or None.
        seed: The seed of its random numbers.
        usage: Its tokens and seconds.
    """

    tokens: list[int]
    end: str
    finish_reason: str
    stop: str | None
    seed: int
    usage: Usage

    def __new__(cls, outcome: _native.Outcome, text: str | None = None) -> Self:
        answer = super().__new__(cls, outcome.text if text is None else text)
        answer.tokens = outcome.tokens
        answer.end = outcome.end
        answer.finish_reason = _FINISH_REASONS[outcome.end]
        answer.stop = outcome.stop
        answer.seed = outcome.seed
        answer.usage = Usage(
            prompt_tokens=outcome.reused + outcome.read,
            completion_tokens=outcome.generated,
            cached_tokens=outcome.reused,
            prompt_seconds=outcome.prompt_seconds,
            completion_seconds=outcome.seconds,
        )
        return answer

    def __reduce__(self) -> tuple[Any, ...]:
        """Returns how `pickle` and `copy` make the answer again."""
        return _restored, (type(self), str(self), vars(self))


def _restored(kind: type[Answer], text: str, attributes: dict[str, Any]) -> Answer:
    answer = str.__new__(kind, text)
    vars(answer).update(attributes)
    return answer


@dataclass
class ToolCall:
    """A call of a tool."""

    #: Identifier that the result refers to.
    id: str
    #: Name of the tool.
    name: str
    #: Arguments as JSON.
    arguments: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the call as a message contains it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class ChatAnswer(Answer):
    """An answer in a conversation. The text is what the model says to the user.

    Attributes:
        reasoning: The text of the model's reasoning.
        tool_calls: The tools that the model calls.
    """

    reasoning: str
    tool_calls: list[ToolCall]

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message, to continue the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": str(self)}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        return message
