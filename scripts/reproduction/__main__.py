#!/usr/bin/env python3
"""Compares docs/reproduction.md with what papers.toml, docs/results and rope-cpu give, or writes it.

usage: python3 scripts/reproduction [--write]      (after cargo build --release; ROPE_CPU=FILE: this program)
"""

import difflib
import math
import re
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from fractions import Fraction
from pathlib import Path
from statistics import mean

import computed
import prediction
import ranks
import records
from program import PROGRAM, ROOT, model

PAGE = ROOT / "docs/reproduction.md"
FIGURES = ROOT / "docs/reproduction"
VERDICTS = {
    "reproduced": "the same numbers or the same prompt, computed here",
    "consistent, not tested": "printed scores that fit what is computed here, too few for a test",
    "contradicted": "computed here, and not what the paper prints",
    "other model": "the same quantity, of another model and text, mostly SmolLM2-135M in one pass",
    "other measurement": "a related quantity of another model; the row says what differs",
    "not measured": "possible here, without a result so far",
    "not possible": "needs models, data or parts that are not here",
    "no data": "a sketch",
}
INTRO = """\
You can check here which tables and figures of the papers rope-cpu reproduces, with the command for each and its result. \
`scripts/reproduction` makes this page from the papers' printed numbers (`papers.toml` in its folder), from \
[the results](results.md), and by running rope-cpu:

    python3 scripts/reproduction --write

The papers' models are fine-tuned models of 7B and more, in most tables. Those rows cannot be repeated on a laptop. \
What follows from equations is computed for Llama 2 itself. Perplexities of other models show only whether methods come \
in the same order. `perplexity-32k`, `sliding-16k` and `passkey` were measured before prompts attended to far tokens in 8 \
bits, the others after ([which](results.md)). `MODEL`, `TEXT` and `FILE` are yours, and commands with `llama-2-7b.gguf` read only its RoPE \
metadata."""
PREDICTION = """\
DPRoPE's figure 5 has one answer, from one method with six settings. `scripts/reproduction` computes \
another from [the results](results.md): all static methods, without fine-tuning, and Spearman's rank correlation of \
disturbance and perplexity beyond the trained length. A positive correlation means that more disturbance is worse."""


