"""The programs that are measured: each takes a measurement and returns samples in tokens a second for each test."""
import json
import subprocess
import sys
from dataclasses import dataclass

from models import MODELS, ROOT

BINARY = ROOT / "target/release/rope-cpu"


def lines(command):
    """Runs a program and returns the JSON lines it prints."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        said = "\n".join(done.stderr.splitlines()[-20:])
        sys.exit(f"compare: {' '.join(map(str, command))} failed:\n{said}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def common(m, threads, repetitions):
    return ["-m", MODELS[m.model].path(), "-t", threads, "-p", m.prompt, "-n", m.generation, "-d", m.depth,
            "-r", repetitions]


class RopeCpu:
    name = "rope-cpu"

    def measure(self, m, threads, repetitions):
        command = [BINARY, "bench", "-o", "jsonl", *common(m, threads, repetitions), "-ctk", m.cache, "-ctv", m.cache]
        command += ["--isa", m.isa] if m.isa else []
        command += ["--rope-freq-scale", m.rope_freq_scale] if m.rope_freq_scale else []
        return {"prompt" if row["n_prompt"] else "generation": row["samples_ts"] for row in lines(command)}


@dataclass(frozen=True)
class Llama:
    name: str
    environment: str  # as scripts/python-tools names it, empty for its default

    def python(self):
        command = [ROOT / "scripts/python-tools", *self.environment.split()]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def measure(self, m, threads, repetitions):
        command = [self.python(), ROOT / "scripts/compare/llama.py", *common(m, threads, repetitions)]
        command += ["--cache-type", m.cache]
        command += ["--rope-freq-scale", m.rope_freq_scale] if m.rope_freq_scale else []
        compiled, *tests = lines(command)
        self.check(compiled["system_info"])
        return {test["test"]: test["samples"] for test in tests}

    def check(self, system_info):
        """Refuses a build that has more than what it is compared with."""
        features = {name.split(":")[-1].strip() for name in system_info.replace("|", "= 1").split("= 1")}
        wrong = "AVX512" if self.environment == "avx2" else "AMX"
        if any(feature.startswith(wrong) for feature in features):
            sys.exit(f"compare: {self.name} was compiled with {wrong}: {system_info}")


def machine():
    """What rope-cpu says of this machine."""
    command = [BINARY, "machine", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


LLAMA = Llama("llama.cpp", "")
LLAMA_AVX2 = Llama("llama.cpp", "avx2")
IK = Llama("ik_llama.cpp", "ik")


def peers(m, ik):
    """What `m` is compared with. (There is no build of ik_llama.cpp for AVX2 alone.)"""
    if not m.theirs:
        return []
    if m.isa:
        return [LLAMA_AVX2]
    return [LLAMA, IK] if ik else [LLAMA]
