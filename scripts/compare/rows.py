"""What is measured: each entry is one run of either program and one or two rows of the table."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    model: str               # a key of models.MODELS
    what: str = ""           # what sets it apart, for the table
    prompt: int = 512
    generation: int = 64
    depth: int = 0
    cache: str = "f16"
    isa: str = ""            # held to this one
    theirs: bool = True      # whether llama.cpp has the like
    rope_freq_scale: float = 0.0
    rounds: int = 3

    def rows(self):
        """(test, its name in the table) of each row."""
        behind = f" behind {self.depth:,}" if self.depth else ""
        if self.prompt:
            yield "prompt", f"reads {self.prompt:,} tokens{behind}"
        if self.generation:
            yield "generation", f"writes {self.generation} tokens{behind}"


def deep(cache, **more):
    return Measurement("q4_0", f"{cache} cache", depth=8192, cache=cache, rounds=2, **more)


MEASUREMENTS = {
    "q4_0": Measurement("q4_0"),
    "q4_1": Measurement("q4_1"),
    "q4_k_m": Measurement("q4_k_m"),
    "q5_k": Measurement("q5_k"),
    "q6_k": Measurement("q6_k"),
    "q8_0": Measurement("q8_0"),
    "llama3": Measurement("llama3"),
    "deep-f16": deep("f16"),
    "deep-q8_0": deep("q8_0"),
    "deep-q4_0": deep("q4_0", theirs=False),
    "smollm2": Measurement("smollm2"),
    # Twice what it was trained for.
    "smollm2-long": Measurement("smollm2", prompt=16384, generation=0, rope_freq_scale=0.5, rounds=2),
    "avx2-q4_0": Measurement("q4_0", "AVX2", isa="avx2"),
    "avx2-q4_k_m": Measurement("q4_k_m", "AVX2", isa="avx2"),
    "avx2-q8_0": Measurement("q8_0", "AVX2", isa="avx2"),
}

QUICK = ("q4_0", "q4_k_m", "smollm2")
