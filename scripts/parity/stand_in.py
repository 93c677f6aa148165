"""llama.cpp in rope-cpu's place, right or slightly wrong, to test the checks themselves."""
from dataclasses import replace

from llama import Model, Rope


class LlamaCpp:
    def __init__(self, wrong):
        self.wrong = wrong

    def logits(self, path, tokens, rope=Rope(), last=None, cache_type="f32"):
        with Model(path) as llama:
            return llama.logits(tokens, self.spoilt(rope), last, cache_type=cache_type)

    def greedy(self, path, tokens, count):
        with Model(path) as llama:
            return llama.greedy(tokens, count, self.spoilt(Rope()))

    def spoilt(self, rope):
        scale = rope.rope_freq_scale or 1.0
        return replace(rope, rope_freq_scale=scale / 2) if self.wrong else rope
