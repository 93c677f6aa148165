"""The results as a markdown table, and its place in docs/performance.md."""
import sys
from statistics import median

from models import MODELS, ROOT
from rows import COSTS, limit

sys.path.append(str(ROOT / "scripts"))
import page  # noqa: E402

PAGE = ROOT / "docs/performance.md"
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
    """Replaces the table of this instruction set, or adds it after the others."""
    begin = f"<!-- speed with {isa}: from scripts/compare-llama-cpp --write -->"
    if begin not in PAGE.read_text():
        added = f"{END}\n\nWith {isa}:\n\n{begin}\n{END}"
        PAGE.write_text(added.join(PAGE.read_text().rsplit(END, 1)))
    page.replace(PAGE, begin, END, text)
