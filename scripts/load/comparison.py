"""The same load for rope-cpu and llama-server, in turns."""
import datetime
import os
import pathlib
import re
import statistics
import sys

import client
import load
import workload
from checks import release_times
from server import ROOT, Server, llama_server, rope_cpu

sys.path.append(str(ROOT / "scripts"))
import page  # noqa: E402

MARKS = "<!-- load: from scripts/load --compare --write -->", "<!-- end of load -->"
SERVERS = {"rope-cpu": rope_cpu, "llama-server": llama_server}
SLOTS = 4


def run(arguments):
    rounds = {name: [] for name in SERVERS}
    for turn in range(arguments.rounds):
        # Each is the first one in turn.
        for name in list(SERVERS)[:: -1 if turn % 2 else 1]:
            rounds[name].append(measure(SERVERS[name], arguments))
            print(f"load: {name}: " + ", ".join(f"{row} {value:.3g}" for row, value in rounds[name][-1].items()), flush=True)
    text = table(rounds, arguments)
    print(text)
    if arguments.write:
        page.replace(ROOT / "docs/performance.md", *MARKS, text)


def measure(command, arguments):
    """The rows of a round, for a server of its own."""
    with Server(command(SLOTS, workload.context(arguments.long))) as server:
        server.wait()
        # Buffers are allocated, pages of the model are read.
        client.chat(server.base, workload.body(workload.SHORT, workload.SHORT_ANSWER, 0))
        result = load.run(server, arguments.seconds, arguments.clients, arguments.long, with_hostile=False)
        released = release_times(server, arguments.long, 3)
        peak = server.memory("VmHWM")
    if result.failures:
        raise SystemExit("\n".join(result.failures[:10]))
    short, long = (result.answers[kind] for kind in ("short", "long"))
    between = [gap for answer in result.whole for gap in answer.between]
    firsts = [answer.first for answer in short]
    return {
        "requests/s": len(result.whole) / result.seconds,
        "tokens of answers/s": result.tokens() / result.seconds,
        "first token of a short prompt, median (ms)": 1e3 * statistics.median(firsts),
        "first token of a short prompt, 95 % (ms)": 1e3 * quantile(firsts, 0.95),
        "first token of a long prompt, median (ms)": 1e3 * statistics.median([answer.first for answer in long] or [0]),
        "between two tokens, median (ms)": 1e3 * statistics.median(between),
        "between two tokens, 99 % (ms)": 1e3 * quantile(between, 0.99),
        "slot free after its client left, median (ms)": 1e3 * statistics.median(released),
        "memory, most (MiB)": peak,
    }


def quantile(values, part):
    values = sorted(values)
    return values[min(int(part * len(values)), len(values) - 1)]


def table(rounds, arguments):
    ours, theirs = ({row: statistics.median(r[row] for r in of) for row in of[0]} for of in rounds.values())
    lines = ["| | rope-cpu | llama-server | ratio |", "|---|--:|--:|--:|"]
    for row in ours:
        better = ours[row] / theirs[row] if row.endswith("/s") else theirs[row] / ours[row]
        lines.append(f"| {row} | {number(ours[row])} | {number(theirs[row])} | {better:.2f} |")
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    lines += [
        "",
        f"{cpu[1] if cpu else 'A processor'}, {os.cpu_count()} threads; {datetime.date.today()}. {arguments.clients} clients, "
        f"{SLOTS} slots, long prompts of {arguments.long:,} tokens; medians of {arguments.rounds} rounds of {arguments.seconds} s, in turns.",
    ]
    return "\n".join(lines)


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
