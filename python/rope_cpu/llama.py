"""The common calls of `llama_cpp.Llama`, with answers of the same shape.

Arguments of llama-cpp-python that are not here are refused by name, not ignored. Those that change no
answer, such as the layers on a GPU, only have a warning.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import grammar as _grammar
from .answer import Answer, ChatAnswer
from .grammar import Grammar
from .hub import download
from .logprobs import logprobs as _logprobs
from .model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self, TypeAlias

#: A response, or the chunks of a stream.
Response: TypeAlias = Union[dict[str, Any], Iterator[dict[str, Any]]]

#: llama.cpp's numbers of RoPE methods and of pooling.
_SCALINGS = {0: "none", 1: "linear", 2: "yarn", 3: "longrope"}
_POOLINGS = {0: "none", 1: "mean", 2: "cls", 3: "last"}

#: Arguments of `llama_cpp.Llama` that change no answer here, and why.
_NOTED = {
    "n_gpu_layers": "rope_cpu computes on the CPU",
    "split_mode": "rope_cpu computes on the CPU",
    "main_gpu": "rope_cpu computes on the CPU",
    "tensor_split": "rope_cpu computes on the CPU",
    "offload_kqv": "rope_cpu computes on the CPU",
    "flash_attn": "attention is always fused",
    "chat_format": "the template of the file is used, or chat_template",
}

#: Arguments of `llama_cpp.Llama` without a meaning here, and why.
_REFUSED = {
    "use_mmap": "files are always mapped",
    "use_mlock": "files are never locked in memory",
    "n_batch": "use n_ubatch",
    "n_threads_batch": "use n_threads, which holds for prompts too",
    "lora_base": "adapters act on the file as it is",
    "additional_files": "all parts of a split model are downloaded",
    "local_dir": "use cache_dir",
    "local_dir_use_symlinks": "use cache_dir",
}

#: Values of arguments without a meaning here that ask for nothing else: llama-cpp-python's defaults, and
#: what rope_cpu does.
_PERMITTED: dict[str, tuple[Any, ...]] = {
    "n_gpu_layers": (0,),
    "split_mode": (1,),
    "main_gpu": (0,),
    "vocab_only": (False,),
    "use_mmap": (True,),
    "use_mlock": (False,),
    "n_batch": (512,),
    "attention_type": (-1,),
    "offload_kqv": (True, False),
    "flash_attn": (True, False),
    "no_perf": (True, False),
    "last_n_tokens_size": (64,),
    "numa": (False,),
    "spm_infill": (False,),
    "tfs_z": (1.0,),
    "local_dir_use_symlinks": ("auto",),
    **dict.fromkeys(
        [
            "tensor_split", "kv_overrides", "n_threads_batch", "op_offload", "swa_full", "lora_base",
            "chat_format", "chat_handler", "draft_model", "tokenizer", "type_k", "type_v", "suffix",
            "logprobs", "top_logprobs", "grammar", "stopping_criteria", "logits_processor", "functions",
            "function_call", "additional_files", "local_dir",
        ],
        (None,),
    ),
}  # fmt: skip


@dataclass
class LlamaState:
    """The tokens of a `Llama`, with their scores: see `Llama.save_state`."""

    input_ids: NDArray[np.intc]
    scores: NDArray[np.float32]
    n_tokens: int
    seed: int | None


class Llama:
    """A model with the interface of `llama_cpp.Llama`. `model` is the `Model` behind it."""

    def __init__(
        self,
        model_path: str,
        *,
        n_ctx: int = 512,
        n_ubatch: int = 512,
        n_threads: int | None = None,
        seed: int | None = None,
        rope_scaling_type: int | None = -1,
        rope_freq_base: float = 0.0,
        rope_freq_scale: float = 0.0,
        yarn_ext_factor: float = -1.0,
        yarn_attn_factor: float = 1.0,
        yarn_beta_fast: float = 32.0,
        yarn_beta_slow: float = 1.0,
        yarn_orig_ctx: int = 0,
        pooling_type: int = -1,
        embedding: bool = False,
        logits_all: bool = False,
        lora_path: str | None = None,
        lora_scale: float = 1.0,
        chat_template: str | None = None,
        verbose: bool = True,
        **unknown: Any,
    ) -> None:
        """Opens a model.

        Args:
            model_path: The GGUF file.
            n_ctx: The context in tokens; 0 as trained.
            n_ubatch: The maximum tokens of a prompt that are computed in one pass.
            n_threads: The number of threads. By default one per performance core.
            seed: The seed of all answers that are given none; None or -1 for random ones.
            rope_scaling_type: -1 as in the file, 0 none, 1 linear, 2 yarn, 3 longrope.
            rope_freq_base: The base of the frequencies; 0 as in the file.
            rope_freq_scale: The inverse of the factor that extends the context; 0 as in the file.
            yarn_ext_factor: YaRN's settings, with llama.cpp's defaults.
            pooling_type: -1 as in the file, 0 none, 1 mean, 2 cls, 3 last.
            embedding: Whether `embed` may be called.
            logits_all: Whether `eval` computes the `scores` of all tokens.
            lora_path: The file of an adapter, with its scale `lora_scale`.
            chat_template: A Jinja template instead of the file's, or the name of a built-in one.
            verbose: Whether to warn about the context and RoPE.
        """
        noted = {name: value for name, value in unknown.items() if name in _NOTED}
        _refuse(Llama, {name: value for name, value in unknown.items() if name not in noted})
        for name, value in noted.items():
            if verbose and value not in _PERMITTED[name]:
                warnings.warn(f"Llama: {name} has no effect: {_NOTED[name]}", stacklevel=2)
        rope: dict[str, Any] = {}
        if rope_scaling_type is not None and rope_scaling_type != -1:
            if rope_scaling_type not in _SCALINGS:
                raise ValueError(f"rope_scaling_type {rope_scaling_type}: must be from -1 to 3")
            rope["rope_scaling"] = _SCALINGS[rope_scaling_type]
        # Values that mean "as in the file" in llama.cpp are left out.
        for name, value, default in [
            ("rope_freq_base", rope_freq_base, 0.0),
            ("rope_freq_scale", rope_freq_scale, 0.0),
            ("yarn_ext_factor", yarn_ext_factor, -1.0),
            ("yarn_attn_factor", yarn_attn_factor, 1.0),
            ("yarn_beta_fast", yarn_beta_fast, 32.0),
            ("yarn_beta_slow", yarn_beta_slow, 1.0),
            ("yarn_orig_ctx", yarn_orig_ctx, 0),
        ]:
            if value != default:
                rope[name] = value
        with warnings.catch_warnings():
            if not verbose:
                warnings.simplefilter("ignore")
            self.model = Model(
                model_path,
                ctx=n_ctx or None,
                threads=n_threads,
                ubatch_size=n_ubatch,
                lora=[(lora_path, lora_scale)] if lora_path is not None else (),
                **rope,
            )
        self.model_path = model_path
        self.verbose = verbose
        self._seed = seed
        self._embedding = embedding
        self._logits_all = logits_all
        self._evaluated: list[int] = []
        self._scores: NDArray[np.float32] | None = None
        self._chat_template = chat_template
        if pooling_type == -1:
            pooling_type = int(self.model.metadata.get(f"{self.model.architecture}.pooling_type", 0))
        elif pooling_type not in _POOLINGS:
            raise ValueError(f"pooling_type {pooling_type}: must be from -1 to 3")
        # Files of rerankers have a type that gives no embeddings.
        self._pooling = _POOLINGS.get(pooling_type)

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Downloads a model from the Hugging Face Hub, unless it is in the cache, and opens it.

        Args:
            repo_id: The repository, as for `rope_cpu.download`.
            filename: The file, in which `*` stands for any text. All parts of a split model follow
                its first.
            cache_dir: The cache. By default that of the hub's own programs.
            **kwargs: As for `Llama`. With `verbose`, the download is shown on stderr.
        """
        # Before anything is downloaded.
        _refuse(cls.from_pretrained, {name: kwargs[name] for name in kwargs.keys() & _REFUSED.keys()})
        progress = _show if kwargs.get("verbose", True) else None
        path = download(repo_id, filename, cache_dir=cache_dir, progress=progress)
        return cls(path, **kwargs)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the file as texts, without its lists."""
        return {key: _text(value) for key, value in self.model.metadata.items()}

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Returns the tokens of a text."""
        return self.model.tokenize(text, add_special=add_bos, parse_special=special)

    def detokenize(
        self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False
    ) -> bytes:
        """Returns the text of tokens, which may be cut within a character."""
        before = prev_tokens or []
        native = self.model._native
        text = native.detokenize(self.model._checked([*before, *tokens]), special)
        return text[len(native.detokenize(before, special)) :] if before else text

    def eval(self, tokens: Sequence[int]) -> None:
        """Computes `scores` of the tokens since `reset` and of these."""
        if not self._logits_all:
            raise RuntimeError("eval: open the model with logits_all=True")
        evaluated = [*self._evaluated, *tokens]
        self._scores = self.model.logits(evaluated)
        self._evaluated = evaluated

    def reset(self) -> None:
        """Forgets the tokens of `eval` and `generate`."""
        self._evaluated, self._scores = [], None

    @property
    def n_tokens(self) -> int:
        """The number of tokens of `eval` and `generate` since `reset`."""
        return len(self._evaluated)

    def save_state(self) -> LlamaState:
        """Returns the tokens of `eval` and `generate`, and their scores.

        It has no keys and values: after `load_state`, they are computed again where the context no
        longer has them.
        """
        tokens = np.array(self._evaluated, np.intc)
        return LlamaState(tokens, self.scores.copy(), self.n_tokens, self._seed)

    def load_state(self, state: LlamaState) -> None:
        """Continues from a state of `save_state`."""
        self._evaluated = [int(token) for token in state.input_ids]
        self._scores = state.scores.copy() if len(state.scores) else None
        self._seed = state.seed

    def generate(
        self,
        tokens: Sequence[int],
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.8,
        repeat_penalty: float = 1.0,
        reset: bool = True,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        **unknown: Any,
    ) -> Generator[int, Sequence[int] | None, None]:
        """Generates tokens one at a time, up to the token that ends the text or a full context.

        Tokens that are sent to the generator are added to the text. With `reset=False`, the text
        starts with the tokens of earlier calls.
        """
        _refuse(self.generate, unknown)
        if reset:
            self.reset()
        return self._tokens(
            tokens,
            self._options(
                1, temp, top_p, min_p, typical_p, None, frequency_penalty, presence_penalty,
                repeat_penalty, top_k, None, mirostat_mode, mirostat_tau, mirostat_eta, None,
            ),
        )  # fmt: skip

    def _tokens(
        self, tokens: Sequence[int], options: dict[str, Any]
    ) -> Generator[int, Sequence[int] | None, None]:
        seed = options["seed"]
        self._evaluated += tokens
        step = 0
        # A text that does not fit is refused by the model.
        while step == 0 or len(self._evaluated) < self.n_ctx():
            if seed is not None:
                options["seed"] = (seed + step) % 0xFFFFFFFF
            # The context has all tokens but the last, so each call computes one.
            answer = self.model.generate(self._evaluated, **options)
            self._scores = None
            token = answer.tokens[0] if answer.tokens else self.token_eos()
            sent = yield token
            if not answer.tokens:
                return
            self._evaluated.append(token)
            self._evaluated += sent or ()
            step += 1

    @property
    def scores(self) -> NDArray[np.float32]:
        """The logits after each token of `eval`: float32, (tokens, vocabulary)."""
        empty = np.empty((0, self.n_vocab()), np.float32)
        return empty if self._scores is None else self._scores

    def __call__(self, prompt: str | list[int], *args: Any, **kwargs: Any) -> Response:
        """Continues a prompt: see `create_completion`."""
        return self.create_completion(prompt, *args, **kwargs)

    def create_completion(
        self,
        prompt: str | list[int],
        *,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | list[str] | None = None,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        grammar: Grammar | None = None,
        logit_bias: Mapping[int, float] | None = None,
        **unknown: Any,
    ) -> Response:
        """Continues a prompt.

        Arguments are as in llama-cpp-python; `grammar` is a `LlamaGrammar` or a text in GBNF.
        `logprobs` needs a model with `logits_all=True`, and a second pass over the text.

        Returns:
            A completion of OpenAI's API, or with `stream` an iterator of its chunks.
        """
        _refuse(self.create_completion, unknown)
        if logprobs is not None and not self._logits_all:
            raise ValueError("logprobs: open the model with logits_all=True")
        if logprobs is not None and stream:
            raise ValueError("logprobs: not supported with stream=True")
        tokens = self.model.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
        options = self._options(
            max_tokens, temperature, top_p, min_p, typical_p, stop, frequency_penalty,
            presence_penalty, repeat_penalty, top_k, seed, mirostat_mode, mirostat_tau,
            mirostat_eta, logit_bias,
        )  # fmt: skip
        options.update(_grammar.options(grammar))
        head = _head("cmpl", "text_completion", model or self.model_path)
        text = prompt if isinstance(prompt, str) else self.model.detokenize(prompt)
        shown = text if echo else ""
        if stream:
            return self._completion_chunks(tokens, options, head, shown)
        answer = self.model.generate(tokens, **options)
        choice = _choice(shown + answer, answer.finish_reason)
        if logprobs is not None:
            scored = ([], [*tokens, *answer.tokens], 0) if echo else (tokens, answer.tokens, len(text))
            choice["logprobs"] = _logprobs(self.model, scored[0], scored[1], logprobs, scored[2])
        return {**head, "choices": [choice], "usage": _usage(answer)}

    def _completion_chunks(
        self, tokens: list[int], options: dict[str, Any], head: dict[str, Any], shown: str
    ) -> Iterator[dict[str, Any]]:
        if shown:
            yield {**head, "choices": [_choice(shown, None)]}
        with self.model.stream(tokens, **options) as pieces:
            for piece in pieces:
                yield {**head, "choices": [_choice(piece, None)]}
            answer = pieces.answer
        assert answer is not None, "the stream has ended"
        yield {**head, "choices": [_choice("", answer.finish_reason)]}

    def create_chat_completion(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        tool_choice: str | dict[str, Any] | None = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: str | list[str] | None = None,
        seed: int | None = None,
        response_format: dict[str, Any] | None = None,
        max_tokens: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        grammar: Grammar | None = None,
        logit_bias: Mapping[int, float] | None = None,
        **unknown: Any,
    ) -> Response:
        """Answers the last message of a conversation.

        Arguments are as in llama-cpp-python; `grammar` is a `LlamaGrammar` or a text in GBNF.

        Returns:
            A chat completion of OpenAI's API, or with `stream` an iterator of its chunks.
        """
        _refuse(self.create_chat_completion, unknown)
        options = self._options(
            max_tokens, temperature, top_p, min_p, typical_p, stop, frequency_penalty,
            presence_penalty, repeat_penalty, top_k, seed, mirostat_mode, mirostat_tau,
            mirostat_eta, logit_bias,
        )  # fmt: skip
        options.update(_grammar.options(grammar))
        options.update(_form(response_format))
        if isinstance(tool_choice, dict):
            tool_choice = str(tool_choice["function"]["name"])
        options.update(tools=tools or (), chat_template=self._chat_template)
        if tool_choice is not None:
            options["tool_choice"] = tool_choice
        name = model or self.model_path
        if stream:
            return self._chat_chunks(messages, options, _head("chatcmpl", "chat.completion.chunk", name))
        answer = self.model.chat(messages, **options)
        choice = {
            "index": 0,
            "message": answer.message,
            "logprobs": None,
            "finish_reason": answer.finish_reason,
        }
        head = _head("chatcmpl", "chat.completion", name)
        return {**head, "choices": [choice], "usage": _usage(answer)}

    def _chat_chunks(
        self, messages: list[dict[str, Any]], options: dict[str, Any], head: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            return {**head, "choices": [choice]}

        with self.model.chat_stream(messages, **options) as pieces:
            yield chunk({"role": "assistant"})
            calls = -1
            for kind, text, identifier in pieces:
                if kind == "text":
                    yield chunk({"content": text})
                elif kind == "reasoning":
                    yield chunk({"reasoning_content": text})
                elif kind in ("call", "arguments"):
                    calls += kind == "call"
                    call: dict[str, Any] = {"index": calls, "function": {"arguments": text}}
                    if kind == "call":
                        function = {"name": text, "arguments": ""}
                        call = {"index": calls, "id": identifier, "type": "function", "function": function}
                    yield chunk({"tool_calls": [call]})
            answer = pieces.answer
        assert answer is not None, "the stream has ended"
        yield chunk({}, answer.finish_reason)

    def embed(
        self, input: str | list[str], normalize: bool = False, truncate: bool = True
    ) -> list[Any]:
        """Computes the embedding of each text; without pooling, of each of its tokens.

        Args:
            input: A text or a list of texts.
            normalize: Whether embeddings are scaled to length 1.
            truncate: Whether texts are cut to the context; otherwise they are refused.
        """
        return self._embed(input, normalize, truncate)[0]

    def _embed(
        self, input: str | list[str], normalize: bool, truncate: bool
    ) -> tuple[list[Any], int]:
        if not self._embedding:
            raise RuntimeError("embed: open the model with embedding=True")
        if self._pooling is None:
            raise RuntimeError("embed: the model ranks texts; give pooling_type to embed them")
        texts = [input] if isinstance(input, str) else input
        tokens = [self.model.tokenize(text, parse_special=False) for text in texts]
        if truncate:
            tokens = [text[: self.model.ctx] for text in tokens]
        if self._pooling == "none":
            rows: list[Any] = []
            for text in tokens:
                vectors = self.model.embed_tokens(text)
                if normalize:
                    vectors = vectors / (vectors**2).sum(axis=1, keepdims=True) ** 0.5
                rows.append(vectors.tolist())
        else:
            rows = self.model.embed(tokens, pooling=self._pooling, normalize=normalize).tolist()
        return rows[0] if isinstance(input, str) else rows, sum(map(len, tokens))

    def create_embedding(self, input: str | list[str], model: str | None = None) -> dict[str, Any]:
        """Computes embeddings in the shape of OpenAI's API."""
        texts = [input] if isinstance(input, str) else input
        rows, tokens = self._embed(texts, False, True)
        data = [
            {"object": "embedding", "embedding": row, "index": index} for index, row in enumerate(rows)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": usage}

    def n_ctx(self) -> int:
        """Returns the context in tokens."""
        return self.model.ctx

    def n_vocab(self) -> int:
        """Returns the number of tokens in the vocabulary."""
        return self.model.vocabulary

    def n_embd(self) -> int:
        """Returns the width of embeddings."""
        return self.model.embedding

    def token_bos(self) -> int:
        """Returns the token that starts a text; -1 without one."""
        return -1 if self.model.bos is None else self.model.bos

    def token_eos(self) -> int:
        """Returns the token that ends a text; -1 without one."""
        return -1 if self.model.eos is None else self.model.eos

    def set_seed(self, seed: int) -> None:
        """Sets the seed of answers that are given none."""
        self._seed = seed

    def close(self) -> None:
        """Frees the model."""
        self.model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _options(
        self,
        max_tokens: int | None,
        temperature: float,
        top_p: float,
        min_p: float,
        typical_p: float,
        stop: str | Sequence[str] | None,
        frequency_penalty: float,
        presence_penalty: float,
        repeat_penalty: float,
        top_k: int,
        seed: int | None,
        mirostat_mode: int,
        mirostat_tau: float,
        mirostat_eta: float,
        logit_bias: Mapping[int, float] | None,
    ) -> dict[str, Any]:
        seed = self._seed if seed is None else seed
        return {
            "max_tokens": max_tokens if max_tokens is not None and max_tokens > 0 else None,
            "temperature": temperature,
            "top_p": top_p,
            "min_p": min_p,
            "typical_p": typical_p,
            "stop": stop,
            "frequency_penalty": frequency_penalty,
            "presence_penalty": presence_penalty,
            "repeat_penalty": repeat_penalty,
            "top_k": max(top_k, 0),
            # llama.cpp's seeds have 32 bits, and the last one means a random one.
            "seed": None if seed is None or seed in (-1, 0xFFFFFFFF) else seed,
            "mirostat": mirostat_mode,
            "mirostat_ent": mirostat_tau,
            "mirostat_lr": mirostat_eta,
            "logit_bias": logit_bias,
        }


def _refuse(call: Callable[..., Any], unknown: Mapping[str, Any]) -> None:
    """Raises a TypeError that names the first unknown argument of a call, and a near one."""
    for name, value in unknown.items():
        if value in _PERMITTED.get(name, ()):
            continue
        near: list[str] = []
        if name not in _PERMITTED and name not in _REFUSED:
            names = inspect.signature(call).parameters.keys() - {"unknown", "kwargs"}
            near = difflib.get_close_matches(name, sorted(names), 1)
        hint = f": did you mean {near[0]}?" if near else ""
        reason = f": {_REFUSED[name]}" if name in _REFUSED else hint
        raise TypeError(f"{call.__name__}: {name} is not supported{reason}")


def _head(prefix: str, kind: str, model: str) -> dict[str, Any]:
    identifier = f"{prefix}-{uuid.uuid4()}"
    return {"id": identifier, "object": kind, "created": int(time.time()), "model": model}


def _choice(text: str, reason: str | None) -> dict[str, Any]:
    return {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}


def _usage(answer: Answer | ChatAnswer) -> dict[str, int]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def _form(response_format: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the form of OpenAI's `response_format`."""
    kind = (response_format or {"type": "text"}).get("type")
    if response_format is None or kind == "text":
        return {}
    if kind == "json_object":
        return {"json_schema": response_format.get("schema", {"type": "object"})}
    if kind == "json_schema":
        return {"json_schema": json.dumps(response_format["json_schema"]["schema"])}
    raise ValueError(f"response_format {kind!r}: must be text, json_object or json_schema")


def _text(value: str | int | float | bool) -> str:
    """Returns a value as llama.cpp writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:f}" if isinstance(value, float) else str(value)


def _show(file: str, done: int, size: int) -> None:
    """Shows the progress of a download."""
    end = "\n" if done == size else ""
    print(f"\r{file}: {done / 1e6:.0f} of {size / 1e6:.0f} MB", end=end, file=sys.stderr, flush=True)
