"""What the tests share: models of scripts/fetch-models, and answers of llama-cpp-python."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import rope_cpu

ROOT = Path(__file__).parents[2]
SMOLLM2 = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def pytest_configure(config):
    if not SMOLLM2.exists():
        raise pytest.UsageError(f"{SMOLLM2} is missing: run scripts/fetch-models")


@pytest.fixture(scope="session")
def path():
    return SMOLLM2


@pytest.fixture(scope="session")
def model():
    with rope_cpu.Model.open(SMOLLM2, ctx=2048, threads=1) as model:
        yield model


@pytest.fixture(scope="session")
def llama_cpp():
    """Answers of llama_cpp.Llama: see reference.py."""
    python = os.environ.get("ROPE_CPU_LLAMA_CPP_PYTHON")
    if not python:
        if os.environ.get("CI"):
            pytest.fail("ROPE_CPU_LLAMA_CPP_PYTHON is not set: run scripts/python")
        pytest.skip("ROPE_CPU_LLAMA_CPP_PYTHON is not set: run scripts/python")
    script = Path(__file__).with_name("reference.py")
    done = subprocess.run(
        [python, script, SMOLLM2], capture_output=True, check=True, text=True, timeout=300
    )
    return json.loads(done.stdout)
