"""The programs that are measured: each takes a measurement and returns the samples of each test."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import cache

from models import MODELS, ROOT
from rows import limit

# Of what the machine reached right before the test, as rope-cpu bench names it: reading memory, or computing.
SHARES = {"generation": "bandwidth_share", "prompt": "peak_share"}


@dataclass(frozen=True)
class Finished:
    """What a program printed as JSON lines, and what it took."""
    lines: list
    seconds: float
    memory: float  # GB at its peak, pages of mapped files included


def run(command):
    command = [str(word) for word in command]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            said = "\n".join(err.read().splitlines()[-20:])
            sys.exit(f"compare: {' '.join(command)} failed:\n{said}")
        lines = [json.loads(line) for line in out.read().splitlines() if line.startswith("{")]
    return Finished(lines, seconds, usage.ru_maxrss * 1024 / 1e9)


def common(m, threads, repetitions):
    return ["-m", MODELS[m.model].path(), "-t", threads, "-p", m.prompt, "-n", m.generation, "-d", m.depth,
            "-r", 1 if m.whole else repetitions]


def whole(done, first):
    """The samples of a program that was run once; `first`: the seconds until the first token, if measured."""
    return {"first": first, "seconds": [done.seconds], "memory": [done.memory]}


@cache
def program():
    return subprocess.check_output([ROOT / "scripts/program"], text=True).strip()


class RopeCpu:
    name = "rope-cpu"

    def measure(self, m, threads, repetitions):
        if m.start:
            command = [program(), "-m", MODELS[m.model].path(), "-t", threads, "-no-cnv", "-p", "a", "-n", 1]
            return {"start": [run(command).seconds for _ in range(repetitions)]}
        command = [program(), "bench", "-o", "jsonl", "-ctk", m.cache, "-ctv", m.cache]
        command += ["--rope-freq-scale", m.rope_freq_scale] if m.rope_freq_scale else []
        if m.sequences > 1:
            return self.measure_sequences(command, m, threads, repetitions)
        if m.whole and m.prompt:
            together = ["-pg", f"{m.prompt},{m.generation}"]
            command += [*common(replace(m, prompt=0, generation=0), threads, repetitions), *together]
        else:
            command += common(m, threads, repetitions)
        done = run(command)
        if m.whole:
            return whole(done, [row["time_to_first_token_ns"] / 1e9 for row in done.lines if m.prompt])
        samples = {}
        for row in done.lines:
            test = "prompt" if row["n_prompt"] else "generation"
            samples[test] = row["samples_ts"]
            if row[SHARES[test]] is not None:
                samples[limit(test)] = [row[SHARES[test]]]
        return samples

    def measure_sequences(self, command, m, threads, repetitions):
        [row] = run([*command, "-m", MODELS[m.model].path(), "-t", threads, "-r", repetitions, "-npp", m.depth,
                     "-ntg", m.generation, "-npl", m.sequences]).lines
        return {"generation": [m.sequences * m.generation / seconds for seconds in row["samples_t_tg"]]}


def python(environment):
    command = [ROOT / "scripts/python-tools", *environment.split()]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@dataclass(frozen=True)
class Llama:
    name: str
    environment: str  # as scripts/python-tools names it, empty for its default

    def python(self):
        return python(self.environment)

    def measure(self, m, threads, repetitions):
        command = [self.python(), ROOT / "scripts/compare/llama.py", *common(m, threads, repetitions)]
        command += ["--cache-type", m.their_cache or m.cache]
        command += ["--rope-freq-scale", m.rope_freq_scale] if m.rope_freq_scale else []
        command += ["--sequences", m.sequences] if m.sequences > 1 else []
        command += ["--together"] if m.whole and m.prompt else []
        command += ["--start"] if m.start else []
        done = run(command)
        compiled, *tests = done.lines
        self.check(compiled["system_info"], machine()["isa"])
        if m.whole:
            return whole(done, [seconds for test in tests if test["test"] == "first" for seconds in test["samples"]])
        return {test["test"]: test["samples"] for test in tests}

    def check(self, system_info, isa):
        """Refuses a build that has more than what it is compared with, or less than the machine."""
        features = {name for name, has in re.findall(r"(\w+) = (\d)", system_info) if has == "1"}
        held = self in (LLAMA_AVX2, IK_AVX2)
        wrong = "AVX512" if held else "AMX"
        if any(feature.startswith(wrong) for feature in features):
            sys.exit(f"compare: {self.name} was compiled with {wrong}: {system_info}")
        if isa == "avx512" and not held and "AVX512_VNNI" not in features:
            sys.exit(f"compare: {self.name} was compiled without AVX-512: {system_info}")


class MistralRs:
    name = "mistral.rs"

    def python(self):
        return python("mistral")

    def measure(self, m, threads, repetitions):
        command = [self.python(), ROOT / "scripts/compare/mistral.py", "-m", MODELS[m.model].path(), "-t", threads,
                   "-p", m.prompt, "-n", m.generation, "-r", repetitions]
        return {test["test"]: test["samples"] for test in run(command).lines}


@cache
def machine():
    """What rope-cpu says of this machine."""
    command = [program(), "machine", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


LLAMA = Llama("llama.cpp", "")
LLAMA_AVX2 = Llama("llama.cpp", "avx2")
IK = Llama("ik_llama.cpp", "ik")
IK_AVX2 = Llama("ik_llama.cpp", "ik-avx2")
MISTRAL_RS = MistralRs()


def peers(m, a):
    """What `m` is compared with."""
    if not m.theirs:
        return []
    llama, ik = (LLAMA_AVX2, IK_AVX2) if a.isa else (LLAMA, IK)
    return [llama, *([ik] if a.ik else []), *([MISTRAL_RS] if a.mistralrs and m.mistralrs else [])]
