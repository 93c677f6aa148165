"""Plays twenty turns of a coding agent to rope-cpu and to llama-server, and prints the time to the first token of each.

usage: scripts/compare-agents [--models NAME,...] [--write]     (which makes what this needs)

trace.json has the requests: rules and tools of 8,000 tokens, results of tools, thoughts that are dropped when the user
speaks, old results that are cleared, two questions on the side, and a restart of the server before the eleventh turn.
The answers of the models are not sent back; the trace has its own. Each server runs with its usual settings, alone.
"""
import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts" / folder) for folder in ("load", "compare", "")]

import client  # noqa: E402
import page  # noqa: E402
from engines import machine  # noqa: E402
from models import MODELS  # noqa: E402
from replay import body, requests  # noqa: E402
from server import Server, llama_server_program, program  # noqa: E402

RECORD = ROOT / "docs/results/agents.jsonl"
MARKS = "<!-- agents: from scripts/compare-agents --write -->", "<!-- end of agents -->"
# The file of the hybrid model has no chat template, and a tokenizer that makes twice as many tokens.
TEMPLATE = ROOT / "crates/chat/tests/data/tools/hermes.jinja"
OPTIONS = {"coder": ["-c", "32768"], "hybrid": ["-c", "65536", "--chat-template-file", TEMPLATE]}


def rope_cpu(folder):
    return [program(), "serve", "--cache-disk", folder]


def llama_server(folder):
    return [llama_server_program()]


SERVERS = {"rope-cpu": rope_cpu, "llama-server": llama_server}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(OPTIONS), help=f"which of {', '.join(OPTIONS)} [all]")
    parser.add_argument("--servers", default=",".join(SERVERS), help=f"which of {', '.join(SERVERS)} [all]")
    parser.add_argument("--write", action="store_true", help="go on from docs/results/agents.jsonl, and write the table of docs/performance.md")
    arguments = parser.parse_args()
    chosen = {"model": arguments.models.split(","), "server": arguments.servers.split(",")}
    for kind, known in (("model", OPTIONS), ("server", SERVERS)):
        if unknown := [name for name in chosen[kind] if name not in known]:
            parser.error(f"there is no {kind} {unknown[0]}: choose from {', '.join(known)}")
    if arguments.write and (len(chosen["model"]), len(chosen["server"])) != (len(OPTIONS), len(SERVERS)):
        parser.error("--write needs all models and servers")
    pairs = [(model, server) for model in chosen["model"] for server in chosen["server"]]
    if not arguments.write:
        return print(table([row for pair in pairs for row in play(*pair)]))
    with RECORD.open("a") as record:
        for model, server in pairs:
            if not any((row["model"], row["server"]) == (model, server) for row in recorded()):
                record.write("".join(json.dumps(row) + "\n" for row in play(model, server)))
                record.flush()
    page.replace(ROOT / "docs/performance.md", *MARKS, table(recorded()))


def recorded():
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def play(model, name):
    """The rows of one server: the seconds to the first token, and the tokens read, of each request."""
    rows, server = [], None
    with tempfile.TemporaryDirectory() as folder:
        command = [*SERVERS[name](folder), *OPTIONS[model]]
        try:
            for request in requests():
                if server is None or request.after_restart:
                    if server:
                        server.terminate()
                    server = Server(command, model=MODELS[model].path()).wait()
                answer = client.chat(server.base, body(request), timeout=1200)
                if answer.error or answer.status != 200 or not answer.parts:
                    sys.exit(f"compare-agents: {name}: {answer.error or answer.status}: {answer.text[:500]}\n{server.output()}")
                read, cached = answer.timings["prompt_n"], answer.timings["cache_n"]
                rows.append({"model": model, "server": name, "turn": request.turn, "restarted": request.after_restart,
                             "prompt": read + cached, "read": read, "first": round(answer.first, 3)})
                print(f"{model} {name} turn {request.turn}: {read} of {read + cached} tokens read, {answer.first:.2f} s", flush=True)
        finally:
            if server:
                server.__exit__()
    return rows


def table(rows):
    lines = ["| model | server | tokens read | first token, all turns | median turn | after the restart |", "|---|---|--:|--:|--:|--:|"]
    for model, server in dict.fromkeys((row["model"], row["server"]) for row in rows):
        of = [row for row in rows if (row["model"], row["server"]) == (model, server)]
        turns = sorted(row["first"] for row in of if row["turn"])
        again = next(row["first"] for row in of if row["restarted"])
        lines.append(f"| {MODELS[model].name} | {server} | {sum(row['read'] for row in of):,} | {sum(row['first'] for row in of):.0f} s "
                     f"| {turns[len(turns) // 2]:.1f} s | {again:.1f} s |")
    cpu = machine()["topology"]["model"]
    longest = max(row["prompt"] for row in rows)
    lines += ["", f"{cpu}, {os.cpu_count()} threads; {datetime.date.today()}. The longest prompt has {longest:,} tokens."]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
