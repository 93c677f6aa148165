"""Which sections a run has: the due ones of the second tier, and those of a change."""
import math
import tomllib
from dataclasses import replace

import passed
import table

# Seconds for the due sections of the second tier.
DUE_MAX = 20 * 60
QUICK = table.ROOT / "scripts/checks/quick.toml"
TEST = "cargo test --workspace --profile checked --locked"


def run_due(runner, sections):
    """Runs sections whose files have changed since they passed, the shortest first, while their last times fit. It is not
    known whether a section fits that has never passed."""
    before = passed.read()
    due = []
    for section in sections.values():
        row = before.get(section.name)
        if section.tier == "extended" and (row is None or table.changed(row["commit"], section.files)):
            due.append((row["seconds"] if row else math.inf, section))
    left, chosen, later = DUE_MAX, [], []
    for seconds, section in sorted(due, key=lambda pair: pair[0]):
        if seconds <= left:
            left -= seconds
            chosen.append(section)
        else:
            later.append(section.name)
    if later:
        runner.notes.append(f"due, not run: {', '.join(later)} (scripts/check --extended runs all)")
    print(f"due of the second tier: {', '.join(section.name for section in chosen) or 'none'}", flush=True)
    runner.run([replace(section, beside=False) for section in chosen])


def quick(sections):
    """What takes little time, and the tests of the rooms that a change touches: the uncommitted one, or the last commit."""
    files = table.changed("HEAD", ["."]) or table.changed("HEAD~1", ["."])
    targets = {}
    for row in tomllib.loads(QUICK.read_text())["rooms"]:
        if any(file.startswith(tuple(row["files"])) for file in files):
            targets.setdefault(row.get("target", "--tests"), []).extend(row.get("names", []))
    tests = [f"{TEST} {target} -- {' '.join(names)}" for target, names in targets.items()]
    tests = replace(sections["tests"], run="\n".join(tests) or "echo 'no tests for this change'")
    return [*(sections[name] for name in ("format", "unsafe-count", "prose", "lints")), tests]


def portable(sections):
    """The tests that run on every system. Tests of the server as a program and of terminals are for Unix."""
    kernels = " ".join(f"-p rope-cpu-{name}" for name in ("kernels", "json", "lab", "chat", "constraint"))
    one = "cargo test --profile checked --locked"
    tests = f"""
        {one} {kernels} -- $(scripts/lacking-isas | sed 's/^/--skip /')
        {one} -p rope-cpu --lib --bins --test program
        {one} -p rope-cpu --test library -- model::
    """
    models = replace(sections["downloads"], run="scripts/fetch-models --all")
    return [sections["format"], sections["lints"], models, replace(sections["tests"], run=tests)]
