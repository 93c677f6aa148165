"""llama.cpp in rope-cpu's place, right or slightly wrong, to test the checks themselves."""
import tempfile
from dataclasses import replace
from pathlib import Path

from files import CACHE
from llama import SCALING, Model, Rope, quantize
from ours import RopeCpu


class LlamaCpp:
    def __init__(self, wrong):
        self.wrong = wrong

    def logits(self, path, tokens, rope=Rope(), last=None, cache_type="f32"):
        if rope.rope_scaling not in SCALING:  # in the file, then
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                baked = Path(folder) / "baked.gguf"
                self.bake(path, baked, self.spoilt(rope), 4 * len(tokens))
                with Model(baked) as llama:
                    return llama.logits(tokens, Rope(), last, cache_type=cache_type)
        with Model(path) as llama:
            return llama.logits(tokens, self.spoilt(rope), last, cache_type=cache_type)

    def bake(self, *arguments):
        RopeCpu().bake(*arguments)

    def quantize(self, source, out, kind):
        quantize(source, out, {"Q4_0": "Q8_0"}.get(kind, "Q4_0") if self.wrong else kind)

    def greedy(self, path, tokens, count):
        with Model(path) as llama:
            return llama.greedy(tokens, count, self.spoilt(Rope()))

    def spoilt(self, rope):
        scale = rope.rope_freq_scale or 1.0
        return replace(rope, rope_freq_scale=scale / 2) if self.wrong else rope
