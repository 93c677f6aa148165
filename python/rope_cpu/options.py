"""Keyword arguments: their names, their types, and how they reach the library."""

from __future__ import annotations

import difflib
import json
import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from .settings import RopeOptions, RunOptions, SamplingOptions

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

#: A RoPE method: its name, its name with settings (`"yarn:4"`), or settings with `"method"`.
Rope: TypeAlias = Union[str, Mapping[str, Any]]


class OpenOptions(RopeOptions, RunOptions, total=False):
    """The arguments of `Model`, except the file. `None` stands for the default of each."""

    #: The context in tokens. By default as trained, or the largest that fits in memory.
    ctx: int | None
    #: The RoPE method, for a context longer than trained: `"auto"`, `"yarn"`, `"yarn:4"`,
    #: `"yarn:4:yarn-ramp=turns"`, or a dict of settings with `"method"`.
    rope: Rope | None
    #: Whether the oldest tokens are removed when the context is full. By default no.
    context_shift: bool | None
    #: The number of threads, from 1 to 1024. By default one per performance core.
    threads: int | None
    #: The maximum tokens of a prompt that are computed in one pass. By default 512.
    ubatch_size: int | None
    #: Whether a model that does not fit in memory is an error. By default yes.
    memory_check: bool | None
    #: Metadata that replaces the file's, as `KEY=TYPE:VALUE`.
    override_kv: Sequence[str] | None
    #: Files of adapters, or pairs of a file and its scale.
    lora: Sequence[str | os.PathLike[str] | tuple[str | os.PathLike[str], float]] | None
    #: The maximum number of streams that are open at a time. They share the cache, which has room
    #: for as many contexts as fit in memory. By default 1.
    parallel: int | None
    #: A folder that keeps conversations: a later run continues from their keys and values. Its files
    #: contain the text.
    cache_disk: str | os.PathLike[str] | None


class AnswerOptions(SamplingOptions, total=False):
    """The settings of an answer."""

    #: The context in tokens, instead of that of the model.
    ctx: int | None
    #: The RoPE method, instead of that of the model.
    rope: Rope | None
    #: Maximum tokens; `None` for no limit except the context.
    max_tokens: int | None
    #: Maximum seconds of generation.
    time_max: float | None
    #: Texts that end the answer; they are not part of it.
    stop: str | Sequence[str] | None
    #: Seed of random numbers, from 0 to 2**32 - 2; `None` for a random one.
    seed: int | None
    #: Samplers in order, by name: `["top_k", "temperature"]`.
    samplers: Sequence[str] | None
    #: Numbers that are added to the logits of tokens.
    logit_bias: Mapping[int, float] | None
    #: Texts at which a repetition ends, for DRY.
    dry_sequence_breaker: Sequence[str] | None
    #: A grammar in GBNF, or in Lark after `%llguidance`.
    grammar: str | None
    #: A regular expression that the answer matches.
    regex: str | None
    #: A JSON schema that the answer follows, as an object or its text.
    json_schema: Mapping[str, Any] | str | None
    #: Whether tokens that end the answer are never chosen.
    ignore_eos: bool
    #: Whether control tokens are part of the text.
    special: bool


_ROPE = set(RopeOptions.__annotations__)
_RUN = set(RunOptions.__annotations__)
#: Arguments of `Model.open` that a call does not have.
_OPENING = set(OpenOptions.__annotations__) - {"ctx", "rope"}
#: The maximum of a context.
CTX_MAX = 4_194_304
#: The least and the greatest value of whole numbers of `Model.open`.
_RANGES = {"ctx": (1, CTX_MAX), "threads": (1, 1024), "ubatch_size": (1, CTX_MAX), "parallel": (1, 256)}

#: The form that the extension module takes, of arguments that have others.
_FORMS: Mapping[str, Callable[[Any], object]] = {
    "stop": lambda stops: [stops] if isinstance(stops, str) else list(stops),
    "samplers": lambda names: names if isinstance(names, str) else ";".join(names),
    "logit_bias": lambda biases: [(int(token), bias) for token, bias in biases.items()],
    "json_schema": lambda schema: schema if isinstance(schema, str) else json.dumps(schema),
}


