"""The table of sections, and what git knows of their files."""
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SECTIONS = ROOT / "scripts/checks/sections.toml"


@dataclass
class Section:
    name: str
    tier: str
    run: str = ""
    files: list = field(default_factory=list)
    needs: list = field(default_factory=list)
    program: bool = False
    beside: bool = False


def read():
    """{name: section}, without the files that no section runs."""
    rows = tomllib.loads(SECTIONS.read_text())
    return {name: Section(name, **row) for name, row in rows.items() if row["tier"] != "none"}


def with_needs(sections, names):
    """Sections in the order of the table, with those that they need."""
    wanted = set()

    def add(name):
        if name not in wanted:
            wanted.add(name)
            for needed in sections[name].needs:
                add(needed)

    for name in names:
        add(name)
    return [section for name, section in sections.items() if name in wanted]


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def check(sections):
    """Fails if a tracked file is in no row, or a row names files that are not there."""
    rows = tomllib.loads(SECTIONS.read_text())
    known = set(rows)
    for name, row in rows.items():
        for pattern in row.get("files", []):
            if not git("ls-files", "--", pattern):
                sys.exit(f"check: {SECTIONS.name}: {name} names {pattern!r}, which no tracked file matches")
        for needed in row.get("needs", []):
            if needed not in known:
                sys.exit(f"check: {SECTIONS.name}: {name} needs {needed!r}, which is no section")
    patterns = [pattern for row in rows.values() for pattern in row.get("files", [])]
    missing = set(git("ls-files")) - set(git("ls-files", "--", *patterns))
    if missing:
        sys.exit("check: these files are in no row of scripts/checks/sections.toml: " + ", ".join(sorted(missing)))


def changed(since, patterns):
    """Files that have changed since a commit, uncommitted ones too; all of them if git does not know the commit."""
    known = subprocess.run(["git", "cat-file", "-e", f"{since}^{{commit}}"], cwd=ROOT, stderr=subprocess.DEVNULL)
    if known.returncode:
        return git("ls-files", "--", *patterns)
    untracked = git("ls-files", "--others", "--exclude-standard", "--", *patterns)
    return git("diff", "--name-only", since, "--", *patterns) + untracked
