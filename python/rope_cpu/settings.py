"""The settings of RoPE, of a run and of the samplers, as keyword arguments.

A test of the library writes this file:
PYTHON_SETTINGS=write cargo test --test library python_settings
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypedDict


class RopeOptions(TypedDict, total=False):
    """The RoPE settings, with their names on the command line."""

    #: Method: auto, none, linear, ntk, yarn, ...
    rope_scaling: str
    #: Extend the context by a factor of N
    rope_scale: float
    #: Inverse of `rope_scale`: 0.25 extends 4 times
    rope_freq_scale: float
    #: Base frequency of RoPE
    rope_freq_base: float
    #: ntk-mixed: unevenness of the division [default: 0.75]
    ntk_mixed_exponent: float
    #: dynamic: formula: hf, fu1 or fu2 [default: hf]
    dynamic_variant: str
    #: dynamic: target length of fu2 [default: the context]
    dynamic_target: int
    #: dynamic methods: step of the length [default: 256]
    rope_step: int
    #: Original context size; 0: as trained
    yarn_orig_ctx: int
    #: YaRN: extrapolation mix; 0: scale all
    yarn_ext_factor: float
    #: YaRN: multiply the attention scale by N
    yarn_attn_factor: float
    #: YaRN: scale pairs with fewer than N rotations
    yarn_beta_slow: float
    #: YaRN: keep pairs with more than N rotations
    yarn_beta_fast: float
    #: YaRN: shape of the ramp: whole, exact or turns [default: whole; gpt-oss: exact]
    yarn_ramp: str
    #: YaRN: the attention scale
    yarn_attention_factor: float
    #: YaRN: weight in the attention scale's numerator
    yarn_mscale: float
    #: YaRN: weight in the attention scale's denominator
    yarn_mscale_all_dim: float
    #: llama3: divide pairs with fewer than N rotations [default: 1]
    llama3_low_freq_factor: float
    #: llama3: keep pairs with more than N rotations [default: 4]
    llama3_high_freq_factor: float
    #: dprope: number of intervals of the circle [default: 360]
    dprope_intervals: int
    #: dprope: minimum gain for which a frequency is divided [default: 0]
    dprope_threshold: float
    #: dprope: number of dimensions that are divided
    dprope_dims: int
    #: dprope: direction of the divergence: code or paper [default: code]
    dprope_direction: str
    #: clex: file with the matrices of its equation
    clex_weights: str | os.PathLike[str]
    #: clex: step size of the solver [default: 0.01]
    clex_step: float
    #: clex: activation between the matrices: tanh or silu [default: tanh]
    clex_activation: str
    #: cope: number of pairs that fade out
    cope_pairs: int
    #: rerope, leaky-rerope: window in tokens [default: half the trained context]
    rerope_window: int
    #: leaky-rerope: divisor of the distances beyond the window
    rerope_k: int
    #: self-extend: group size, in tokens that share a position
    grp_attn_n: int
    #: self-extend: window in tokens [default: a quarter of the trained context]
    grp_attn_w: int
    #: lm-infinite: number of first tokens that attention covers [default: 10]
    lm_infinite_global: int
    #: lm-infinite: number of last tokens that attention covers [default: the trained context]
    lm_infinite_local: int
    #: string: distance that starts again [default: a third of the trained context]
    string_shift: int
    #: string: distance at which it starts again [default: 128]
    string_window: int
    #: dca: largest distance [default: 3/4 of the trained context]
    dca_chunk_size: int
    #: dca: tokens at their true distance [default: 1/16 of the trained context]
    dca_local_size: int
    #: dca: scale attention as YaRN does, by the length: on or off [default: off]
    dca_attention_scale: bool
    #: Effective length: position or run [default: position; longrope: run]
    rope_policy: str
    #: Attention sinks: keep the first N tokens and the last in a rolling context
    attention_sinks: int
    #: Scale queries by the logarithm of their position: on or off
    rope_log_n: bool


class RunOptions(TypedDict, total=False):
    """The settings of a run: its cache, sparse attention and drafts."""

    #: K: f16 (default) f32 bf16 q8_0 q5_0 q4_0
    cache_type_k: str
    #: V: f16 (default) f32 bf16 q8_0 q5_0 q4_0
    cache_type_v: str
    #: Share of attention to compute, such as 0.98
    sparse_attention: float
    #: Share of attention to compute in prompts, such as 0.95
    sparse_prompt: float
    #: Sources of drafts [default: auto]
    spec_type: str | Sequence[str]
    #: Draft model (GGUF)
    spec_draft_model: str | os.PathLike[str]
    #: Most drafts in a pass [default: 15]
    spec_draft_n_max: int
    #: Share of long prompts to compute, such as 0.2; lossy
    prefill_share: float
    #: K cache of the draft model
    spec_draft_type_k: str
    #: V cache of the draft model
    spec_draft_type_v: str


class SamplingOptions(TypedDict, total=False):
    """The settings of the samplers. Defaults are the file's, else those shown here."""

    #: Temperature; 0: greedy [default: 0.8]
    temp: float
    #: Another name of `temp`.
    temperature: float
    #: Dynamic temperature range; 0: off [default: 0]
    dynatemp_range: float
    #: Dynamic temperature exponent [default: 1]
    dynatemp_exp: float
    #: XTC probability; 0: off [default: 0]
    xtc_probability: float
    #: XTC: probability from which tokens are dropped [default: 0.1]
    xtc_threshold: float
    #: Drop tokens below N x top token [default: 0.05]
    min_p: float
    #: Keep top tokens that sum to N [default: 0.95]
    top_p: float
    #: Locally typical sampling; 1: off [default: 1]
    typical: float
    #: Another name of `typical`.
    typical_p: float
    #: Drop tokens below N x top^2; 0: off [default: 0]
    top_a: float
    #: Keep N most likely tokens; 0: all [default: 40]
    top_k: int
    #: Keep logits N sigmas from the top [default: -1]
    top_n_sigma: float
    #: Another name of `top_n_sigma`.
    top_nsigma: float
    #: DRY penalty multiplier; 0: off [default: 0]
    dry_multiplier: float
    #: DRY: penalty growth per further token [default: 1.75]
    dry_base: float
    #: DRY: allowed length of a repetition [default: 2]
    dry_allowed_length: int
    #: DRY: number of last tokens that are searched; -1: all [default: 64]
    dry_penalty_last_n: int
    #: Penalize last N tokens; -1: all [default: 64]
    repeat_last_n: int
    #: Repetition penalty; 1: off [default: 1]
    repeat_penalty: float
    #: Presence penalty; 0: off [default: 0]
    presence_penalty: float
    #: Frequency penalty; 0: off [default: 0]
    frequency_penalty: float
    #: Mirostat version 1 or 2; 0: off [default: 0]
    mirostat: int
    #: Mirostat: target entropy (tau) in bits [default: 5]
    mirostat_ent: float
    #: Mirostat: learning rate (eta) [default: 0.1]
    mirostat_lr: float
