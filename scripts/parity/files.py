"""The models that are compared, and copies of them with one thing changed. The copies are kept in the user's cache."""
import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "scripts"))
import gguf_types  # noqa: E402, F401 (adds Q1_0 and Q2_0)
WORK = ROOT / "target"
WORK.mkdir(exist_ok=True)
QUANTIZED = {
    "smollm2": ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3": ROOT / "models/gemma-3-270m-q4_k_m.gguf",
}


def f32_twin(name):
    """The model with every tensor decoded to F32: the exact meaning of the quantized file."""
    return made(f"{name}-f32.gguf", lambda out: rewrite(QUANTIZED[name], out))


FORMATS = ("iq4_nl iq4_xs mxfp4 nvfp4 tq2_0 tq1_0 iq3_xxs iq3_s iq2_xxs iq2_xs iq2_s iq1_s iq1_m q1_0 q2_0").split()


def toy(quant):
    """A tiny llama of random weights in that format."""
    command = [sys.executable, ROOT / "scripts/make-bench-model", "--shape", "toy", "--quant", quant]
    return made(f"toy-{quant}.gguf", lambda out: subprocess.run([*command, out], check=True))


def f32_toy(quant):
    """Its exact meaning."""
    return made(f"toy-{quant}-f32.gguf", lambda out: rewrite(toy(quant), out))


def without_window(name):
    """The F32 twin, with a sliding window that hides nothing."""
    key = f"{name}.attention.sliding_window"
    return made(f"{name}-f32-no-window.gguf", lambda out: rewrite(f32_twin(name), out, metadata={key: 1 << 20}))


def without_qk_norm(name):
    """The F32 twin, with queries and keys normed but their weights gone."""
    ones = lambda tensor, data: np.ones_like(data) if tensor.endswith(("_q_norm.weight", "_k_norm.weight")) else data
    return made(f"{name}-f32-no-qk-norm.gguf", lambda out: rewrite(f32_twin(name), out, edit=ones))


@functools.cache
def cache():
    scripts = ROOT / "scripts"
    recipe = [scripts / name for name in ("parity/files.py", "fetch-models", "gguf_types.py", "make-bench-model")]
    recipe += sorted((scripts / "bench_model").glob("*.py"))
    return Path(subprocess.check_output([scripts / "cache", "parity", *recipe], text=True).strip())


def made(name, make):
    """The file of that name, made if it isn't there. A partial file never has the name."""
    path = cache() / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        make(partial)
        partial.rename(path)
    return path


def weights(path):
    """The type and the decoded values of each tensor, by name."""
    return {t.name: (t.tensor_type, dequantize(t.data, t.tensor_type)) for t in GGUFReader(str(path)).tensors}


def rewrite(source, out, metadata={}, edit=lambda name, data: data):
    """Copy a model with its tensors as F32 and the given changes."""
    reader = GGUFReader(str(source))
    writer = GGUFWriter(str(out), reader.fields["general.architecture"].contents())
    unknown = set(metadata) - set(reader.fields)
    assert not unknown, unknown
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        kind, value = field.types[0], metadata.get(key, None)
        value = field.contents() if value is None else value
        writer.add_key_value(key, value, kind, field.types[-1] if kind == GGUFValueType.ARRAY else None)
    writer.add_file_type(0)
    for tensor in reader.tensors:
        data = tensor.data
        if tensor.tensor_type != GGMLQuantizationType.F32:
            data = dequantize(data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, np.ascontiguousarray(edit(tensor.name, data)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
