"""The shapes: what a file's keys say, and the tensors of each layer."""
from dataclasses import dataclass, field

from gguf import GGMLQuantizationType as T


@dataclass(frozen=True)
class Alike:
    """In place of a format: the floats of a vector."""
    value: float


ONES = Alike(1.0)


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int
    rope_base: float
    architecture: str = "llama"
    head_dim: int = 0
    rotated: int = 0
    tied: bool = False
    keys: dict = field(default_factory=dict)  # what else the file says, after the architecture's name

    def head(self):
        return self.head_dim or self.width // self.heads

    def metadata(self, layers):
        """{key after the architecture's name: value}"""
        return {
            "block_count": layers,
            "context_length": self.context,
            "embedding_length": self.width,
            "feed_forward_length": self.feed_forward,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head(),
            "attention.value_length": self.head(),
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": self.rotated or self.head(),
            "rope.freq_base": self.rope_base,
            "vocab_size": self.vocabulary,
            **self.keys,
        }

    def tensors(self, layers, most, finer, output):
        """(name, shape, format) of each tensor."""
        yield "token_embd.weight", (self.vocabulary, self.width), most
        yield from self.first(layers, most)
        for layer in range(layers):
            # As llama.cpp chooses the layers: the first and last eighth, and every third between.
            eighth = layers // 8
            is_finer = layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
            for name, shape, quant in self.layer(layer, layers, most, finer if is_finer else most):
                yield f"blk.{layer}.{name}", shape, quant
        yield "output_norm.weight", (self.width,), ONES
        if not self.tied:
            yield "output.weight", (self.vocabulary, self.width), output

    def first(self, layers, most):
        """The other tensors that are not of a layer."""
        return ()

    def layer(self, layer, layers, most, finer):
        yield "attn_norm.weight", (self.width,), ONES
        yield from self.attention(most, finer)
        yield "ffn_norm.weight", (self.width,), ONES
        yield from self.network(self.feed_forward, most, finer)

    def attention(self, most, finer):
        queries, keys = self.head() * self.heads, self.head() * self.kv_heads
        yield "attn_q.weight", (queries, self.width), most
        yield "attn_k.weight", (keys, self.width), most
        yield "attn_v.weight", (keys, self.width), finer
        yield "attn_output.weight", (self.width, queries), most

    def head_norms(self):
        yield "attn_q_norm.weight", (self.head(),), ONES
        yield "attn_k_norm.weight", (self.head(),), ONES

    def network(self, inner, most, finer, suffix=""):
        yield f"ffn_gate{suffix}.weight", (inner, self.width), most
        yield f"ffn_up{suffix}.weight", (inner, self.width), most
        yield f"ffn_down{suffix}.weight", (self.width, inner), finer

    def experts(self, most, finer):
        count, inner = self.keys["expert_count"], self.keys["expert_feed_forward_length"]
        yield "ffn_gate_inp.weight", (count, self.width), T.F32
        for name, shape, quant in self.network(inner, most, finer, "_exps"):
            yield name, (count, *shape), quant


class Qwen3Moe(Shape):
    def layer(self, layer, layers, most, finer):
        yield "attn_norm.weight", (self.width,), ONES
        yield from self.attention(most, finer)
        yield from self.head_norms()
        yield "ffn_norm.weight", (self.width,), ONES
        yield from self.experts(most, finer)


class Qwen35(Shape):
    """Three layers of the gated delta rule, then one of attention with gates."""

    def layer(self, layer, layers, most, finer):
        width = self.width
        yield "attn_norm.weight", (width,), ONES
        if layer % self.keys["full_attention_interval"] == self.keys["full_attention_interval"] - 1:
            for name, shape, quant in self.attention(most, finer):
                yield name, (2 * shape[0], width) if name == "attn_q.weight" else shape, quant
            yield from self.head_norms()
        else:
            inner, dim = self.keys["ssm.inner_size"], self.keys["ssm.state_size"]
            heads = self.keys["ssm.time_step_rank"]
            channels = inner + 2 * self.keys["ssm.group_count"] * dim
            yield "attn_qkv.weight", (channels, width), most
            yield "attn_gate.weight", (inner, width), most
            yield "ssm_conv1d.weight", (channels, self.keys["ssm.conv_kernel"]), T.F32
            yield "ssm_dt.bias", (heads,), ONES
            yield "ssm_a", (heads,), Alike(-1.0)
            yield "ssm_alpha.weight", (heads, width), most
            yield "ssm_beta.weight", (heads, width), most
            yield "ssm_norm.weight", (dim,), ONES
            yield "ssm_out.weight", (width, inner), most
        yield "post_attention_norm.weight", (width,), ONES
        yield from self.network(self.feed_forward, most, finer)