_OPENING_FORMS: Mapping[str, Callable[[Any], object]] = {
    "override_kv": list,
    "lora": lambda files: [
        (os.fspath(file), scale)
        for file, scale in (file if isinstance(file, tuple) else (file, 1.0) for file in files)
    ],
    "cache_disk": os.fspath,
}


def request(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of an answer for the extension module."""
    for name in options.keys() & _OPENING:
        setting = f', or rope={{"method": ..., "{name}": ...}}' if name in _ROPE else ""
        raise TypeError(f"unexpected keyword argument {name!r}: it belongs to Model.open{setting}")
    refuse_unknown(options, AnswerOptions.__annotations__)
    given = {name: value for name, value in options.items() if value is not None}
    grammars = [name for name in ("grammar", "regex", "json_schema") if name in given]
    in_range("max_tokens", given.get("max_tokens"), 1, hint=", or None for no limit")
    in_range("seed", given.get("seed"), 0, 2**32 - 2)
    if len(grammars) > 1:
        raise ValueError(f"{grammars[0]} and {grammars[1]} exclude each other: remove one of them")
    sampling = SamplingOptions.__annotations__.keys() & given
    own = {name: given[name] for name in given.keys() - sampling}
    own.update((name, form(own[name])) for name, form in _FORMS.items() if name in own)
    return {**own, "sampling": texts((name, given[name]) for name in given if name in sampling)}


def opening(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `Model.open` for the extension module."""
    refuse_unknown(options, OpenOptions.__annotations__)
    given = {name: value for name, value in options.items() if value is not None}
    for name, (least, most) in _RANGES.items():
        in_range(name, given.get(name), least, most)
    for name in ("override_kv", "lora"):
        several(name, given.get(name))
    rope_settings = {name: given.pop(name) for name in _ROPE & given.keys()}
    run = {name: given.pop(name) for name in _RUN & given.keys()}
    method, settings = rope(given.pop("rope", None), rope_settings)
    given.update((name, form(given[name])) for name, form in _OPENING_FORMS.items() if name in given)
    return {**given, "rope": method, "rope_settings": settings, "run_settings": texts(run.items())}


def rope(method: Rope | None, options: Mapping[str, Any]) -> tuple[str | None, list[tuple[str, str]]]:
    """Returns the text of a method and further settings, for the extension module."""
    refuse_unknown(options, _ROPE)
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(method, Mapping):
        refuse_unknown(method, _ROPE | {"method"})
        renamed = {"rope_scaling" if name == "method" else name: method[name] for name in method}
        both = renamed.keys() & given.keys()
        if both:
            raise ValueError(f"rope and {min(both)} both set {min(both)}: remove one of them")
        return None, texts({**renamed, **given}.items())
    return method, texts(given.items())


def texts(values: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Returns values as texts, as the command line has them."""
    return [(name, _text(name, value)) for name, value in values]


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value):
        return ",".join(value)
    # Also of numpy's numbers.
    if isinstance(value, numbers.Integral):
        return str(int(value))
    try:
        real = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {value!r} is neither a number, a bool nor a text") from None
    return str(int(real)) if real.is_integer() and abs(real) < 2**53 else repr(real)


def in_range(name: str, value: int | None, least: int, most: int | None = None, hint: str = "") -> None:
    """Checks the range of a whole number. None is in every range.

    Raises:
        TypeError: If the value is not a whole number.
        ValueError: If the number is not from `least` to `most`.
    """
    if value is None:
        return
    if not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} {value!r}: must be a whole number")
    if value >= least and (most is None or value <= most):
        return
    limits = f"at least {least}" if most is None else f"from {least} to {most}"
    raise ValueError(f"{name} {value}: must be {limits}{hint}")


def several(name: str, values: object) -> None:
    """Checks that an argument for several values is not a text, which would be taken letter by letter.

    Raises:
        TypeError: If it is a text.
    """
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} {values!r}: must be a list")


def refuse_unknown(given: Iterable[str], known: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raises a TypeError that names the first unknown argument, and a near one that is known.

    Raises:
        TypeError: If an argument is unknown.
    """
    known = sorted(known)
    for name in given:
        if name not in known:
            names = sorted({*known, *others})
            near = difflib.get_close_matches(name, names, 1)
            hint = f": did you mean {near[0]}?" if near else f": the names are {', '.join(names)}"
            raise TypeError(f"unexpected keyword argument {name!r}{hint}")
