"""GGUF models on a CPU, past the context length that they were trained for.

>>> import rope_cpu                                                    # doctest: +SKIP
>>> model = rope_cpu.Model("model.gguf", ctx=32768, rope="yarn")       # doctest: +SKIP
>>> print(model.generate("The sky is", max_tokens=16))                 # doctest: +SKIP

`Model` has everything; `Llama` has the common calls of `llama_cpp.Llama`; `download` gets models of
the Hugging Face Hub; `rope_cpu.rope` shows the frequencies of a RoPE method.
"""

from . import rope
from ._native import Error, __version__
from .answer import Answer, ChatAnswer, ToolCall, Usage
from .grammar import LlamaGrammar
from .hub import download
from .llama import Llama, LlamaState
from .model import Model, Perplexity
from .stream import ChatPiece, ChatStream, Stream

__all__ = [
    "Answer",
    "ChatAnswer",
    "ChatPiece",
    "ChatStream",
    "Error",
    "Llama",
    "LlamaGrammar",
    "LlamaState",
    "Model",
    "Perplexity",
    "Stream",
    "ToolCall",
    "Usage",
    "__version__",
    "download",
    "rope",
]
