"""Runs sections one after the other, and prints a summary."""
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import passed
from table import ROOT

# Without a shell's own search, Windows would start the bash of its subsystem for Linux.
BASH = shutil.which("bash") or "bash"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
FOLDER = TARGET / "check"


class Runner:
    def __init__(self, keep_going=False, record=False):
        self.keep_going, self.record = keep_going, record
        self.began, self.rows, self.failed, self.notes = time.monotonic(), [], [], []
        self.tests = [0, 0, 0]
        self.beside = {}
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.skipped = FOLDER / "skipped"
        self.skipped.write_text("")
        machine()

    def run(self, sections):
        for section in sections:
            if self.failed and not self.keep_going:
                break
            if section.beside:
                log = open(FOLDER / f"{section.name}.log", "w")
                self.beside[section.name] = (section, self.start(section, log), time.monotonic())
                continue
            print(f"=== {section.name}", flush=True)
            began = time.monotonic()
            process = self.start(section, subprocess.PIPE)
            for line in process.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                self.count(line)
            self.ended(section, process.wait(), began)

    def start(self, section, output):
        environment = os.environ | {"CHECK_SKIPPED": str(self.skipped)}
        if section.program:
            environment["ROPE_CPU"] = str(TARGET / "checked/rope-cpu")
        return subprocess.Popen([BASH, "-euo", "pipefail", "-c", section.run], cwd=ROOT, env=environment, text=True,
                                errors="replace", stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                start_new_session=os.name == "posix" and section.beside)

    def count(self, line):
        found = re.match(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", line)
        if found:
            self.tests = [total + int(one) for total, one in zip(self.tests, found.groups())]

    def ended(self, section, status, began):
        seconds = round(time.monotonic() - began)
        self.rows.append((section.name, seconds, "failed" if status else "passed"))
        print(f"=== {section.name} {self.rows[-1][2]} in {seconds} s", flush=True)
        if status:
            self.failed.append(section.name)
        elif self.record:
            passed.write(section.name, seconds)

    def wait(self):
        """Waits for the sections that run beside the others; a failure ends them."""
        for section, process, began in self.beside.values():
            if self.failed and not self.keep_going:
                os.killpg(process.pid, 15)
            status = process.wait()
            text = (FOLDER / f"{section.name}.log").read_text(errors="replace")
            print(f"=== {section.name}, which ran beside the others\n{text}", end="")
            for line in text.splitlines():
                self.count(line)
            self.ended(section, status, began)
        self.beside = {}

    def finish(self):
        self.wait()
        print("\n" + "\n".join(f"{name:<18} {seconds:>5} s  {result}" for name, seconds, result in self.rows))
        skipped = sorted(set(self.skipped.read_text().splitlines()))
        print("\n".join([*self.notes, f"{len(skipped)} skipped", *(f"  {line}" for line in skipped)]))
        succeeded, failures, ignored = self.tests
        if succeeded or failures:
            result = "FAILED" if failures else "ok"
            print(f"test result: {result}. {succeeded} passed; {failures} failed; {ignored} ignored")
        seconds = round(time.monotonic() - self.began)
        if self.failed:
            sys.exit(f"check: {', '.join(self.failed)} failed, after {seconds} s")
        if skipped and os.environ.get("CI") == "true":
            sys.exit(f"check: with CI=true nothing may be skipped; {len(skipped)} checks were")
        print(f"check: all passed in {seconds} s")


def machine():
    print(subprocess.run(["rustc", "--version"], stdout=subprocess.PIPE, text=True).stdout.strip())
    lacking = subprocess.run([BASH, "scripts/lacking-isas"], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.split()
    free = shutil.disk_usage(ROOT).free / 2**30
    print(f"{os.cpu_count()} processors, without the ISAs: {' '.join(lacking)}; {free:.0f} GiB free on this disk", flush=True)
