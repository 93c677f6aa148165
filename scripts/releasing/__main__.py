"""Fills in the files of packaging/ for a release: version, addresses, checksums. See scripts/release.

A template contains @VERSION@, @REPOSITORY@, @URL@ (of the folder with the release's files), and, of a target's
archive, @ARCHIVE TARGET@ (its name), @FOLDER TARGET@ (the folder in it) and @SHA256 TARGET@. A template that names a
target without an archive is left out, with a line on standard error.

usage: python3 scripts/releasing FILES VERSION REPOSITORY
"""
import hashlib
import pathlib
import re
import sys

PACKAGING = pathlib.Path(__file__).resolve().parent.parent.parent / "packaging"
SCRIPTS = ["install.sh", "install.ps1"]
TEMPLATES = [*SCRIPTS, "rope-cpu.rb", *sorted(f"winget/{path.name}" for path in PACKAGING.glob("winget/*.yaml"))]


def main(files, version, repository):
    files = pathlib.Path(files)

    def value(match):
        word, target = match.groups()
        folder = f"rope-cpu-{version}-{target}"
        archive = folder + (".zip" if "windows" in (target or "") else ".tar.gz")
        match word:
            case "VERSION":
                return version
            case "REPOSITORY":
                return repository
            case "URL":
                return f"{repository}/releases/download/v{version}"
            case "FOLDER":
                return folder
            case "ARCHIVE":
                return archive
            case "SHA256":
                return hashlib.sha256((files / archive).read_bytes()).hexdigest()
        raise ValueError(f"there is no @{word}@")

    for name in TEMPLATES:
        out = files / pathlib.Path(name).name
        try:
            text = re.sub(r"@([A-Z0-9]+)(?: ([\w-]+))?@", value, (PACKAGING / name).read_text())
        except FileNotFoundError as missing:
            out.unlink(missing_ok=True)
            print(f"release: no {out.name}, since {pathlib.Path(missing.filename).name} is missing", file=sys.stderr)
            continue
        out.write_text(text)
        if name == "install.sh":
            out.chmod(0o755)


if __name__ == "__main__":
    main(*sys.argv[1:])
