"""At which commit each section last passed, and how long it took: scripts/checks/passed.toml."""
import tomllib

from table import ROOT, git

FILE = ROOT / "scripts/checks/passed.toml"
HEAD = """# Written by scripts/check --extended: the commit at which each section last passed, and its seconds then.
"""


def read():
    return tomllib.loads(FILE.read_text()) if FILE.exists() else {}


def write(name, seconds):
    uncommitted = [line for line in git("status", "--porcelain") if not line.endswith(str(FILE.relative_to(ROOT)))]
    if uncommitted:
        return print(f"check: {name} is not recorded: there are uncommitted changes")
    [commit] = git("rev-parse", "HEAD")
    rows = read() | {name: {"commit": commit, "seconds": seconds}}
    lines = (f'{key} = {{ commit = "{row["commit"]}", seconds = {row["seconds"]} }}' for key, row in rows.items())
    FILE.write_text(HEAD + "\n".join(lines) + "\n")
