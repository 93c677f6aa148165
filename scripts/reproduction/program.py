"""Runs rope-cpu on tiny models with the RoPE metadata of large ones."""

import json
import math
import os
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("ROPE_CPU") or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/rope-cpu"
MODELS = tempfile.TemporaryDirectory()

UINT32, FLOAT32, STRING = 4, 6, 8
F32 = 0


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


@cache
def model(context=4096, dimensions=128, base=10000.0):
    """A GGUF file with one layer and one head of zeros: by default with the RoPE of Llama 2."""
    metadata = text("general.architecture") + struct.pack("<I", STRING) + text("llama")
    sizes = {"context_length": context, "embedding_length": dimensions, "block_count": 1, "feed_forward_length": 32,
             "attention.head_count": 1}
    for key, value in sizes.items():
        metadata += text(f"llama.{key}") + struct.pack("<II", UINT32, value)
    for key, value in {"rope.freq_base": base, "attention.layer_norm_rms_epsilon": 1e-5}.items():
        metadata += text(f"llama.{key}") + struct.pack("<If", FLOAT32, value)
    square, narrow = [dimensions, dimensions], [dimensions, 32]
    tensors = {"token_embd": [dimensions, 1], "output_norm": [dimensions], "blk.0.attn_norm": [dimensions],
               "blk.0.attn_q": square, "blk.0.attn_k": square, "blk.0.attn_v": square, "blk.0.attn_output": square,
               "blk.0.ffn_norm": [dimensions], "blk.0.ffn_gate": narrow, "blk.0.ffn_up": narrow,
               "blk.0.ffn_down": narrow[::-1]}
    described, offset = b"", 0
    for name, shape in tensors.items():
        described += text(f"{name}.weight") + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        described += struct.pack("<IQ", F32, offset)
        offset += 4 * math.prod(shape)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(sizes) + 3) + metadata + described
    path = Path(MODELS.name) / f"{context}-{dimensions}-{base:g}.gguf"
    path.write_bytes(head + bytes(-len(head) % 32 + offset))
    return path


def zeros(pairs):
    """A safetensors file with CLEX's two matrices of zeros."""
    size = 4 * pairs
    header = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [start, start + size]} for name, shape, start in
                         (("ode_up_proj", [pairs, 1], 0), ("ode_down_proj", [1, pairs], size))}).encode()
    path = Path(MODELS.name) / "zeros.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(2 * size))
    return path


def rope(*arguments):
    """What `rope-cpu rope ARGUMENTS --json` prints."""
    command = [PROGRAM, "rope", *map(str, arguments), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def disturbances(length, methods, path=None, *flags):
    """{method: {mean, pairs}} in nats."""
    found = rope("disturbance", "-m", path or model(), "-c", length, "--methods", ",".join(methods), *flags)
    return {one["name"]: one for one in found["methods"]}


def plans(length, methods, path=None, *flags):
    """{method: its frequencies, attention scale and disturbance}."""
    found = rope("compare", "-m", path or model(), "-c", length, "--methods", ",".join(methods), *flags)
    return {one["method"]: one for one in found}
