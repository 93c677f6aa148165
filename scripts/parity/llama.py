"""llama.cpp, through the C interface of llama-cpp-python: the other side of every comparison."""
import ctypes
import math
from dataclasses import dataclass

import llama_cpp as C
import numpy as np

from measure import log_softmax

CACHE_TYPES = {"f32": C.GGML_TYPE_F32, "f16": C.GGML_TYPE_F16, "q8_0": C.GGML_TYPE_Q8_0}
POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
SCALING = {None: -1, "none": 0, "linear": 1, "yarn": 2}
FILE_TYPES = {"Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18}

# Only errors: llama.cpp describes its graphs at length. Kept here, as C holds no reference to it.
_log = C.llama_log_callback(lambda level, text, _: print(text.decode(), end="") if level == 4 else None)
C.llama_log_set(_log, None)
C.llama_backend_init()


@dataclass(frozen=True)
class Rope:
    """Position settings, named as the flags of both programs (the last two are rope-cpu's alone); None and 0 leave it to
    the model.
    """
    rope_scaling: str | None = None
    rope_freq_scale: float = 0.0
    rope_freq_base: float = 0.0
    yarn_orig_ctx: int = 0
    rope_policy: str | None = None
    rope_step: int = 0

    def flags(self):
        given = [(name, value) for name, value in vars(self).items() if value]
        return [word for name, value in given for word in ("--" + name.replace("_", "-"), str(value))]


def quantize(source, out, kind):
    """What llama-quantize makes of a file."""
    options = C.llama_model_quantize_default_params()
    options.ftype = FILE_TYPES[kind]
    if C.llama_model_quantize(str(source).encode(), str(out).encode(), ctypes.byref(options)) != 0:
        raise SystemExit(f"{source}: llama.cpp can't bring it into {kind}")


class Model:
    """A model file as llama.cpp has it."""

    def __init__(self, path):
        self.pointer = C.llama_model_load_from_file(str(path).encode(), C.llama_model_default_params())
        if not self.pointer:
            raise SystemExit(f"{path}: llama.cpp can't load it")
        self.vocab = C.llama_model_get_vocab(self.pointer)
        self.vocab_size = C.llama_vocab_n_tokens(self.vocab)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        C.llama_model_free(self.pointer)

    def tokenize(self, text):
        raw = text.encode()
        ids = (C.llama_token * (len(raw) + 8))()
        return list(ids[:C.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), True, False)])

    def logits(self, tokens, rope=Rope(), last=None, **options):
        """(last or len(tokens), vocabulary): row i is what follows token i, teacher-forced."""
        last = last or len(tokens)
        out = np.empty((last, self.vocab_size), np.float32)
        with Context(self, len(tokens), rope, **options) as context:
            for start in range(0, len(tokens), 512):
                wanted = range(max(start, len(tokens) - last), min(start + 512, len(tokens)))
                rows = context.decode(tokens[start:start + 512], start, [i - start for i in wanted])
                for i, row in zip(wanted, rows):
                    out[i - (len(tokens) - last)] = row
        return out

    def embeddings(self, tokens, pooling="none", **options):
        """(rows, embedding): the embedding of each token or, with pooling, of the text; of a reranker its scores."""
        with Context(self, len(tokens), Rope(), pooling=pooling, **options) as context:
            context.decode(tokens, 0, range(len(tokens)), output=None)
            if pooling == "none":
                width, rows = C.llama_model_n_embd(self.pointer), range(len(tokens))
                return np.array([np.ctypeslib.as_array(C.llama_get_embeddings_ith(context.pointer, i), (width,))
                                 for i in rows])
            of = C.llama_model_n_cls_out if pooling == "rank" else C.llama_model_n_embd
            return np.array([np.ctypeslib.as_array(C.llama_get_embeddings_seq(context.pointer, 0), (of(self.pointer),))])

    def perplexity(self, text, window, windows, rope=Rope(), **options):
        """What llama-perplexity, which the package lacks, says of a text's first windows: e to the mean negative
        log-likelihood of the tokens in the second half of each, but for the first there.
        """
        tokens, nll = self.tokenize(text), []
        for start in range(0, windows * window, window):
            part = tokens[start:start + window]
            if C.llama_vocab_get_add_bos(self.vocab):
                part[0] = C.llama_vocab_bos(self.vocab)
            scored = part[window // 2 + 1:]
            rows = self.logits(part[:-1], rope, last=len(scored), **options)
            nll.append(-log_softmax(rows)[range(len(scored)), scored])
        return math.exp(np.mean(nll))

    def greedy(self, tokens, count, rope=Rope()):
        """`count` most probable tokens, each fed back."""
        chosen, feed, position = [], tokens, 0
        with Context(self, len(tokens) + count, rope) as context:
            for _ in range(count):
                [row] = context.decode(feed, position, [len(feed) - 1])
                position += len(feed)
                feed = [int(row.argmax())]
                chosen += feed
        return chosen


class Context:
    """A model's cache and buffers, for one sequence."""

    def __init__(self, model, length, rope, cache_type="f32", flash_attention=False, threads=2, adapter=None,
                 pooling=None):
        c = C.llama_context_default_params()
        c.n_ctx, c.n_batch, c.n_ubatch = max(256, length), 512, 512
        if pooling:
            # An encoder reads a text in one micro-batch.
            c.embeddings, c.pooling_type, c.n_batch, c.n_ubatch = True, POOLING[pooling], c.n_ctx, c.n_ctx
        c.n_threads = c.n_threads_batch = threads
        c.type_k = c.type_v = CACHE_TYPES[cache_type]
        c.flash_attn_type = int(flash_attention)
        c.rope_scaling_type = SCALING[rope.rope_scaling]
        c.rope_freq_base, c.rope_freq_scale = rope.rope_freq_base, rope.rope_freq_scale
        c.yarn_orig_ctx = rope.yarn_orig_ctx
        self.vocab_size = model.vocab_size
        self.pointer = C.llama_init_from_model(model.pointer, c)
        if not self.pointer:
            raise SystemExit(f"llama.cpp can't make a context of {length} tokens with {rope}")
        if adapter:
            path, scale = adapter
            loaded = C.llama_adapter_lora_init(model.pointer, str(path).encode())
            if not loaded:
                raise SystemExit(f"{path}: llama.cpp can't load it")
            one = (C.llama_adapter_lora_p_ctypes * 1)(loaded)
            C.llama_set_adapters_lora(self.pointer, one, 1, (ctypes.c_float * 1)(scale))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        C.llama_free(self.pointer)

    def decode(self, tokens, position, wanted, output="logits"):
        """Feed `tokens` from `position` on; the logits after each of the `wanted` ones, valid until the next call."""
        batch = C.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        wanted = set(wanted)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = int(token), position + i, 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i in wanted
        failed = C.llama_decode(self.pointer, batch)
        C.llama_batch_free(batch)
        if failed:
            raise SystemExit(f"llama_decode failed with {failed} at position {position}")
        if output != "logits":
            return []
        return [np.ctypeslib.as_array(C.llama_get_logits_ith(self.pointer, i), (self.vocab_size,)) for i in sorted(wanted)]


def system_info():
    """What llama.cpp was built with, for the report."""
    return f"llama-cpp-python {C.__version__} ({ctypes.c_char_p(C.llama_print_system_info()).value.decode().strip(' |')})"
