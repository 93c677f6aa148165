"""Checks of the files in deploy/ that no schema covers: see scripts/deployment."""
import ast
import os
import pathlib
import re
import shlex
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
BINARY = subprocess.check_output([ROOT / "scripts/program"], text=True).strip()
MODEL = str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
DRAIN = 30


def check(condition, message):
    if not condition:
        sys.exit(f"deployment: {message}")


def parse(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def starts(name, arguments, environment):
    """Checks that `serve` takes the options, with another model."""
    arguments = [re.sub(r"^(--model=)?\S*model\.gguf$", lambda m: (m[1] or "") + MODEL, a) for a in arguments]
    environment = {**os.environ, **environment}
    done = subprocess.run([BINARY, "serve", *arguments, "--dry-run"], capture_output=True, text=True, env=environment)
    check(done.returncode == 0, f"{name}: rope-cpu serve {shlex.join(arguments)}: {done.stderr.strip()}")


def drain(arguments):
    """The seconds that answers may take after SIGTERM."""
    return int(next(iter(re.findall(r"--drain-timeout[= ](\d+)", " ".join(arguments))), DRAIN))


def container():
    """What the image is built of is there; returns the environment of its program."""
    text = (DEPLOY / "Dockerfile").read_text()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for path in line.split()[:-1]:
            check((ROOT / path).exists(), f"Dockerfile: there is no {path}")
            check(re.search(rf"^!{path.split('-')[0]}", ignored, re.MULTILINE), f"Dockerfile.dockerignore leaves out {path}")
    return dict(re.findall(r"^ENV (\w+)=(\S+)$", text, re.MULTILINE)) | {"ROPE_CPU_API_KEY": "a-key"}


def compose(environment):
    services = parse("compose.yaml")[0]["services"]
    for name, service in services.items():
        if name == "nginx":
            continue
        starts("compose.yaml", service["command"], environment)
        check(int(service["stop_grace_period"][:-1]) > drain(service["command"]), "compose.yaml: stop_grace_period is too short")
        check(f"{name}:8080" in (DEPLOY / "nginx.conf").read_text(), f"nginx.conf does not name {name}")


def kubernetes(environment):
    deployment = next(d for d in parse("kubernetes.yaml") if d["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    starts("kubernetes.yaml", arguments, environment)
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = pod["terminationGracePeriodSeconds"]
    check(grace > pause + drain(arguments), "kubernetes.yaml: terminationGracePeriodSeconds is too short")
    scaler = next(d for d in parse("kubernetes.yaml") if d["kind"] == "HorizontalPodAutoscaler")
    metric = scaler["spec"]["metrics"][0]["pods"]["metric"]["name"]
    rules = parse("prometheus-adapter.yaml")[0]["rules"]["custom"]
    check(metric in [rule["name"]["as"] for rule in rules], f"prometheus-adapter.yaml does not give {metric}")


def systemd():
    text = (DEPLOY / "rope-cpu.service").read_text()
    program, command, *arguments = shlex.split(re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1])
    check(command == "serve", "rope-cpu.service does not serve")
    known = {"${MODEL}": "model.gguf", "$OPTIONS": "--metrics", "%d/keys": __file__}
    starts("rope-cpu.service", [known.get(argument, argument) for argument in arguments], {})
    stop = int(re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[1])
    check(stop > drain(arguments), "rope-cpu.service: TimeoutStopSec is too short")


def ray():
    """The options of the replicas of Ray Serve are a list in its source."""
    tree = ast.parse((DEPLOY / "ray_serve.py").read_text())
    assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    options = next(node.value for node in assignments if getattr(node.targets[0], "id", None) == "options")
    options = [e.value if isinstance(e, ast.Constant) else "1" for e in options.elts]
    starts("ray_serve.py", ["-m", "model.gguf", *options], {})


environment = container()
compose(environment)
kubernetes(environment)
systemd()
ray()
for name in ("litellm.yaml", "prometheus.yaml"):
    parse(name)
print("deployment: the files of deploy/ are valid, and their options exist")
