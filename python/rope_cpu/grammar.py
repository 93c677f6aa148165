"""The grammars of llama-cpp-python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from typing_extensions import Self, TypeAlias


class LlamaGrammar:
    """A grammar for answers of `Llama`, as `llama_cpp.LlamaGrammar`."""

    def __init__(self, option: str, text: str) -> None:
        """Use `from_string`, `from_file` or `from_json_schema`."""
        self._option = option
        self._text = text

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> Self:
        """Returns a grammar in GBNF, or in Lark after `%llguidance`."""
        return cls("grammar", grammar)

    @classmethod
    def from_file(cls, file: str | os.PathLike[str], verbose: bool = True) -> Self:
        """Returns the grammar in a file."""
        return cls.from_string(Path(file).read_text(encoding="utf-8"))

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> Self:
        """Returns the grammar of a JSON schema."""
        return cls("json_schema", json_schema)


#: A grammar, or its text in GBNF.
Grammar: TypeAlias = Union[str, LlamaGrammar]


def options(grammar: Grammar | None) -> dict[str, Any]:
    """Returns the option of an answer for a grammar."""
    if isinstance(grammar, LlamaGrammar):
        return {grammar._option: grammar._text}
    return {} if grammar is None else {"grammar": grammar}
