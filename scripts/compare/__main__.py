"""Measures rope-cpu and llama.cpp in turns on this machine and prints a markdown table.

usage: scripts/compare-llama-cpp [OPTIONS]      (which makes what this needs)

Each row is the median of the samples of several rounds; in a round every program runs once, one after the other.
"""
import argparse
import os
import shlex
import sys
import time

from engines import RopeCpu, machine, peers
from lengths import measure_lengths
from models import MODELS
from rows import LONG, MEASUREMENTS, QUICK
from table import markdown, write

QUIET = 0.5


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", metavar="NAME,...", help="only these (--list names them)")
    parser.add_argument("--list", action="store_true", help="name the rows, and stop")
    parser.add_argument("--lengths", action="store_true",
                        help="measure a whole model by length instead, for the chart, into docs/results")
    parser.add_argument("--quick", action="store_true", help="a few rows, one round")
    parser.add_argument("--long", action="store_true",
                        help=f"measure the row {LONG} too: 16,000 tokens with all layers, for more than an hour")
    parser.add_argument("--ik", action="store_true", help="measure ik_llama.cpp too")
    parser.add_argument("--mistralrs", action="store_true", help="measure mistral.rs too, in the row coder")
    parser.add_argument("--isa", choices=["avx2"], help="hold all programs to this instruction set")
    parser.add_argument("--write", action="store_true",
                        help="replace the table of this instruction set in docs/performance.md")
    parser.add_argument("-r", "--repetitions", type=int, default=2, help="samples a round and program [2]")
    parser.add_argument("-t", "--threads", type=int, help="for all programs [what rope-cpu machine chooses]")
    a = parser.parse_args()
    if a.isa and (a.mistralrs or a.lengths):
        parser.error("--isa is not for --mistralrs (which chooses by itself) and --lengths")
    return a


def selected(a):
    usual = QUICK if a.quick else [name for name in MEASUREMENTS if name != LONG]
    names = a.rows.split(",") if a.rows else list(usual)
    names += [LONG] if a.long and LONG not in names else []
    for name in names:
        if name not in MEASUREMENTS:
            sys.exit(f"compare: there is no row {name}; there are {', '.join(MEASUREMENTS)}")
    return {name: MEASUREMENTS[name] for name in names}


def measure(m, threads, a):
    """{engine: {test: samples}}, the programs one after the other in each round."""
    samples = {}
    for _ in range(1 if a.quick else m.rounds):
        for engine in [RopeCpu(), *peers(m, a)]:
            if m.start:
                MODELS[m.model].path().read_bytes()  # starts from a warm page cache are compared
            for test, values in engine.measure(m, threads, a.repetitions).items():
                samples.setdefault(engine.name, {}).setdefault(test, []).extend(values)
    return samples


def main():
    a = arguments()
    if a.isa:
        os.environ["ROPE_CPU_ISA"] = a.isa
    if a.list:
        for name, m in MEASUREMENTS.items():
            rows = ", ".join(label for _, label in m.rows())
            print(f"{name:14} {MODELS[m.model].name}{m.what and ', ' + m.what}: {rows}")
        return
    if a.lengths:
        measure_lengths(a.threads or machine()["threads"])
        return
    chosen = selected(a)
    for m in chosen.values():
        MODELS[m.model].path()
        for engine in peers(m, a):
            engine.python()

    # What was built and written just now is not to be counted as others' work.
    before = os.getloadavg()[0]
    busy = before > QUIET
    if busy:
        print(f"compare: WARNING: this machine is busy (load {before:.2f}): these numbers say little", file=sys.stderr)
    facts = machine()
    threads = a.threads or facts["threads"]
    results = []
    for name, m in chosen.items():
        began = time.monotonic()
        results.append((m, measure(m, threads, a)))
        print(f"compare: {name} took {time.monotonic() - began:.0f} s", file=sys.stderr)
    after = os.getloadavg()[0]

    rounds = sorted({1 if a.quick else m.rounds for m in chosen.values()})
    command = shlex.join(["scripts/compare-llama-cpp", *sys.argv[1:]])
    topology, all_threads = facts["topology"] or {}, facts["measured"][-1]
    notes = [
        f"{topology.get('model') or 'This machine'}, {threads} threads, {facts['isa']}; {time.strftime('%Y-%m-%d')}. "
        f"Read bandwidth with {all_threads['threads']} threads: {all_threads['read_bandwidth'] / 1e9:.1f} GB/s (`rope-cpu machine`). "
        f"`{command}`: programs in turns, {a.repetitions} samples a round, rounds: {' or '.join(map(str, rounds))}; medians "
        "± half of the range. `of limit` is rope-cpu's share of the limit that the same process measured right before: "
        "memory bandwidth for generation, arithmetic for prompts. "
        f"Load {before:.2f} before, {after:.2f} after.",
    ]
    if busy:
        notes += ["", "**The machine was busy: these numbers say little.**"]
    names = ["llama.cpp"] + (["ik_llama.cpp"] if a.ik else []) + (["mistral.rs"] if a.mistralrs else [])
    text = markdown(results, names, notes)
    print(text)
    if a.write:
        write(text, facts["isa"])


main()
