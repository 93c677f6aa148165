"""Random weights of about zero mean, as the bytes of a format."""
import numpy as np
from gguf import GGML_QUANT_SIZES, LlamaFileType
from gguf import GGMLQuantizationType as T

# Formats that whole models are written in.
ALIKE = (
    T.IQ4_NL, T.IQ4_XS, T.NVFP4, T.TQ2_0, T.TQ1_0, T.IQ3_XXS, T.IQ3_S, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ1_S, T.IQ1_M,
    T.Q1_0, T.Q2_0,
)

# The formats of most tensors, of the finer ones, and of the output.
QUANTS = {
    "q4_0": (T.Q4_0, T.Q4_0, T.Q4_0, LlamaFileType.MOSTLY_Q4_0),
    "q4_1": (T.Q4_1, T.Q4_1, T.Q4_1, LlamaFileType.MOSTLY_Q4_1),
    "q8_0": (T.Q8_0, T.Q8_0, T.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "q4_k_m": (T.Q4_K, T.Q6_K, T.Q6_K, LlamaFileType.MOSTLY_Q4_K_M),
    "q5_k": (T.Q5_K, T.Q5_K, T.Q6_K, LlamaFileType.MOSTLY_Q5_K_S),
    "q6_k": (T.Q6_K, T.Q6_K, T.Q6_K, LlamaFileType.MOSTLY_Q6_K),
    "mxfp4": (T.MXFP4, T.MXFP4, T.MXFP4, LlamaFileType.MOSTLY_MXFP4_MOE),
    **{kind.name.lower(): (kind, kind, kind, LlamaFileType[f"MOSTLY_{kind.name}"]) for kind in ALIKE},
    "f16": (T.F16, T.F16, T.F16, LlamaFileType.MOSTLY_F16),
}


# The formats that llama.cpp takes for rows that are not whole blocks.
SHORT_ROWS = {T.Q4_K: T.Q5_0, T.Q5_K: T.Q5_1, T.Q6_K: T.Q8_0}

FLOATS = {T.F32: np.float32, T.F16: np.float16}


def fitting(quant, shape):
    """The format of a tensor that is to have this one."""
    is_short = quant in SHORT_ROWS and shape[-1] % GGML_QUANT_SIZES[quant][0]
    return SHORT_ROWS[quant] if is_short else quant


def blocks(rng, quant, shape):
    """Random weights of about zero mean and a deviation of columns**-0.5, as the bytes of a format."""
    columns = shape[-1]
    deviation = columns ** -0.5
    if quant in FLOATS:
        return (rng.standard_normal(shape, np.float32) * deviation).astype(FLOATS[quant])
    n = int(np.prod(shape)) // GGML_QUANT_SIZES[quant][0]
    spread = rng.uniform(0.7, 1.3, size=(n, 1))

    def half(scale):
        return (spread * scale * deviation).astype(np.float16).view(np.uint8)

    def noise(width):
        return rng.integers(0, 256, (n, width), np.uint8)

    def split_half(scale):
        """The other scales of IQ1_M, of three bits, with four bits of the block's above each four of them."""
        bits = half(scale).view(np.uint16) >> np.arange(0, 16, 4, dtype=np.uint16) & 15
        return (rng.integers(0, 4096, (n, 4), np.uint16) | bits << 12).view(np.uint8)

    # A block is its scale (and offset) and then its quants, but for a few, where the scale comes last. The factor is
    # 1 over the deviation of weights with random bits in a block with the scale 1.
    parts = {
        T.Q4_0: lambda: [half(1 / 4.6), noise(16)],
        T.Q4_1: lambda: [half(1 / 4.6), half(-7.5 / 4.6), noise(16)],
        T.Q5_0: lambda: [half(1 / 9.2), noise(20)],
        T.Q5_1: lambda: [half(1 / 9.2), half(-15.5 / 9.2), noise(20)],
        T.Q8_0: lambda: [half(1 / 74), noise(32)],
        T.Q4_K: lambda: [half(1 / 150), half(7.5 / 150), noise(12 + 128)],
        T.Q5_K: lambda: [half(1 / 300), half(15.5 / 300), noise(12 + 32 + 128)],
        T.Q6_K: lambda: [noise(128 + 64), rng.integers(20, 60, (n, 16), np.uint8), half(1 / 740)],
        T.IQ4_NL: lambda: [half(1 / 67), noise(16)],
        T.IQ4_XS: lambda: [half(1 / 1240), noise(134)],
        T.MXFP4: lambda: [np.full((n, 1), round(128 + np.log2(deviation / 5.8)), np.uint8), noise(16)],
        T.NVFP4: lambda: [rng.integers(2, 4, (n, 4), np.uint8), noise(32)],  # its smallest scales are as large as these
        T.Q1_0: lambda: [half(1), noise(16)],
        T.Q2_0: lambda: [half(1 / 1.2), noise(16)],
        T.TQ2_0: lambda: [noise(64), half(1 / 1.2)],
        T.TQ1_0: lambda: [noise(52), half(1 / 0.8)],
        T.IQ3_XXS: lambda: [half(1 / 142), noise(96)],
        T.IQ3_S: lambda: [half(1 / 140), noise(108)],
        T.IQ2_XXS: lambda: [half(1 / 53), noise(64)],
        T.IQ2_XS: lambda: [half(1 / 56), noise(72)],
        T.IQ2_S: lambda: [half(1 / 57), noise(80)],
        T.IQ1_S: lambda: [half(1 / 7.2), noise(48)],
        T.IQ1_M: lambda: [noise(48), split_half(1 / 7.2)],
    }[quant]()
    return np.ascontiguousarray(np.concatenate(parts, 1).reshape(*shape[:-1], -1))
