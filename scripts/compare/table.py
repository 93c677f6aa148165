"""The results as a markdown table, and its place in docs/performance.md."""
import re
from statistics import median

from models import MODELS, ROOT
from rows import COSTS, limit

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
            ours = engines["rope-cpu"][test]
            cells = [name, label, spread(ours), share(engines["rope-cpu"].get(limit(test)))]
            for peer in peers:
                theirs = engines.get(peer, {}).get(test)
                cells += [spread(theirs), ratio(test, median(ours), median(theirs))] if theirs else ["", ""]
            out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out + [""] + notes)


def ratio(test, ours, theirs):
    """How many times better."""
    return f"{theirs / ours if test in COSTS else ours / theirs:.2f}"


def share(samples):
    return f"{median(samples):.0%}".replace("%", " %") if samples else ""


def spread(samples):
    """Their median, and half of what they range over."""
    middle, half = median(samples), (max(samples) - min(samples)) / 2
    digits = 2 if middle < 10 else 1
    return f"{middle:.{digits}f} ± {half:.{digits}f}" if len(samples) > 1 else f"{middle:.{digits}f}"


def write(text, isa):
    """In place of the table of a machine with this instruction set, or behind the others."""
    path = ROOT / "docs/performance.md"
    begin = f"<!-- speed with {isa}: from scripts/compare-llama-cpp --write -->"
    before = path.read_text()
    block = re.compile(re.escape(begin) + ".*?" + re.escape(END), re.DOTALL)
    table = f"{begin}\n{text}\n{END}"
    if block.search(before):
        path.write_text(block.sub(lambda _: table, before, count=1))
    else:
        path.write_text(f"{END}\n\nWith {isa}:\n\n{table}".join(before.rsplit(END, 1)))
