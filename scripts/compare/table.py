"""The results as a markdown table, and its place in README.md."""
import re
from statistics import median

from models import MODELS, ROOT
from rows import COSTS

END = "<!-- end of speed -->"


def markdown(results, peers, notes):
    """`results`: (measurement, {engine: {test: samples}}) of each run; `notes`: sentences for below."""
    header = ["Model", "What", "rope-cpu", "of limit"]
    for peer in peers:
        header += [peer, "ratio"]
    out = ["| " + " | ".join(header) + " |", "|---|---|" + "--:|" * (len(header) - 2)]
    for m, engines in results:
        name = MODELS[m.model].name + (f", {m.what}" if m.what else "")
        for test, label in m.rows():
            ours = median(engines["rope-cpu"][test])
            share = engines["rope-cpu"].get((test, "share"))
            cells = [name, label, number(ours), f"{100 * median(share):.0f} %" if share else ""]
            for peer in peers:
                samples = engines.get(peer, {}).get(test)
                cells += [number(median(samples)), ratio(test, ours, median(samples))] if samples else ["", ""]
            out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out + [""] + notes)


def ratio(test, ours, theirs):
    """How many times better."""
    return f"{theirs / ours if test in COSTS else ours / theirs:.2f}"


def number(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def write_readme(text, isa):
    """In place of the table of a machine with this instruction set."""
    path = ROOT / "README.md"
    begin = f"<!-- speed with {isa}: from scripts/compare-llama-cpp --readme -->"
    before = path.read_text()
    block = re.compile(re.escape(begin) + ".*?" + re.escape(END), re.DOTALL)
    if len(block.findall(before)) != 1:
        raise SystemExit(f"compare: README.md needs these two lines, once: {begin} and {END}")
    path.write_text(block.sub(lambda _: f"{begin}\n{text}\n{END}", before))
