"""The models that are measured: shapes with random weights, made when they are missing, and two that are fetched."""
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = 8
ALL_LAYERS = 32  # of Llama 2 7B and Llama 3 8B

# Formats that are measured beside the usual ones, on fewer layers.
FORMATS = ("iq4_nl", "iq4_xs", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s", "tq2_0", "tq1_0",
           "mxfp4", "nvfp4", "q1_0", "q2_0")


@dataclass(frozen=True)
class Made:
    shape: str
    quant: str
    title: str
    layers: int = LAYERS
    of: int = ALL_LAYERS

    @property
    def name(self):
        part = "" if self.layers == self.of else f", {self.layers} of {self.of} layers"
        return f"{self.title}{part}, {self.quant.upper()}"

    def path(self):
        """The file; a few layers say what all do, in a part of the time and the space."""
        maker = ROOT / "scripts/make-bench-model"
        recipe = [maker, ROOT / "scripts/gguf_types.py", *sorted((ROOT / "scripts/bench_model").glob("*.py"))]
        cache = subprocess.check_output([ROOT / "scripts/cache", "bench", *recipe], text=True).strip()
        path = Path(cache, f"{self.shape}-{self.layers}l-{self.quant}.gguf")
        if not path.exists():
            print(f"compare: writing {path}", file=sys.stderr)
            path.parent.mkdir(exist_ok=True)
            part = path.with_suffix(".part")
            maker = [sys.executable, str(maker), str(part)]
            subprocess.run([*maker, "--shape", self.shape, "--quant", self.quant, "--layers", str(self.layers)], check=True)
            part.rename(path)
        return path


@dataclass(frozen=True)
class Fetched:
    name: str
    file: str
    options: tuple = ()  # of scripts/fetch-models

    def path(self):
        path = ROOT / "models" / self.file
        if not path.exists():
            subprocess.run([ROOT / "scripts/fetch-models", *self.options], check=True, stdout=sys.stderr)
        return path


MODELS = {
    **{quant: Made("llama2-7b", quant, "Llama 2 7B") for quant in ("q4_0", "q4_1", "q4_k_m", "q5_k", "q6_k", "q8_0")},
    **{quant: Made("llama2-7b", quant, "Llama 2 7B", 2) for quant in FORMATS},
    "whole": Made("llama2-7b", "q4_0", "Llama 2 7B", ALL_LAYERS),
    "llama3": Made("llama3-8b", "q4_k_m", "Llama 3 8B"),
    "experts": Made("qwen3-30b-a3b", "q4_k_m", "Qwen3 30B-A3B", 4, 48),
    "hybrid": Made("qwen3.5-4b", "q4_k_m", "Qwen3.5 4B", 8, 32),
    "latent": Made("glm-4.7-flash", "q4_k_m", "GLM 4.7 Flash", 4, 47),
    "gemma4": Made("gemma4-e2b", "q4_k_m", "Gemma 4 E2B", 10, 35),
    "smollm2": Fetched("SmolLM2-135M, Q4_1", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "coder": Fetched("Qwen2.5-Coder 1.5B, Q4_K_M", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", ("--coder",)),
}
