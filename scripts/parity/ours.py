"""rope-cpu, through its example `logits`: one side of every comparison."""
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from files import CACHE, ROOT
from llama import Rope


class RopeCpu:
    def __init__(self):
        build = ["cargo", "build", "--quiet", "--release", "--locked", "--bins", "--example", "logits"]
        subprocess.run(build, cwd=ROOT, check=True)
        release = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
        self.program, self.rope_cpu = release / "examples/logits", release / "rope-cpu"

    def logits(self, path, tokens, rope=Rope(), last=None, cache_type="f32"):
        """(last or len(tokens), vocabulary): row i is what follows token i, teacher-forced."""
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
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
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            said = self.run(folder, path, tokens, len(tokens) + count, "f32", "--greedy", str(count))
        return [int(line.split()[0]) for line in said.splitlines()]

    def run(self, folder, path, tokens, length, cache_type, *arguments):
        file = Path(folder) / "tokens"
        file.write_text(" ".join(map(str, tokens)))
        done = subprocess.run(
            [self.program, "-m", path, "--tokens", file, "--ctx", str(length), "--cache-type", cache_type, *arguments],
            stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, done.args))}: exit code {done.returncode}")
        return done.stdout
