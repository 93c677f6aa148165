"""rope-cpu, through its example `logits` and its commands: one side of every comparison."""
import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from files import ROOT, WORK
from llama import Rope


class RopeCpu:
    def __init__(self):
        self.program = self.built("logits")
        self.rope_cpu = self.program.parent.parent / "rope-cpu"

    def built(self, example):
        done = subprocess.run([ROOT / "scripts/program", example], check=True, stdout=subprocess.PIPE, text=True)
        return Path(done.stdout.strip())

    def logits(self, path, tokens, rope=Rope(), last=None, cache_type="f32"):
        """(last or len(tokens), vocabulary): row i is what follows token i, teacher-forced."""
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            out = Path(folder) / "logits.f32"
            self.run(folder, path, tokens, len(tokens), cache_type, *rope.flags(),
                     "--last", str(last or len(tokens)), "-o", str(out))
            return np.fromfile(out, np.float32).reshape(last or len(tokens), -1)

    def bake(self, path, out, rope, context):
        """A copy of a model that runs with this scaling in programs that don't know it."""
        command = [self.rope_cpu, "rope", "bake", "-m", path, "-o", out, "-c", str(context), *rope.flags()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def quantize(self, source, out, kind):
        """A copy of a model in another format."""
        command = [self.rope_cpu, "quantize", source, out, kind]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def greedy(self, path, tokens, count):
        """`count` most probable tokens, each fed back."""
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            said = self.run(folder, path, tokens, len(tokens) + count, "f32", "--greedy", str(count))
        return [int(line.split()[0]) for line in said.splitlines()]

    def perplexity(self, path, text, window, windows, cache_type="f32"):
        """Of the first windows of a text."""
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            return self.judge(folder, path, text, window, windows, cache_type)["perplexity"]

    def log_probabilities(self, path, text, window, rope, last, micro_batch=512):
        """The tokens of a text's first window, and what is expected in place of the `last` ones, see `as_saved`. For what
        the example has no flags for. The text must fill two windows, and `last` be less than half of one.
        """
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            out = Path(folder) / "log-probabilities"
            self.judge(folder, path, text, window, 1, "f32", *rope.flags(),
                       "--ubatch-size", str(micro_batch), "--kl-divergence-base", out)
            return saved(out, last)

    def judge(self, folder, path, text, window, windows, cache_type, *arguments):
        file = Path(folder) / "text"
        file.write_text(text)
        command = [self.rope_cpu, "perplexity", "-m", path, "-f", file, "--ctx", str(window), "--chunks", str(windows),
                   "--cache-type-k", cache_type, "--cache-type-v", cache_type, "--threads", "2", "--json", *arguments]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(done.stdout)

    def run(self, folder, path, tokens, length, cache_type, *arguments):
        file = Path(folder) / "tokens"
        file.write_text(" ".join(map(str, tokens)))
        done = subprocess.run(
            [self.program, "-m", path, "--tokens", file, "--ctx", str(length), "--cache-type", cache_type, *arguments],
            stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, done.args))}: exit code {done.returncode}")
        return done.stdout


def saved(path, last):
    """The text and the last rows of a file of llama-perplexity's (--kl-divergence-base) with one window. A row has the size
    of a step, the least log-probability, and how many steps each lies above it.
    """
    with open(path, "rb") as file:
        magic, (window, vocabulary, windows) = file.read(8), np.fromfile(file, "<i4", 3)
        assert (magic, windows) == (b"_logits_", 1), (magic, windows)
        tokens = np.fromfile(file, "<i4", window).tolist()
        row = np.dtype([("step", "<f4"), ("least", "<f4"), ("steps", "<u2", vocabulary + vocabulary % 2)])
        file.seek(-last * row.itemsize, os.SEEK_END)
        rows = np.fromfile(file, row)
    return tokens, rows["step"][:, None] * rows["steps"][:, :vocabulary] + rows["least"][:, None]
