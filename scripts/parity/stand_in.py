"""llama.cpp in rope-cpu's place, right or slightly wrong, to test the checks themselves."""
from dataclasses import replace

from llama import Model, Rope
from reference import Model as Reference


class LlamaCpp:
    def __init__(self, wrong):
        self.wrong = wrong

    def logits(self, path, tokens, rope=Rope(), last=None, cache_type="f32"):
        with Model(path) as llama:
            return llama.logits(tokens, self.spoilt(path, rope), last, cache_type=cache_type)

    def greedy(self, path, tokens, count):
        with Model(path) as llama:
            return llama.greedy(tokens, count, self.spoilt(path, Rope()))

    def spoilt(self, path, rope):
        base = rope.rope_freq_base or Reference(path).rope_base
        return replace(rope, rope_freq_base=1.03 * base) if self.wrong else rope
