"""llama.cpp in rope-cpu's place, right or slightly wrong, to test the checks themselves."""
import tempfile
from dataclasses import replace
from pathlib import Path

from files import WORK
from llama import SCALING, Model, Rope, quantize
from measure import as_saved
from ours import RopeCpu
from reference import Model as Reference


class LlamaCpp:
    def __init__(self, wrong):
        self.wrong = wrong

    def logits(self, path, tokens, rope=Rope(), last=None, cache_type="f32"):
        if rope.rope_scaling not in SCALING:  # in the file, then
            with tempfile.TemporaryDirectory(dir=WORK) as folder:
                baked = Path(folder) / "baked.gguf"
                self.bake(path, baked, self.spoilt(rope), 4 * len(tokens))
                with Model(baked) as llama:
                    return llama.logits(tokens, Rope(), last, cache_type=cache_type)
        with Model(path) as llama:
            return llama.logits(tokens, self.spoilt(rope), last, cache_type=cache_type)

    def perplexity(self, path, text, window, windows, cache_type="f32"):
        with Model(path) as llama:
            return llama.perplexity(text, window, windows, self.spoilt(Rope()), cache_type=cache_type)

    def log_probabilities(self, path, text, window, rope, last, micro_batch=512):
        """By the frequencies of one length, as llama.cpp knows no other: the whole window's, or under the policy `position`
        that of its beginning. The wrong ones there are those of the last micro-batch's end.
        """
        length = window
        if rope.rope_policy == "position":
            length = -(-window // micro_batch) * micro_batch if self.wrong else 1
        base, scale, yarn = Reference(path).frequencies(rope, length)
        rope = Rope("yarn" if yarn else "linear", scale, base, yarn or 0)
        with Model(path) as llama:
            tokens = llama.tokenize(text)[:window]
            return tokens, as_saved(llama.logits(tokens[:-1], self.spoilt(rope), last))

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
