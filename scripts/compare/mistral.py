"""Measures mistral.rs on one model: a program of its own, run with the python of its environment.

It prints a JSON line for each test with the samples in tokens a second, as llama.py does. The times are those that
mistral.rs gives with an answer. Its cache on a CPU is f16, and its kernels choose the instruction set as they run.
"""
import argparse
import json
import os
import random
import sys
from pathlib import Path

# Each one token in byte-level vocabularies, with the space before it.
WORDS = "the of and to in is that was for on with as at by from this are or which one all there their been has".split()


class Model:
    def __init__(self, path):
        import mistralrs  # which reads the environment
        self.request = mistralrs.CompletionRequest
        which = mistralrs.Which.GGUF(quantized_model_id=str(path.parent), quantized_filename=path.name)
        self.runner = mistralrs.Runner(which=which, prefix_cache_n=0, token_source="none")
        self.random = random.Random(1)

    def answer(self, prompt, count):
        """The usage of a request that reads `prompt` random tokens and chooses `count` others."""
        text = " ".join(self.random.choices(WORDS, k=prompt))
        request = self.request(model="default", prompt=text, max_tokens=count, temperature=0.0, ignore_eos=True)
        usage = self.runner.send_completion_request(request).usage
        if (usage.prompt_tokens, usage.completion_tokens) != (prompt, count):
            sys.exit(f"mistral.rs: {usage.prompt_tokens} tokens read, {usage.completion_tokens} chosen; {prompt}, {count} wanted")
        return usage


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", required=True, metavar="FILE", type=Path)
    parser.add_argument("-t", required=True, metavar="THREADS")
    parser.add_argument("-p", type=int, required=True, metavar="PROMPT")
    parser.add_argument("-n", type=int, required=True, metavar="GENERATION")
    parser.add_argument("-r", type=int, default=2, metavar="REPETITIONS")
    a = parser.parse_args()

    os.environ["RAYON_NUM_THREADS"] = a.t
    os.environ["RUST_LOG"] = "error"
    model = Model(a.m)
    model.answer(a.p, 2)
    prompts = [a.p / model.answer(a.p, 1).total_prompt_time_sec for _ in range(a.r)]
    print(json.dumps({"test": "prompt", "samples": prompts}), flush=True)
    # The first token comes of the prompt, and its time is not counted.
    steps = [a.n / model.answer(1, a.n + 1).total_completion_time_sec for _ in range(a.r)]
    print(json.dumps({"test": "generation", "samples": steps}), flush=True)


main()
