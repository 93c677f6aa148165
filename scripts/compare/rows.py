"""What is measured: each entry is one run of either program and one or two rows of the table."""
from dataclasses import dataclass

from models import FORMATS


@dataclass(frozen=True)
class Measurement:
    model: str               # a key of models.MODELS
    what: str = ""           # what sets it apart, for the table
    prompt: int = 512
    generation: int = 64
    depth: int = 0
    sequences: int = 1       # that generate together, each behind its own depth
    cache: str = "f16"
    their_cache: str = ""    # of llama.cpp, if it differs
    theirs: bool = True      # whether llama.cpp can run it
    mistralrs: bool = False  # whether mistral.rs is measured, which needs a model with a vocabulary
    rope_freq_scale: float = 0.0
    rounds: int = 3
    whole: bool = False      # the time and memory of the whole program
    start: bool = False      # the time from start to the first token

    def rows(self):
        """(test, its name in the table) of each row."""
        depth = f", depth {self.depth:,}" if self.depth else ""
        if self.start:
            yield "start", "start and first token (s)"
        elif self.whole:
            what = f"{self.prompt or self.depth:,} prompt tokens, then {self.generation} generated"
            if self.prompt:
                yield "first", f"{what}: until the first token, without loading (s)"
            yield "seconds", f"{what} (s)"
            yield "memory", f"{what} (GB)"
        else:
            if self.prompt:
                yield "prompt", f"prompt processing, {self.prompt:,} tokens{depth} (tokens/s)"
            if self.generation:
                each = f" in each of {self.sequences} sequences" if self.sequences > 1 else ""
                yield "generation", f"generation, {self.generation} tokens{each}{depth} (tokens/s)"


def limit(test):
    """Where rope-cpu's shares of the machine's limit are, beside the samples of a test."""
    return f"{test} of limit"


# Where less is better.
COSTS = ("start", "first", "seconds", "memory")


# All layers: llama.cpp takes an hour, so this row is measured only by name or with --long.
LONG = "long"


def deep(cache, depth=8192, model="q4_0", their_cache="", **more):
    """Few samples: llama.cpp takes minutes to process the depth."""
    what = f"{cache} cache" + (f", {their_cache} in llama.cpp" if their_cache else "")
    return Measurement(model, what, depth=depth, generation=16, cache=cache, their_cache=their_cache, rounds=1, **more)


def batch(model, sequences):
    """Tokens of several sequences, computed in one batch."""
    return Measurement(model, prompt=0, generation=32, depth=16, sequences=sequences)


KINDS = ("experts", "hybrid", "latent", "gemma4")

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
    # Attention to far tokens as precise in both programs: neither in 8 bits, and both.
    "deep-f32": deep("f32", their_cache="f16"),
    "deep-f16-q8_0": deep("f16", their_cache="q8_0"),
    "deep-q4_0": deep("q4_0", theirs=False),
    "deeper-f16": deep("f16", depth=16384),
    "deeper-q8_0": deep("q8_0", depth=16384, theirs=False),
    "deep-llama3-f16": deep("f16", model="llama3"),
    "deep-llama3-q8_0": deep("q8_0", model="llama3"),
    # A model of each kind: a mixture of experts, the delta rule, attention to latents, a large vocabulary.
    **{kind: Measurement(kind) for kind in KINDS},
    **{f"deep-{kind}": deep("f16", depth=16384, model=kind) for kind in KINDS},
    "coder": Measurement("coder", prompt=480, mistralrs=True),
    # Six query heads share a KV head.
    "coder-deep-f16": deep("f16", depth=16384, model="coder"),
    "coder-deep-q8_0": deep("q8_0", depth=16384, model="coder"),
    "smollm2": Measurement("smollm2"),
    # Twice what it was trained for.
    "smollm2-long": Measurement("smollm2", prompt=16384, generation=0, rope_freq_scale=0.5, rounds=1),
    # What the program was first written for, with a quarter of the layers.
    "case": Measurement("q4_0", "--ctx 16384 --rope-freq-scale 0.25", depth=16000, rope_freq_scale=0.25, prompt=0,
                        rounds=1, whole=True),
    LONG: Measurement("whole", "--ctx 16384 --rope-freq-scale 0.25", prompt=16000, rope_freq_scale=0.25, rounds=1,
                      whole=True),
    "start": Measurement("q4_0", start=True),
    **{f"batch-{n}": batch("q4_0", n) for n in (2, 4, 8, 16)},
    **{f"coder-batch-{n}": batch("coder", n) for n in (2, 4, 8)},
    **{quant: Measurement(quant, rounds=1) for quant in FORMATS},
}

QUICK = ("q4_0", "q4_k_m", "smollm2")
