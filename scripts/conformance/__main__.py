"""Runs llama.cpp's tests of its server: see scripts/server-conformance."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "scripts/conformance"
DATA = ROOT / "tests/data/server-conformance"
WORK = ROOT / "target/conformance"
# A copy, as the tests write files beside their own.
SOURCE = WORK / "llama.cpp"
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
# What the tests of the router have in the cache, and what they download. All are MODEL.
ROUTER_CACHE = {
    "ggml-org/tinygemma3-GGUF": "tinygemma3-Q8_0.gguf",
    "ggml-org/test-model-stories260K": "stories260K-F32.gguf",
    "ggml-org/test-model-stories260K-infill": "stories260K-infill-F32.gguf",
}
ROUTER_HUB = {"ggml-org/test-model-router-download": "test-model-F16.gguf"}


def left_out():
    """The identifiers of tests, or of files of tests, that left-out.txt gives reasons for."""
    lines = (DATA / "left-out.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def expected():
    """The identifiers of the tests that llama-server passes, without those that are left out.

    The baseline has no test of the router: with llama-server, these need a network.
    """
    lines = (DATA / "llama-server.txt").read_text().splitlines()
    passed = [line.split("\t")[1] for line in lines if line.startswith("passed")]
    passed += [line for line in (DATA / "router.txt").read_text().splitlines() if not line.startswith("#")]
    out = tuple(left_out())
    return [test for test in passed if not test.startswith(out)]


def fetch():
    command = [ROOT / "scripts/fetch-llama-cpp", "tools/server/tests/*", "models/templates/*"]
    kept = subprocess.check_output(command, text=True).strip()
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(kept, SOURCE)
    # Tests write presets there.
    (SOURCE / "tools/server/tests/tmp").mkdir()


def build():
    """llama-server, built from the source that the tests are of."""
    server = subprocess.run([ROOT / "scripts/llama-server"], check=True, stdout=subprocess.PIPE, text=True)
    return server.stdout.strip()


def program():
    return subprocess.check_output([ROOT / "scripts/program"], text=True).strip()


def write_router_models():
    """Writes the cache and the hub's folder for the tests of the router."""
    cache, hub = WORK / "cache", WORK / "hub"
    for folder in (cache, hub):
        shutil.rmtree(folder, ignore_errors=True)
    for repo, name in ROUTER_CACHE.items():
        folder = cache / f"models--{repo.replace('/', '--')}"
        blob, link = folder / "blobs/0", folder / "snapshots/1" / name
        blob.parent.mkdir(parents=True)
        link.parent.mkdir(parents=True)
        try:
            os.link(MODEL.resolve(), blob)
        except OSError:
            shutil.copy(MODEL, blob)
        link.symlink_to("../../blobs/0")
    for repo, name in ROUTER_HUB.items():
        (hub / repo).mkdir(parents=True)
        (hub / repo / name).symlink_to(MODEL)
    return cache, hub


def run(server, arguments, quiet):
    """The outcome of each test and its reason, by the identifier of the test."""
    cache, folder = write_router_models()
    with subprocess.Popen([ROOT / "scripts/local-hub", folder], stdout=subprocess.PIPE, text=True) as hub:
        try:
            return run_with(server, arguments, quiet, {"LLAMA_CACHE": str(cache), "HF_ENDPOINT": hub.stdout.readline().strip()})
        finally:
            hub.kill()


def run_with(server, arguments, quiet, variables):
    outcomes = WORK / "outcomes"
    outcomes.write_text("")
    environment = {
        **os.environ,
        **variables,
        "PYTHONPATH": str(HERE),
        "LLAMA_SERVER_BIN_PATH": str(HERE / "server"),
        "CONFORMANCE_SERVER": server,
        "CONFORMANCE_MODEL": str(MODEL),
        "CONFORMANCE_OUTCOMES": str(outcomes),
    }
    # Tests that are slow need models of many gigabytes.
    options = ["-p", "outcomes", "-p", "no:cacheprovider", "-m", "not slow", "--timeout", "120", "--tb", "short"]
    pytest = [sys.executable, "-m", "pytest", *options, *(["-q"] if quiet else ["-v"]), *arguments]
    done = subprocess.run(pytest, cwd=SOURCE / "tools/server/tests", env=environment)
    # 1: tests failed. Anything else but 0 is a failure of the run itself.
    if done.returncode not in (0, 1):
        sys.exit(f"server-conformance: pytest ended with {done.returncode}")
    lines = [json.loads(line) for line in outcomes.read_text().splitlines()]
    return {test: (outcome, reason) for test, outcome, reason in lines}


def write_baseline(server):
    out = [option for test in left_out() for option in ("--deselect", test)]
    lines = []
    for test, (outcome, reason) in run(server, ["unit", *out], quiet=False).items():
        lines.append("\t".join([outcome, test] + ([reason[:120].strip()] if outcome == "failed" else [])))
    heading = "# Written by scripts/server-conformance --baseline: what llama-server did.\n"
    (DATA / "llama-server.txt").write_text(heading + "\n".join(lines) + "\n")


parser = argparse.ArgumentParser(prog="scripts/server-conformance")
parser.add_argument("--baseline", action="store_true", help="write what llama-server does; it is built unless --server is given")
parser.add_argument("--server", help="the command that starts the server [rope-cpu serve]")
parser.add_argument("test", nargs="*", help="only these, with the output of pytest (unit/test_basic.py, or an identifier)")
arguments = parser.parse_args()
server = arguments.server or (build() if arguments.baseline else f"{program()} serve")
fetch()
if arguments.baseline:
    write_baseline(server)
elif arguments.test:
    run(server, arguments.test, quiet=False)
else:
    tests = expected()
    outcomes = run(server, tests, quiet=True)
    failed = [test for test in tests if outcomes.get(test, ("missing",))[0] != "passed"]
    print("".join(f"failed: {test}\n" for test in failed), end="")
    print(f"server-conformance: {len(tests) - len(failed)} of {len(tests)} tests pass that llama-server passes")
    sys.exit(1 if failed else 0)