class DeepSeek2(Shape):
    """Attention to latents, and experts beside a shared network in all layers but the first."""

    def metadata(self, layers):
        latent = self.keys["attention.kv_lora_rank"]
        lengths = {"attention.key_length": latent + self.rotated, "attention.value_length": latent}
        return {**super().metadata(layers), **lengths}

    def layer(self, layer, layers, most, finer):
        width, heads, latent = self.width, self.heads, self.keys["attention.kv_lora_rank"]
        query, value = self.keys["attention.key_length_mla"], self.keys["attention.value_length_mla"]
        yield "attn_norm.weight", (width,), ONES
        ranks = self.keys["attention.q_lora_rank"]
        yield "attn_q_a.weight", (ranks, width), most
        yield "attn_q_a_norm.weight", (ranks,), ONES
        yield "attn_q_b.weight", (heads * query, ranks), most
        yield "attn_kv_a_mqa.weight", (latent + self.rotated, width), most
        yield "attn_kv_a_norm.weight", (latent,), ONES
        # Their rows are shorter than the blocks of K formats.
        yield "attn_k_b.weight", (heads, latent, query - self.rotated), T.Q8_0
        yield "attn_v_b.weight", (heads, value, latent), T.Q8_0
        yield "attn_output.weight", (width, heads * value), most
        yield "ffn_norm.weight", (width,), ONES
        if layer < self.keys["leading_dense_block_count"]:
            yield from self.network(self.feed_forward, most, finer)
        else:
            yield from self.experts(most, finer)
            yield "exp_probs_b.bias", (self.keys["expert_count"],), Alike(0.0)
            shared = self.keys["expert_shared_count"] * self.keys["expert_feed_forward_length"]
            yield from self.network(shared, most, finer, "_shexp")


class Gemma4(Shape):
    """Four layers with a window, then one without; the last 4 of 7 attend to the keys of earlier ones."""
    PERIOD = 5

    def windowed(self, layer):
        return layer % self.PERIOD < self.PERIOD - 1

    def shared(self, layers):
        return min(layers * 4 // 7, layers - self.PERIOD)

    def inner(self, layer, layers):
        """The layers without keys of their own have networks twice as wide."""
        return self.feed_forward * (2 if layer >= layers - self.shared(layers) else 1)

    def metadata(self, layers):
        return {
            **super().metadata(layers),
            "feed_forward_length": [self.inner(layer, layers) for layer in range(layers)],
            "attention.shared_kv_layers": self.shared(layers),
            "attention.sliding_window_pattern": [self.windowed(layer) for layer in range(layers)],
        }

    def first(self, layers, most):
        each = self.keys["embedding_length_per_layer_input"]
        yield "per_layer_token_embd.weight", (self.vocabulary, layers * each), most
        yield "per_layer_model_proj.weight", (layers * each, self.width), most
        yield "per_layer_proj_norm.weight", (each,), ONES
        yield "rope_freqs.weight", (self.head() // 2,), ONES

    def layer(self, layer, layers, most, finer):
        width, each = self.width, self.keys["embedding_length_per_layer_input"]
        dim = self.keys["attention.key_length_swa"] if self.windowed(layer) else self.head()
        own = layer < layers - self.shared(layers)
        yield "attn_norm.weight", (width,), ONES
        yield "attn_q.weight", (self.heads * dim, width), most
        yield "attn_q_norm.weight", (dim,), ONES
        if own:
            yield "attn_k.weight", (self.kv_heads * dim, width), most
            yield "attn_v.weight", (self.kv_heads * dim, width), finer
            yield "attn_k_norm.weight", (dim,), ONES
        yield "attn_output.weight", (width, self.heads * dim), most
        yield "post_attention_norm.weight", (width,), ONES
        yield "ffn_norm.weight", (width,), ONES
        yield from self.network(self.inner(layer, layers), most, finer)
        yield "post_ffw_norm.weight", (width,), ONES
        yield "inp_gate.weight", (each, width), most
        yield "proj.weight", (width, each), most
        yield "post_norm.weight", (width,), ONES
        yield "layer_output_scale.weight", (1,), ONES


SHAPES = {
    "llama2-7b": Shape(32, 4096, 11008, 32, 32, 32000, 4096, 10000.0),
    "llama3-8b": Shape(32, 4096, 14336, 32, 8, 128256, 8192, 500000.0),
    "qwen3-30b-a3b": Qwen3Moe(
        48, 2048, 6144, 32, 4, 151936, 40960, 1e6, "qwen3moe", 128,
        keys={"expert_count": 128, "expert_used_count": 8, "expert_feed_forward_length": 768}),
    "qwen3.5-4b": Qwen35(
        32, 2560, 9216, 16, 4, 248320, 262144, 1e7, "qwen35", 256, 64, tied=True,
        keys={"ssm.conv_kernel": 4, "ssm.inner_size": 4096, "ssm.state_size": 128, "ssm.time_step_rank": 32,
              "ssm.group_count": 16, "full_attention_interval": 4, "rope.dimension_sections": [11, 11, 10, 0]}),
    "glm-4.7-flash": DeepSeek2(
        47, 2048, 10240, 20, 1, 154880, 202752, 1e6, "deepseek2", rotated=64,
        keys={"attention.q_lora_rank": 768, "attention.kv_lora_rank": 512, "attention.key_length_mla": 256,
              "attention.value_length_mla": 256, "expert_count": 64, "expert_used_count": 4, "expert_shared_count": 1,
              "expert_feed_forward_length": 1536, "expert_gating_func": 2, "expert_weights_norm": True,
              "expert_weights_scale": 1.8, "leading_dense_block_count": 1}),
    "gemma4-e2b": Gemma4(
        35, 1536, 6144, 8, 1, 262144, 131072, 1e6, "gemma4", 512, tied=True,
        keys={"attention.key_length_swa": 256, "attention.value_length_swa": 256, "attention.sliding_window": 512,
              "rope.dimension_count_swa": 256, "rope.freq_base_swa": 10000.0, "embedding_length_per_layer_input": 256,
              "final_logit_softcapping": 30.0}),
    "toy": Shape(2, 256, 768, 4, 2, 320, 512, 10000.0),
}
