"""Replaces the generated parts of pages."""
import sys


def replace(path, begin, end, text):
    """Puts `text` on lines of its own between two marks."""
    before, found, rest = path.read_text().partition(begin)
    if not found:
        sys.exit(f"{path} has no mark {begin}")
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{path} has no mark {end} after {begin}")
    path.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}")
