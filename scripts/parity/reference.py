"""The two architectures once more, slowly and plainly, in numpy: a third opinion.

llama.cpp deviates from the model's mathematics in two places, and this says by how much:
    GELU     through a table of f16 values for f16 arguments
    angles   by repeated f32 multiplication with base^(-2/n), which drifts with the position
Each can be computed here exactly or as llama.cpp does. F32 files only.
"""
import math

import numpy as np
from gguf import GGUFReader

QUERIES = 512  # at a time, to bound the memory of the attention scores


class Model:
    def __init__(self, path):
        reader = GGUFReader(str(path))
        self.tensors = {t.name: t.data for t in reader.tensors}
        arch = reader.fields["general.architecture"].contents()
        assert arch in ("llama", "gemma3"), arch
        self.gemma = arch == "gemma3"
        key = lambda name, default=None: (
            reader.fields[f"{arch}.{name}"].contents() if f"{arch}.{name}" in reader.fields else default)
        self.layers, self.heads = key("block_count"), key("attention.head_count")
        self.kv_heads, self.width = key("attention.head_count_kv"), key("embedding_length")
        self.head_dim = key("attention.key_length", self.width // self.heads)
        self.epsilon = key("attention.layer_norm_rms_epsilon")
        self.rope_base, self.context = key("rope.freq_base", 10000.0), key("context_length")
        self.window = key("attention.sliding_window") if self.gemma else None

    def logits(self, tokens, rope, last, like_llama_cpp=False, length=None):
        """(last, vocabulary) after the last tokens, where they begin a sequence of that length; `like_llama_cpp` takes its
        two deviations over.
        """
        gelu = gelu_by_table if like_llama_cpp else gelu_exact
        rotations = {
            local: rotation(len(tokens), self.head_dim, *frequencies, drifting=like_llama_cpp)
            for local, frequencies in ((False, self.frequencies(rope, length or len(tokens))), (True, (1e4, 1.0, None)))
            if self.gemma or not local
        }
        x = self.tensors["token_embd.weight"][tokens]
        if self.gemma:
            x = x * np.float32(math.sqrt(self.width))
        for layer in range(self.layers):
            local = self.gemma and (layer + 1) % 6 != 0
            h = self.norm(x, f"blk.{layer}.attn_norm")
            h = self.attention(h, layer, rotations[local], self.window if local else None)
            x = x + (self.norm(h, f"blk.{layer}.post_attention_norm") if self.gemma else h)
            h = self.norm(x, f"blk.{layer}.ffn_norm")
            gate, up = (h @ self.weight(layer, name).T for name in ("ffn_gate", "ffn_up"))
            h = ((gelu(gate) if self.gemma else silu(gate)) * up) @ self.weight(layer, "ffn_down").T
            x = x + (self.norm(h, f"blk.{layer}.post_ffw_norm") if self.gemma else h)
        x = self.norm(x[-last:], "output_norm")
        return x @ self.tensors.get("output.weight", self.tensors["token_embd.weight"]).T

    def weight(self, layer, name):
        return self.tensors[f"blk.{layer}.{name}.weight"]

    def norm(self, x, name):
        mean = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
        return (x * (1 / np.sqrt(mean + self.epsilon)).astype(np.float32)) * self.tensors[name + ".weight"]

    def attention(self, h, layer, rotate, window):
        count = len(h)
        q, k, v = ((h @ self.weight(layer, name).T).reshape(count, -1, self.head_dim).transpose(1, 0, 2)
                   for name in ("attn_q", "attn_k", "attn_v"))  # (heads, tokens, head_dim)
        if self.gemma:
            q, k = self.norm(q, f"blk.{layer}.attn_q_norm"), self.norm(k, f"blk.{layer}.attn_k_norm")
        q, k = (rotated(x, *rotate, halves=self.gemma) for x in (q, k))
        q = q * np.float32(1 / math.sqrt(self.head_dim))
        out = np.empty((count, self.heads, self.head_dim), np.float32)
        group = self.heads // self.kv_heads
        for start in range(0, count, QUERIES):
            stop = min(start + QUERIES, count)
            age = np.arange(start, stop)[:, None] - np.arange(stop)[None, :]
            hidden = (age < 0) | (age >= window) if window else age < 0
            for head in range(self.heads):
                scores = q[head, start:stop] @ k[head // group, :stop].T
                scores[hidden] = -np.inf
                scores = np.exp(scores - scores.max(axis=1, keepdims=True))
                out[start:stop, head] = scores @ v[head // group, :stop] / scores.sum(axis=1, keepdims=True)
        return out.reshape(count, -1) @ self.weight(layer, "attn_output").T

    def frequencies(self, rope, length):
        """(base, frequency scale, YaRN's original context or None) for a sequence of that length"""
        base, scale = rope.rope_freq_base or self.rope_base, rope.rope_freq_scale or 1.0
        original = rope.yarn_orig_ctx or self.context
        excess = max(1.0, length / original)
        match rope.rope_scaling:
            case "yarn":
                return base, scale, original
            case "dynamic-yarn":
                return base, 1 / excess, original
            case "dynamic":  # _compute_dynamic_ntk_parameters of Hugging Face's transformers, with a factor of 1 / scale
                return base * (excess / scale - (1 / scale - 1)) ** (self.head_dim / (self.head_dim - 2)), 1.0, None
        return base, scale, None


def rotation(count, n, base, scale, yarn_context, drifting):
    """cos and sin, both (count, n / 2) f32, with YaRN's magnitude in them."""
    if drifting:  # ggml_rope_cache_init
        step = np.float32(math.pow(base, -2.0 / n))
        angle = np.arange(count).astype(np.float32)
        columns = []
        for _ in range(n // 2):
            columns.append(angle)
            angle = angle * step
        angles = np.stack(columns, axis=1)
        scale = np.float32(scale)
    else:
        angles = np.arange(count)[:, None] * base ** (-2.0 * np.arange(n // 2) / n)[None, :]
    magnitude = 1.0
    if yarn_context:
        correction = lambda turns: n * math.log(yarn_context / (turns * 2 * math.pi)) / (2 * math.log(base))
        low, high = max(0, math.floor(correction(32))), min(n - 1, math.ceil(correction(1)))
        ramp = 1 - np.clip((np.arange(n // 2) - low) / max(0.001, high - low), 0, 1)
        ramp = ramp.astype(angles.dtype)
        angles = scale * angles * (1 - ramp) + angles * ramp
        magnitude = 1 + 0.1 * math.log(1 / scale)
    else:
        angles = scale * angles
    return ((np.cos(angles) * magnitude).astype(np.float32), (np.sin(angles) * magnitude).astype(np.float32))


def rotated(x, cos, sin, halves):
    """Pairs (i, i + n/2) for gemma3, (2i, 2i + 1) for llama. x: (heads, tokens, head_dim)"""
    n = x.shape[-1]
    first, second = (slice(0, n // 2), slice(n // 2, n)) if halves else (slice(0, n, 2), slice(1, n, 2))
    out = np.empty_like(x)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def silu(x):
    return (x / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


def gelu_exact(x):
    x = x.astype(np.float64)
    return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)))).astype(np.float32)


def gelu_by_table(x):
    """ggml_vec_gelu_f32: exact outside (-10, 10), in f16 within."""
    near = gelu_exact(x.astype(np.float16).astype(np.float32)).astype(np.float16).astype(np.float32)
    return np.where(x <= -10, 0, np.where(x >= 10, x, near)).astype(np.float32)