def wrapped(text):
    """Paragraphs of at most 100 columns; indented lines and tables stay."""
    def one(paragraph):
        if paragraph.startswith(("    ", "|", "!", "- ", "#")):
            return paragraph
        return textwrap.fill(" ".join(paragraph.split()), 100, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(map(one, text.strip("\n").split("\n\n")))


def rows(text):
    """Label and numbers of each line: `label | numbers` or `label | numbers | numbers`."""
    for line in text.strip().splitlines():
        label, *parts = (part.strip() for part in line.split("|"))
        yield label, *(part.split() for part in parts)


def unit(printed):
    """One in the last printed place."""
    return Fraction(1, 10 ** len(printed.partition(".")[2]))


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def listed(found, methods, shown):
    """The methods that were measured, with their labels."""
    return ", ".join(f"{label} {shown(found[method])}" for method, label in methods.items() if method in found)


def measured(item):
    """What docs/results has for an item, and what it lacks."""
    has, lacks = [], []
    for wanted in item.get("recorded", []):
        methods = wanted["methods"]
        found = records.perplexities(wanted["part"], wanted["from"], wanted["to"])
        name = wanted.get("name", "")
        if shown := listed(found, methods, number):
            has.append(f"perplexity from {wanted['from']:,} to {wanted['to'] - 1:,} {name}".rstrip() + f": {shown}")
        values = {label: found[method] for method, label in methods.items() if method in found}
        order = [label for label in item.get("order", []) if label in values]
        if len(order) > 1:
            here = sorted(order, key=values.get)
            has.append("the same order" if here == order else "another order: " + ", ".join(here))
        if missing := [label for label in methods.values() if label not in values]:
            lacks.append(f"{name or ', '.join(missing)}: not measured yet")
    if wanted := item.get("found"):
        found = records.passkeys(wanted["part"], wanted["length"])
        has.append(listed(found, wanted["methods"], lambda each: f"{sum(each)} of {len(each)}"))
    if wanted := item.get("tasks"):
        for length, found in records.tasks(wanted["part"]).items():
            if len(found) == wanted["count"]:
                has.append(f"{wanted['name']}, {length:,} tokens: {100 * mean(found.values()):.1f} %")
    if wanted := item.get("attention"):
        found = records.attention(wanted["part"], wanted["trained"])
        if shown := listed(found, wanted["methods"], lambda each: f"{each[0]:.2f}, {each[1]:.2f} and {100 * each[2]:.1f} %"):
            has.append(f"mean score at distances below {wanted['trained']:,}, beyond, and share of attention beyond: {shown}")
        else:
            lacks.append("not measured yet")
    if methods := item.get("costs"):
        for what, name in (("n_prompt", "prompt processing"), ("n_gen", "generation")):
            has.append(f"{name}: " + listed(records.times("costs", what), methods, "{:.2f}".format))
    return has, lacks


def outcome(item, tables):
    """Command, result, verdict and detail of an item."""
    if name := item.get("computed"):
        found = getattr(computed, name)(tables)
        return found.command, found.result, found.verdict, found.detail
    has, lacks = measured(item)
    verdict = item["verdict"] if has or not lacks else "not measured"
    result = "; ".join(filter(None, [item.get("result"), *has, *lacks, item.get("note")]))
    return item.get("command", ""), result, verdict, ""


def averages(table):
    """How many printed averages are possible, and the ones that are not."""
    agree, wrong = 0, []
    for label, numbers in rows(table["rows"]):
        for average in table["averages"]:
            values = [Fraction(numbers[i]) for i in average["of"]]
            weights = average.get("weights", [1] * len(values))
            mean = sum(w * v for w, v in zip(weights, values)) / sum(weights)
            printed = numbers[average["at"]]
            # Half a unit for the printed average, and at most half a unit for the values in it.
            allowed = unit(printed) / 2 + max(unit(numbers[i]) for i in average["of"]) / 2
            if abs(mean - Fraction(printed)) <= allowed:
                agree += 1
            else:
                wrong.append(f"{table['id']}, {label}: prints {printed}, where its columns average {float(mean):.2f}.")
    total = agree + len(wrong)
    return f"{table['id']}: {agree} of {total} printed averages agree with their columns.", wrong


def roundings(table):
    """Printed numbers that are not the authors' data, rounded."""
    count, rounded, wrong = 0, 0, []
    for label, printed, data in rows(table["rows"]):
        cut = [f"{a} for {b}" for a, b in zip(printed, data) if abs(Fraction(a) - Fraction(b)) > unit(a) / 2]
        count += len(printed)
        rounded += len(printed) - len(cut)
        if cut:
            wrong.append(f"{table['id']}, {label}: prints " + ", ".join(cut) + f" in `{table['file']}`.")
    return f"{table['id']}: {rounded} of {count} numbers are the authors' data, rounded.", wrong


def claim(one):
    """A sentence about a number in the text, and whether it can be right."""
    says = one["says"][0].upper() + one["says"][1:]
    if "compute" not in one:
        return f"{says}.", False
    value = eval(one["compute"], {"__builtins__": {}, "log": math.log})  # arithmetic of papers.toml
    agrees = abs(value - float(one["printed"])) <= float(unit(one["printed"])) / 2 + 1e-9
    shown = one["compute"].replace("**", "^").replace("*", "×")
    digits = len(one["printed"].partition(".")[2]) + (not agrees)
    return f"{says}: {shown} = {value:.{digits}f}" + ("." if agrees else f", not {one['printed']}."), agrees


def bullets(lines):
    return "\n".join(textwrap.fill(line, 100, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
                                   break_on_hyphens=False) for line in lines)


def arithmetic(paper):
    """The section about printed numbers."""
    right, wrong = [], []
    for table in paper.get("tables", []):
        summary, not_possible = averages(table)
        right.append(summary)
        wrong += not_possible
    for table in paper.get("roundings", []):
        summary, not_rounded = roundings(table)
        right.append(summary)
        wrong += not_rounded
    for one in paper.get("claims", []):
        sentence, agrees = claim(one)
        (right if agrees else wrong).append(sentence)
    text = []
    if wrong:
        text += ["### Numbers that do not agree", bullets(wrong)]
    if right:
        text += ["### Numbers that agree", bullets(right)]
    return text


def printed(paper):
    """{table: {label: numbers}}."""
    return {table["id"]: {label: [float(value) for value in numbers] for label, numbers in rows(table["rows"])}
            for table in paper.get("tables", [])}


def section(paper, verdicts):
    tables = printed(paper)
    text = [f"## {paper['name']}", wrapped(f"[{paper['title']}]({paper['url']}). {paper['about']}")]
    lines = ["| | what it shows | command | here | verdict |", "|---|---|---|---|---|"]
    details = []
    for item in paper["items"]:
        command, result, verdict, detail = outcome(item, tables)
        verdicts[verdict] += 1
        shown = f"`{command}`" if command else ""
        lines.append(f"| {item['id']} | {item['shows']} | {shown} | {result} | {verdict} |")
        if detail:
            details += [f"### {item['id']}: {item['shows']}", wrapped(detail)]
    return [*text, "\n".join(lines), *details, *arithmetic(paper)]


def figures():
    """The drawings, by name. Each is what the command beside it draws."""
    made = {}
    folder = model().parent

    def draw(name, *arguments):
        path = folder / name
        subprocess.run([PROGRAM, "rope", *arguments, "--plot", path], check=True, capture_output=True)
        made[name] = path.read_text()

    for pair in ("6", "22"):
        draw(f"pair-{pair}.svg", "compare", "-m", model(), "-c", "8192", "--methods", "none,linear", "--pair", pair,
             "--intervals", "360")
    for length in ("8192", "16384"):
        draw(f"disturbance-{length}.svg", "disturbance", "-m", model(), "-c", length,
             "--methods", "none,linear,yarn,dprope")
    return made


def page():
    """The page and its drawings."""
    verdicts = Counter()
    papers = tomllib.loads((Path(__file__).parent / "papers.toml").read_text())["papers"]
    sections = [part for paper in papers for part in section(paper, verdicts)]
    summary = ["| verdict | meaning | |", "|---|---|--:|"]
    summary += [f"| {verdict} | {meaning} | {verdicts[verdict]} |" for verdict, meaning in VERDICTS.items()]
    drawings = figures()
    [dprope] = [paper for paper in papers if paper["name"] == "DPRoPE"]
    implied = -ranks.spearman([computed.figure5(printed(dprope))])
    findings, predicted, scatter = prediction.section(implied)
    text = ["# Reproduction of the papers", wrapped(INTRO), "\n".join(summary), *sections,
            "## Does disturbance predict quality?", wrapped(PREDICTION), bullets(findings), wrapped(predicted)]
    if scatter:
        drawings["quality.svg"] = scatter
        text.append("![Perplexity by disturbance](reproduction/quality.svg)")
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(text)) + "\n", drawings


def main(arguments):
    if arguments not in ([], ["--write"]):
        sys.exit(__doc__)
    text, drawings = page()
    files = {PAGE: text, **{FIGURES / name: drawing for name, drawing in drawings.items()}}
    for path, new in files.items():
        old = path.read_text() if path.exists() else ""
        if arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(new)
        elif old != new:
            name = str(path.relative_to(ROOT))
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), name, f"{name}, new", lineterm="")
            print(*list(lines)[:40], sep="\n")
            sys.exit(f"reproduction: {name} is out of date; update it with python3 scripts/reproduction --write")


main(sys.argv[1:])
